//! Tests the lists of the page: the subjects with the most refusals, and the slowest calls.

use serde_json::json;
use tidegate_core::{Answer, Call, Decision, Error, ErrorKind};
use tidegate_server::observe::activity::SECONDS;

use super::*;

fn top(watched: &Watched) -> Vec<Value> {
    watched.snapshot()["refused_subjects"]["top"].as_array().unwrap().clone()
}

#[tokio::test]
async fn the_subjects_refused_most_come_first_with_their_limits() {
    let watched = Watched::with_subjects();
    watched.ask("user", "seldom", 4).await;
    watched.ask("user", "often", 13).await;
    watched.ask("user", "never", 3).await;
    let mut charge = watched.charge("p: fixed-window 1/1d", b"x");
    charge.tenant = Bytes::from_static(b"acme");
    for _ in 0..6 {
        let call = CallRequest::new(Operation::Acquire, [charge.clone()]);
        let _ = watched.calls.decide(&call).await.unwrap();
    }
    // The subject `x` without a tenant differs from the subject `x` of the tenant `acme`.
    watched.acquire("p: fixed-window 1/1d", b"x", 3).await;
    let expected = [
        ("shop.user", "shop|user=often", Value::Null, 10),
        ("p: fixed-window 1/1d", "x", json!("acme"), 5),
        ("p: fixed-window 1/1d", "x", Value::Null, 2),
        ("shop.user", "shop|user=seldom", Value::Null, 1),
    ];
    let top = top(&watched);
    assert_eq!(top.len(), expected.len());
    for (it, (limit, subject, tenant, count)) in top.iter().zip(expected) {
        let (at_least, at_most) = (&it["at_least"], &it["at_most"]);
        assert_eq!((at_least, at_most), (&json!(count), &json!(count)), "{it}");
        assert_eq!(
            (&it["limit"], &it["subject"], &it["tenant"]),
            (&json!(limit), &json!(subject), &tenant)
        );
    }
    assert_eq!(watched.snapshot()["refused_subjects"]["refusals"], 18);
}

#[tokio::test]
async fn a_refused_subject_has_the_end_and_the_level_of_its_block() {
    let watched = Watched::with_subjects();
    let text = "p: fixed-window 1/1d block 1h x2 up to 1d forget 7d";
    watched.acquire(text, b"x", 3).await;
    watched.acquire("q: fixed-window 1/1d", b"x", 2).await;
    let snapshot = watched.snapshot();
    let now = snapshot["now_ms"].as_u64().unwrap();
    let [p, q] = [&top(&watched)[0], &top(&watched)[1]];
    assert_eq!((&p["limit"], &p["block_level"]), (&json!(text), &json!(1)));
    let left = p["blocked_until_ms"].as_u64().unwrap().saturating_sub(now);
    assert!((3_500_000..=3_600_000).contains(&left), "{left}");
    assert_eq!((&q["blocked_until_ms"], &q["block_level"]), (&Value::Null, &json!(0)));
}

#[tokio::test]
async fn the_last_bans_have_their_ends_and_reasons() {
    use tidegate_server::calls::{CallOptions, Verb};

    for (watched, subject) in
        [(Watched::with_subjects(), json!("mallory")), (Watched::new(), Value::Null)]
    {
        let charge = || [(watched.charge("login: fixed-window 1/1d", b"mallory"), None)];
        let ban = |reason: String| {
            let mut options = CallOptions::default();
            options.span = Some(Duration::from_secs(7_200));
            options.reason = Some(reason);
            Verb::Ban.call(charge(), options).unwrap()
        };
        for number in 0..30 {
            let _ = watched.calls.decide(&ban(format!("reason {number}"))).await.unwrap();
        }
        let error = watched.calls.decide(&ban("a\u{202e}\n".to_owned())).await.unwrap_err();
        assert!(error.to_string().contains("control"), "{error}");
        let _ = watched.calls.decide(&ban("a\u{202e}b".to_owned())).await.unwrap();
        let unban = Verb::Unban.call(charge(), CallOptions::default()).unwrap();
        let _ = watched.calls.decide(&unban).await.unwrap();
        let snapshot = watched.snapshot();
        let bans = snapshot["bans"].as_array().unwrap();
        assert_eq!(bans.len(), 20);
        assert_eq!((&bans[0]["until_ms"], &bans[0]["reason"]), (&Value::Null, &Value::Null));
        assert!(!bans[1]["reason"].as_str().unwrap().contains('\u{202e}'));
        assert_eq!(bans[2]["reason"], "reason 29");
        assert_eq!(bans[2]["limit"], "login: fixed-window 1/1d");
        assert_eq!(bans[2]["subject"], subject);
        let left = bans[2]["until_ms"].as_u64().unwrap() - snapshot["now_ms"].as_u64().unwrap();
        assert!((7_000_000..=7_200_000).contains(&left), "{left}");
    }
}

