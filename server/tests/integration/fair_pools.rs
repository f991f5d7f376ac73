//! Fair pools, in requests of Envoy, in `/v1` and in RESP.

use serde_json::json;
use tidegate_server::envoy::decide::Behaviour;

use crate::scene::Scene;

const POOL: &str = "pool: fair-pool 3/1h";

#[test]
fn the_values_of_a_descriptor_are_the_members_of_a_pool() {
    let config = format!("domain: d\ndescriptors:\n- {{key: customer, policy: '{POOL}'}}\n");
    let scene = Scene::with(&config, Behaviour::default());
    let passes = |customer| scene.passes("d", &[&[("customer", customer)]]);
    assert_eq!(["a", "b", "a", "c", "b"].map(passes), [true, true, true, false, false]);
    // In the next hour, each of the three customers has a share of 1.
    scene.advance(3_600);
    assert_eq!(["a", "a", "b", "b", "c"].map(passes), [true, false, true, false, true]);
}

#[tokio::test]
async fn keys_are_the_members_of_a_pool_in_resp() {
    use crate::resp::{Server, call};
    let server = Server::start().await;
    let client = &mut server.client().await;
    for (member, allowed) in [("a", true), ("b", true), ("a", true), ("c", false)] {
        let answer = call(client, &["TG.ACQUIRE", member, POOL]).await;
        assert_eq!(answer.starts_with("[1 "), allowed, "{answer}");
    }
    let answer = call(client, &["TG.RESET", "a", POOL]).await;
    assert!(answer.contains("no member can be blocked or reset"), "{answer}");
}

#[tokio::test]
async fn subjects_are_the_members_of_a_pool_in_json() {
    let server = crate::v1::Server::start().await;
    let charge = |subject: &str, policy: &str| json!({"policy": policy, "subject": subject});
    let heavy = format!("{POOL} weight 3");
    for (member, expected, remaining) in
        [("a", 200, 2), ("b", 200, 1), ("a", 200, 0), ("c", 429, 0)]
    {
        let (status, body) = server.ask("acquire", charge(member, &heavy)).await;
        assert_eq!((status, &body["remaining"]), (expected, &json!(remaining)), "{body}");
    }
    let weightless = charge("a", &format!("{POOL} weight 0"));
    let (status, body) = server.ask("acquire", weightless).await;
    assert_eq!(status, 400);
    assert!(body["message"].as_str().unwrap().contains("the weight is 0; it must be 1 to 1000"));
}

/// A check-only charge of a pool is an error, so hits of 0 are admitted.
#[test]
fn a_request_without_hits_passes_a_pool() {
    use crate::scene::{Scene, hits, is_over};
    let scene = Scene::new("domain: d\ndescriptors: [{key: a, policy: 'p: fair-pool 1/1h'}]");
    for (count, is_refused) in [(0, false), (1, false), (1, true), (0, false)] {
        let status = scene.status_of("d", hits(&[("a", "x")], count));
        assert_eq!(is_over(&status), is_refused, "{count}");
    }
}
