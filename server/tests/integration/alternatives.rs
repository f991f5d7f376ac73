//! Lists of alternatives, in requests of Envoy, in `/v1` and in RESP.

use serde_json::{Value, json};
use tidegate_server::envoy::decide::Behaviour;

use crate::scene::{Scene, descriptor, hits, is_ok, is_over, limit, refund, request};

const CONFIG: &str = "domain: d\ndescriptors:\n\
    - {key: own, policy: 'own: fixed-window 2/1h', one_of: capacity, refunds: true}\n\
    - {key: pool, policy: 'pool: fixed-window 3/1h', one_of: capacity}\n\
    - {key: other, policy: 'other: fixed-window 9/1h'}\n";

fn scene() -> Scene {
    Scene::with(CONFIG, Behaviour::default())
}

#[test]
fn the_first_descriptor_that_its_policy_admits_pays() {
    let scene = scene();
    let ask = || {
        let list = [&[("own", "acme")][..], &[("other", "x")], &[("pool", "all")]];
        scene.ask(&request("d", list.map(descriptor).into()))
    };
    let remaining = |place: usize| {
        let response = ask();
        assert!(is_ok(&response), "{response:?}");
        let statuses = response.statuses;
        let without = statuses.iter().filter(|status| status.current_limit.is_none()).count();
        assert_eq!(without, 1, "the response announces no limit that was skipped: {statuses:?}");
        (limit(&statuses[place]), statuses[place].limit_remaining)
    };
    for left in [1, 0] {
        assert_eq!(remaining(0), ("2/HOUR".to_owned(), left));
    }
    for left in [2, 1, 0] {
        assert_eq!(remaining(2), ("3/HOUR".to_owned(), left));
    }
    let refused = ask();
    assert!(!is_ok(&refused));
    let over: Vec<bool> = refused.statuses.iter().map(is_over).collect();
    assert_eq!(over, [true, false, false], "one descriptor stands for the list: {refused:?}");
    // A refused request charges nothing.
    assert_eq!(scene.status_of("d", hits(&[("other", "x")], 0)).limit_remaining, 4);
}

/// Two descriptors of a request can select the same state, for example if a client chooses one of
/// the values. They are one alternative.
#[test]
fn two_descriptors_of_one_state_are_one_alternative() {
    let (own, pool) = (&[("own", "acme")][..], &[("pool", "all")][..]);
    let passes = |scene: &Scene, lists: &[&[(&str, &str)]]| {
        [(); 6].map(|()| scene.passes("d", lists)).iter().filter(|passes| **passes).count()
    };
    for lists in [&[own, own, pool][..], &[own, pool, own], &[own, pool, own, pool]] {
        assert_eq!(passes(&scene(), lists), 5, "{lists:?}");
    }
    assert_eq!(passes(&scene(), &[own, own]), 2);
}

#[test]
fn a_descriptor_without_its_alternatives_is_an_ordinary_limit() {
    let scene = scene();
    for is_admitted in [true, true, false] {
        assert_eq!(scene.passes("d", &[&[("own", "acme")]]), is_admitted);
    }
}

#[test]
fn a_refund_returns_only_hits_that_the_limit_paid() {
    let scene = scene();
    let both = [&[("own", "acme")][..], &[("pool", "all")]];
    for _ in 0..3 {
        assert!(scene.passes("d", &both));
    }
    // The own limit paid two of the three requests.
    scene.ask(&request("d", vec![refund(&[("own", "acme")], 1)]));
    let status = scene.status_of("d", hits(&[("own", "acme")], 0));
    assert!(is_over(&status), "the refund is reduced by the hit that the pool paid: {status:?}");
    scene.ask(&request("d", vec![refund(&[("own", "acme")], 1)]));
    assert_eq!(scene.status_of("d", hits(&[("own", "acme")], 1)).limit_remaining, 0);
}

#[tokio::test]
async fn or_begins_an_alternative_in_resp() {
    use crate::resp::{Server, call};
    let server = Server::start().await;
    let client = &mut server.client().await;
    let own = ["acme", "own: fixed-window 1/1m anchored"];
    let pool = ["all", "pool: fixed-window 1/1h anchored"];
    let command = ["TG.ACQUIRE", own[0], own[1], "or", pool[0], pool[1]];
    for expected in [
        "[1 0 [allowed 1 0 0 60000 1] [skipped 1 1 0 0 0]]",
        "[1 0 [skipped 1 0 60000 60000 0] [allowed 1 0 0 3600000 1]]",
        "[0 60000 [denied 1 0 60000 60000 0] [skipped 1 0 3600000 3600000 0]]",
    ] {
        assert_eq!(call(client, &command).await, expected);
    }
    let check = [&command[..], &["CHECK"]].concat();
    let answer = call(client, &check).await;
    assert!(answer.contains("a check-only charge cannot be an alternative"), "{answer}");
    let leave = ["TG.LEAVE", "a", own[1], "PLACE", "1", "OR", "b", pool[1]];
    assert!(call(client, &leave).await.contains("there is no option 'OR'"));
}

#[tokio::test]
async fn or_marks_an_alternative_in_json() {
    let server = crate::v1::Server::start().await;
    let own = json!({"policy": "own: fixed-window 1/1m", "subject": "acme", "cost": 1});
    let pool =
        json!({"policy": "pool: fixed-window 5/1h", "subject": "all", "cost": 4, "or": true});
    let held = |id: &str| json!({"charges": [own, pool], "id": id, "ttl_ms": 60_000});
    let outcomes = |body: &Value| {
        let charges = body["charges"].as_array().unwrap().iter();
        charges
            .map(|charge| (charge["outcome"].clone(), charge["amount"].clone()))
            .collect::<Vec<_>>()
    };
    let pair = |outcome: &str, amount: u64| (json!(outcome), json!(amount));
    let (status, first) = server.ask("hold", held("1")).await;
    assert_eq!((status, outcomes(&first)), (200, vec![pair("allowed", 1), pair("skipped", 0)]));
    let (status, second) = server.ask("hold", held("2")).await;
    assert_eq!((status, outcomes(&second)), (200, vec![pair("skipped", 0), pair("allowed", 4)]));
    let (_, settled) = server.ask("cancel", json!({"charges": [own, pool], "id": "2"})).await;
    assert_eq!(settled["charges"][1]["remaining"], 5);

    let alone = json!({"policy": "gcra 1/s", "subject": "a", "or": true});
    let (status, body) = server.ask("acquire", alone).await;
    assert_eq!(status, 400);
    assert!(body["message"].as_str().unwrap().contains("there is no field or"), "{body}");
    let first = json!({"charges": [pool]});
    let (status, body) = server.ask("acquire", first).await;
    assert_eq!(status, 400);
    assert!(body["message"].as_str().unwrap().contains("charges[0].or is true"), "{body}");
}

#[test]
fn on_a_server_in_shadow_each_alternative_charges_by_itself() {
    let mut behaviour = Behaviour::default();
    behaviour.is_shadow = true;
    let scene = Scene::with(CONFIG, behaviour);
    let both = [&[("own", "acme")][..], &[("pool", "all")]];
    for _ in 0..5 {
        assert!(scene.passes("d", &both));
    }
    assert!(is_over(&scene.status_of("d", hits(&[("pool", "all")], 0))));
}