#[tokio::test]
async fn subjects_that_have_used_most_of_a_limit_are_listed_per_limit() {
    let watched = Watched::with_subjects();
    // The limit `shop.user` is 3 per day.
    watched.ask("user", "full", 3).await;
    watched.ask("user", "below", 2).await;
    watched.acquire("p: fixed-window 10/1d", b"near", 8).await;
    watched.acquire("p: fixed-window 10/1d", b"far", 7).await;
    watched.acquire("q: fixed-window 10/1d", b"other", 9).await;
    watched.acquire("b: fixed-window 1/1d block 1h", b"blocked", 3).await;
    let near = |query: &str| {
        let snapshot = watched.activity.snapshot(&query.parse().unwrap());
        let near = snapshot["near_subjects"].clone();
        assert_eq!((&near["percent"], &near["is_complete"]), (&json!(80), &json!(true)));
        let top = near["top"].as_array().unwrap().clone();
        assert_eq!(near["count"], top.len());
        top.iter()
            .map(|row| json!([row["limit"], row["subject"], row["used"], row["of"]]))
            .collect()
    };
    let all: Vec<Value> = near("");
    let expected = [
        // The usage before the block.
        json!(["b: fixed-window 1/1d block 1h", "blocked", 1, 1]),
        json!(["shop.user", "shop|user=full", 3, 3]),
        json!(["q: fixed-window 10/1d", "other", 9, 10]),
        json!(["p: fixed-window 10/1d", "near", 8, 10]),
    ];
    assert_eq!(all, expected);
    let named: Vec<Value> = near("name=P:");
    assert_eq!(named, expected[3..]);
}

#[tokio::test]
async fn near_subjects_that_cannot_be_separated_from_others_are_left_out() {
    let watched = Watched::with_subjects();
    for number in 0..2_000_u32 {
        watched.acquire("p: fixed-window 1/1d", &number.to_be_bytes(), 1).await;
    }
    watched.acquire("q: fixed-window 1000/1d", b"busy", 900).await;
    let near = &watched.snapshot()["near_subjects"];
    assert_eq!(near["is_complete"], false);
    // The decisions from 800 on are near the limit. No other subject has as many.
    assert_eq!((&near["count"], &near["top"][0]["subject"]), (&json!(1), &json!("busy")));
}

#[tokio::test]
async fn without_the_setting_no_subject_and_no_tenant_is_in_the_snapshot() {
    let mut watched = Watched::new();
    watched.ask("user", "S3CRET", 9).await;
    watched.ask("nothing", "S3CRET", 1).await;
    let mut charge = watched.charge("p: fixed-window 1/1d", b"S3CRET");
    charge.tenant = Bytes::from_static(b"S3CRET");
    for _ in 0..3 {
        let call = CallRequest::new(Operation::Acquire, [charge.clone()]);
        let _ = watched.calls.decide(&call).await.unwrap();
    }
    watched.second();
    let snapshot = watched.snapshot();
    assert!(!snapshot.to_string().contains("S3CRET"), "{snapshot}");
    assert!(!format!("{:?}", watched.activity).contains("S3CRET"));
    // The page shows the number of refusals even if it hides the subjects.
    let subjects = &snapshot["refused_subjects"];
    assert_eq!((&subjects["are_shown"], &subjects["refusals"]), (&json!(false), &json!(8)));
    assert_eq!(
        (&subjects["top"][0]["subject"], &subjects["top"][0]["at_most"]),
        (&Value::Null, &json!(6))
    );
    assert!(snapshot["slow_calls"].as_array().unwrap().len() > 5);
}

