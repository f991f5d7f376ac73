//! Tests of the queries by which the store learns the assignment of slots to nodes.

use std::time::{Duration, Instant};

use tidegate_cluster::{ClusterStore, ErrorKind, Store, Timestamp};
use tidegate_test_servers::{eventually, free_port};

use super::node::{Node, Say};
use super::{HIGH, LOW, acquire, slot, store, two_nodes};

fn slot_queries(node: &Node) -> usize {
    node.commands().iter().filter(|word| *word == "CLUSTER").count()
}

#[tokio::test]
async fn concurrent_callers_wait_for_the_same_slot_query() {
    let (low, high, store) = two_nodes().await;
    let calls = (0..64).map(|n| acquire(&store, if n % 2 == 0 { LOW } else { HIGH }));
    for answer in futures_util::future::join_all(calls).await {
        assert!(answer.unwrap().is_allowed());
    }
    assert_eq!(
        (low.calls(), high.calls(), slot_queries(&low), slot_queries(&high)),
        (32, 32, 1, 0)
    );
}

#[tokio::test]
async fn the_slots_are_queried_again_but_not_after_every_error() {
    let (low, high, store) = two_nodes().await;
    assert!(acquire(&store, LOW).await.unwrap().is_allowed());
    low.says(vec![Say::Error("CLUSTERDOWN The cluster is down".to_owned()); 10_000]);
    let four_rounds = async || {
        // On a busy machine, the call can time out before the store queries the nodes, so the test
        // also accepts a timeout.
        let kind = acquire(&store, LOW).await.unwrap_err().kind();
        assert!(matches!(kind, ErrorKind::Unavailable | ErrorKind::Timeout), "{kind:?}");
        let mut times = [low.received(), high.received()].concat();
        times.retain(|command| command.words[0] == "CLUSTER");
        (times.len() >= 4).then_some(times)
    };
    let mut times = eventually(Duration::from_secs(20), "four rounds", four_rounds).await.unwrap();
    times.sort_by_key(|command| command.at);
    for pair in times.windows(2) {
        let pause = pair[1].at - pair[0].at;
        assert!(pause >= Duration::from_millis(99), "{pause:?}");
    }
}

/// A node that loads its data, or that is isolated, is possibly replaced by its replica.
#[tokio::test]
async fn the_slots_are_queried_again_after_an_error_of_the_limit_set() {
    for text in ["CLUSTERDOWN The cluster is down", "LOADING Redis is loading the dataset"] {
        let (low, high, store) = two_nodes().await;
        assert!(acquire(&store, LOW).await.unwrap().is_allowed());
        let before = slot_queries(&low) + slot_queries(&high);
        low.says(vec![Say::Error(text.to_owned()); 100]);
        assert!(store.limit_book().read().await.is_err());
        let is_queried = async || (slot_queries(&low) + slot_queries(&high) > before).then_some(());
        eventually(Duration::from_secs(20), "a query", is_queried).await.unwrap();
    }
}

#[tokio::test]
async fn a_redirected_call_does_not_wait_for_a_new_slot_map() {
    // The store queries the nodes for the slot map at most every 100 ms. A redirected call must not
    // wait for the next query, so it must end earlier. On a slow machine, the call can still end
    // later, so the test makes several attempts.
    for _ in 0..20 {
        let (low, high, store) = two_nodes().await;
        assert!(acquire(&store, LOW).await.unwrap().is_allowed());
        let start = Instant::now();
        low.says([high.redirect("MOVED", slot(LOW))]);
        assert!(acquire(&store, LOW).await.unwrap().is_allowed());
        let rounds = slot_queries(&low) + slot_queries(&high);
        if start.elapsed() < Duration::from_millis(90) {
            assert_eq!(rounds, 1);
            return;
        }
    }
    panic!("every attempt took longer than the pause between two rounds");
}

#[tokio::test]
async fn a_replaced_node_is_found_without_a_redirect() {
    let (low, high, store) = two_nodes().await;
    assert!(acquire(&store, LOW).await.unwrap().is_allowed());
    high.sees(&[(0, 16_383, &high)]);
    drop(low);
    let error = acquire(&store, LOW).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let is_back = async || acquire(&store, LOW).await.ok();
    let _ = eventually(Duration::from_secs(2), "the store", is_back).await.unwrap();
    assert_eq!(high.calls(), 1);
}

#[tokio::test]
async fn one_node_that_answers_is_enough() {
    let (_, high, _) = two_nodes().await;
    high.sees(&[(0, 16_383, &high)]);
    let closed = format!("redis://127.0.0.1:{}", free_port().unwrap());
    let silent = Node::start().await;
    for _ in 0..5 {
        let urls = [closed.clone(), silent.url(), high.url()];
        let store = ClusterStore::new(urls).unwrap();
        // The first node is down, and the second node replies that it knows no slots. So the store
        // must query the third node.
        assert!(acquire(&store, LOW).await.unwrap().is_allowed());
    }
}

#[tokio::test]
async fn b48_a_cluster_that_is_down_delays_no_building_and_fails_calls_soon() {
    let urls = (0..3).map(|_| format!("redis://127.0.0.1:{}", free_port().unwrap()));
    let start = Instant::now();
    let store = ClusterStore::new(urls).unwrap();
    for _ in 0..50 {
        let error = acquire(&store, LOW).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    }
    // The first call waits until the attempts to connect have failed. Most later calls fail
    // immediately.
    assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
}

#[tokio::test]
async fn a_slot_that_no_node_serves_is_an_error_that_names_it() {
    let (low, _high, _) = two_nodes().await;
    low.sees(&[(0, 10, &low)]);
    let error = acquire(&store([&low]), HIGH).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains(&slot(HIGH).to_string()), "{error}");
}

#[tokio::test]
async fn a_server_that_is_not_a_cluster_is_an_error() {
    let redis = tidegate_test_servers::Redis::start().await.unwrap();
    let store = ClusterStore::new([redis.url()]).unwrap();
    let error = acquire(&store, LOW).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnsupportedServer, "{error}");
}

#[tokio::test]
async fn the_time_is_read_from_any_node_that_answers() {
    let (low, _high, _) = two_nodes().await;
    let closed = format!("redis://127.0.0.1:{}", free_port().unwrap());
    let store = ClusterStore::new([closed, low.url()]).unwrap();
    assert_eq!(store.now().await.unwrap(), Timestamp::from_micros(17_000_005));
}

#[test]
fn invalid_settings_are_rejected_when_the_store_is_built() {
    for urls in [
        &[][..],
        &["http://127.0.0.1"],
        &["redis://:secret@127.0.0.1:port"],
        &["redis://127.0.0.1/3"],
        &["redis+unix:///tmp/a.sock"],
        &["redis://:secret@127.0.0.1", "redis://127.0.0.2"],
        &["redis://127.0.0.1", "rediss://127.0.0.2"],
    ] {
        let error = ClusterStore::new(urls.iter().copied()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{urls:?}");
        assert!(!error.to_string().contains("secret"), "{error}");
    }
    let waiting = |micros| {
        let builder = ClusterStore::builder().urls(["redis://127.0.0.1"]);
        builder.wait_for_replicas(1, Duration::from_micros(micros)).build()
    };
    assert!(waiting(1_000).is_ok() && waiting(499_999).is_ok());
    for micros in [0, 999, 500_000] {
        assert_eq!(waiting(micros).unwrap_err().kind(), ErrorKind::InvalidConfig);
    }
}
