//! Tests of calls with an id, charges beyond the limit, acquires up to a cost and check-only
//! charges on a real cluster.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of a test that fails panics, as the test does"
)]

use std::time::Duration;

use tidegate_cluster::{
    Call, CallId, Charge, ClusterStore, Decision, Error, ErrorKind, ManualClock, Operation, Store,
    Timestamp,
};
use tidegate_test_servers::{Cluster, Redis, eventually};

use crate::common::{cluster, fresh_prefix, patient, policy, store_at, subject_on, used};
use crate::scene::tenant_at;

const HOUR: Duration = Duration::from_secs(3600);
const SOON: Duration = Duration::from_secs(9);

/// Returns a store in virtual time, and two subjects with states on different nodes.
async fn scene() -> (ClusterStore, [String; 2]) {
    let clock = ManualClock::new(Timestamp::from_micros(1_790_000_000_000_123));
    let cluster = cluster().await;
    let subjects = [subject_on(cluster, 0, 0).await, subject_on(cluster, 1, 0).await];
    (store_at(&clock).await, subjects)
}

#[tokio::test]
async fn an_id_of_a_call_across_slots_is_an_error_and_charges_nothing() {
    let (store, [one, other]) = scene().await;
    let (p, q) = (policy("p: fixed-window 9/1d"), policy("q: gcra 9/1d burst 9"));
    let id = CallId::new("id", HOUR);
    let apart = [Charge::new(&p, &one), Charge::new(&q, &other)];
    let call = Call::acquire(&apart).with_id(id);
    let mut answers = store.decide_many(&[call, call]).await;
    answers.push(store.decide(call).await);
    for answer in answers {
        let error = answer.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains("tenant"), "{error}");
    }
    assert_eq!([used(&store, apart[0]).await, used(&store, apart[1]).await], [0, 0]);
    let together = apart.map(|charge| charge.tenant("acme"));
    for _ in 0..3 {
        let call = Call::acquire(&together).with_id(id);
        let decision = store.decide(call).await.unwrap();
        assert_eq!(
            decision.verdicts().iter().map(|verdict| verdict.remaining()).collect::<Vec<_>>(),
            [8, 8]
        );
    }
}

/// The store sends each call with an id alone. It must still execute the calls in the order of the
/// batch.
#[tokio::test]
async fn a_batch_with_ids_is_decided_in_order() {
    let (store, subjects) = scene().await;
    let p = policy("p: fixed-window 9/1d");
    let charges = subjects.each_ref().map(|subject| [Charge::new(&p, subject)]);
    let across = [charges[0][0], charges[1][0]];
    let id = |index: usize, id| Call::acquire(&charges[index]).with_id(CallId::new(id, HOUR));
    let plain = |index: usize| Call::acquire(&charges[index]);
    let calls = [
        plain(0),
        id(0, "a"),
        id(1, "a"),
        plain(0),
        id(0, "a"),
        Call::acquire(&across),
        id(0, "b"),
        plain(1),
        id(1, "a"),
        plain(0),
    ];
    let remaining = |answer: Result<Decision, Error>| {
        answer.unwrap().verdicts().iter().map(|verdict| verdict.remaining()).collect::<Vec<_>>()
    };
    let answers = store.decide_many(&calls).await.into_iter().map(remaining);
    let expected: [&[u64]; 10] = [&[8], &[7], &[8], &[6], &[7], &[5, 7], &[4], &[6], &[8], &[3]];
    assert_eq!(answers.collect::<Vec<_>>(), expected);
}

#[tokio::test]
async fn a_charge_across_slots_is_made_in_each_slot_and_its_amounts_are_in_order() {
    let (store, [one, other]) = scene().await;
    let (p, q) = (policy("p: fixed-window 9/1d"), policy("q: gcra 9/1d burst 9"));
    let charges = [
        Charge::new(&p, &one).cost(20),
        Charge::new(&q, &other).cost(u64::MAX),
        Charge::new(&q, &one).cost(3),
        Charge::new(&p, &other).check_only(),
    ];
    let charged = store.decide(Call::new(Operation::Charge, &charges)).await.unwrap();
    // The bucket refills one token per 9,600 s. Its debt must be repaid within 2^51 µs, so the debt
    // has a maximum.
    let max = (1 << 51) / 9_600_000_000;
    assert_eq!(charged.amounts(), [20, max, 3, 0]);
    let refunded = store.decide(Call::new(Operation::Refund, &charges)).await.unwrap();
    assert_eq!(refunded.amounts(), [20, max, 3, 0]);
}