#[tokio::test]
async fn refusals_and_slow_calls_are_forgotten_after_two_minutes() {
    let mut watched = Watched::with_subjects();
    watched.ask("user", "a", 5).await;
    // The counts are distributed over shards. A hundred subjects reach all shards.
    for index in 0..100_u32 {
        watched.acquire("p: fixed-window 0/1d", &index.to_be_bytes(), 1).await;
    }
    for minute in 0..2 {
        assert_eq!(top(&watched)[0]["at_least"], 2, "{minute}");
        assert!(watched.snapshot()["slow_calls"].as_array().unwrap().len() >= 5);
        for _ in 0..SECONDS {
            watched.second();
        }
    }
    assert_eq!(top(&watched), [Value::Null; 0]);
    let snapshot = watched.snapshot();
    assert_eq!(snapshot["refused_subjects"]["refusals"], 0);
    assert_eq!(snapshot["slow_calls"], json!([]));

    // The page adds the counts of the current minute and of the previous minute.
    watched.ask("user", "a", 3).await;
    for _ in 0..SECONDS {
        watched.second();
    }
    watched.ask("user", "a", 4).await;
    assert_eq!(
        (&top(&watched)[0]["at_least"], &top(&watched)[0]["at_most"]),
        (&json!(7), &json!(7))
    );
    assert_eq!(watched.snapshot()["refused_subjects"]["refusals"], 7);
}

#[tokio::test]
async fn subjects_of_equal_counts_keep_their_places_from_one_second_to_the_next() {
    let watched = Watched::with_subjects();
    for index in 0..40_u8 {
        watched.acquire("p: fixed-window 0/1d", &[b'a', index], 1).await;
    }
    let first = top(&watched);
    assert_eq!(first.len(), 20);
    for _ in 0..5 {
        assert_eq!(top(&watched), first);
    }
}

#[tokio::test]
async fn b46_any_number_of_subjects_of_any_length_is_bounded_and_a_frequent_one_is_found() {
    let watched = Watched::with_subjects();
    let policy = "p: fixed-window 0/1d";
    for index in 0..5_000_u32 {
        let mut long = index.to_be_bytes().to_vec();
        long.resize(2_000, 0xff);
        watched.acquire(policy, &long, 1).await;
        if index % 10 == 0 {
            watched.acquire(policy, b"often", 1).await;
        }
    }
    let top = top(&watched);
    assert_eq!(top.len(), 20);
    assert_eq!(top[0]["subject"], "often");
    let bound = |name: &str| top[0][name].as_u64().unwrap();
    // Each of eight shards counts about 625 subjects but has room for 64, so the page shows two
    // bounds of the count.
    assert!(bound("at_least") <= 500 && 500 <= bound("at_most"), "{}", top[0]);
    assert!(bound("at_most") - bound("at_least") < 60, "{}", top[0]);
    assert_eq!(watched.snapshot()["refused_subjects"]["refusals"], 5_500);
    assert!(watched.snapshot().to_string().len() < 50_000);
}

#[tokio::test]
async fn hostile_subjects_are_text_without_an_effect() {
    let watched = Watched::with_subjects();
    for (subject, shown) in [
        (&b"<script>alert(1)</script>"[..], "<script>alert(1)</script>"),
        (b"\x1b]0;title\x07\r\n", "\\u{1b}]0;title\\u{7}\\r\\n"),
        ("\u{202e}abc\u{2066}".as_bytes(), "\\u{202e}abc\\u{2066}"),
        (b"\xff\xfe\0", "\\xff\\xfe\\0"),
        (b"", ""),
    ] {
        watched.acquire("p: fixed-window 0/1d", subject, 1).await;
        let top = top(&watched);
        assert!(top.iter().any(|row| row["subject"] == shown), "{shown}: {top:?}");
    }
    watched.ask("user", "\u{202e}\u{1b}[2J", 4).await;
    assert!(
        !watched
            .snapshot()
            .to_string()
            .chars()
            .any(|character| character.is_control() || character == '\u{202e}')
    );
}

#[tokio::test]
async fn the_slowest_calls_are_shown_with_their_protocol_limit_and_outcome() {
    let watched = Watched::with_subjects();
    for _ in 0..10 {
        watched.ask("user", "a", 3).await;
        watched.acquire("p: fixed-window 1/1d", b"x", 3).await;
    }
    let snapshot = watched.snapshot();
    let calls = snapshot["slow_calls"].as_array().unwrap();
    assert_eq!(calls.len(), 10);
    assert!(calls.is_sorted_by_key(|call| u64::MAX - call["took_us"].as_u64().unwrap()));
    for call in calls {
        let (limit, subject) = match call["protocol"].as_str().unwrap() {
            "envoy" => ("shop.user", "shop|user=a"),
            "resp" => ("p: fixed-window 1/1d", "x"),
            other => panic!("{other}"),
        };
        assert_eq!((&call["limit"], &call["subject"]), (&json!(limit), &json!(subject)));
        assert!(["admitted", "refused"].contains(&call["outcome"].as_str().unwrap()));
        assert_eq!((&call["other_limits"], &call["calls"]), (&json!(0), &json!(1)));
    }
}

