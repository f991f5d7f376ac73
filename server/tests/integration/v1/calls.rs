//! Tests the effects of calls, and their answers.

use super::*;

const LOGIN: &str = "login: sliding-log 2/15m block 1h";

#[tokio::test]
async fn a_call_says_what_remains_and_when_to_come_again() {
    let server = Server::start().await;
    let body = json!({"policy": LOGIN, "subject": "alice"}).to_string();
    let first = server.post("acquire", &body).await;
    let verdict = |outcome: &str, remaining: u64, wait: u64, reset: u64, amount: u64| {
        json!({
            "allowed": outcome == "allowed", "policy": "login", "outcome": outcome, "limit": 2,
            "remaining": remaining, "retry_after_ms": wait, "reset_after_ms": reset,
            "amount": amount,
        })
    };
    assert_eq!((first.status, first.json()), (200, verdict("allowed", 1, 0, 900_000, 1)));
    assert_eq!(first.field("ratelimit-policy"), Some("\"login\";q=2;w=900"));
    assert_eq!(first.field("ratelimit"), Some("\"login\";r=1;t=900"));
    assert_eq!(first.field("retry-after"), None);
    server.advance(1);
    server.post("acquire", &body).await;
    let third = server.post("acquire", &body).await;
    assert_eq!(third.status, 429);
    assert_eq!(third.json()["outcome"], "denied");
    assert_eq!(third.json()["retry_after_ms"], 3_600_000);
    assert_eq!(third.field("retry-after"), Some("3600"));
    server.advance(1);
    let blocked = server.post("peek", &body).await;
    assert_eq!((blocked.status, blocked.json()["outcome"].clone()), (429, json!("blocked")));
    // `Retry-After` is the wait, rounded up to whole seconds.
    assert_eq!(blocked.json()["retry_after_ms"], 3_599_999);
    assert_eq!(blocked.field("retry-after"), Some("3600"));
    assert_eq!(server.ask("reset", json!({"policy": LOGIN, "subject": "alice"})).await.0, 200);
    assert_eq!(server.post("peek", &body).await.json()["remaining"], 2);
}

#[tokio::test]
async fn a_call_warns_from_the_percentage_on() {
    let server = Server::start().await;
    let call = |cost: u64| {
        let charge =
            json!({"policy": "plan: fixed-window 10/1h warn 80%", "subject": "a", "cost": cost});
        json!({"charges": [charge, {"policy": "fixed-window 99/1h", "subject": "a"}]}).to_string()
    };
    let below = server.post("acquire", &call(7)).await;
    assert_eq!(
        (below.field("ratelimit-warning"), below.json()["charges"][0].get("warns")),
        (None, None)
    );
    let above = server.post("acquire", &call(1)).await;
    assert_eq!((above.status, above.field("ratelimit-warning")), (200, Some("\"plan\"")));
    assert_eq!(above.json()["charges"][0]["warns"], true);
    assert_eq!(above.json()["charges"][1].get("warns"), None);
}

