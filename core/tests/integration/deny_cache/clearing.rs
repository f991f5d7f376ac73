//! Tests against defect B45: a cached refusal must end when any call has possibly changed the
//! state.

use std::time::Duration;

use tidegate_core::{
    Call, CallId, Charge, Decision, ErrorKind, Operation, Policy, Store, Timestamp,
};
use tidegate_testkit::faults::{Fault, Faults};

use super::common::{Bench, Source, policy, poll, ready};

const HOUR: Duration = Duration::from_secs(3600);

/// Exhausts a bucket, so that the cache contains a refusal.
fn refused(bench: &Bench, bucket: &Policy) {
    let charge = [Charge::new(bucket, "s")];
    assert!(bench.acquire_by(Source::Store, &charge).is_allowed());
    assert!(bench.acquire_by(Source::Store, &charge).is_denied());
    assert!(bench.acquire_by(Source::Cache, &charge).is_denied());
}

/// Some operations, other than acquires, that can change a state.
const CHANGES: [Operation; 7] = [
    Operation::Refund,
    Operation::Undo { at: Timestamp::EPOCH },
    Operation::Reset,
    Operation::Block { span: Duration::ZERO },
    Operation::Block { span: HOUR },
    Operation::BlockAtLeast { span: HOUR },
    Operation::Reserve { max_wait: HOUR },
];

#[test]
fn b45_every_operation_that_may_change_a_state_clears_its_cached_refusals() {
    let bucket = policy("gcra 1/1m burst 1");
    for change in CHANGES {
        let bench = Bench::new();
        refused(&bench, &bucket);
        let changed = bench.decide(change, &[Charge::new(&bucket, "s")]);
        assert_eq!(changed.degraded(), None);
        let decision = bench.acquire_by(Source::Store, &[Charge::new(&bucket, "s")]);
        let is_allowed = matches!(change, Operation::Refund | Operation::Reset);
        assert_eq!(decision.is_allowed(), is_allowed, "{change:?}");
    }
}

/// A grant through the cache clears the denial. A grant of another process cannot clear it, so the
/// denial ends after two seconds.
#[test]
fn b45_a_grant_clears_the_cached_refusals_of_its_subject() {
    let quota = policy("p: quota 1/day in UTC");
    let charge = [Charge::new(&quota, "s")];
    let grant = Call::new(Operation::Grant { ends_at: None }, &charge)
        .with_id(CallId::new("invoice 17", HOUR));
    let bench = Bench::new();
    refused(&bench, &quota);
    let _ = ready(bench.store.decide(grant)).unwrap();
    assert!(bench.acquire_by(Source::Store, &charge).is_allowed());

    let bench = Bench::new();
    refused(&bench, &quota);
    let _ = ready(bench.store.inner().decide(grant)).unwrap();
    bench.clock.advance(Duration::from_micros(1_999_999));
    assert!(bench.acquire_by(Source::Cache, &charge).is_denied());
    bench.clock.advance(Duration::from_micros(1));
    assert!(bench.acquire_by(Source::Store, &charge).is_allowed());
}

#[test]
fn b45_a_change_of_several_subjects_clears_their_cached_refusals() {
    let bucket = policy("gcra 1/1m burst 1");
    let other = policy("other: sliding-log 9/1h");
    for change in CHANGES.into_iter().take(5) {
        let bench = Bench::new();
        refused(&bench, &bucket);
        let charges =
            [Charge::new(&other, "t"), Charge::new(&bucket, "t"), Charge::new(&bucket, "s")];
        let _ = bench.decide(change, &charges);
        let _ = bench.acquire_by(Source::Store, &[Charge::new(&bucket, "s")]);
    }
}

/// A subject is too long for the cache, and shares its state with other subjects of the tenant.
#[test]
fn b45_a_change_by_a_long_subject_clears_the_cached_refusals_of_its_tenant() {
    let bench = Bench::new();
    let policy = policy("p: fixed-window 1/1d shards 1 by-subject");
    let charge = [Charge::new(&policy, "alice").tenant("t")];
    assert!(bench.acquire_by(Source::Store, &charge).is_allowed());
    assert!(bench.acquire_by(Source::Store, &charge).is_denied());
    assert!(bench.acquire_by(Source::Cache, &charge).is_denied());
    let long = [b'x'; 5_000];
    let _ = bench.decide(Operation::Reset, &[Charge::new(&policy, &long[..]).tenant("t")]);
    assert!(bench.acquire_by(Source::Store, &charge).is_allowed());
}

#[test]
fn b45_a_change_in_a_batch_clears_the_cached_refusals() {
    let bucket = policy("gcra 1/1m burst 1");
    for change in CHANGES {
        let bench = Bench::new();
        refused(&bench, &bucket);
        let charge = [Charge::new(&bucket, "s")];
        let calls = [Call::new(change, &charge)];
        assert!(ready(bench.store.decide_many(&calls))[0].is_ok());
        let _ = bench.acquire_by(Source::Store, &charge);
    }
}

#[test]
fn b45_a_failed_or_lost_change_clears_the_cached_refusals() {
    let bucket = policy("gcra 1/1m burst 1");
    let charge = [Charge::new(&bucket, "s")];
    for change in CHANGES {
        for fault in [Fault::After(ErrorKind::Timeout), Fault::Before(ErrorKind::Unavailable)] {
            let bench = Bench::failing(vec![Fault::None, Fault::None, fault]);
            refused(&bench, &bucket);
            assert!(bench.try_decide(change, &charge).is_err());
            let _ = bench.acquire_by(Source::Store, &charge);
        }
        for fault in [Fault::Late, Fault::Delayed] {
            let bench = Bench::failing(vec![Fault::None, Fault::None, fault]);
            refused(&bench, &bucket);
            {
                let mut lost = std::pin::pin!(bench.store.decide(Call::new(change, &charge)));
                assert!(poll(lost.as_mut()).is_pending());
            }
            let _ = bench.acquire_by(Source::Store, &charge);
        }
    }
}

