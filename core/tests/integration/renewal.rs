//! Tests of the renewal of slots by their guards.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, and so do its helpers")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate_core::{
    Answer, Call, CurrentLimits, Decision, Error, ErrorKind, HoldGuard, LimitSet, Limiter, OnDrop,
    Operation, Policy, Store, StoreExt, Ticket, Timestamp, TokioClock,
};
use tidegate_memory::MemoryStore;
use tokio::time::{Instant, sleep, timeout};

use crate::run;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);
const LEASE: Duration = Duration::from_secs(30);

/// A store that records the sizes of its batches, and can be away.
#[derive(Debug)]
struct TestStore {
    inner: MemoryStore<TokioClock>,
    batches: Mutex<Vec<usize>>,
    away: Mutex<Option<ErrorKind>>,
    hangs: Mutex<bool>,
}

impl TestStore {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            inner: MemoryStore::builder().clock(TokioClock::new()).build(),
            batches: Mutex::default(),
            away: Mutex::default(),
            hangs: Mutex::default(),
        })
    }

    fn set_away(&self, error: Option<ErrorKind>) {
        *self.away.lock().unwrap() = error;
    }

    fn take_batches(&self) -> Vec<usize> {
        std::mem::take(&mut *self.batches.lock().unwrap())
    }
}

impl Store for TestStore {
    fn decide<'a>(&'a self, call: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
        if *self.hangs.lock().unwrap() {
            return Answer::later(std::future::pending());
        }
        match *self.away.lock().unwrap() {
            Some(kind) => Answer::ready(Err(Error::new(kind, "the store is away"))),
            None => self.inner.decide(call),
        }
    }

    fn decide_many<'a>(
        &'a self,
        calls: &'a [Call<'a>],
    ) -> Answer<'a, Vec<Result<Decision, Error>>> {
        assert!(calls.iter().all(|call| call.operation == Operation::Extend));
        self.batches.lock().unwrap().push(calls.len());
        Answer::later(async move {
            let mut decisions = vec![];
            for call in calls {
                decisions.push(self.decide(*call).await);
            }
            decisions
        })
    }

    fn now(&self) -> Answer<'_, Result<Timestamp, Error>> {
        self.inner.now()
    }

    fn supports(&self, policy: &Policy) -> Result<(), Error> {
        self.inner.supports(policy)
    }
}

type TestLimiter = Limiter<Arc<TestStore>>;

fn limiter(policies: &[&str]) -> (TestLimiter, Arc<TestStore>) {
    let store = TestStore::new();
    let policies = policies.iter().map(|text| text.parse().unwrap());
    (Limiter::new(Arc::clone(&store), policies).unwrap(), store)
}

async fn ticket(limiter: &TestLimiter, id: &str) -> Ticket {
    limiter.subject("a").hold(id, HOUR).await.unwrap().into_ticket().unwrap()
}

async fn guard(limiter: &TestLimiter, id: &str) -> HoldGuard<Arc<TestStore>> {
    HoldGuard::new(limiter, ticket(limiter, id).await, OnDrop::Settle).unwrap()
}

async fn free(limiter: &TestLimiter) -> u64 {
    limiter.subject("a").cost(0).peek().await.unwrap().verdicts()[0].remaining()
}

async fn is_lost(guard: &HoldGuard<Arc<TestStore>>) -> bool {
    timeout(Duration::from_millis(1), guard.lost()).await.is_ok()
}

#[test]
fn a_guard_keeps_its_slot_for_as_long_as_it_lives() {
    run(async {
        let (limiter, store) = limiter(&["slots: concurrent 1 lease 30s"]);
        let guard = guard(&limiter, "id").await;
        for _ in 0..1_000 {
            sleep(SECOND).await;
            assert_eq!(free(&limiter).await, 0);
            // A third of the lease passes between two renewals, and a twentieth is the margin.
            let left = guard.deadline().unwrap() - Instant::now();
            assert!(LEASE * 37 / 60 <= left && left <= LEASE * 19 / 20, "{left:?}");
        }
        assert!(!is_lost(&guard).await);
        let renewals = store.take_batches().len();
        assert!((99..=100).contains(&renewals), "{renewals}");
        drop(guard);
        limiter.guards_settled().await;
        assert_eq!(free(&limiter).await, 1);
        sleep(HOUR).await;
        assert!(store.take_batches().is_empty());
    });
}

