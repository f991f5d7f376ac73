//! Properties of failures: the store never reports an error as a denial, and charges no call twice.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use tidegate_core::{Answer, Call, Charge, ErrorKind, Limiter, Operation, Store, StoreExt};

use super::fixture::Fixture;
use super::harness::{case, cases, each};
use super::report::{check, check_eq};
use crate::stores::faults::Faults;
use crate::stores::faults::{Fault, FaultyStore, plan};

/// Without defect B42, a call is charged at most once, regardless of the faults. A call is never
/// charged if its error says that it was definitely not charged.
pub(super) fn b42_a_failed_call_is_charged_at_most_once<F: Fixture>(fixture: &F) {
    cases(fixture, plan(1..30), async |harness, plan| {
        let faulty = Arc::clone(&harness.store).layer(Faults::new(plan.clone()));
        let limiter = Limiter::new(faulty, [harness.hourly("p", 1_000, "")]);
        let limiter = limiter.map_err(|error| error.to_string())?;
        let (mut min, mut max) = (0, 0);
        for fault in plan {
            let mut answer = limiter.acquire("s");
            // A late answer arrives only after `deliver`, so the caller drops the future of the
            // answer and does not wait.
            let charged = match unless_late(limiter.store(), &mut answer).await {
                Some(Ok(decision)) if decision.is_allowed() => (1, 1),
                Some(Err(error)) if error.kind().is_definitely_not_charged() => (0, 0),
                Some(Err(_)) | None => (0, 1),
                Some(Ok(denied)) => {
                    return Err(format!("the fault {fault:?} is returned as a denial: {denied:?}"));
                }
            };
            min += charged.0;
            max += charged.1;
        }
        let faulty = limiter.store();
        Faults::deliver(faulty).await;
        let charges = [Charge::new(&limiter.policies()[0], "s").cost(0)];
        let peek = harness.ask(Operation::Peek, &charges).await;
        let charged = 1_000 - peek.verdicts()[0].remaining();
        if faulty.as_layer().calls() != plan.len() {
            return Err(format!("{} calls of {} were made", faulty.as_layer().calls(), plan.len()));
        }
        (min <= charged && charged <= max)
            .then_some(())
            .ok_or_else(|| format!("the charged amount is {charged}; it must be {min} to {max}"))
    });
}

async fn unless_late<T>(faulty: &FaultyStore<impl Store>, answer: &mut Answer<'_, T>) -> Option<T> {
    let kept_back = faulty.as_layer().in_flight();
    loop {
        let polled = poll_fn(|context| Poll::Ready(Pin::new(&mut *answer).poll(context))).await;
        match polled {
            Poll::Ready(answer) => return Some(answer),
            Poll::Pending if faulty.as_layer().in_flight() > kept_back => return None,
            // The answer of a store on a server arrives only after the runtime has polled the
            // socket.
            Poll::Pending => tokio::task::yield_now().await,
        }
    }
}

/// Without defects B43 and B55, every error is returned as an error, and is never a denial.
pub(super) fn b43_b55_an_error_is_an_error_and_not_a_denial<F: Fixture>(fixture: &F) {
    for policy in each() {
        case(fixture, async |harness| {
            let plan =
                vec![Fault::Before(ErrorKind::Busy), Fault::After(ErrorKind::Timeout), Fault::None];
            harness.needs(&policy);
            let faulty = Arc::clone(&harness.store).layer(Faults::new(plan));
            let charges = [Charge::new(&policy, "s").cost(5)];
            let busy = faulty.decide(Call::acquire(&charges)).await.expect_err("busy");
            check_eq!(busy.kind(), ErrorKind::Busy);
            check!(busy.kind().is_definitely_not_charged());
            let lost = faulty.decide(Call::acquire(&charges)).await.expect_err("lost");
            check_eq!(lost.kind(), ErrorKind::Timeout);
            check!(!lost.kind().is_definitely_not_charged());
            let denied = faulty.decide(Call::acquire(&charges)).await.expect("an answer");
            check!(denied.is_denied(), "{policy}: the call whose answer was lost is charged");
        });
    }
}

/// Without defect B44, a call is not admitted before its answer arrives. A decision that the store
/// made itself is not marked as degraded.
pub(super) fn b44_a_call_without_an_answer_is_not_admitted<F: Fixture>(fixture: &F) {
    case(fixture, async |harness| {
        let log = harness.hourly("p", 1, "");
        let faulty = Arc::clone(&harness.store).layer(Faults::new(vec![Fault::Late]));
        let charges = [Charge::new(&log, "s")];
        let mut answer = faulty.decide(Call::acquire(&charges));
        let early = unless_late(&faulty, &mut answer).await;
        check!(early.is_none(), "the call returned before its answer was delivered");
        Faults::deliver(&faulty).await;
        let decision = answer.await.expect("the answer is delivered");
        check!(decision.is_allowed() && decision.degraded().is_none());
        let _ = harness.refused(&log, 1).await;
    });
}

/// Without defect B48, building a limiter makes no call to the store.
pub(super) fn b48_building_a_limiter_waits_for_nothing<F: Fixture>(fixture: &F) {
    case(fixture, async |harness| {
        let faulty = Arc::clone(&harness.store).layer(Faults::new(vec![Fault::Delayed; 9]));
        let limiter = Limiter::new(faulty, [harness.hourly("p", 5, "")]);
        check_eq!(limiter.map(|limiter| limiter.store().as_layer().calls()).ok(), Some(0));
    });
}