#[tokio::test]
async fn a_check_only_charge_in_another_slot_refuses_the_call_and_charges_nothing() {
    let (store, [one, other]) = scene().await;
    let (p, q) = (policy("p: fixed-window 9/1d"), policy("q: gcra 2/1d burst 2 block 1h"));
    let charges = [Charge::new(&p, &one), Charge::new(&q, &other).check_only()];
    for round in 1..=3 {
        let decision = store.decide(Call::acquire(&charges)).await.unwrap();
        assert!(decision.is_allowed());
        assert_eq!(used(&store, charges[0]).await, round);
        assert_eq!(used(&store, charges[1]).await, 0);
    }
    let full = [Charge::new(&q, &other).cost(2)];
    assert!(store.decide(Call::acquire(&full)).await.unwrap().is_allowed());
    let refused = store.decide(Call::acquire(&charges)).await.unwrap();
    assert_eq!(refused.refused_by().collect::<Vec<_>>(), [1]);
    assert_eq!(refused.verdicts()[1].blocked_for(), HOUR);
    assert_eq!(used(&store, charges[0]).await, 3);
}

#[tokio::test]
async fn an_acquire_up_to_a_cost_across_slots_is_unsupported() {
    let (store, [one, other]) = scene().await;
    let p = policy("p: fixed-window 9/1d");
    let up_to = Operation::AcquireUpTo { min: 1 };
    let apart = [Charge::new(&p, &one).cost(5), Charge::new(&p, &other).cost(5)];
    let error = store.decide(Call::new(up_to, &apart)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains("tenant"), "{error}");
    assert_eq!(used(&store, apart[0]).await, 0);
    let together = apart.map(|charge| charge.tenant("acme"));
    for amount in [5, 4] {
        let decision = store.decide(Call::new(up_to, &together)).await.unwrap();
        assert_eq!(decision.amounts(), [amount, amount]);
    }
}

/// The record of an id is in the slot of the call. So the record must move with the slot, and must
/// be replicated together with the charges.
#[tokio::test]
async fn an_id_is_known_after_its_slot_has_moved_and_after_a_failover_that_kept_the_data() {
    let node = Redis::builder().password("secret");
    let cluster = Cluster::builder().node(node).replicas(1).start().await.unwrap();
    let prefix = fresh_prefix();
    let open = || patient(&cluster).prefix(&prefix).build().unwrap();
    let store = open();
    let tenant = tenant_at(&cluster, 0).await;
    let (p, q) = (policy("p: fixed-window 100/10d anchored"), policy("q: sliding-log 500/10d"));
    let charges = [Charge::new(&p, "s").cost(7), Charge::new(&q, "s").cost(2)];
    let charges = charges.map(|charge| charge.tenant(&tenant));
    let call = Call::acquire(&charges).with_id(CallId::new("once", HOUR));
    let first = store.decide(call).await.unwrap();
    assert_eq!(store.decide(call).await.unwrap(), first);

    cluster.move_slot(Cluster::slot_of(tenant.as_bytes()), 1).await.unwrap();
    assert_eq!(store.decide(call).await.unwrap(), first);
    let mut client = cluster.node(1).client().await.unwrap();
    client.call(&["SET", &format!("{{{tenant}}}marker"), ""]).await.unwrap();
    assert_eq!(client.call(&["WAIT", "1", "9000"]).await.unwrap().text(), "1");

    cluster.node(1).kill().await.unwrap();
    let slot = Cluster::slot_of(tenant.as_bytes());
    assert_ne!(cluster.primary_after(1, slot).await.unwrap(), 1);
    for store in [store, open()] {
        let again = async || store.decide(call).await.ok();
        assert_eq!(eventually(SOON, "the new primary", again).await.unwrap(), first);
        assert_eq!(used(&store, charges[0]).await, 7);
    }
}