/// The renewals that are due together are sent in few batches, by one task.
#[test]
fn the_guards_of_a_limiter_are_renewed_together() {
    run(async {
        let (limiter, store) = limiter(&["slots: concurrent 500 lease 30s"]);
        let mut guards = vec![];
        for number in 0..100 {
            guards.push(guard(&limiter.clone(), &number.to_string()).await);
            sleep(Duration::from_millis(5)).await;
        }
        sleep(10 * SECOND).await;
        assert_eq!(store.take_batches(), [32, 32, 32, 4]);
        sleep(10 * SECOND).await;
        assert_eq!(store.take_batches(), [32, 32, 32, 4]);
        guards.truncate(3);
        sleep(10 * SECOND).await;
        assert_eq!(store.take_batches(), [3]);
        // After all guards were dropped, the task has ended. Another guard starts a new task.
        guards.clear();
        sleep(HOUR).await;
        assert_eq!(free(&limiter).await, 500);
        let guard = guard(&limiter, "another").await;
        sleep(HOUR).await;
        assert!(!is_lost(&guard).await);
        assert_eq!(free(&limiter).await, 499);
    });
}

/// The task waits for the renewal of the first guard, and the second guard needs a renewal before.
#[test]
fn a_guard_with_a_short_lease_is_renewed_in_time() {
    run(async {
        let (limiter, _) =
            limiter(&["long: concurrent 1 lease 30m", "short: concurrent 1 lease 1s"]);
        let hold = async |policy| {
            let hold = limiter.by(policy, "a").hold(policy, HOUR).await.unwrap();
            HoldGuard::new(&limiter, hold.into_ticket().unwrap(), OnDrop::Settle).unwrap()
        };
        let _long = hold("long").await;
        sleep(SECOND).await;
        let short = hold("short").await;
        for _ in 0..100 {
            sleep(SECOND / 7).await;
            assert!(short.deadline().unwrap() > Instant::now());
        }
    });
}

/// After an outage, a renewal is sent soon, so that no other holder can get the slot.
#[test]
fn a_failed_renewal_is_repeated_soon() {
    run(async {
        let (limiter, store) = limiter(&["slots: concurrent 1 lease 30s"]);
        let _guard = guard(&limiter, "id").await;
        store.set_away(Some(ErrorKind::Unavailable));
        sleep(26 * SECOND).await;
        store.set_away(None);
        sleep(5 * SECOND).await;
        assert_eq!(free(&limiter).await, 0);
    });
}

#[test]
fn a_guard_whose_slot_is_lost_learns_it_at_the_next_renewal() {
    run(async {
        let (limiter, _) = limiter(&["slots: concurrent 1 lease 30s"]);
        let (guard, started) = (guard(&limiter, "id").await, Instant::now());
        limiter.subject("a").reset().await.unwrap();
        let deadline = guard.deadline().unwrap();
        guard.lost().await;
        assert_eq!(started.elapsed().as_secs(), 10);
        assert_eq!(guard.deadline(), Some(deadline));
        // A settlement after the loss succeeds.
        guard.settle([]).await.unwrap();
    });
}

/// While the store is away, the holder may work until its deadline. The slots count as lost one
/// lease after the deadline. If the store answers before, the holder continues.
#[test]
fn a_guard_survives_an_outage_that_is_shorter_than_its_lease() {
    run(async {
        for (seconds, survives) in [(15, true), (29, true), (120, false)] {
            for hangs in [false, true] {
                let (limiter, store) = limiter(&["slots: concurrent 1 lease 30s"]);
                let guard = guard(&limiter, "id").await;
                let deadline = guard.deadline().unwrap();
                store.set_away(Some(ErrorKind::Unavailable));
                *store.hangs.lock().unwrap() = hangs;
                let outage = async {
                    sleep(seconds * SECOND).await;
                    assert_eq!(guard.deadline(), Some(deadline));
                    store.set_away(None);
                    *store.hangs.lock().unwrap() = false;
                };
                let lost_after = timeout(HOUR, guard.lost());
                let (lost, ()) = tokio::join!(lost_after, outage);
                assert_eq!(lost.is_err(), survives, "{seconds} {hangs}");
                if survives {
                    assert!(guard.deadline().unwrap() > Instant::now());
                    assert_eq!(free(&limiter).await, 0);
                }
            }
        }
        // Without an answer, the loss is exactly one lease after the deadline.
        let (limiter, store) = limiter(&["slots: concurrent 1 lease 30s"]);
        let guard = guard(&limiter, "id").await;
        let deadline = guard.deadline().unwrap();
        store.set_away(Some(ErrorKind::Timeout));
        guard.lost().await;
        let late = Instant::now() - (deadline + LEASE);
        assert!(late <= Duration::from_millis(1), "{late:?}");
    });
}

