//! A ledger, which is a record of calls. Each call charges its own subject. Later, the state of the
//! subject shows the number of times that the call was charged.
#![allow(dead_code, reason = "each test program uses a part of this")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of a test that fails panics, as the test does"
)]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tidegate_redis::{Call, Charge, ErrorKind, Operation, Policy, RedisStore, Store};
use tidegate_test_servers::eventually;
use tokio::task::JoinSet;

/// A record of all calls of a test.
#[derive(Clone)]
pub(crate) struct Ledger(Arc<Inner>);

struct Inner {
    /// A number that is different for each ledger, so that ledgers on one server have different
    /// subjects.
    number: u64,
    /// A store that reads the states without the faults of the test.
    direct: Box<dyn Store>,
    policy: Policy,
    start: Instant,
    calls: Mutex<Vec<Record>>,
}

/// A call. Its subject is its index in the ledger.
#[derive(Debug, Clone, Copy)]
struct Record {
    started: Instant,
    ended: Instant,
    outcome: Outcome,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// The call has no outcome, because it was dropped or is still in flight.
    None,
    Decided,
    Degraded,
    Failed(ErrorKind),
}

impl Ledger {
    pub(crate) fn new(url: &str) -> Self {
        Self::with_store(RedisStore::new(url).unwrap())
    }

    /// Creates a ledger that reads the states with the store `direct`.
    pub(crate) fn with_store(direct: impl Store + 'static) -> Self {
        let direct: Box<dyn Store> = Box::new(direct);
        let policy = "ledger: fixed-window 9/10d anchored".parse().unwrap();
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let (number, start) = (NEXT.fetch_add(1, Ordering::Relaxed), Instant::now());
        Self(Arc::new(Inner { number, direct, policy, start, calls: Mutex::default() }))
    }

    pub(crate) fn start(&self) -> Instant {
        self.0.start
    }

    fn subject(&self, call: usize) -> String {
        format!("{}-{call}", self.0.number)
    }

    pub(crate) async fn call(&self, store: &impl Store) {
        let started = Instant::now();
        let index = {
            let mut calls = self.0.calls.lock().unwrap();
            calls.push(Record { started, ended: started, outcome: Outcome::None });
            calls.len() - 1
        };
        let subject = self.subject(index);
        let charges = [Charge::new(&self.0.policy, &subject)];
        let outcome = match store.decide(Call::acquire(&charges)).await {
            Ok(decision) if decision.degraded().is_some() => Outcome::Degraded,
            Ok(decision) => {
                assert!(decision.is_allowed(), "no other call charges this subject");
                Outcome::Decided
            }
            Err(error) => Outcome::Failed(error.kind()),
        };
        self.0.calls.lock().unwrap()[index] = Record { started, ended: Instant::now(), outcome };
    }

    /// Returns the errors of the calls that were made at or after the time `since`.
    pub(crate) fn failures_since(&self, since: Instant) -> Vec<ErrorKind> {
        let failure = |record: &Record| match record.outcome {
            Outcome::Failed(kind) if record.started >= since => Some(kind),
            _ => None,
        };
        self.0.calls.lock().unwrap().iter().filter_map(failure).collect()
    }

    /// Counts the calls that were made at or after `since`. Returns the number of decided calls,
    /// and the number of all other calls (failed, degraded or dropped).
    pub(crate) fn decided_since(&self, since: Instant) -> (usize, usize) {
        let calls = self.0.calls.lock().unwrap();
        let calls: Vec<_> = calls.iter().filter(|record| record.started >= since).collect();
        let decided = calls.iter().filter(|record| record.outcome == Outcome::Decided).count();
        (decided, calls.len() - decided)
    }

    /// Checks the states of all subjects. Every decided call must be charged once. A call must not
    /// be charged if its error reports that it was definitely not charged. No call must be charged
    /// twice.
    pub(crate) async fn check(&self) {
        self.check_on(&*self.0.direct, self.0.start).await;
    }

    /// Checks all calls on the server at `url`, which has possibly lost calls that were decided
    /// before `since`.
    pub(crate) async fn check_at(&self, url: &str, since: Instant) {
        self.check_on(&RedisStore::new(url).unwrap(), since).await;
    }

