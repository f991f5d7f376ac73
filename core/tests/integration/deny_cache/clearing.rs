//! B45: what is known ends with whatever may have changed it.

use std::time::Duration;

use tidegate_core::{Call, Charge, Decision, ErrorKind, Operation, Policy, Store, Timestamp};
use tidegate_testkit::faults::{Fault, Faults};

use super::common::{Bench, Who, now, policy, poll};

const HOUR: Duration = Duration::from_secs(3600);

/// A bucket of which nothing is left, and a refusal that is remembered.
fn refused(bench: &Bench, bucket: &Policy) {
    let charge = [Charge::new(bucket, "s")];
    assert!(bench.acquire_by(Who::Store, &charge).is_allowed());
    assert!(bench.acquire_by(Who::Store, &charge).is_denied());
    assert!(bench.acquire_by(Who::Cache, &charge).is_denied());
}

/// All that may change a state, but for acquiring.
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
fn b45_every_operation_that_may_change_a_state_clears_what_is_known_of_it() {
    let bucket = policy("gcra 1/1m burst 1");
    for change in CHANGES {
        let bench = Bench::new();
        refused(&bench, &bucket);
        let changed = bench.ask(change, &[Charge::new(&bucket, "s")]);
        assert_eq!(changed.degraded(), None);
        let decision = bench.acquire_by(Who::Store, &[Charge::new(&bucket, "s")]);
        let passes = matches!(change, Operation::Refund | Operation::Reset);
        assert_eq!(decision.is_allowed(), passes, "{change:?}");
    }
}

#[test]
fn b45_so_does_one_that_is_for_several_subjects() {
    let bucket = policy("gcra 1/1m burst 1");
    let other = policy("other: sliding-log 9/1h");
    for change in CHANGES.into_iter().take(5) {
        let bench = Bench::new();
        refused(&bench, &bucket);
        let charges =
            [Charge::new(&other, "t"), Charge::new(&bucket, "t"), Charge::new(&bucket, "s")];
        let _ = bench.ask(change, &charges);
        let _ = bench.acquire_by(Who::Store, &[Charge::new(&bucket, "s")]);
    }
}

#[test]
fn b45_so_does_one_in_a_batch() {
    let bucket = policy("gcra 1/1m burst 1");
    for change in CHANGES {
        let bench = Bench::new();
        refused(&bench, &bucket);
        let charge = [Charge::new(&bucket, "s")];
        let calls = [Call::new(change, &charge)];
        assert!(now(bench.store.decide_many(&calls))[0].is_ok());
        let _ = bench.acquire_by(Who::Store, &charge);
    }
}

#[test]
fn b45_so_does_one_that_fails_or_is_lost() {
    let bucket = policy("gcra 1/1m burst 1");
    let charge = [Charge::new(&bucket, "s")];
    for change in CHANGES {
        for fault in [Fault::After(ErrorKind::Timeout), Fault::Before(ErrorKind::Unavailable)] {
            let bench = Bench::failing(vec![Fault::None, Fault::None, fault]);
            refused(&bench, &bucket);
            assert!(bench.try_ask(change, &charge).is_err());
            let _ = bench.acquire_by(Who::Store, &charge);
        }
        for fault in [Fault::Late, Fault::Delayed] {
            let bench = Bench::failing(vec![Fault::None, Fault::None, fault]);
            refused(&bench, &bucket);
            {
                let mut lost = std::pin::pin!(bench.store.decide(Call::new(change, &charge)));
                assert!(poll(lost.as_mut()).is_pending());
            }
            let _ = bench.acquire_by(Who::Store, &charge);
        }
    }
}

#[test]
fn b45_a_refund_that_is_on_its_way_clears_already() {
    let bench = Bench::failing(vec![Fault::None, Fault::None, Fault::Late]);
    let bucket = policy("gcra 1/1m burst 1");
    let charge = [Charge::new(&bucket, "s")];
    refused(&bench, &bucket);
    let mut refund = std::pin::pin!(bench.store.decide(Call::new(Operation::Refund, &charge)));
    assert!(poll(refund.as_mut()).is_pending());
    assert!(bench.acquire_by(Who::Store, &charge).is_allowed());
}