/// The deadline counts from the time at which a call is sent. For a ticket of another process, this
/// time is unknown.
#[test]
fn the_deadline_of_a_ticket_from_another_process_has_passed_until_the_first_renewal() {
    run(async {
        let (limiter, _) = limiter(&["slots: concurrent 1 lease 30s"]);
        let own = ticket(&limiter, "id").await;
        let other: Ticket = serde_json::from_str(&serde_json::to_string(&own).unwrap()).unwrap();
        assert_eq!(other, own);
        assert!(other.fence("slots").is_some());
        assert_eq!(other.fence("slots"), own.fence("slots"));
        sleep(5 * SECOND).await;
        let guard = HoldGuard::new(&limiter, other, OnDrop::Settle).unwrap();
        assert!(guard.deadline().unwrap() <= Instant::now());
        sleep(Duration::from_millis(2)).await;
        let left = guard.deadline().unwrap() - Instant::now();
        assert!(left > 28 * SECOND, "{left:?}");
    });
}

#[test]
fn a_hold_without_slots_is_not_renewed() {
    run(async {
        for policies in [
            &["tokens: fixed-window 9/1h refund-lapsed"][..],
            &["slots: concurrent 1 lease 30s shadow"],
        ] {
            let (limiter, store) = limiter(policies);
            let guard = guard(&limiter, "id").await;
            assert_eq!(guard.deadline(), None);
            assert!(timeout(HOUR, guard.lost()).await.is_err());
            assert!(store.take_batches().is_empty());
        }
    });
}

fn paused_runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap()
}

/// The runtime of the first guard ends. The next guard starts the task on its own runtime.
#[test]
fn another_runtime_continues_the_renewals() {
    let (first, second) = (paused_runtime(), paused_runtime());
    let (limiter, _) =
        limiter(&["slots: concurrent 1 lease 30s", "others: concurrent 9 lease 30s"]);
    first.block_on(async {
        let request = limiter.by("others", "a");
        let ticket = request.hold("first", HOUR).await.unwrap().into_ticket().unwrap();
        std::mem::forget(HoldGuard::new(&limiter, ticket, OnDrop::Settle).unwrap());
        sleep(HOUR).await;
    });
    drop(first);
    second.block_on(async {
        let request = limiter.by("slots", "a");
        let ticket = request.hold("second", HOUR).await.unwrap().into_ticket().unwrap();
        let guard = HoldGuard::new(&limiter, ticket, OnDrop::Settle).unwrap();
        sleep(HOUR).await;
        assert!(!is_lost(&guard).await);
        assert!(guard.deadline().unwrap() > Instant::now());
    });
}

/// The runtime of the task ends while renewals are in flight. The next task sends them again.
#[test]
fn renewals_in_flight_are_sent_again_on_another_runtime() {
    let (first, second) = (paused_runtime(), paused_runtime());
    let (limiter, store) = limiter(&["slots: concurrent 2 lease 30s"]);
    let hold = async |id: &str| {
        let ticket = limiter.by("slots", "a").hold(id, HOUR).await.unwrap().into_ticket().unwrap();
        HoldGuard::new(&limiter, ticket, OnDrop::Settle).unwrap()
    };
    let guard = first.block_on(async {
        let guard = hold("first").await;
        *store.hangs.lock().unwrap() = true;
        sleep(LEASE / 2).await;
        guard
    });
    drop(first);
    *store.hangs.lock().unwrap() = false;
    second.block_on(async {
        let other = hold("second").await;
        sleep(HOUR).await;
        assert!(!is_lost(&guard).await && !is_lost(&other).await);
        std::mem::forget((guard, other));
    });
}

/// A limit set shortens the lease while a holder works. The store prolongs the slots by the new
/// lease, so the guard must renew them more often, and its deadline must not be later.
#[test]
fn a_guard_follows_a_lease_that_a_limit_set_changes() {
    run(async {
        for lease in ["6s", "10m"] {
            let limits = CurrentLimits::new(LimitSet::new());
            let store = MemoryStore::builder().clock(TokioClock::new()).build();
            let policy = "slots: concurrent 1 lease 60s".parse().unwrap();
            let limiter = Limiter::new(store.adjusted(limits.clone()), [policy]).unwrap();
            let hold = limiter.subject("a").hold("id", HOUR).await.unwrap();
            let guard = HoldGuard::new(&limiter, hold.into_ticket().unwrap(), OnDrop::Settle);
            let guard = guard.unwrap();
            sleep(5 * SECOND).await;
            limits.replace(format!("slots: concurrent 1 lease {lease}").parse().unwrap());
            for second in 0..200 {
                sleep(SECOND).await;
                let other = limiter.subject("a").hold("other", HOUR).await.unwrap();
                assert!(other.ticket().is_none(), "{second}");
                assert!(Instant::now() < guard.deadline().unwrap(), "{second}");
                assert!(timeout(Duration::ZERO, guard.lost()).await.is_err(), "{second}");
            }
        }
    });
}