#[test]
fn b45_a_refund_in_flight_clears_the_cached_refusals() {
    let bench = Bench::failing(vec![Fault::None, Fault::None, Fault::Late]);
    let bucket = policy("gcra 1/1m burst 1");
    let charge = [Charge::new(&bucket, "s")];
    refused(&bench, &bucket);
    let mut refund = std::pin::pin!(bench.store.decide(Call::new(Operation::Refund, &charge)));
    assert!(poll(refund.as_mut()).is_pending());
    assert!(bench.acquire_by(Source::Store, &charge).is_allowed());
}

#[test]
fn b45_a_refusal_in_flight_during_a_refund_is_not_cached() {
    for change in [Operation::Refund, Operation::Reset, Operation::Block { span: Duration::ZERO }] {
        let bench = Bench::failing(vec![Fault::None, Fault::Late]);
        let bucket = policy("gcra 1/1m burst 1");
        let charge = [Charge::new(&bucket, "s")];
        assert!(bench.acquire_by(Source::Store, &charge).is_allowed());
        let mut late = std::pin::pin!(bench.store.decide(Call::acquire(&charge)));
        assert!(poll(late.as_mut()).is_pending());
        let _ = bench.decide(change, &charge);
        crate::run(Faults::deliver(bench.store.inner()));
        assert!(crate::run(late).unwrap().is_denied(), "the call was executed before the refund");
        let _ = bench.acquire_by(Source::Store, &charge);
    }
}

#[test]
fn b45_a_refusal_that_arrives_while_a_refund_is_in_flight_is_not_cached() {
    let bench = Bench::failing(vec![Fault::None, Fault::Delayed]);
    let bucket = policy("gcra 1/1m burst 1");
    let charge = [Charge::new(&bucket, "s")];
    assert!(bench.acquire_by(Source::Store, &charge).is_allowed());
    let mut refund = std::pin::pin!(bench.store.decide(Call::new(Operation::Refund, &charge)));
    assert!(poll(refund.as_mut()).is_pending());
    assert!(bench.acquire_by(Source::Store, &charge).is_denied());
    crate::run(Faults::deliver(bench.store.inner()));
    assert!(crate::run(refund).is_ok());
    assert!(bench.acquire_by(Source::Store, &charge).is_allowed());
}

#[test]
fn a_later_charge_extends_the_wait_of_larger_costs() {
    let bench = Bench::new();
    let bucket = policy("token-bucket 1/1s burst 4");
    let wait = |decision: &Decision| decision.retry_after().unwrap().as_secs();
    assert!(bench.acquire(&bucket, 2).is_allowed());
    let large = [Charge::new(&bucket, "s").cost(4)];
    assert_eq!(wait(&bench.acquire_by(Source::Store, &large)), 2);
    assert!(bench.acquire(&bucket, 1).is_allowed());
    assert_eq!(wait(&bench.acquire_by(Source::Store, &large)), 3);
    assert_eq!(wait(&bench.acquire_by(Source::Cache, &large)), 3);
    // An acquire with a cost of 0 charges nothing, so the refusal stays cached.
    assert!(bench.acquire(&bucket, 0).is_allowed());
    assert_eq!(wait(&bench.acquire_by(Source::Cache, &large)), 3);
}

#[test]
fn a_block_that_a_refusal_wrote_is_seen_by_all_calls_for_its_subject() {
    let bench = Bench::new();
    let strict = policy("strict: sliding-log 2/1h block 1h");
    let wide = policy("wide: sliding-log 1/1h");
    let both = [Charge::new(&wide, "s"), Charge::new(&strict, "s")];
    let refused_by = |source| bench.acquire_by(source, &both).refused_by().collect::<Vec<_>>();
    assert!(bench.acquire_by(Source::Store, &both).is_allowed());
    assert!(bench.acquire(&strict, 1).is_allowed());
    let more = [Charge::new(&wide, "s"), Charge::new(&strict, "s").cost(0)];
    let refused_by_more = |source| bench.acquire_by(source, &more).refused_by().collect::<Vec<_>>();
    assert_eq!(refused_by_more(Source::Store), [0]);
    assert_eq!(refused_by_more(Source::Cache), [0]);
    assert!(bench.acquire(&strict, 1).is_denied());
    assert_eq!(refused_by_more(Source::Store), [0, 1]);
    assert_eq!(refused_by_more(Source::Cache), [0, 1]);
    assert_eq!(refused_by(Source::Store), [0, 1]);
}

#[test]
fn after_a_lost_acquire_the_store_is_called() {
    for fault in [Fault::After(ErrorKind::Timeout), Fault::Late] {
        let bench = Bench::failing(vec![Fault::None, Fault::None, fault]);
        let bucket = policy("token-bucket 1/1s burst 4");
        assert!(bench.acquire(&bucket, 2).is_allowed());
        let large = [Charge::new(&bucket, "s").cost(4)];
        assert!(bench.acquire_by(Source::Store, &large).is_denied());
        {
            let small = [Charge::new(&bucket, "s")];
            let mut lost = std::pin::pin!(bench.store.decide(Call::acquire(&small)));
            assert!(!matches!(poll(lost.as_mut()), std::task::Poll::Ready(Ok(_))));
        }
        let wait = bench.acquire_by(Source::Store, &large).retry_after();
        assert_eq!(wait, Some(Duration::from_secs(3)), "{fault:?}");
    }
}
