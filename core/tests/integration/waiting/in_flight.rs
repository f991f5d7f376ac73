//! Tests of futures that are dropped while their call is in flight.

use std::sync::Arc;

use tidegate_core::{ErrorKind, Limiter, StoreExt, TokioClock};
use tidegate_memory::MemoryStore;
use tidegate_testkit::faults::{Fault, Faults, FaultyStore};
use tokio::time::timeout;

use super::common::{RecordCalls, Recording, limiter, ms, recording, settle, tasks};

type Faulty = Arc<FaultyStore<Recording>>;

fn faulty(store: &Recording, plan: Vec<Fault>) -> Faulty {
    Arc::new(store.clone().layer(Faults::new(plan)))
}

/// If the future is dropped while its call is in flight, the call has possibly reserved a place.
/// Without defect B51, a task waits for the answer and refunds the place.
#[test]
fn b51_a_dropped_call_in_flight_is_refunded_if_it_was_admitted() {
    crate::run(async {
        for policy in ["gcra 1/1s", "fixed-window 1/1s anchored"] {
            for fault in [Fault::Late, Fault::Delayed] {
                let store = recording();
                let faulty = faulty(&store, vec![fault]);
                let limiter = limiter(Arc::clone(&faulty), policy);
                assert!(timeout(ms(10), limiter.until_ready("s")).await.is_err());
                assert_eq!((limiter.waiters(), store.as_layer().refunds()), (0, 0));
                Faults::deliver(&faulty).await;
                settle().await;
                assert_eq!((store.as_layer().refunds(), tasks()), (1, 0), "{policy}, {fault:?}");
                assert!(limiter.until_ready("s").await.unwrap().wait().is_zero());
            }
        }
    });
}

/// The refund names only the alternative that has paid. A refund with a list is an error.
#[test]
fn a_dropped_call_in_flight_refunds_the_alternative_that_paid() {
    crate::run(async {
        let store = recording();
        let faulty = faulty(&store, vec![Fault::None, Fault::Delayed]);
        let policies = ["own: fixed-window 1/1h", "pool: fixed-window 2/1h"];
        let policies = policies.map(|policy| policy.parse().unwrap());
        let limiter = Limiter::new(Arc::clone(&faulty), policies).unwrap();
        let request = limiter.by("own", "s").or("pool", "s");
        assert!(request.acquire().await.unwrap().is_allowed());
        assert!(timeout(ms(10), request.until_ready()).await.is_err());
        Faults::deliver(&faulty).await;
        settle().await;
        assert_eq!((store.as_layer().refunds(), tasks()), (1, 0));
        let peek = limiter.by("own", "s").by("pool", "s").peek().await.unwrap();
        let left = peek.verdicts().iter().map(|verdict| verdict.remaining());
        assert_eq!(left.collect::<Vec<_>>(), [0, 2]);
    });
}

#[test]
fn a_dropped_call_in_flight_is_not_refunded_if_it_was_refused() {
    crate::run(async {
        let store = recording();
        let faulty = faulty(&store, vec![Fault::None, Fault::Delayed]);
        let limiter = limiter(Arc::clone(&faulty), "gcra 1/1h");
        let _ = limiter.until_ready("s").await.unwrap();
        assert!(timeout(ms(10), limiter.until_ready("s")).await.is_err());
        Faults::deliver(&faulty).await;
        settle().await;
        assert_eq!((store.as_layer().reserves(), store.as_layer().refunds(), tasks()), (2, 0, 0));
    });
}

/// Without defect B51, if a wait is cancelled and the store does not answer immediately, a task
/// sends the refund.
#[test]
fn b51_a_slow_refund_is_sent_by_a_task() {
    crate::run(async {
        let store = recording();
        let faulty = faulty(&store, vec![Fault::None, Fault::None, Fault::Delayed]);
        let limiter = limiter(Arc::clone(&faulty), "gcra 1/1s");
        let _ = limiter.until_ready("s").await.unwrap();
        assert!(timeout(ms(10), limiter.until_ready("s")).await.is_err());
        settle().await;
        assert_eq!((tasks(), faulty.as_layer().calls()), (1, 3), "one refund is in flight");
        Faults::deliver(&faulty).await;
        settle().await;
        assert_eq!((tasks(), store.as_layer().refunds()), (0, 1));
        assert_eq!(limiter.until_ready("s").await.unwrap().wait(), ms(990));
    });
}

/// Without defect B52, a store that never answers keeps no task for longer than ten seconds.
#[test]
fn b52_a_task_without_an_answer_ends_after_ten_seconds() {
    crate::run(async {
        let store = recording();
        // The first call is never answered, and the refund of the third call is never answered.
        let plan = vec![Fault::Delayed, Fault::None, Fault::None, Fault::Delayed];
        let faulty = faulty(&store, plan);
        let limiter = limiter(Arc::clone(&faulty), "gcra 1/1s");
        for _ in 0..3 {
            let _ = timeout(ms(10), limiter.until_ready("s")).await;
        }
        settle().await;
        assert_eq!((tasks(), limiter.waiters()), (2, 0));
        tokio::time::sleep(ms(10_001)).await;
        assert_eq!((tasks(), store.as_layer().refunds()), (0, 0));
        Faults::deliver(&faulty).await;
    });
}

/// An error does not show whether the store has charged the call. So the limiter sends neither a
/// refund nor the call again.
#[test]
fn a_failed_call_is_made_once_and_its_error_returned() {
    crate::run(async {
        for policy in ["gcra 1/1s", "fixed-window 1/1s"] {
            for fault in [Fault::Before, Fault::After] {
                let store = Arc::new(MemoryStore::builder().clock(TokioClock::new()).build())
                    .layer(RecordCalls::new());
                let faulty = faulty(&store, vec![fault(ErrorKind::Timeout)]);
                let limiter = limiter(Arc::clone(&faulty), policy);
                let error = limiter.until_ready("s").await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Timeout);
                settle().await;
                assert_eq!((faulty.as_layer().calls(), tasks(), limiter.waiters()), (1, 0, 0));
            }
        }
    });
}

/// Each call is charged at most once, even if a later attempt fails.
#[test]
fn a_failed_second_attempt_ends_the_wait() {
    crate::run(async {
        let store = recording();
        let plan = vec![Fault::None, Fault::None, Fault::After(ErrorKind::Unavailable)];
        let faulty = faulty(&store, plan);
        let limiter = limiter(Arc::clone(&faulty), "sliding-log 1/1s");
        let _ = limiter.until_ready("s").await.unwrap();
        let error = limiter.until_ready("s").await.unwrap_err();
        assert_eq!((error.kind(), faulty.as_layer().calls()), (ErrorKind::Unavailable, 3));
        assert_eq!(limiter.waiters(), 0);
    });
}