#[tokio::test]
async fn a_grant_tops_up_a_quota_once_per_id_and_until_its_end() {
    let server = Server::start().await;
    let quota = "plan: quota 5/day in UTC";
    let grant = |id: &str, more: Value| {
        let mut body = json!({"policy": quota, "subject": "alice", "id": id});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    for _ in 0..2 {
        let (status, answer) = server.ask("grant", grant("a", json!({"cost": 20}))).await;
        assert_eq!((status, &answer["remaining"], &answer["limit"]), (200, &json!(25), &json!(5)));
    }
    let ended = grant("b", json!({"cost": 7, "ends_at_ms": 1}));
    assert_eq!(server.ask("grant", ended).await.1["remaining"], 25);
    let acquire = json!({"policy": quota, "subject": "alice", "cost": 25});
    assert_eq!(server.ask("acquire", acquire.clone()).await.1["remaining"], 0);
    assert_eq!(server.ask("acquire", acquire).await.1["retry_after_ms"], Value::Null);
    let (status, answer) = server.ask("grant", grant("a", json!({"cost": 21}))).await;
    assert_eq!((status, &answer["error"]), (409, &json!("id-reused")));
    let (status, answer) = server.ask("grant", json!({"policy": quota, "subject": "a"})).await;
    assert_eq!((status, &answer["message"]), (400, &json!("id is missing")));
}

#[tokio::test]
async fn a_ban_has_a_reason_and_an_unban_forgets_the_offenses() {
    let server = Server::start().await;
    let policy = "login: fixed-window 1/1d anchored block 1m x4 up to 1d forget 7d";
    let body = json!({"policy": policy, "subject": "mallory"});
    let ban = |ms: u64, reason: &str| json!({"policy": policy, "subject": "mallory", "ban_ms": ms, "reason": reason});
    assert_eq!(server.ask("acquire", body.clone()).await.0, 200);
    let (_, denied) = server.ask("acquire", body.clone()).await;
    assert_eq!((&denied["blocked_for_ms"], &denied["block_level"]), (&json!(60_000), &json!(1)));
    for (ms, end) in [(3_600_000, 3_600_000), (1_000, 3_600_000)] {
        let (status, banned) = server.ask("ban", ban(ms, "stolen passwords")).await;
        assert_eq!((status, &banned["outcome"]), (200, &json!("blocked")));
        assert_eq!((&banned["blocked_for_ms"], &banned["block_level"]), (&json!(end), &json!(1)));
    }
    for (body, message) in [
        (ban(0, "a"), "the ban lasts 0s; it must last at least 1us"),
        (ban(9, ""), "the reason of the ban has 0 bytes; it must have 1 to 128"),
        (ban(9, &"a".repeat(129)), "the reason of the ban has 129 bytes; it must have 1 to 128"),
        (ban(9, "a\u{7}"), "control characters"),
        (json!({"policy": policy, "subject": "m", "ban_ms": 9}), "reason is missing"),
        (json!({"policy": policy, "subject": "m", "reason": "a"}), "ban_ms is missing"),
    ] {
        let (status, answer) = server.ask("ban", body).await;
        let text = answer["message"].as_str().unwrap();
        assert!(status == 400 && text.contains(message), "{message}: {answer}");
    }
    let (_, unbanned) = server.ask("unban", body.clone()).await;
    assert_eq!(unbanned.get("block_level"), None);
    assert_eq!((&unbanned["outcome"], &unbanned["remaining"]), (&json!("allowed"), &json!(0)));
    assert_eq!(server.ask("acquire", body).await.1["block_level"], 1);
}

#[tokio::test]
async fn waits_are_rounded_up_to_milliseconds() {
    let server = Server::start().await;
    let body = json!({"policy": "gcra 3/s burst 1", "subject": "a"});
    server.ask("acquire", body.clone()).await;
    let (status, answer) = server.ask("acquire", body.clone()).await;
    assert_eq!((status, &answer["retry_after_ms"]), (429, &json!(334)));
    server.advance(333);
    assert_eq!(server.ask("acquire", body.clone()).await.1["retry_after_ms"], 1);
    server.advance(1);
    assert_eq!(server.ask("acquire", body).await.0, 200);
}

#[tokio::test]
async fn the_fields_of_more_than_four_charges_name_the_tightest_and_the_body_all() {
    let server = Server::start().await;
    let charges = |count: usize| -> Value {
        let charge = |number: usize| {
            let limit = 20 - 3 * (number % 3);
            json!({"policy": format!("p{number}: fixed-window {limit}/1d"), "subject": "x"})
        };
        (0..count).map(charge).collect()
    };
    for (count, named) in [(4, "\"p0\", \"p1\", \"p2\", \"p3\""), (5, "\"p2\"")] {
        let answer = server.post("acquire", &json!({"charges": charges(count)}).to_string()).await;
        assert_eq!(answer.json()["charges"].as_array().map(Vec::len), Some(count));
        for field in ["ratelimit", "ratelimit-policy"] {
            let members = answer.field(field).unwrap_or_default().split(", ");
            let names = members.filter_map(|member| member.split(';').next());
            assert_eq!(names.collect::<Vec<_>>().join(", "), named, "{field} of {count}");
        }
    }
}

#[tokio::test]
async fn several_charges_are_all_taken_or_none() {
    let server = Server::start().await;
    let body = json!({"charges": [
        {"policy": "a: fixed-window 5/1d", "subject": "x", "cost": 2},
        {"policy": "b: fixed-window 3/1d", "subject": "x", "tenant": "t", "cost": 2},
        {"policy": "c: fixed-window 1/1d", "subject": "x", "check": true},
    ]});
    let (status, answer) = server.ask("acquire", body.clone()).await;
    assert_eq!((status, &answer["retry_after_ms"]), (200, &json!(0)));
    let column = |answer: &Value, name: &str| -> Vec<Value> {
        answer["charges"].as_array().unwrap().iter().map(|charge| charge[name].clone()).collect()
    };
    assert_eq!(column(&answer, "amount"), [2, 2, 0]);
    assert_eq!(column(&answer, "remaining"), [3, 1, 1]);
    let (status, answer) = server.ask("acquire", body).await;
    assert_eq!(status, 429);
    assert_eq!(column(&answer, "outcome"), ["allowed", "denied", "allowed"]);
    assert_eq!(column(&answer, "remaining"), [3, 1, 1]);
    assert_eq!(answer["retry_after_ms"], answer["charges"][1]["retry_after_ms"]);
    // If a request has a list with one charge, its answer has a list too.
    let one = json!({"charges": [{"policy": "a: fixed-window 5/1d", "subject": "x"}]});
    assert_eq!(column(&server.ask("peek", one).await.1, "remaining"), [3]);
    // Another tenant is another subject.
    let other_tenant = json!({"policy": "b: fixed-window 3/1d", "subject": "x"});
    assert_eq!(server.ask("peek", other_tenant).await.1["remaining"], 3);
}

#[tokio::test]
async fn each_verb_does_what_its_name_says() {
    let server = Server::start().await;
    let body_with = |more: Value| {
        let mut body = json!({"policy": "fixed-window 10/1d", "subject": "a"});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let hold = json!({"id": "h", "ttl_ms": 60_000});
    for (verb, more, status, remaining, amount) in [
        ("acquire", json!({"cost": 4}), 200, 6, 4),
        ("acquire", json!({"cost": 9, "min": 2}), 200, 0, 6),
        ("acquire", json!({}), 429, 0, 0),
        ("refund", json!({"cost": 7}), 200, 7, 7),
        ("charge", json!({"cost": 2, "id": "c", "ttl_ms": 1000}), 200, 5, 2),
        ("charge", json!({"cost": 2, "id": "c", "ttl_ms": 1000}), 200, 5, 2),
        ("charge", json!({"cost": 9}), 200, 0, 9),
        ("reset", json!({}), 200, 10, 0),
        ("hold", json!({"cost": 6, "id": "h", "ttl_ms": 60_000}), 200, 4, 6),
        ("extend", hold.clone(), 200, 4, 0),
        ("settle", json!({"cost": 2, "id": "h", "so_far": true}), 200, 4, 0),
        ("settle", json!({"cost": 5, "id": "h"}), 200, 5, 1),
        ("hold", json!({"cost": 99, "min": 1, "id": "i", "ttl_ms": 60_000}), 200, 0, 5),
        ("cancel", json!({"id": "i"}), 200, 5, 5),
        ("block", json!({"block_ms": 5_000}), 200, 0, 0),
        ("block", json!({"block_ms": 1_000, "at_least": true}), 200, 0, 0),
        ("peek", json!({}), 429, 0, 0),
        ("block", json!({"block_ms": 0}), 200, 5, 0),
        ("peek", json!({"cost": 5}), 200, 5, 0),
    ] {
        let (given, answer) = server.ask(verb, body_with(more.clone())).await;
        assert_eq!(given, status, "{verb} {more}: {answer}");
        assert_eq!(
            (&answer["remaining"], &answer["amount"]),
            (&json!(remaining), &json!(amount)),
            "{verb} {more}: {answer}"
        );
    }
    // A `charge` beyond the limit is made. It is not a refusal, so its status is 200.
    let answer = server.post("charge", &body_with(json!({"cost": 20})).to_string()).await;
    assert_eq!((answer.status, &answer.json()["outcome"]), (200, &json!("denied")));
    assert!(answer.json()["retry_after_ms"].as_u64() > Some(0));
    assert_eq!((answer.field("retry-after"), answer.field("ratelimit")), (None, None));
    server.ask("reset", body_with(json!({}))).await;
    // A cost above the limit is never admitted, so the answer has no wait.
    let answer = server.post("acquire", &body_with(json!({"cost": 11})).to_string()).await;
    assert_eq!((answer.status, answer.field("retry-after")), (429, None));
    let answer = answer.json();
    assert_eq!((&answer["outcome"], &answer["retry_after_ms"]), (&json!("denied"), &Value::Null));
}

#[tokio::test]
async fn a_settlement_says_if_the_log_no_longer_tells_where_its_hold_is() {
    let server = Server::start().await;
    for (newer, amount, out_of_reach) in [(127, 3, None), (128, 0, Some(json!(true)))] {
        let policy = format!("p{newer}: sliding-log 1000/1h");
        let charge = json!({"policy": policy, "subject": "a", "cost": 3});
        let mut hold = charge.clone();
        hold["id"] = json!(newer.to_string());
        hold["ttl_ms"] = json!(60_000);
        assert_eq!(server.ask("hold", hold.clone()).await.0, 200);
        for _ in 0..newer {
            server.advance(1);
            server.ask("acquire", charge.clone()).await;
        }
        hold.as_object_mut().unwrap().remove("ttl_ms");
        let (status, answer) = server.ask("cancel", hold).await;
        assert_eq!((status, &answer["amount"]), (200, &json!(amount)), "{newer}: {answer}");
        assert_eq!(answer.get("out_of_reach"), out_of_reach.as_ref(), "{newer}: {answer}");
    }
}

/// The refusal is about the minimum, which the second policy admits.
#[tokio::test]
async fn a_hold_whose_minimum_is_above_a_maximum_hold_is_refused() {
    let server = Server::start().await;
    let charges = ["p: fixed-window 100/1h max-hold 1/4", "q: fixed-window 50/1h"]
        .map(|policy| json!({"policy": policy, "subject": "a", "cost": 60}));
    let hold = json!({"charges": charges, "min": 40, "id": "x", "ttl_ms": 60_000});
    let (status, answer) = server.ask("hold", hold).await;
    let outcomes = [0, 1].map(|index| &answer["charges"][index]["outcome"]);
    assert_eq!((status, outcomes), (429, [&json!("too-large"), &json!("allowed")]));
}

#[tokio::test]
async fn a_hold_of_slots_has_a_fence_and_its_refusal_the_earliest_lapse() {
    let server = Server::start().await;
    let hold = |id: &str| json!({"policy": "jobs: concurrent 1 lease 30s", "subject": "a", "id": id, "ttl_ms": 60_000});
    let (status, answer) = server.ask("hold", hold("x")).await;
    assert!(status == 200 && answer["fence"].is_u64(), "{answer}");
    server.advance(10_000);
    let mut in_turn = hold("y");
    in_turn["place"] = json!(0);
    for refused in [hold("y"), in_turn] {
        let (status, answer) = server.ask("hold", refused).await;
        assert_eq!((status, &answer["retry_after_ms"]), (429, &Value::Null), "{answer}");
        assert_eq!(answer["earliest_lapse_ms"], json!(20_000), "{answer}");
    }
}

#[tokio::test]
async fn the_charges_of_a_hold_can_be_sent_again_with_their_costs() {
    let server = Server::start().await;
    let charges = json!([
        {"policy": "tokens: fixed-window 100/1d refund-lapsed", "subject": "a", "cost": 60},
        {"policy": "requests: gcra 9/s burst 9", "subject": "a", "check": true},
    ]);
    let hold = json!({"charges": charges, "id": "x", "ttl_ms": 60_000});
    assert_eq!(server.ask("hold", hold.clone()).await.1["charges"][0]["amount"], 60);
    let (status, answer) = server.ask("extend", hold).await;
    assert_eq!((status, &answer["charges"][0]["amount"]), (200, &json!(0)));
    let peek = server.ask("peek", json!({"charges": charges})).await.1;
    let unspent = |index: usize| peek["charges"][index].get("unspent").cloned();
    assert_eq!((unspent(0), unspent(1)), (Some(json!(60)), None));
    let by_id = json!({"charges": charges, "id": "x"});
    let (status, answer) = server.ask("cancel", by_id.clone()).await;
    assert_eq!((status, &answer["charges"][0]["amount"]), (200, &json!(60)));
    // A settlement must contain the actual cost of each charge, except for check-only charges.
    let (status, answer) = server.ask("settle", by_id.clone()).await;
    let message = "the hold \"x\" has ended: it was cancelled";
    assert_eq!((status, &answer["message"]), (409, &json!(message)));
    let mut without = by_id;
    without["charges"][0].as_object_mut().unwrap().remove("cost");
    let (status, answer) = server.ask("settle", without).await;
    assert_eq!(
        (status, &answer["message"]),
        (400, &json!("cost, the actual usage of each charge without `check`, is missing"))
    );
}

#[tokio::test]
async fn a_block_of_at_least_a_time_is_not_shortened() {
    let server = Server::start().await;
    let block = |span: u64, at_least: bool| json!({"policy": "gcra 1/s", "subject": "a", "block_ms": span, "at_least": at_least});
    for (body, wait) in
        [(block(5_000, false), 5_000), (block(1_000, true), 5_000), (block(1_000, false), 1_000)]
    {
        server.ask("block", body).await;
        let peek = server.ask("peek", json!({"policy": "gcra 1/s", "subject": "a"})).await;
        assert_eq!(peek.1["retry_after_ms"], wait);
    }
}

#[tokio::test]
async fn subjects_and_tenants_may_be_any_bytes() {
    let server = Server::start().await;
    let policy = "fixed-window 9/1d";
    for (name, subject, remaining) in [
        ("subject", "ÿ", 8),
        ("subject_base64", "w78=", 7),
        ("subject_base64", "/w==", 8),
        ("subject", "", 8),
        ("subject_base64", "", 7),
    ] {
        let body = json!({"policy": policy, name: subject});
        assert_eq!(server.ask("acquire", body).await.1["remaining"], remaining, "{name} {subject}");
    }
    let with_tenant =
        |name: &str, tenant: &str| json!({"policy": policy, "subject": "ÿ", name: tenant});
    assert_eq!(server.ask("acquire", with_tenant("tenant", "t")).await.1["remaining"], 8);
    assert_eq!(server.ask("acquire", with_tenant("tenant_base64", "dA==")).await.1["remaining"], 7);
}

#[tokio::test]
async fn what_is_not_valid_is_named_with_its_value_and_bound() {
    let server = Server::start().await;
    let body_with = |more: &str| format!(r#"{{"policy": "gcra 1/s", "subject": "a"{more}}}"#);
    let max = "9007199254740991";
    for (verb, body, why) in [
        ("acquire", "", "the body is not JSON: EOF while parsing"),
        ("acquire", "{} x", "the body is not JSON: trailing characters"),
        ("acquire", "[]", "the body is a list; it must be an object"),
        ("acquire", &"[".repeat(100_000), "recursion limit exceeded"),
        (
            "acquire",
            &format!("{}{}", r#"{"a":"#.repeat(100_000), "}".repeat(100_000)),
            "recursion limit exceeded",
        ),
        ("acquire", "{\"policy\": \"\u{0}", "the body is not JSON: control character"),
        ("acquire", "{}", "policy is missing"),
        ("acquire", r#"{"policy": "gcra 1/s"}"#, "subject is missing"),
        (
            "acquire",
            &body_with(r#", "cots": 1"#),
            "there is no field cots; the known fields are charges, policy, subject",
        ),
        (
            "acquire",
            &body_with(r#", "co\u007fts": 1"#),
            "there is no field co\\u{7f}ts; the known fields are",
        ),
        (
            "acquire",
            &body_with(r#", "block_ms": 1"#),
            "there is no field block_ms; the known fields are",
        ),
        (
            "acquire",
            &body_with(r#", "cost": -1"#),
            &format!("cost is -1; it must be a whole number from 0 to {max}"),
        ),
        ("acquire", &body_with(r#", "cost": 1.5"#), "cost is 1.5; it must be a whole number"),
        ("acquire", &body_with(r#", "cost": "1""#), "cost is \"1\"; it must be a whole number"),
        ("acquire", &body_with(r#", "cost": 9007199254740992"#), &format!("from 0 to {max}")),
        ("acquire", &body_with(r#", "cost": 1e400"#), "the body is not JSON: number out of range"),
        ("acquire", &body_with(r#", "cost": 1, "cost": 2"#), "cost is given twice"),
        (
            "acquire",
            &body_with(r#", "min": 0"#),
            &format!("min is 0; it must be a whole number from 1 to {max}"),
        ),
        ("acquire", &body_with(r#", "tenant": null"#), "tenant is null; it must be a text"),
        ("acquire", &body_with(r#", "check": 1"#), "check is 1; it must be true or false"),
        (
            "acquire",
            &body_with(r#", "subject_base64": "YQ==""#),
            "subject_base64 is given as a text and in Base64",
        ),
        (
            "acquire",
            &body_with(r#", "tenant_base64": "YQ""#),
            "tenant_base64 is \"YQ\"; it must be a text in Base64",
        ),
        (
            "acquire",
            &body_with(r#", "tenant_base64": 5"#),
            "tenant_base64 is 5; it must be a text in Base64",
        ),
        ("acquire", &body_with(r#", "id": "x""#), "ttl_ms, the time to live of id, is missing"),
        ("acquire", &body_with(r#", "ttl_ms": 5"#), "id, to which ttl_ms applies, is missing"),
        ("acquire", &body_with(r#", "id": "", "ttl_ms": 5"#), "the id of the call is empty"),
        (
            "acquire",
            &body_with(r#", "charges": []"#),
            "policy cannot be combined with `charges`; move it into an entry of `charges`",
        ),
        ("acquire", r#"{"charges": {}}"#, "charges is an object; it must be a list"),
        ("acquire", r#"{"charges": []}"#, "charges has 0 elements; it must have 1 to 64"),
        ("acquire", &format!("{{\"charges\": [{}1]}}", "1,".repeat(64)), "charges has 65 elements"),
        ("acquire", r#"{"charges": [1]}"#, "charges[0] is 1; it must be an object"),
        ("acquire", r#"{"charges": [{"policy": "gcra 1/s"}]}"#, "charges[0].subject is missing"),
        (
            "acquire",
            r#"{"charges": [{"policy": "gcra 1/s", "subject": "a", "id": "x"}]}"#,
            "there is no field charges[0].id; the known fields are policy",
        ),
        ("acquire", r#"{"policy": "gcra", "subject": "a"}"#, "policy: "),
        ("acquire", r#"{"policy": 5, "subject": "a"}"#, "policy is 5; it must be a text"),
        (
            "acquire",
            r#"{"policy": "any-shard: gcra 8/s shards 4 any-shard", "subject": "a", "id": "x", "ttl_ms": 9}"#,
            "",
        ),
        ("block", &body_with(""), "block_ms is missing"),
        ("hold", &body_with(""), "id is missing"),
        ("hold", &body_with(r#", "id": "x""#), "ttl_ms, the time to live of id, is missing"),
        (
            "settle",
            &body_with(r#", "id": "x""#),
            "cost, the actual usage of each charge without `check`, is missing",
        ),
        ("cancel", &body_with(""), "id is missing"),
        ("extend", &body_with(r#", "id": "x", "ttl_ms": 0"#), "a time to live of 0"),
        ("reset", &body_with(r#", "cost": 1"#), "there is no field cost; the known fields are"),
    ] {
        let answer = server.post(verb, body).await;
        let shown: String = body.chars().take(80).collect();
        assert_eq!(
            (answer.status, &answer.json()["error"]),
            (400, &json!("invalid-call")),
            "{verb} {shown}: {answer:?}"
        );
        let message = answer.json()["message"].as_str().unwrap().to_owned();
        assert!(message.contains(why) && message.len() < 500, "{verb} {shown}: {message}");
        assert!(!message.starts_with("invalid-call"), "{message}");
    }
}

#[tokio::test]
async fn holds_and_ids_that_are_not_fit_are_told_apart() {
    let server = Server::start().await;
    let with_cost = |id: &str, cost: u64| json!({"policy": "gcra 9/s burst 9", "subject": "a", "id": id, "cost": cost});
    let hold = |id: &str, ttl: u64| json!({"policy": "gcra 9/s burst 9", "subject": "a", "id": id, "ttl_ms": ttl});
    let kind =
        |(status, answer): (u16, Value)| (status, answer["error"].as_str().unwrap().to_owned());
    assert_eq!(kind(server.ask("settle", with_cost("x", 1)).await), (404, "unknown-hold".into()));
    assert_eq!(server.ask("hold", hold("x", 1_000)).await.0, 200);
    assert_eq!(kind(server.ask("acquire", hold("x", 1_000)).await), (409, "id-reused".into()));
    assert_eq!(server.ask("settle", with_cost("x", 1)).await.0, 200);
    assert_eq!(
        kind(server.ask("settle", with_cost("x", 2)).await),
        (409, "already-settled".into())
    );
    assert_eq!(server.ask("hold", hold("y", 1_000)).await.0, 200);
    server.advance(1_500);
    assert_eq!(kind(server.ask("extend", hold("y", 1_000)).await), (410, "hold-lapsed".into()));
}
