//! A store on the bench: opened for one case, asked in short words.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, mpsc};
use std::task::Poll;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use tidegate_core::{
    Call, Charge, Decision, Error, ManualClock, Operation, Policy, Store, Timestamp, Verdict,
};

use super::fixture::Fixture;

/// An ordinary time, which no window begins or ends at.
pub(super) const START: u64 = 1_790_000_000_000_123;

/// One of each algorithm: at most 5 at once, again all of them after at most 20 µs.
pub(super) const EACH: [&str; 9] = [
    "p: fixed-window 5/10us",
    "p: fixed-window 5/10us phased",
    "p: fixed-window 5/10us anchored",
    "p: sliding-log 5/10us",
    "p: sliding-log 5/10us grain 2us",
    "p: sliding-counter 5/10us",
    "p: token-bucket 5/10us burst 5",
    "p: token-bucket 5/10us burst 5 by-interval",
    "p: gcra 5/10us burst 5",
];

/// A policy from its text.
pub(super) fn policy(text: &str) -> Policy {
    text.parse().unwrap_or_else(|error| panic!("`{text}`: {error}"))
}

/// Each of [`EACH`].
pub(super) fn each() -> impl Iterator<Item = Policy> {
    EACH.iter().map(|text| policy(text))
}

/// An open store, and its clock.
pub(super) struct Bench<'f, F: Fixture> {
    pub(super) store: Arc<F::Store>,
    pub(super) hand: ManualClock,
    fixture: &'f F,
    _guard: F::Guard,
}

/// What a store looks like: all it has stored, if it can tell, and what it says.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Imprint {
    stored: Option<Vec<u8>>,
    says: Vec<Verdict>,
}

impl<'f, F: Fixture> Bench<'f, F> {
    pub(super) async fn open(fixture: &'f F) -> Self {
        let hand = ManualClock::new(Timestamp::from_micros(START));
        let (store, guard) = fixture.open(hand.clone()).await;
        Self { store: Arc::new(store), hand, fixture, _guard: guard }
    }

    /// Sets the clock, µs since 1970.
    pub(super) fn set(&self, micros: u64) {
        self.hand.set(Timestamp::from_micros(micros));
    }

    /// Sets the clock to so much after [`START`].
    pub(super) fn at(&self, micros: u64) {
        self.set(START + micros);
    }

    pub(super) fn advance(&self, by: Duration) {
        self.hand.advance(by);
    }

    pub(super) async fn try_ask(
        &self,
        operation: Operation,
        charges: &[Charge<'_>],
    ) -> Result<Decision, Error> {
        let decision = self.store.decide(Call::new(operation, charges)).await?;
        assert_eq!(decision.verdicts().len(), charges.len(), "verdicts per charge");
        assert_eq!(decision.degraded(), None, "a store that answers is not degraded");
        Ok(decision)
    }

    pub(super) async fn ask(&self, operation: Operation, charges: &[Charge<'_>]) -> Decision {
        match self.try_ask(operation, charges).await {
            Ok(decision) => decision,
            Err(error) => panic!("{operation:?} {charges:?}: {error}"),
        }
    }

    /// Acquires for the subject "s".
    pub(super) async fn acquire(&self, policy: &Policy, cost: u64) -> Decision {
        let charge = Charge::new(policy, "s").cost(cost);
        self.ask(Operation::Acquire, &[charge]).await
    }

    /// Acquires for the subject "s"; it must be admitted.
    pub(super) async fn take(&self, policy: &Policy, cost: u64) {
        let decision = self.acquire(policy, cost).await;
        assert!(decision.is_allowed(), "{policy}, cost {cost}: {decision:?}");
    }

    /// Acquires for the subject "s"; it must be refused.
    pub(super) async fn refused(&self, policy: &Policy, cost: u64) -> Decision {
        let decision = self.acquire(policy, cost).await;
        assert!(decision.is_denied(), "{policy}, cost {cost}: {decision:?}");
        decision
    }

    /// Does something else to the subject "s".
    pub(super) async fn does(&self, operation: Operation, policy: &Policy, cost: u64) -> Verdict {
        let charge = Charge::new(policy, "s").cost(cost);
        self.ask(operation, &[charge]).await.verdicts()[0]
    }

    /// What remains for the subject "s".
    pub(super) async fn remaining(&self, policy: &Policy) -> u64 {
        self.does(Operation::Peek, policy, 0).await.remaining()
    }

    /// What the store looks like to these charges.
    pub(super) async fn imprint(&self, charges: &[Charge<'_>]) -> Imprint {
        let mut says = vec![];
        for charge in charges {
            for cost in [0, 1] {
                let peek = self.ask(Operation::Peek, &[charge.cost(cost)]).await;
                says.extend_from_slice(peek.verdicts());
            }
        }
        Imprint { stored: self.fixture.snapshot(&self.store).await, says }
    }
}

/// Runs one case.
pub(super) fn case<F: Fixture>(fixture: &F, check: impl AsyncFnOnce(&Bench<'_, F>)) {
    runtime().block_on(async {
        let bench = Bench::open(fixture).await;
        check(&bench).await;
    });
}

/// Runs random cases.
#[expect(clippy::needless_pass_by_value, reason = "callers write the check in place")]
pub(super) fn cases<F: Fixture, I: std::fmt::Debug>(
    fixture: &F,
    inputs: impl Strategy<Value = I>,
    check: impl AsyncFn(&Bench<'_, F>, &I) -> Result<(), String>,
) {
    let runtime = runtime();
    let config = Config { cases: fixture.cases(), failure_persistence: None, ..Config::default() };
    let result = TestRunner::new(config).run(&inputs, |input| {
        runtime.block_on(async {
            let bench = Bench::open(fixture).await;
            check(&bench, &input).await.map_err(TestCaseError::fail)
        })
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime can be built")
}

/// Runs one case on several threads, and fails loudly if it does not come to an end.
pub(super) fn threads<F: Fixture>(fixture: &F, check: impl AsyncFnOnce(&Bench<'_, F>)) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(8)
        .enable_all()
        .build()
        .expect("a runtime can be built");
    let patience = fixture.patience();
    let in_time = runtime.block_on(watched(patience, async {
        let bench = Bench::open(fixture).await;
        check(&bench).await;
    }));
    // A thread that is stuck would keep the runtime from ending.
    runtime.shutdown_background();
    assert!(in_time, "no end within {patience:?}: a deadlock");
}

/// Whether a case comes to an end in time.
///
/// A thread of its own watches: where all threads of the runtime are stuck, its timers are too.
async fn watched(patience: Duration, case: impl Future<Output = ()>) -> bool {
    let (alarm, mut late) = tokio::sync::oneshot::channel::<()>();
    let (done, ended) = mpsc::channel::<()>();
    std::thread::spawn(move || {
        if ended.recv_timeout(patience) == Err(mpsc::RecvTimeoutError::Timeout) {
            // Where the case has just ended after all, nobody listens.
            let _ = alarm.send(());
        }
    });
    let mut case = pin!(case);
    let in_time = poll_fn(|context| {
        if case.as_mut().poll(context).is_ready() {
            return Poll::Ready(true);
        }
        Pin::new(&mut late).poll(context).map(|_| false)
    })
    .await;
    drop(done);
    in_time
}
