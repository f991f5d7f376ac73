//! Tests the rates of limits on the page. The tests decide when a second ends.

use serde_json::json;
use tidegate_core::{ErrorKind, StoreExt};
use tidegate_server::observe::activity::{MAX_LIMITS, SECONDS};
use tidegate_server::store::OnStoreError;
use tidegate_testkit::faults::{Fault, Faults};

use super::*;
use crate::scene::with_limit;

#[tokio::test]
async fn decisions_count_in_the_second_in_which_they_were_made() {
    let mut watched = Watched::new();
    watched.ask("user", "a", 5).await;
    watched.second();
    watched.second();
    watched.ask("user", "a", 4).await;
    watched.ask("user", "b", 1).await;
    watched.second();
    let limit = watched.limit("shop.user");
    assert_eq!(limit["admitted_history"], json!([3.0, 0.0, 1.0]));
    assert_eq!(limit["refused_history"], json!([2.0, 0.0, 4.0]));
    assert_eq!(limit["shadow_history"], json!([0.0, 0.0, 0.0]));
    // The limit admitted 4 requests and refused 6 requests in three seconds.
    assert_eq!(
        (&limit["admitted_per_second"], &limit["refused_per_second"]),
        (&json!(1.3), &json!(2.0))
    );
    assert_eq!(
        (&limit["source"], &limit["policy"]),
        (&json!("files"), &json!("policy: fixed-window 3/1d"))
    );
    let totals = &watched.snapshot()["totals"];
    assert_eq!(totals["admitted_history"], json!([3.0, 0.0, 1.0]));
    assert_eq!(totals["refused_history"], json!([2.0, 0.0, 4.0]));
    assert_eq!(totals["failed_history"], json!([0.0, 0.0, 0.0]));
    assert_eq!(watched.snapshot()["errors"], json!([]));
}

#[tokio::test]
async fn the_present_rate_is_that_of_the_last_five_samples() {
    let mut watched = Watched::new();
    watched.ask("user", "a", 100).await;
    watched.second();
    for _ in 0..4 {
        watched.second();
    }
    assert_eq!(watched.limit("shop.user")["refused_per_second"], 19.4);
    watched.second();
    assert_eq!(watched.limit("shop.user")["refused_per_second"], 0.0);
    assert_eq!(watched.limit("shop.user")["refused_history"][0], 97.0);
}

#[tokio::test]
async fn a_sample_that_came_late_is_divided_by_its_length() {
    let mut watched = Watched::new();
    watched.ask("path", "/", 8).await;
    watched.sample_after(Duration::from_secs(4));
    let limit = watched.limit("shop.path");
    assert_eq!(limit["admitted_history"], json!([0.5]));
    assert_eq!(limit["refused_history"], json!([1.5]));
    assert_eq!(limit["refused_per_second"], 1.5);
    watched.ask("path", "/", 3).await;
    watched.sample_after(Duration::from_millis(1_500));
    assert_eq!(watched.limit("shop.path")["refused_history"], json!([1.5, 2.0]));
    // The rate must be a number even if no time passes between two samples, for example because the
    // clock has stopped.
    watched.ask("path", "/", 1).await;
    watched.sample_after(Duration::ZERO);
    assert!(watched.limit("shop.path")["refused_history"][2].as_f64().unwrap() > 2.0);
}

#[tokio::test]
async fn shadows_refuse_nothing_and_say_what_they_would() {
    let mut watched = Watched::new();
    watched.ask("report", "x", 3).await;
    watched.acquire("p: fixed-window 1/1d shadow", b"a", 3).await;
    watched.second();
    for name in ["shop.report", "p: fixed-window 1/1d shadow"] {
        let limit = watched.limit(name);
        assert_eq!(limit["admitted_per_second"], 1.0, "{name}");
        assert_eq!(limit["shadow_per_second"], 2.0, "{name}");
        assert_eq!(limit["refused_per_second"], 0.0, "{name}");
    }
    let snapshot = watched.snapshot();
    assert_eq!(snapshot["totals"]["refused_per_second"], 0.0);
    assert_eq!(snapshot["totals"]["admitted_per_second"], 6.0);
    assert_eq!(snapshot["refused_subjects"]["refusals"], 0);

    let mut behaviour = Behaviour::default();
    behaviour.is_shadow = true;
    let mut watched = Watched::with(ActivitySettings::default(), behaviour);
    for key in ["user", "path"] {
        watched.ask(key, "x", 5).await;
    }
    watched.second();
    for (key, shadow) in [("shop.user", 2.0), ("shop.path", 3.0)] {
        assert_eq!(watched.limit(key)["shadow_per_second"], shadow);
        assert_eq!(watched.limit(key)["refused_per_second"], 0.0);
    }
    assert_eq!(watched.snapshot()["refused_subjects"]["refusals"], 0);
}

