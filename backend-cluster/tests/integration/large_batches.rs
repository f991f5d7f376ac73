//! Tests of batches that need many script calls and many writes.
#![allow(clippy::unwrap_used, reason = "a helper of a test that fails panics, as the test does")]

use tidegate_cluster::{Call, Charge, ClusterStore, Store};
use tidegate_test_servers::Cluster;

const CALLS: usize = 300_000;

/// Guards against a defect: the store sent a large batch as a few script calls in one write, and
/// each script call took several seconds. So all calls timed out, although all of them were
/// charged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_call_of_a_batch_of_a_hot_subject_is_answered() {
    let cluster = Cluster::start().await.unwrap();
    let store = ClusterStore::new(cluster.urls()).unwrap();
    let policy = "p: gcra 200000/10d".parse().unwrap();
    let charge = [Charge::new(&policy, "hot")];
    let calls = vec![Call::acquire(&charge); CALLS];
    let mut admitted = 0;
    for (index, answer) in store.decide_many(&calls).await.into_iter().enumerate() {
        let decision = answer.unwrap_or_else(|error| panic!("call {index}: {error}"));
        admitted += u64::from(decision.is_allowed());
    }
    assert!((200_000..200_100).contains(&admitted), "{admitted}");
}
