//! An account of calls: each charges a subject of its own, which is looked up afterwards. So it is known of
//! every single call whether it was charged, and how often.
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
use tidegate_testkit::servers::eventually;
use tokio::task::JoinSet;

/// All calls of a test.
#[derive(Clone)]
pub(crate) struct Ledger(Arc<Inner>);

struct Inner {
    /// No two have the same subjects, also on one server.
    number: u64,
    /// A store that nothing stands in the way of.
    direct: Box<dyn Store>,
    policy: Policy,
    start: Instant,
    calls: Mutex<Vec<Record>>,
}

/// A call. Its place among the others is its subject.
#[derive(Debug, Clone, Copy)]
struct Record {
    asked: Instant,
    ended: Instant,
    outcome: Outcome,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// The caller gave up, or has no answer yet.
    None,
    Decided,
    Degraded,
    Failed(ErrorKind),
}

impl Ledger {
    /// An account of calls that end at the server at this URL.
    pub(crate) fn new(url: &str) -> Self {
        Self::on(RedisStore::new(url).unwrap())
    }

    /// The same, with a store for looking up.
    pub(crate) fn on(direct: impl Store + 'static) -> Self {
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

    /// Makes one call.
    pub(crate) async fn call(&self, store: &impl Store) {
        let asked = Instant::now();
        let place = {
            let mut calls = self.0.calls.lock().unwrap();
            calls.push(Record { asked, ended: asked, outcome: Outcome::None });
            calls.len() - 1
        };
        let subject = self.subject(place);
        let charges = [Charge::new(&self.0.policy, &subject)];
        let outcome = match store.decide(Call::acquire(&charges)).await {
            Ok(decision) if decision.degraded().is_some() => Outcome::Degraded,
            Ok(decision) => {
                assert!(decision.is_allowed(), "no other call charges this subject");
                Outcome::Decided
            }
            Err(error) => Outcome::Failed(error.kind()),
        };
        self.0.calls.lock().unwrap()[place] = Record { asked, ended: Instant::now(), outcome };
    }

    /// The errors of the calls that were made since then.
    pub(crate) fn failures_since(&self, since: Instant) -> Vec<ErrorKind> {
        let failure = |record: &Record| match record.outcome {
            Outcome::Failed(kind) if record.asked >= since => Some(kind),
            _ => None,
        };
        self.0.calls.lock().unwrap().iter().filter_map(failure).collect()
    }

    /// How many of the calls that were made since then were decided, and how many were not.
    pub(crate) fn decided_since(&self, since: Instant) -> (usize, usize) {
        let calls = self.0.calls.lock().unwrap();
        let calls: Vec<_> = calls.iter().filter(|record| record.asked >= since).collect();
        let decided = calls.iter().filter(|record| record.outcome == Outcome::Decided).count();
        (decided, calls.len() - decided)
    }

    /// Looks all subjects up: what was answered was charged once, what surely was not charged was not,
    /// and nothing was charged twice.
    pub(crate) async fn check(&self) {
        self.look_up(&*self.0.direct, self.0.start).await;
    }

    /// The same, on another server, of the calls that were made since then.
    pub(crate) async fn check_at(&self, url: &str, since: Instant) {
        self.look_up(&RedisStore::new(url).unwrap(), since).await;
    }

    async fn look_up(&self, direct: &dyn Store, since: Instant) {
        let calls = self.0.calls.lock().unwrap().clone();
        let calls: Vec<_> = calls.into_iter().enumerate().collect();
        let (mut decided, mut failed, mut unknown) = (0, 0, 0);
        for calls in calls.chunks(500) {
            let subjects: Vec<_> = calls.iter().map(|(place, _)| self.subject(*place)).collect();
            let charges = subjects.iter().map(|subject| [Charge::new(&self.0.policy, subject)]);
            let charges: Vec<_> = charges.collect();
            let peeks = charges.iter().map(|charges| Call::new(Operation::Peek, charges));
            let answers = direct.decide_many(&peeks.collect::<Vec<_>>()).await;
            for ((place, record), answer) in calls.iter().zip(answers) {
                let charged = self.0.policy.limit() - answer.unwrap().verdicts()[0].remaining();
                let (asked, outcome) = (record.asked - self.0.start, record.outcome);
                let story = format!("call {place} at {asked:?}, {outcome:?}: charged {charged}");
                assert!(charged <= 1, "{story}");
                match record.outcome {
                    Outcome::Decided => {
                        assert!(charged == 1 || record.asked < since, "{story}");
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
        println!("{decided} decided, {failed} surely not charged, {unknown} others: all in order");
    }
}

/// Calls until one is decided.
pub(crate) async fn decided(ledger: &Ledger, store: &Arc<impl Store>) {
    let decides = async || {
        let since = Instant::now();
        ledger.call(&**store).await;
        (ledger.decided_since(since).0 > 0).then_some(())
    };
    eventually(Duration::from_secs(20), "a decision", decides).await.unwrap();
}

/// Drops a future after some time.
pub(crate) async fn drop_after(patience: Duration, future: impl Future<Output = ()>) {
    let _ = tokio::time::timeout(patience, future).await;
}

/// Callers that go on until they are stopped.
pub(crate) struct Load {
    ledger: Ledger,
    start: Instant,
    stop: Arc<AtomicBool>,
    callers: JoinSet<()>,
}

impl Load {
    /// Starts callers who rest a moment between two calls, and drop those that take longer than they have
    /// patience.
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

    /// Waits for the first decision, and returns how long it came after that instant.
    pub(crate) async fn first_decision(&self, since: Instant) -> Duration {
        let first = async || {
            let calls = self.ledger.0.calls.lock().unwrap();
            let is_decided =
                |it: &&Record| it.asked >= self.start && it.outcome == Outcome::Decided;
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