#[tokio::test]
async fn calls_count_by_their_policies_and_only_if_they_can_be_refused() {
    let mut watched = Watched::new();
    watched.acquire("a: fixed-window 2/1d", b"x", 3).await;
    for operation in [Operation::Peek, Operation::Charge, Operation::Refund] {
        let charge = watched.charge("b: fixed-window 2/1d", b"x");
        let _ = watched.calls.decide(&CallRequest::new(operation, [charge])).await.unwrap();
    }
    let two = || {
        [watched.charge("a: fixed-window 2/1d", b"x"), watched.charge("c: fixed-window 9/1d", b"x")]
    };
    let requests =
        [CallRequest::new(Operation::Acquire, two()), CallRequest::new(Operation::Acquire, two())];
    watched.calls.decide_many(&[&requests[0], &requests[1]]).await;
    let peek = CallRequest::new(Operation::Peek, [watched.charge("a: fixed-window 2/1d", b"x")]);
    assert!(watched.calls.decide(&peek).await.unwrap().is_denied());
    watched.second();
    let limit = watched.limit("a: fixed-window 2/1d");
    assert_eq!(
        (&limit["admitted_per_second"], &limit["refused_per_second"]),
        (&json!(2.0), &json!(3.0))
    );
    assert_eq!(limit["source"], "calls");
    assert_eq!(watched.limit("c: fixed-window 9/1d")["admitted_per_second"], 2.0);
    assert_eq!(watched.limit("b: fixed-window 2/1d"), Value::Null);
    let totals = &watched.snapshot()["totals"];
    assert_eq!(
        (&totals["admitted_per_second"], &totals["refused_per_second"]),
        (&json!(6.0), &json!(3.0))
    );
}

#[tokio::test]
async fn the_first_decision_of_a_limit_counts_as_what_it_was() {
    let mut watched = Watched::new();
    watched.acquire("p: fixed-window 0/1d", b"x", 1).await;
    watched.second();
    let limit = watched.limit("p: fixed-window 0/1d");
    assert_eq!(
        (&limit["admitted_history"], &limit["refused_history"]),
        (&json!([0.0]), &json!([1.0]))
    );
}

#[tokio::test]
async fn limits_without_decisions_are_forgotten_after_the_seconds_that_are_remembered() {
    let mut watched = Watched::new();
    watched.ask("user", "a", 1).await;
    for _ in 0..SECONDS {
        watched.second();
        assert_ne!(watched.limit("shop.user"), Value::Null);
    }
    assert_eq!(watched.limit("shop.user")["admitted_history"].as_array().unwrap().len(), SECONDS);
    watched.second();
    assert_eq!(watched.limit("shop.user"), Value::Null);
    assert_eq!(watched.snapshot()["totals"]["admitted_history"].as_array().unwrap().len(), SECONDS);
    // If a forgotten limit is used again, its history begins with zeros.
    watched.ask("user", "a", 1).await;
    watched.second();
    let history = watched.limit("shop.user")["admitted_history"].clone();
    assert_eq!((history.as_array().unwrap().len(), &history[SECONDS - 1]), (SECONDS, &json!(1.0)));
}