#[test]
fn b45_a_refusal_on_its_way_while_a_refund_passes_is_not_remembered() {
    for change in [Operation::Refund, Operation::Reset, Operation::Block { span: Duration::ZERO }] {
        let bench = Bench::failing(vec![Fault::None, Fault::Late]);
        let bucket = policy("gcra 1/1m burst 1");
        let charge = [Charge::new(&bucket, "s")];
        assert!(bench.acquire_by(Who::Store, &charge).is_allowed());
        let mut late = std::pin::pin!(bench.store.decide(Call::acquire(&charge)));
        assert!(poll(late.as_mut()).is_pending());
        let _ = bench.ask(change, &charge);
        crate::run(Faults::deliver(bench.store.inner()));
        assert!(crate::run(late).unwrap().is_denied(), "it was, before the refund");
        let _ = bench.acquire_by(Who::Store, &charge);
    }
}

#[test]
fn b45_nor_is_one_that_was_asked_for_while_a_refund_was_on_its_way() {
    let bench = Bench::failing(vec![Fault::None, Fault::Delayed]);
    let bucket = policy("gcra 1/1m burst 1");
    let charge = [Charge::new(&bucket, "s")];
    assert!(bench.acquire_by(Who::Store, &charge).is_allowed());
    let mut refund = std::pin::pin!(bench.store.decide(Call::new(Operation::Refund, &charge)));
    assert!(poll(refund.as_mut()).is_pending());
    assert!(bench.acquire_by(Who::Store, &charge).is_denied());
    crate::run(Faults::deliver(bench.store.inner()));
    assert!(crate::run(refund).is_ok());
    assert!(bench.acquire_by(Who::Store, &charge).is_allowed());
}

#[test]
fn what_is_taken_meanwhile_makes_the_wait_of_larger_costs_longer() {
    let bench = Bench::new();
    let bucket = policy("token-bucket 1/1s burst 4");
    let wait = |decision: &Decision| decision.retry_after().unwrap().as_secs();
    assert!(bench.acquire(&bucket, 2).is_allowed());
    let large = [Charge::new(&bucket, "s").cost(4)];
    assert_eq!(wait(&bench.acquire_by(Who::Store, &large)), 2);
    assert!(bench.acquire(&bucket, 1).is_allowed());
    assert_eq!(wait(&bench.acquire_by(Who::Store, &large)), 3);
    assert_eq!(wait(&bench.acquire_by(Who::Cache, &large)), 3);
    // A cost of nothing takes nothing.
    assert!(bench.acquire(&bucket, 0).is_allowed());
    assert_eq!(wait(&bench.acquire_by(Who::Cache, &large)), 3);
}

#[test]
fn a_block_that_a_refusal_has_written_is_seen_by_all_calls_on_its_subject() {
    let bench = Bench::new();
    let strict = policy("strict: sliding-log 2/1h block 1h");
    let wide = policy("wide: sliding-log 1/1h");
    let both = [Charge::new(&wide, "s"), Charge::new(&strict, "s")];
    let refused_by = |who| bench.acquire_by(who, &both).refused_by().collect::<Vec<_>>();
    assert!(bench.acquire_by(Who::Store, &both).is_allowed());
    assert!(bench.acquire(&strict, 1).is_allowed());
    let more = [Charge::new(&wide, "s"), Charge::new(&strict, "s").cost(0)];
    let by_more = |who| bench.acquire_by(who, &more).refused_by().collect::<Vec<_>>();
    assert_eq!(by_more(Who::Store), [0]);
    assert_eq!(by_more(Who::Cache), [0]);
    assert!(bench.acquire(&strict, 1).is_denied());
    assert_eq!(by_more(Who::Store), [0, 1]);
    assert_eq!(by_more(Who::Cache), [0, 1]);
    assert_eq!(refused_by(Who::Store), [0, 1]);
}

#[test]
fn what_a_lost_acquire_may_have_taken_is_asked_for() {
    for fault in [Fault::After(ErrorKind::Timeout), Fault::Late] {
        let bench = Bench::failing(vec![Fault::None, Fault::None, fault]);
        let bucket = policy("token-bucket 1/1s burst 4");
        assert!(bench.acquire(&bucket, 2).is_allowed());
        let large = [Charge::new(&bucket, "s").cost(4)];
        assert!(bench.acquire_by(Who::Store, &large).is_denied());
        {
            let small = [Charge::new(&bucket, "s")];
            let mut lost = std::pin::pin!(bench.store.decide(Call::acquire(&small)));
            assert!(!matches!(poll(lost.as_mut()), std::task::Poll::Ready(Ok(_))));
        }
        let wait = bench.acquire_by(Who::Store, &large).retry_after();
        assert_eq!(wait, Some(Duration::from_secs(3)), "{fault:?}");
    }
}
