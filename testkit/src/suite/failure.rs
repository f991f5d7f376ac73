//! Failures: an error is not a denial, and no call is charged twice.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use tidegate_core::{Answer, Call, Charge, ErrorKind, Limiter, Operation, Store};

use super::fixture::Fixture;
use super::harness::{case, cases, each};
use super::report::{check, check_eq};
use crate::stores::faults::{Fault, FaultyStore, plan};

/// B42: whatever happens to a call, it is charged at most once, and not at all if the error says so.
pub(super) fn b42_a_failed_call_is_charged_at_most_once<F: Fixture>(fixture: &F) {
    cases(fixture, plan(1..30), async |harness, plan| {
        let faulty = FaultyStore::new(&harness.store, plan.clone());
        let limiter = Limiter::new(faulty, [harness.hourly("p", 1_000, "")]);
        let limiter = limiter.map_err(|error| error.to_string())?;
        let (mut least, mut most) = (0, 0);
        for fault in plan {
            let mut answer = limiter.acquire("s");
            // The caller does not wait for a late answer: it drops the future.
            let charged = match unless_late(limiter.store(), &mut answer).await {
                Some(Ok(decision)) if decision.is_allowed() => (1, 1),
                Some(Err(error)) if error.kind().is_definitely_not_charged() => (0, 0),
                Some(Err(_)) | None => (0, 1),
                Some(Ok(denied)) => return Err(format!("{fault:?} became a denial: {denied:?}")),
            };
            least += charged.0;
            most += charged.1;
        }
        let faulty = limiter.store();
        faulty.deliver().await;
        let charges = [Charge::new(&limiter.policies()[0], "s").cost(0)];
        let peek = harness.ask(Operation::Peek, &charges).await;
        let charged = 1_000 - peek.verdicts()[0].remaining();
        if faulty.calls() != plan.len() {
            return Err(format!("{} calls of {} were made", faulty.calls(), plan.len()));
        }
        (least <= charged && charged <= most)
            .then_some(())
            .ok_or_else(|| format!("charged {charged}, not {least} to {most}"))
    });
}

/// Waits for an answer, until it is there or is being kept back.
async fn unless_late<T>(faulty: &FaultyStore<impl Store>, answer: &mut Answer<'_, T>) -> Option<T> {
    let kept_back = faulty.on_the_way();
    loop {
        let polled = poll_fn(|context| Poll::Ready(Pin::new(&mut *answer).poll(context))).await;
        match polled {
            Poll::Ready(answer) => return Some(answer),
            Poll::Pending if faulty.on_the_way() > kept_back => return None,
            // A store on a server: its answer comes when the runtime has looked for it.
            Poll::Pending => tokio::task::yield_now().await,
        }
    }
}

/// B43, B55: every error surfaces as an error, and is never a denial.
pub(super) fn b43_b55_an_error_is_an_error_and_not_a_denial<F: Fixture>(fixture: &F) {
    for policy in each() {
        case(fixture, async |harness| {
            let plan =
                vec![Fault::Before(ErrorKind::Busy), Fault::After(ErrorKind::Timeout), Fault::None];
            harness.needs(&policy);
            let faulty = FaultyStore::new(&harness.store, plan);
            let charges = [Charge::new(&policy, "s").cost(5)];
            let busy = faulty.decide(Call::acquire(&charges)).await.expect_err("busy");
            check_eq!(busy.kind(), ErrorKind::Busy);
            check!(busy.kind().is_definitely_not_charged());
            let lost = faulty.decide(Call::acquire(&charges)).await.expect_err("lost");
            check_eq!(lost.kind(), ErrorKind::Timeout);
            check!(!lost.kind().is_definitely_not_charged());
            let denied = faulty.decide(Call::acquire(&charges)).await.expect("an answer");
            check!(denied.is_denied(), "{policy}: the lost one was charged");
        });
    }
}

/// B44: a call without an answer is not admitted; and one with an answer is not degraded.
pub(super) fn b44_a_call_without_an_answer_is_not_admitted<F: Fixture>(fixture: &F) {
    case(fixture, async |harness| {
        let log = harness.hourly("p", 1, "");
        let faulty = FaultyStore::new(&harness.store, vec![Fault::Late]);
        let charges = [Charge::new(&log, "s")];
        let mut answer = faulty.decide(Call::acquire(&charges));
        let early = unless_late(&faulty, &mut answer).await;
        check!(early.is_none(), "an answer before there is one");
        faulty.deliver().await;
        let decision = answer.await.expect("an answer at last");
        check!(decision.is_allowed() && decision.degraded().is_none());
        let _ = harness.refused(&log, 1).await;
    });
}

/// B48: building a limiter asks the store nothing that it would have to wait for.
pub(super) fn b48_building_a_limiter_waits_for_nothing<F: Fixture>(fixture: &F) {
    case(fixture, async |harness| {
        let faulty = FaultyStore::new(&harness.store, vec![Fault::Delayed; 9]);
        let limiter = Limiter::new(faulty, [harness.hourly("p", 5, "")]);
        check_eq!(limiter.map(|limiter| limiter.store().calls()).ok(), Some(0));
    });
}