#[tokio::test]
async fn b46_limits_are_remembered_up_to_a_bound_and_none_is_left_out_of_the_sums() {
    let mut watched = Watched::new();
    for index in 0..MAX_LIMITS + 20 {
        watched.acquire(&format!("p{index}: fixed-window 1/1d"), b"x", 2).await;
    }
    watched.second();
    let snapshot = watched.snapshot();
    let limits = snapshot["limits"].as_array().unwrap();
    let other = &snapshot["other_limits"];
    assert_eq!(limits.len(), 50);
    assert_eq!(other["count"], MAX_LIMITS - 50);
    for kind in ["admitted_per_second", "refused_per_second"] {
        let sum: f64 =
            limits.iter().chain([other]).map(|limit| limit[kind].as_f64().unwrap()).sum();
        assert_eq!(sum, (MAX_LIMITS + 20) as f64);
    }
    assert!(snapshot.to_string().len() < 100_000);
}

#[tokio::test]
async fn the_limits_with_most_refusals_come_first_and_keep_their_order() {
    let mut watched = Watched::new();
    watched.ask("path", "/", 5).await;
    watched.ask("user", "a", 4).await;
    for name in ["z", "a", "m"] {
        watched.acquire(&format!("{name}: fixed-window 9/1d"), b"x", 2).await;
    }
    watched.second();
    let snapshot = watched.snapshot();
    let names: Vec<_> =
        snapshot["limits"].as_array().unwrap().iter().map(|limit| &limit["limit"]).collect();
    let expected = [
        "shop.path",
        "shop.user",
        "a: fixed-window 9/1d",
        "m: fixed-window 9/1d",
        "z: fixed-window 9/1d",
    ];
    assert_eq!(names, expected);
    // The page sorts limits by the number of refusals, and then by the number of all decisions.
    watched.ask("user", "b", 3).await;
    watched.ask("user", "c", 3).await;
    watched.acquire("a: fixed-window 9/1d", b"x", 7).await;
    watched.acquire("y: fixed-window 9/1d", b"x", 7).await;
    watched.acquire("m: fixed-window 9/1d", b"x", 3).await;
    watched.acquire("a: fixed-window 9/1d", b"x", 1).await;
    watched.second();
    let snapshot = watched.snapshot();
    let names: Vec<_> =
        snapshot["limits"].as_array().unwrap().iter().map(|limit| &limit["limit"]).collect();
    let expected = [
        "shop.path",
        "a: fixed-window 9/1d",
        "shop.user",
        "y: fixed-window 9/1d",
        "m: fixed-window 9/1d",
        "z: fixed-window 9/1d",
    ];
    assert_eq!(names, expected);
}

#[tokio::test]
async fn limits_are_in_the_order_of_the_figures_that_are_shown() {
    let mut watched = Watched::new();
    // The page shows the refusals of the last five seconds as the rate. These refusals are older.
    watched.ask("path", "/", 100).await;
    for _ in 0..5 {
        watched.second();
    }
    watched.acquire("few: fixed-window 2/1d", b"x", 4).await;
    watched.acquire("many: fixed-window 9/1d", b"x", 10).await;
    watched.acquire("shadow: fixed-window 0/1d shadow", b"x", 2).await;
    watched.second();
    let [few, many] = ["few: fixed-window 2/1d", "many: fixed-window 9/1d"];
    let [path, shadow] = ["shop.path", "shadow: fixed-window 0/1d shadow"];
    for (query, expected) in [
        ("", [few, many, path, shadow]),
        ("sort=refused&reversed=true", [shadow, path, many, few]),
        ("sort=admitted", [many, few, path, shadow]),
        ("sort=shadow", [shadow, path, few, many]),
        ("sort=minute", [path, many, few, shadow]),
        ("sort=limit", [few, many, shadow, path]),
        ("sort=limit&reversed=true", [path, shadow, many, few]),
    ] {
        assert_eq!(watched.listed(query), (expected.map(str::to_owned).to_vec(), 0), "{query}");
    }
    let first = &watched.snapshot()["limits"][0];
    assert_eq!((&first["limit"], &first["refused_per_second"]), (&json!(few), &json!(0.4)));
}

