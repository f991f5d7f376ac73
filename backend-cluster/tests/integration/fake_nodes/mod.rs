//! Tests of the routing of calls, on fake nodes whose replies a test sets.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of a test that fails panics, as the test does"
)]

mod across;
mod batches;
pub(crate) mod node;
mod redirects;
mod replicas;
mod topology;

use std::time::Duration;

use tidegate_cluster::{Call, Charge, ClusterStore, Decision, Error, Policy, Store};

use node::Node;

/// A subject whose slot is in the first half of all slots, and a subject whose slot is in the
/// second half.
const LOW: &str = "low-1";
const HIGH: &str = "high-2";

/// Starts two fake nodes and a store on these nodes. Each node serves half of the slots.
async fn two_nodes() -> (Node, Node, ClusterStore) {
    let (low, high) = (Node::start().await, Node::start().await);
    for node in [&low, &high] {
        node.sees(&[(0, 8_191, &low), (8_192, 16_383, &high)]);
    }
    let store = store([&low]);
    (low, high, store)
}

fn store<'n>(nodes: impl IntoIterator<Item = &'n Node>) -> ClusterStore {
    let builder = ClusterStore::builder().urls(nodes.into_iter().map(Node::url));
    let builder = builder.connect_timeout(Duration::from_millis(300));
    builder.response_timeout(Duration::from_millis(300)).build().unwrap()
}

fn policy() -> Policy {
    "p: fixed-window 10/1s".parse().unwrap()
}

async fn acquire(store: &ClusterStore, subject: &str) -> Result<Decision, Error> {
    let policy = policy();
    store.decide(Call::acquire(&[Charge::new(&policy, subject)])).await
}

/// Returns the slot of a subject without a tenant.
fn slot(subject: &str) -> u16 {
    let tag = subject.as_bytes();
    // The checksum is the CRC16 of the specification of Redis Cluster, and is computed bit by bit.
    let crc = tag.iter().fold(0_u16, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    });
    crc % 16_384
}

#[test]
fn the_subjects_of_these_tests_lie_in_different_halves() {
    // The expected slots are the replies of Redis to CLUSTER KEYSLOT for the keys `foo` and
    // `123456789`.
    assert_eq!((slot("foo"), slot("123456789")), (12_182, 12_739));
    assert!(slot(LOW) < 8_192 && slot(HIGH) >= 8_192, "{} {}", slot(LOW), slot(HIGH));
}
