//! Futures that are dropped while their call is on its way.

use std::sync::Arc;

use tidegate_core::{ErrorKind, StoreExt, TokioClock};
use tidegate_memory::MemoryStore;
use tidegate_testkit::faults::{Fault, Faults, FaultyStore};
use tokio::time::timeout;

use super::common::{Noted, Notes, limiter, ms, noted, settle, tasks};

type Faulty = Arc<FaultyStore<Noted>>;

fn faulty(store: &Noted, plan: Vec<Fault>) -> Faulty {
    Arc::new(store.clone().layer(Faults::new(plan)))
}

/// B51: nobody knows yet whether it was booked. It is found out, and given back.
#[test]
fn b51_what_a_call_on_its_way_turns_out_to_have_taken_is_given_back() {
    crate::run(async {
        for policy in ["gcra 1/1s", "fixed-window 1/1s anchored"] {
            for fault in [Fault::Late, Fault::Delayed] {
                let store = noted();
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

#[test]
fn what_a_call_on_its_way_did_not_take_is_not_given_back() {
    crate::run(async {
        let store = noted();
        let faulty = faulty(&store, vec![Fault::None, Fault::Delayed]);
        let limiter = limiter(Arc::clone(&faulty), "gcra 1/1h");
        let _ = limiter.until_ready("s").await.unwrap();
        assert!(timeout(ms(10), limiter.until_ready("s")).await.is_err());
        Faults::deliver(&faulty).await;
        settle().await;
        assert_eq!((store.as_layer().reserves(), store.as_layer().refunds(), tasks()), (2, 0, 0));
    });
}

/// B51: a store that does not answer at once gets the refund from a task.
#[test]
fn b51_a_refund_that_takes_its_time_is_sent_all_the_same() {
    crate::run(async {
        let store = noted();
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

/// B52: a store that never answers keeps no task for longer than ten seconds.
#[test]
fn b52_a_task_that_gets_no_answer_gives_up() {
    crate::run(async {
        let store = noted();
        // The first call never comes back; of the third, the refund does not.
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

/// An error says nothing about what was taken, so nothing is given back, and nothing asked again.
#[test]
fn a_failed_call_is_made_once_and_its_error_returned() {
    crate::run(async {
        for policy in ["gcra 1/1s", "fixed-window 1/1s"] {
            for fault in [Fault::Before, Fault::After] {
                let store = Arc::new(MemoryStore::builder().clock(TokioClock::new()).build())
                    .layer(Notes::new());
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

/// At most one charge per call, also where a later ask fails.
#[test]
fn a_failed_second_ask_ends_the_wait() {
    crate::run(async {
        let store = noted();
        let plan = vec![Fault::None, Fault::None, Fault::After(ErrorKind::Unavailable)];
        let faulty = faulty(&store, plan);
        let limiter = limiter(Arc::clone(&faulty), "sliding-log 1/1s");
        let _ = limiter.until_ready("s").await.unwrap();
        let error = limiter.until_ready("s").await.unwrap_err();
        assert_eq!((error.kind(), faulty.as_layer().calls()), (ErrorKind::Unavailable, 3));
        assert_eq!(limiter.waiters(), 0);
    });
}