    async fn check_on(&self, direct: &dyn Store, since: Instant) {
        let calls = self.0.calls.lock().unwrap().clone();
        let calls: Vec<_> = calls.into_iter().enumerate().collect();
        let (mut decided, mut failed, mut unknown) = (0, 0, 0);
        for calls in calls.chunks(500) {
            let subjects: Vec<_> = calls.iter().map(|(index, _)| self.subject(*index)).collect();
            let charges = subjects.iter().map(|subject| [Charge::new(&self.0.policy, subject)]);
            let charges: Vec<_> = charges.collect();
            let peeks = charges.iter().map(|charges| Call::new(Operation::Peek, charges));
            let answers = direct.decide_many(&peeks.collect::<Vec<_>>()).await;
            for ((index, record), answer) in calls.iter().zip(answers) {
                let charged = self.0.policy.limit() - answer.unwrap().verdicts()[0].remaining();
                let (started, outcome) = (record.started - self.0.start, record.outcome);
                let story = format!("call {index} at {started:?}, {outcome:?}: charged {charged}");
                assert!(charged <= 1, "{story}");
                match record.outcome {
                    Outcome::Decided => {
                        assert!(charged == 1 || record.started < since, "{story}");
                        decided += 1;
                    }
                    Outcome::Failed(kind) if kind.is_definitely_not_charged() => {
                        assert_eq!(charged, 0, "{story}");
                        failed += 1;
                    }
                    _ => unknown += 1,
                }
            }
        }
        println!(
            "{decided} decided, {failed} definitely not charged, {unknown} others: all as expected"
        );
    }
}

pub(crate) async fn decided(ledger: &Ledger, store: &Arc<impl Store>) {
    let decides = async || {
        let since = Instant::now();
        ledger.call(&**store).await;
        (ledger.decided_since(since).0 > 0).then_some(())
    };
    eventually(Duration::from_secs(20), "a decision", decides).await.unwrap();
}

/// Drops a future after some time, unless it has ended.
pub(crate) async fn drop_after(patience: Duration, future: impl Future<Output = ()>) {
    let _ = tokio::time::timeout(patience, future).await;
}

/// A group of callers that make calls until the test stops them.
pub(crate) struct Load {
    ledger: Ledger,
    start: Instant,
    stop: Arc<AtomicBool>,
    callers: JoinSet<()>,
}

impl Load {
    /// Starts callers. A caller pauses for a moment between two calls, and drops a call that takes
    /// longer than its patience.
    pub(crate) fn start<S: Store + Send + Sync + 'static>(
        ledger: &Ledger,
        store: &Arc<S>,
        callers: usize,
        patience: Option<Duration>,
    ) -> Self {
        let (start, stop) = (Instant::now(), Arc::new(AtomicBool::new(false)));
        let mut load = Self { ledger: ledger.clone(), start, stop, callers: JoinSet::new() };
        for _ in 0..callers {
            let (ledger, store, stop) = (ledger.clone(), Arc::clone(store), Arc::clone(&load.stop));
            load.callers.spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let patience = patience.unwrap_or(Duration::from_secs(60));
                    drop_after(patience, ledger.call(&*store)).await;
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
            });
        }
        load
    }

    /// Waits for the first decision, and returns the time from `since` to that decision.
    pub(crate) async fn first_decision(&self, since: Instant) -> Duration {
        let first = async || {
            let calls = self.ledger.0.calls.lock().unwrap();
            let is_decided = |record: &&Record| {
                record.started >= self.start && record.outcome == Outcome::Decided
            };
            calls.iter().filter(is_decided).map(|record| record.ended).min()
        };
        let first = eventually(Duration::from_secs(30), "a decision", first).await.unwrap();
        first.saturating_duration_since(since)
    }

    pub(crate) async fn stop(mut self) {
        self.stop.store(true, Ordering::Relaxed);
        while let Some(caller) = self.callers.join_next().await {
            caller.unwrap();
        }
    }
}