#[tokio::test]
async fn each_limit_among_300_is_found_by_a_part_of_its_name() {
    let mut watched = Watched::new();
    for index in 0..300 {
        watched.acquire(&format!("Route{index:03}: fixed-window 1/1d"), b"x", 2).await;
    }
    watched.second();
    let names = |numbers: &[u32]| -> Vec<String> {
        numbers.iter().map(|index| format!("Route{index:03}: fixed-window 1/1d")).collect()
    };
    assert_eq!(watched.listed("name=route217"), (names(&[217]), 0));
    assert_eq!(watched.listed("name=E29&rows=3"), (names(&[290, 291, 292]), 7));
    assert_eq!(watched.listed("name=%3A%20fixed").1, 250);
    assert_eq!(watched.listed("name=none"), (Vec::new(), 0));
    let (listed, others) = watched.listed("rows=500");
    assert_eq!((listed.len(), others), (300, 0));
    // The sum of the other limits contains only limits whose names match the query.
    let snapshot = watched.activity.snapshot(&"name=E29&rows=3".parse().unwrap());
    assert_eq!(snapshot["other_limits"]["refused_per_second"], 7.0);
}

#[tokio::test]
async fn limits_of_requests_show_the_keys_and_not_the_values() {
    let mut watched = Watched::new();
    for value in ["alice", "bob"] {
        let limited = with_limit(&[("user", value)], 1, 4);
        for _ in 0..2 {
            watched
                .service
                .should_rate_limit(&request("shop", vec![limited.clone()]))
                .await
                .unwrap();
        }
    }
    watched.second();
    let limit = watched.limit("shop.user (of requests)");
    assert_eq!(
        (&limit["admitted_per_second"], &limit["refused_per_second"]),
        (&json!(2.0), &json!(2.0))
    );
    assert!(!watched.snapshot().to_string().contains("alice"));
}

#[tokio::test]
async fn what_a_store_does_not_decide_is_an_error_of_its_kind() {
    let faults = [ErrorKind::Timeout, ErrorKind::Timeout, ErrorKind::Busy].map(Fault::Before);
    let store = Arc::new(MemoryStore::new().layer(Faults::new(faults.to_vec())));
    let mut watched = Watched::on(store, ActivitySettings::default(), Behaviour::default());
    watched.ask("user", "a", 1).await;
    watched.acquire("gcra 1/s", b"x", 2).await;
    let none = request("shop", vec![]);
    assert!(watched.service.should_rate_limit(&none).await.is_err());
    watched.second();
    let snapshot = watched.snapshot();
    assert_eq!(snapshot["totals"]["failed_per_second"], 4.0);
    let errors: Vec<_> = snapshot["errors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|error| {
            (
                error["kind"].as_str().unwrap(),
                error["total"].as_u64().unwrap(),
                error["per_second"].as_f64().unwrap(),
            )
        })
        .collect();
    assert_eq!(errors, [("busy", 1, 1.0), ("invalid-call", 1, 1.0), ("timeout", 2, 2.0)]);
    assert_eq!(snapshot["errors"][2]["history"], json!([2.0]));
    // The list of slow calls may be incomplete, because it omits calls that took 0 µs.
    for call in snapshot["slow_calls"].as_array().unwrap() {
        let outcome = call["outcome"].as_str().unwrap();
        assert!(["busy", "invalid-call", "timeout"].contains(&outcome), "{call}");
    }

    // If the setting `deny` refuses a call because the store fails, the page still counts an error.
    let failing =
        Arc::new(
            MemoryStore::new().layer(Faults::new(vec![Fault::Before(ErrorKind::Unavailable); 2])),
        );
    let memory: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let store = OnStoreError::Deny.around(failing, &memory);
    let mut watched = Watched::on(store, ActivitySettings::default(), Behaviour::default());
    watched.acquire("gcra 1/s", b"x", 1).await;
    watched.second();
    let snapshot = watched.snapshot();
    assert_eq!(snapshot["errors"][0]["kind"], "unavailable");
    assert_eq!(snapshot["totals"]["refused_per_second"], 1.0);
}

#[tokio::test]
async fn a_snapshot_before_the_first_second_is_one() {
    let watched = Watched::new();
    watched.ask("user", "a", 5).await;
    let snapshot = watched.snapshot();
    assert_eq!(snapshot["totals"]["admitted_per_second"], 0.0);
    assert_eq!(snapshot["totals"]["admitted_history"], json!([]));
    assert_eq!(snapshot["limits"][0]["admitted_history"], json!([]));
}
