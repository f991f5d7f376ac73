//! Learning who serves what.

use std::time::{Duration, Instant};

use tidegate_cluster::{ClusterStore, ErrorKind, Store, Timestamp};
use tidegate_testkit::servers::{eventually, free_port};

use super::node::{Node, Say};
use super::{HIGH, LOW, acquire, slot, store, two_nodes};

fn asked(node: &Node) -> usize {
    node.commands().iter().filter(|word| *word == "CLUSTER").count()
}

#[tokio::test]
async fn callers_who_come_at_once_wait_for_one_and_the_same_answer() {
    let (low, high, store) = two_nodes().await;
    let calls = (0..64).map(|n| acquire(&store, if n % 2 == 0 { LOW } else { HIGH }));
    for answer in futures_util::future::join_all(calls).await {
        assert!(answer.unwrap().is_allowed());
    }
    assert_eq!((low.calls(), high.calls(), asked(&low), asked(&high)), (32, 32, 1, 0));
}

#[tokio::test]
async fn the_nodes_are_asked_again_but_not_at_every_error() {
    let (low, high, store) = two_nodes().await;
    assert!(acquire(&store, LOW).await.unwrap().is_allowed());
    low.says(vec![Say::Error("CLUSTERDOWN The cluster is down".to_owned()); 10_000]);
    let four_rounds = async || {
        // On a machine that is busy, the time of a call may be over before the rounds that it waits for.
        let kind = acquire(&store, LOW).await.unwrap_err().kind();
        assert!(matches!(kind, ErrorKind::Unavailable | ErrorKind::Timeout), "{kind:?}");
        let mut times = [low.heard(), high.heard()].concat();
        times.retain(|heard| heard.words[0] == "CLUSTER");
        (times.len() >= 4).then_some(times)
    };
    let mut times = eventually(Duration::from_secs(20), "four rounds", four_rounds).await.unwrap();
    times.sort_by_key(|heard| heard.at);
    for pair in times.windows(2) {
        let pause = pair[1].at - pair[0].at;
        assert!(pause >= Duration::from_millis(99), "{pause:?}");
    }
}

#[tokio::test]
async fn a_call_does_not_wait_for_the_nodes_where_its_own_is_known() {
    // The next round begins 100 ms after the first: who has not waited for it is done before. On a
    // machine that is slower than that for once, it is tried again.
    for _ in 0..20 {
        let (low, high, store) = two_nodes().await;
        assert!(acquire(&store, LOW).await.unwrap().is_allowed());
        let start = Instant::now();
        low.says([high.referred_to("MOVED", slot(LOW))]);
        assert!(acquire(&store, LOW).await.unwrap().is_allowed());
        let rounds = asked(&low) + asked(&high);
        if start.elapsed() < Duration::from_millis(90) {
            assert_eq!(rounds, 1);
            return;
        }
    }
    panic!("each time it took longer than the pause between two rounds");
}

#[tokio::test]
async fn a_replaced_node_is_found_without_being_told() {
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
    let nobody = format!("redis://127.0.0.1:{}", free_port().unwrap());
    let silent = Node::start().await;
    for _ in 0..5 {
        let urls = [nobody.clone(), silent.url(), high.url()];
        let store = ClusterStore::new(urls).unwrap();
        // The silent one knows of no slots, and so is no help either.
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
    // The first waits for the nodes; most others for nothing.
    assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
}

#[tokio::test]
async fn a_slot_that_nobody_serves_is_an_error_that_names_it() {
    let (low, _high, _) = two_nodes().await;
    low.sees(&[(0, 10, &low)]);
    let error = acquire(&store([&low]), HIGH).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains(&slot(HIGH).to_string()), "{error}");
}

#[tokio::test]
async fn a_server_that_is_no_cluster_says_so() {
    let redis = tidegate_testkit::servers::Redis::start().await.unwrap();
    let store = ClusterStore::new([redis.url()]).unwrap();
    let error = acquire(&store, LOW).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnsupportedServer, "{error}");
}

#[tokio::test]
async fn the_time_is_that_of_any_node_that_answers() {
    let (low, _high, _) = two_nodes().await;
    let nobody = format!("redis://127.0.0.1:{}", free_port().unwrap());
    let store = ClusterStore::new([nobody, low.url()]).unwrap();
    assert_eq!(store.now().await.unwrap(), Timestamp::from_micros(17_000_005));
}

#[test]
fn what_is_no_cluster_is_refused_when_the_store_is_built() {
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
    let impatient = |micros| {
        let builder = ClusterStore::builder().urls(["redis://127.0.0.1"]);
        builder.wait_for_replicas(1, Duration::from_micros(micros)).build()
    };
    assert!(impatient(1_000).is_ok() && impatient(499_999).is_ok());
    for micros in [0, 999, 500_000] {
        assert_eq!(impatient(micros).unwrap_err().kind(), ErrorKind::InvalidConfig);
    }
}
