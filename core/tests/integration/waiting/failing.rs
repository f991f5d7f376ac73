//! Tests of waiting callers whose calls are not decided by the store, but by a failure policy.

use tidegate_core::{
    Answer, Call, Decision, Degraded, DegradedAnswer, Error, ErrorKind, Outcome, Store, StoreExt,
    Timestamp, Verdict,
};
use tokio::time::{Instant, timeout};

use super::common::{RecordCalls, Recording, limiter, ms, settle};

/// A store that answers each call with the same decision, like a failure policy around a store that
/// is down.
#[derive(Debug)]
struct Down(Decision);

impl Store for Down {
    fn decide<'a>(&'a self, _: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
        Answer::ready(Ok(self.0.clone()))
    }

    fn now(&self) -> Answer<'_, Result<Timestamp, Error>> {
        Answer::ready(Err(Error::new(ErrorKind::Unavailable, "down")))
    }
}

fn down(answer: DegradedAnswer, outcome: Outcome, micros: u64) -> Recording<std::sync::Arc<Down>> {
    let retry = if outcome == Outcome::Allowed { ms(0) } else { ms(micros / 1_000) };
    let decision = Decision::one(Verdict::new(outcome, 1).with_retry_after(Some(retry)))
        .degraded_by(Degraded::new(answer, ErrorKind::Unavailable));
    let is_booked = outcome == Outcome::Allowed;
    let decision = if is_booked { decision.with_wait(ms(micros / 1_000)) } else { decision };
    std::sync::Arc::new(Down(decision)).layer(RecordCalls::new())
}

#[test]
fn a_caller_that_is_admitted_without_the_store_does_not_wait() {
    crate::run(async {
        for policy in ["gcra 1/1h", "fixed-window 1/1h"] {
            let limiter = limiter(down(DegradedAnswer::FailedOpen, Outcome::Allowed, 0), policy);
            let started = Instant::now();
            let decision = limiter.until_ready("s").await.unwrap();
            assert!(decision.decision().degraded().is_some());
            assert_eq!(started.elapsed(), ms(0));
        }
    });
}

/// If a failure policy refuses a request, its `retry_after` is only a hint. So the caller gets the
/// refusal immediately, and can decide whether to wait.
#[test]
fn a_caller_that_is_refused_without_the_store_gets_the_refusal_immediately() {
    crate::run(async {
        for policy in ["gcra 1/1h", "fixed-window 1/1h"] {
            for max_waiters in [0, 10] {
                let store = down(DegradedAnswer::FailedClosed, Outcome::Denied, 1_000_000);
                let limiter = limiter(store.clone(), policy).max_waiters(max_waiters);
                let started = Instant::now();
                let refused = limiter.subject("s").acquire_within(ms(9_000)).await.unwrap();
                assert!(refused.is_denied() && refused.degraded().is_some());
                let error = limiter.until_ready("s").await.unwrap_err();
                assert_eq!(error.kind(), refused.degraded().unwrap().reason);
                assert_eq!((started.elapsed(), store.as_layer().calls().len()), (ms(0), 2));
            }
        }
    });
}

/// The fallback store has reserved a place, so the caller waits for this place. If the caller is
/// cancelled, nothing is refunded (defect B51), because the refund could reach the main store,
/// which never charged the place.
#[test]
fn b51_a_place_in_a_fallback_is_waited_for_and_never_refunded() {
    crate::run(async {
        let store = down(DegradedAnswer::FellBack, Outcome::Allowed, 2_000_000);
        let limiter = limiter(store.clone(), "gcra 1/1h");
        let started = Instant::now();
        let decision = limiter.until_ready("s").await.unwrap();
        assert!(decision.decision().degraded().is_some());
        assert_eq!((started.elapsed(), decision.wait()), (ms(2_000), ms(2_000)));
        assert!(timeout(ms(10), limiter.until_ready("s")).await.is_err());
        settle().await;
        assert_eq!(store.as_layer().refunds(), 0);
    });
}

/// A store that refuses with a wait of zero must not be called in a busy loop.
#[test]
fn a_refusal_with_a_wait_of_zero_is_retried_at_most_once_per_millisecond() {
    crate::run(async {
        let denied = Decision::one(Verdict::new(Outcome::Denied, 1));
        let store = std::sync::Arc::new(Down(denied)).layer(RecordCalls::new());
        let limiter = limiter(store.clone(), "fixed-window 1/1h");
        assert!(limiter.subject("s").acquire_within(ms(100)).await.unwrap().is_denied());
        assert!(store.as_layer().calls().len() <= 101);
    });
}