#[tokio::test]
async fn calls_of_a_pipeline_are_one_slow_call() {
    let watched = Watched::with_subjects();
    let charges = [
        watched.charge("p: fixed-window 1/1d", b"x"),
        watched.charge("q: fixed-window 9/1d", b"y"),
    ];
    let first = CallRequest::new(Operation::Acquire, charges);
    let others: Vec<_> = (0..40)
        .map(|_| CallRequest::new(Operation::Acquire, [watched.charge("gcra 1/s", b"z")]))
        .collect();
    let calls: Vec<&CallRequest> = [&first].into_iter().chain(&others).collect();
    watched.calls.decide_many(&calls).await;
    watched.calls.decide_many(&[]).await;
    let snapshot = watched.snapshot();
    let slow = snapshot["slow_calls"].as_array().unwrap();
    assert_eq!(slow.len(), 1, "{snapshot}");
    assert_eq!((&slow[0]["calls"], &slow[0]["other_limits"]), (&json!(41), &json!(1)));
    assert_eq!(
        (&slow[0]["limit"], &slow[0]["subject"]),
        (&json!("p: fixed-window 1/1d"), &json!("x"))
    );
}

/// A store that fails after a delay.
#[derive(Debug)]
struct Failing;

impl Store for Failing {
    fn decide<'a>(&'a self, _: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
        Answer::later(async {
            tokio::time::sleep(Duration::from_millis(1)).await;
            Err(Error::new(ErrorKind::Timeout, "no answer"))
        })
    }

    fn now(&self) -> Answer<'_, Result<Timestamp, Error>> {
        Answer::ready(Ok(Timestamp::EPOCH))
    }
}

#[tokio::test]
async fn a_slow_call_that_fails_names_its_limit_too() {
    let mut settings = ActivitySettings::default();
    settings.shows_subjects = true;
    let watched = Watched::on(Arc::new(Failing), settings, Behaviour::default());
    let both = vec![descriptor(&[("user", "a")]), descriptor(&[("path", "/")])];
    watched.service.should_rate_limit(&request("shop", both)).await.unwrap_err();
    watched.acquire("p: fixed-window 1/1d", b"x", 1).await;
    let snapshot = watched.snapshot();
    let calls = snapshot["slow_calls"].as_array().unwrap();
    for (protocol, limit, others, subject) in
        [("envoy", "shop.user", 1, "shop|user=a"), ("resp", "p: fixed-window 1/1d", 0, "x")]
    {
        let call = calls.iter().find(|call| call["protocol"] == protocol).unwrap();
        assert_eq!(
            (&call["limit"], &call["other_limits"], &call["subject"], &call["outcome"]),
            (&json!(limit), &json!(others), &json!(subject), &json!("timeout"))
        );
    }
    // The activity records an invalid request without a limit.
    watched.service.should_rate_limit(&request("shop", vec![])).await.unwrap_err();
}

#[tokio::test]
async fn the_limit_of_a_slow_call_is_the_one_that_refused() {
    let watched = Watched::with_subjects();
    let two = |wide: &str| {
        let charges =
            [watched.charge(wide, b"x"), watched.charge("narrow: fixed-window 1/1d", b"y")];
        CallRequest::new(Operation::Acquire, charges)
    };
    for _ in 0..2 {
        let _ = watched.calls.decide(&two("wide: fixed-window 9/1d")).await.unwrap();
    }
    let snapshot = watched.snapshot();
    let calls = snapshot["slow_calls"].as_array().unwrap();
    let call = calls.iter().find(|call| call["outcome"] == "refused").unwrap();
    assert_eq!(
        (&call["limit"], &call["subject"]),
        (&json!("narrow: fixed-window 1/1d"), &json!("y"))
    );

    watched.ask("user", "a", 3).await;
    let both = vec![descriptor(&[("path", "/")]), descriptor(&[("user", "a")])];
    watched.service.should_rate_limit(&request("shop", both)).await.unwrap();
    let snapshot = watched.snapshot();
    let calls = snapshot["slow_calls"].as_array().unwrap();
    let is_meant = |call: &&Value| call["protocol"] == "envoy" && call["other_limits"] == 1;
    let call = calls.iter().find(is_meant).unwrap();
    assert_eq!(
        (&call["limit"], &call["subject"], &call["outcome"]),
        (&json!("shop.user"), &json!("shop|user=a"), &json!("refused"))
    );
}
