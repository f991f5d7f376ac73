//! Tests of holds on a real cluster.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of a test that fails panics, as the test does"
)]

use std::time::Duration;

use tidegate_cluster::{
    Call, CallId, Charge, ClusterStore, Decision, Error, ErrorKind, ManualClock, Operation, Policy,
    Store, Timestamp,
};
use tidegate_test_servers::{Cluster, Redis, eventually};
use tidegate_testkit::ModelStore;

use crate::common::{cluster, fresh_prefix, patient, policy, store_at, subject_on, used};
use crate::scene::tenant_at;

const HOUR: Duration = Duration::from_secs(3600);
const SOON: Duration = Duration::from_secs(9);

async fn decide(
    store: &ClusterStore,
    operation: Operation,
    id: &str,
    charges: &[Charge<'_>],
) -> Result<Decision, Error> {
    store.decide(Call::new(operation, charges).with_id(CallId::new(id, HOUR))).await
}

#[tokio::test]
async fn a_hold_across_slots_is_an_error_and_holds_nothing() {
    let clock = ManualClock::new(Timestamp::from_micros(1_790_000_000_000_123));
    let cluster = cluster().await;
    let (one, other) = (subject_on(cluster, 0, 0).await, subject_on(cluster, 1, 0).await);
    let store = store_at(&clock).await;
    let (p, q) = (policy("p: fixed-window 9/1d"), policy("q: gcra 9/1d burst 9"));
    let apart = [Charge::new(&p, &one).cost(3), Charge::new(&q, &other).cost(3)];
    for operation in [
        Operation::Hold,
        Operation::HoldUpTo { min: 1 },
        Operation::Settle,
        Operation::SettleSoFar,
        Operation::Extend,
    ] {
        let call = Call::new(operation, &apart).with_id(CallId::new("id", HOUR));
        let mut answers = store.decide_many(&[call, call]).await;
        answers.push(store.decide(call).await);
        for answer in answers {
            let error = answer.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
            let message = error.to_string();
            assert!(message.contains("this hold") && message.contains("tenant"), "{message}");
        }
    }
    assert_eq!([used(&store, apart[0]).await, used(&store, apart[1]).await], [0, 0]);
    let together = apart.map(|charge| charge.tenant("acme"));
    assert!(decide(&store, Operation::Hold, "id", &together).await.unwrap().is_allowed());
    let actual = [together[0].cost(1), together[1].cost(5)];
    let settled = decide(&store, Operation::Settle, "id", &actual).await.unwrap();
    assert_eq!(settled.amounts(), [2, 2]);
}

/// A peek across slots reports for each charge the unspent amount in its slot. A refused acquire
/// across slots also peeks, but must not report unspent amounts.
#[tokio::test]
async fn a_peek_across_slots_reports_the_unspent_amounts_of_each_slot() {
    let clock = ManualClock::new(Timestamp::from_micros(1_790_000_000_000_123));
    let cluster = cluster().await;
    let (one, other) = (subject_on(cluster, 0, 0).await, subject_on(cluster, 1, 0).await);
    let store = store_at(&clock).await;
    let (p, q) = (policy("p: fixed-window 9/1d refund-lapsed"), policy("q: gcra 9/1d burst 9"));
    let charges = [
        Charge::new(&p, &one).cost(1),
        Charge::new(&q, &one).cost(1),
        Charge::new(&p, &other).cost(1),
    ];
    for (id, charge) in [("a", charges[0].cost(5)), ("b", charges[2].cost(3))] {
        assert!(decide(&store, Operation::Hold, id, &[charge]).await.unwrap().is_allowed());
    }
    let peek = store.decide(Call::new(Operation::Peek, &charges)).await.unwrap();
    assert_eq!(peek.unspent(), [Some(5), None, Some(3)]);
    let apart = [charges[1], Charge::new(&q, &other)];
    let peek = store.decide(Call::new(Operation::Peek, &apart)).await.unwrap();
    assert_eq!(peek.unspent(), []);
    for cost in [1, 5] {
        let charges = charges.map(|charge| charge.cost(cost));
        let acquire = store.decide(Call::acquire(&charges)).await.unwrap();
        assert_eq!((acquire.is_allowed(), acquire.unspent()), (cost == 1, &[][..]));
    }
}

/// The store sends each hold and each settlement of a batch alone. It must still execute the calls
/// in the order of the batch.
#[tokio::test]
async fn a_batch_with_holds_is_decided_in_order() {
    let clock = ManualClock::new(Timestamp::from_micros(1_790_000_000_000_123));
    let store = store_at(&clock).await;
    let p = policy("p: fixed-window 99/1d");
    let (one, ten, four) =
        ([Charge::new(&p, "s")], [Charge::new(&p, "s").cost(10)], [Charge::new(&p, "s").cost(4)]);
    let id = CallId::new("id", HOUR);
    let plain = Call::acquire(&one);
    let hold = Call::new(Operation::Hold, &ten).with_id(id);
    let settle = Call::new(Operation::Settle, &four).with_id(id);
    let calls = [plain, hold, plain, plain, hold, settle, plain, settle, hold];
    let remaining = |answer: Result<Decision, Error>| answer.unwrap().verdicts()[0].remaining();
    let answers = store.decide_many(&calls).await.into_iter().map(remaining);
    assert_eq!(answers.collect::<Vec<_>>(), [98, 88, 87, 86, 88, 92, 91, 92, 88]);
}

/// The record of a hold is in the slot of the hold's states. So the record must move with the slot,
/// and must be replicated together with the charges.
#[tokio::test]
async fn a_hold_is_settled_after_its_slot_has_moved_and_after_a_failover_that_kept_the_data() {
    let node = Redis::builder().password("secret");
    let cluster = Cluster::builder().node(node).replicas(1).start().await.unwrap();
    let prefix = fresh_prefix();
    let store = patient(&cluster).prefix(&prefix).wait_for_replicas(1, SOON).build().unwrap();
    let tenant = tenant_at(&cluster, 0).await;
    let (p, q) = (policy("p: fixed-window 100/10d anchored"), policy("q: sliding-log 500/10d"));
    let held = [Charge::new(&p, "s").cost(7), Charge::new(&q, "s").cost(2)];
    let held = held.map(|charge| charge.tenant(&tenant));
    let actual = [held[0].cost(4), held[1].cost(5)];
    for id in ["early", "late"] {
        assert!(decide(&store, Operation::Hold, id, &held).await.unwrap().is_allowed());
    }

    let slot = Cluster::slot_of(tenant.as_bytes());
    cluster.move_slot(slot, 1).await.unwrap();
    let first = decide(&store, Operation::Settle, "early", &actual).await.unwrap();
    assert_eq!(first.amounts(), [3, 3]);
    let _ = decide(&store, Operation::SettleSoFar, "late", &held).await.unwrap();

    cluster.node(1).kill().await.unwrap();
    assert_ne!(cluster.primary_after(1, slot).await.unwrap(), 1);
    for _ in 0..2 {
        let store = patient(&cluster).prefix(&prefix).build().unwrap();
        for id in ["early", "late"] {
            let again = async || decide(&store, Operation::Settle, id, &actual).await.ok();
            let settled = eventually(SOON, "the new primary", again).await.unwrap();
            assert_eq!(settled.amounts(), [3, 3], "{id}");
        }
        assert_eq!([used(&store, held[0]).await, used(&store, held[1]).await], [8, 10]);
    }
}

/// Two policies share their state, and only the second has `refund-lapsed`. When a hold under the
/// second policy lapses, decisions under the first policy must change exactly as in the core. The
/// test compares calls within a slot, in a batch and across slots.
#[tokio::test]
async fn a_policy_without_refund_lapsed_sees_lapses_as_the_core_does() {
    let clock = ManualClock::new(Timestamp::from_micros(1_790_000_000_000_123));
    let cluster = cluster().await;
    let (one, other) = (subject_on(cluster, 0, 0).await, subject_on(cluster, 1, 0).await);
    let store = store_at(&clock).await;
    let model = ModelStore::keeping_all(clock.clone());
    let plain = [policy("p: gcra 9/1h burst 9"), policy("q: token-bucket 9/1h by-interval")];
    let lapsing = plain.clone().map(Policy::refund_lapsed);
    let [plain_charges, lapsing_charges] = [&plain, &lapsing]
        .map(|policies| [Charge::new(&policies[0], &one), Charge::new(&policies[1], &other)]);
    for seconds in [0, 59, 1, 40, 100] {
        clock.advance(Duration::from_secs(seconds));
        for (number, charge) in lapsing_charges.into_iter().enumerate() {
            let (id, held) = (format!("{number} {seconds}"), [charge.cost(4)]);
            let id = CallId::new(&id, Duration::from_secs(60));
            let call = Call::new(Operation::Hold, &held).with_id(id);
            assert_eq!(store.decide(call).await.unwrap(), model.decide(call).await.unwrap());
        }
        for all in [plain_charges, lapsing_charges] {
            for charges in [&all[..1], &all[1..], &all[..]] {
                for operation in [
                    Operation::Peek,
                    Operation::Acquire,
                    Operation::Reserve { max_wait: HOUR },
                    Operation::Reserve { max_wait: Duration::from_secs(1) },
                ] {
                    let call = Call::new(operation, charges);
                    let expected = model.decide(call).await.unwrap();
                    assert_eq!(store.decide(call).await.unwrap(), expected, "{seconds}: {call:?}");
                }
            }
            let calls = [&all[..1], &all[1..]].map(|charges| Call::new(Operation::Peek, charges));
            let answers = store.decide_many(&calls).await;
            for (answer, call) in answers.into_iter().zip(&calls) {
                assert_eq!(answer.unwrap(), model.decide(*call).await.unwrap(), "{call:?}");
            }
        }
    }
}
