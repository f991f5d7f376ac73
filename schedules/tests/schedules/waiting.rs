//! Tests of waiting: each charge is used or refunded once, and no waiting caller is forgotten.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use shuttle::future::{JoinHandle, spawn};
use tidegate_core::{ErrorKind, Limiter, Operation, Policy, scheduled};

use crate::explore::{Seen, cancel, explore, idle, join};
use crate::server::Server;

const MAX_WAIT: Duration = Duration::from_secs(60);

/// A server, and callers that wait.
struct Node {
    server: Server,
    limiter: Limiter<Server>,
    admitted: Arc<AtomicUsize>,
}

impl Node {
    fn new(policy: &str, max_waiters: usize) -> Self {
        let server = Server::new();
        let policy: Policy = policy.parse().expect("a policy");
        let limiter = Limiter::new(server.clone(), [policy]).expect("a limiter");
        Self { server, limiter: limiter.max_waiters(max_waiters), admitted: Arc::default() }
    }

    /// Spawns a caller that waits until it is admitted. Returns the time of the admission, or
    /// `None` if too many callers wait.
    fn caller(&self) -> JoinHandle<Option<Duration>> {
        let (limiter, admitted) = (self.limiter.clone(), Arc::clone(&self.admitted));
        spawn(async move {
            let begin = scheduled::now();
            let answer = limiter.subject("s").acquire_within(MAX_WAIT).await;
            let decision = match answer {
                Ok(decision) => decision,
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::TooManyWaiters);
                    return None;
                }
            };
            assert!(decision.is_allowed(), "it waits long enough");
            assert!(begin + decision.wait() <= scheduled::now(), "it is admitted before its time");
            admitted.fetch_add(1, SeqCst);
            Some(scheduled::now())
        })
    }

    /// Returns the number of refunds, including denied ones: while other callers wait, the answer
    /// to a refund is a denial.
    fn refunds(&self) -> usize {
        let ledger = self.server.ledger();
        ledger.calls.iter().filter(|call| call.operation == Operation::Refund).count()
    }

    /// Checks, after all calls have ended, that each charge was used or refunded.
    async fn assert_all_is_used_or_given_back(&self) {
        // During this wait, the store answers the refunds for the cancelled calls.
        scheduled::sleep(MAX_WAIT).await;
        let given_back = self.refunds();
        let is_charge =
            |operation| matches!(operation, Operation::Reserve { .. } | Operation::Acquire);
        let taken = self.server.allowed(is_charge);
        assert_eq!(taken, self.admitted.load(SeqCst) + given_back, "{:?}", self.server.ledger());
        assert_eq!(self.limiter.waiters(), 0);
    }
}

#[test]
fn each_place_of_a_bucket_is_used_or_given_back_once() {
    static WAITING: Seen = Seen::new();
    static IN_FLIGHT: Seen = Seen::new();
    explore(|| async {
        let node = Node::new("token-bucket 1/1s burst 1", 4);
        let callers = [node.caller(), node.caller()];
        let given_up = node.caller();
        let is_cancelled = cancel(given_up).await.is_none();
        let places =
            node.server.allowed(|operation| matches!(operation, Operation::Reserve { .. }));
        IN_FLIGHT.record(is_cancelled && places < 3);
        WAITING.record(is_cancelled && places == 3);
        let last = Duration::from_secs(2);
        let times = join(callers).await;
        assert!(times.iter().all(|time| time.is_some_and(|time| time <= last)), "{times:?}");
        node.assert_all_is_used_or_given_back().await;
    });
    WAITING.assert("a caller that gives up when all have their places");
    IN_FLIGHT.assert("a caller that gives up before");
}

#[test]
fn waiters_of_a_window_are_all_admitted_and_one_that_gives_up_takes_nothing() {
    static GIVEN_BACK: Seen = Seen::new();
    explore(|| async {
        let node = Node::new("fixed-window 1/1s", 4);
        let callers = [node.caller(), node.caller()];
        let given_up = node.caller();
        cancel(given_up).await;
        let times = join(callers).await;
        assert!(times.iter().all(Option::is_some), "as many may wait: {times:?}");
        node.assert_all_is_used_or_given_back().await;
        GIVEN_BACK.record(node.refunds() > 0);
    });
    GIVEN_BACK.assert("a call that is cancelled in flight, and has taken");
}

#[test]
fn no_more_callers_wait_than_may_and_one_that_gives_up_frees_its_place() {
    explore(|| async {
        let node = Node::new("token-bucket 1/1s burst 1", 2);
        assert!(join([node.caller()]).await[0].is_some());
        let first = node.caller();
        idle().await;
        assert_eq!(node.limiter.waiters(), 1);
        assert_eq!(cancel(first).await, None);
        assert_eq!(node.limiter.waiters(), 0);
        let times = join([node.caller(), node.caller(), node.caller()]).await;
        assert_eq!(times.iter().flatten().count(), 2, "two may wait: {times:?}");
        node.assert_all_is_used_or_given_back().await;
    });
}
