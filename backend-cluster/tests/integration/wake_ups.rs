//! Tests the wake-ups of calls that wait for slots: see `Store::until_turn`.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of a test that fails panics, as the test does"
)]

use std::time::Duration;

use tidegate_cluster::{
    Answer, Call, CallId, Charge, ClusterStore, Decision, Operation, Policy, Store,
};
use tidegate_test_servers::{Cluster, eventually};
use tokio::time::timeout;

use crate::common::{patient, policy};

const HOUR: Duration = Duration::from_secs(3600);
const PATIENCE: Duration = Duration::from_secs(30);
const SUBJECT: &str = "alice";

async fn decide(store: &ClusterStore, policy: &Policy, operation: Operation, id: &str) -> Decision {
    let cost = u64::from(operation != Operation::Settle);
    let charges = [Charge::new(policy, SUBJECT).cost(cost)];
    let call = Call::new(operation, &charges).with_id(CallId::new(id, HOUR));
    store.decide(call).await.unwrap()
}

/// Returns the wake-up of a call, when the store is subscribed.
async fn turn<'a>(store: &'a ClusterStore, policy: &Policy, place: u64) -> Answer<'a, ()> {
    let charges = [Charge::new(policy, SUBJECT)];
    let call = Call::new(Operation::Hold, &charges);
    let subscribed = async || store.until_turn(call.charges, place);
    eventually(PATIENCE, "the subscription", subscribed).await.unwrap()
}

/// The slot moves between the two rounds. The node that loses the slot ends the subscription.
#[tokio::test]
async fn a_settlement_wakes_the_next_call_of_another_store_and_also_after_the_slot_has_moved() {
    let cluster = Cluster::start().await.unwrap();
    let stores = [(); 2].map(|()| patient(&cluster).build().unwrap());
    let policy = policy("slots: concurrent 1 lease 1h");
    let slot = Cluster::slot_of(SUBJECT.as_bytes());
    for round in 0..2 {
        let [first, second, third] = ["1", "2", "3"].map(|number| format!("{round} {number}"));
        let in_turn = Operation::HoldInTurn { place: 0 };
        assert!(decide(&stores[0], &policy, Operation::Hold, &first).await.is_allowed());
        let mut places = vec![];
        for id in [&second, &third] {
            let decision = decide(&stores[1], &policy, in_turn, id).await;
            places.push(decision.place().unwrap().number);
        }
        let next = turn(&stores[1], &policy, places[0]).await;
        let last = turn(&stores[1], &policy, places[1]).await;
        let _ = decide(&stores[0], &policy, Operation::Settle, &first).await;
        timeout(PATIENCE, next).await.unwrap();
        let again = Operation::HoldInTurn { place: places[0] };
        assert!(decide(&stores[1], &policy, again, &second).await.is_allowed());
        let _ = decide(&stores[0], &policy, Operation::Settle, &second).await;
        timeout(PATIENCE, last).await.unwrap();
        let again = Operation::HoldInTurn { place: places[1] };
        assert!(decide(&stores[1], &policy, again, &third).await.is_allowed());
        let _ = decide(&stores[0], &policy, Operation::Settle, &third).await;

        let lost = turn(&stores[1], &policy, 7).await;
        let from = cluster.primary_of_slot(slot).await.unwrap();
        cluster.move_slot(slot, (from + 1) % 3).await.unwrap();
        timeout(PATIENCE, lost).await.unwrap();
    }
}
