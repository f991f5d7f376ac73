//! Tests decisions by the limits of xDS snapshots (case G18).

use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::DescriptorStatus;
use tidegate_core::Store;
use tidegate_memory::MemoryStore;

use super::*;
use crate::scene::{is_ok, is_over, reset};

fn basic() -> Vec<RateLimitConfig> {
    vec![
        config("basic", vec![limited("key1", 50, SECOND)]),
        config(
            "another",
            vec![limited("key2", 20, MINUTE), limited("key3", 10, HOUR), limited("key4", 20, DAY)],
        ),
    ]
}

impl Client {
    async fn status(&self, domain: &str, entries: &[(&str, &str)]) -> DescriptorStatus {
        let request = request(domain, vec![descriptor(entries)]);
        self.service.should_rate_limit(&request).await.unwrap().statuses.remove(0)
    }
}

/// Repeats the cases G01 to G05 of `envoy_cases.rs` with limits from a management server.
async fn decides_as_by_files(client: &Client) {
    let unknown = client.status("foo", &[("hello", "world")]).await;
    assert_eq!((limit(&unknown), unknown.limit_remaining), (String::new(), 0));

    let per_second = client.status("basic", &[("key1", "foo")]).await;
    assert_eq!((&*limit(&per_second), per_second.limit_remaining), ("50/SECOND", 49));

    for hit in 1..=25 {
        let status = client.status("another", &[("key2", "rnd")]).await;
        let expected = (20_u32.saturating_sub(hit), hit > 20);
        assert_eq!((status.limit_remaining, is_over(&status)), expected, "hit {hit}");
    }

    for hit in 1..=15 {
        let both = vec![descriptor(&[("key2", "r")]), descriptor(&[("key3", "r")])];
        let answer = client.service.should_rate_limit(&request("another", both)).await.unwrap();
        let remaining: Vec<_> =
            answer.statuses.iter().map(|status| status.limit_remaining).collect();
        assert_eq!(remaining, [20 - hit, 10_u32.saturating_sub(hit)], "hit {hit}");
        assert_eq!(is_ok(&answer), hit <= 10, "hit {hit}");
    }

    let before = reset(&client.status("another", &[("key4", "x")]).await);
    client.clock.advance(Duration::from_secs(2));
    assert_eq!(reset(&client.status("another", &[("key4", "x")]).await), before - 2);
}

#[tokio::test]
async fn g18_a_snapshot_decides_as_files_do() {
    let mut server = Management::start().await;
    let client = Client::start(server.settings());
    let (mut peer, _) = server.stream().await;
    peer.send("1", "n1", &basic());
    peer.accepted("1", "n1").await;
    decides_as_by_files(&client).await;
}

#[tokio::test]
async fn g18_limits_per_second_of_a_snapshot_have_a_store_of_their_own() {
    let mut server = Management::start().await;
    let (decider, clock) = decider(Behaviour::default());
    let per_second = Arc::new(MemoryStore::builder().clock(clock.clone()).build());
    let decider = decider.with_per_second_store(Arc::clone(&per_second) as Arc<dyn Store>);
    let client = Client::with(server.settings(), Service::new(decider), clock);
    let (mut peer, _) = server.stream().await;
    peer.send("1", "n1", &basic());
    peer.accepted("1", "n1").await;
    assert_eq!(per_second.len(), 0);
    decides_as_by_files(&client).await;
    assert_eq!(per_second.len(), 1, "the hits of key1, and no others");
}

#[tokio::test]
async fn g18_a_changed_snapshot_is_in_force_and_a_bad_one_is_refused_with_its_reason() {
    let mut server = Management::start().await;
    let client = Client::start(server.settings());
    let (mut peer, _) = server.stream().await;

    let block = RateLimitDescriptor { value: "foo".into(), ..limited("block", 0, SECOND) };
    peer.send("1", "n1", &basic());
    peer.accepted("1", "n1").await;
    assert_eq!(limit(&client.status("reload", &[("block", "foo")]).await), "");

    let mut changed = basic();
    changed.push(config("reload", vec![limited("key1", 50, SECOND), block]));
    peer.send("2", "n2", &changed);
    peer.accepted("2", "n2").await;
    assert_eq!(client.status("reload", &[("key1", "x")]).await.limit_remaining, 49);
    assert!(is_over(&client.status("reload", &[("block", "foo")]).await));

    // The client does not load the valid resources either, because another resource is invalid.
    changed[0].descriptors[0].rate_limit.as_mut().unwrap().unit = 0;
    changed[2].descriptors.clear();
    peer.send("3", "n3", &changed);
    let error = peer.refused("2", "n3").await;
    assert_eq!(error, "basic-limits: invalid rate limit unit 'UNKNOWN'");
    assert!(is_over(&client.status("reload", &[("block", "foo")]).await));

    peer.send("4", "n4", &basic());
    peer.accepted("4", "n4").await;
    assert_eq!(limit(&client.status("reload", &[("block", "foo")]).await), "");
}

#[tokio::test]
async fn what_was_used_stays_used_when_a_limit_changes() {
    let mut server = Management::start().await;
    let client = Client::start(server.settings());
    let (mut peer, _) = server.stream().await;
    peer.send("1", "n1", &[per_day(5)]);
    peer.accepted("1", "n1").await;
    for _ in 0..3 {
        client.status("d", &[("a", "")]).await;
    }
    peer.send("2", "n2", &[per_day(10)]);
    peer.accepted("2", "n2").await;
    assert_eq!(client.status("d", &[("a", "")]).await.limit_remaining, 6);
}

#[tokio::test]
async fn a_snapshot_of_nothing_ends_all_limits() {
    let mut server = Management::start().await;
    let client = Client::start(server.settings());
    let (mut peer, _) = server.stream().await;
    let asked = request("d", vec![descriptor(&[("a", "")])]);
    let error = client.service.should_rate_limit(&asked).await.unwrap_err();
    assert_eq!(error.to_string(), "no rate limit configuration loaded");
    assert!(client.service.ready().await.is_err());

    peer.send("1", "n1", &[per_day(5)]);
    peer.accepted("1", "n1").await;
    assert_eq!(client.limit().await, "5/DAY");
    peer.send("2", "n2", &[]);
    peer.accepted("2", "n2").await;
    assert_eq!(client.limit().await, "");
    client.service.ready().await.unwrap();
}

#[tokio::test]
async fn the_limits_in_force_are_listed_with_their_resources() {
    let mut server = Management::start().await;
    let client = Client::start(server.settings());
    let (mut peer, _) = server.stream().await;
    peer.send("1", "n1", &basic());
    peer.accepted("1", "n1").await;
    let list = client.service.decider().config().unwrap().list();
    let list: Vec<_> = list
        .iter()
        .map(|listed| format!("{} {} {}", listed.key, listed.limit, listed.place))
        .collect();
    assert_eq!(
        list,
        [
            "another.key2 20 per 1m another-limits",
            "another.key3 10 per 1h another-limits",
            "another.key4 20 per 1d another-limits",
            "basic.key1 50 per 1s basic-limits",
        ]
    );
}
