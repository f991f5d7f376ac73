//! Tests of callers that wait for slots of a store that wakes them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, and so do its helpers")]

use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::time::Duration;

use tidegate_core::layers::{Layer, Layered};
use tidegate_core::{
    Answer, Call, Charge, Charges, Decision, Error, Lease, Limiter, Operation, Policy, Store,
    StoreExt, Ticket, TokioClock,
};
use tidegate_memory::MemoryStore;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::run;

const MILLI: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// A layer that wakes callers when a test requires it. It counts the calls in turn.
#[derive(Debug, Default)]
struct WakeUps {
    is_listening: AtomicBool,
    wake_up: Notify,
    calls: AtomicUsize,
    /// A hold that is settled when the next caller begins to listen.
    settles: Mutex<Option<Ticket>>,
}

impl<S: Store + Clone + 'static> Layer<S> for WakeUps {
    const MAY_WAIT: bool = false;

    fn decide<'a>(&'a self, inner: &'a S, call: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
        if matches!(call.operation, Operation::HoldInTurn { .. }) {
            self.calls.fetch_add(1, SeqCst);
        }
        inner.decide(call)
    }

    fn decide_many<'a>(
        &'a self,
        inner: &'a S,
        calls: &'a [Call<'a>],
    ) -> Answer<'a, Vec<Result<Decision, Error>>> {
        inner.decide_many(calls)
    }

    fn until_turn<'a>(
        &'a self,
        inner: &'a S,
        charges: Charges<'_>,
        _place: u64,
    ) -> Option<Answer<'a, ()>> {
        assert!(charges.iter().any(|charge| charge.policy.is_concurrent()));
        if let Some(ticket) = self.settles.lock().unwrap().take() {
            let other = Limiter::new(inner.clone(), [policy()]).unwrap();
            let settled = pin!(other.settle(&ticket, []));
            let mut context = Context::from_waker(Waker::noop());
            assert!(settled.poll(&mut context).is_ready());
        }
        if !self.is_listening.load(SeqCst) {
            return None;
        }
        let mut wake_up = Box::pin(self.wake_up.notified());
        wake_up.as_mut().enable();
        Some(Answer::later(wake_up))
    }
}

type WakingStore = Layered<WakeUps, Arc<MemoryStore<TokioClock>>>;

fn policy() -> Policy {
    "slots: concurrent 1 lease 30m".parse().unwrap()
}

/// The limiter of the waiting callers, and a limiter on the same store whose settlements wake no
/// caller by themselves.
struct Scene {
    waiting: Limiter<Arc<WakingStore>>,
    other: Limiter<Arc<MemoryStore<TokioClock>>>,
}

impl Scene {
    fn new(is_listening: bool) -> Self {
        let memory = Arc::new(MemoryStore::builder().clock(TokioClock::new()).build());
        let layer = WakeUps { is_listening: AtomicBool::new(is_listening), ..WakeUps::default() };
        let store = Arc::new(Arc::clone(&memory).layer(layer));
        let waiting = Limiter::new(store, [policy()]).unwrap();
        Self { waiting, other: Limiter::new(memory, [policy()]).unwrap() }
    }

    fn layer(&self) -> &WakeUps {
        self.waiting.store().as_layer()
    }

    async fn holder(&self) -> Ticket {
        let hold = self.other.subject("a").hold("holder", 10 * MINUTE).await.unwrap();
        hold.into_ticket().unwrap()
    }

    /// Starts a caller, and returns the time of its admission.
    fn caller(&self, id: &'static str) -> JoinHandle<Instant> {
        let limiter = self.waiting.clone();
        tokio::spawn(async move {
            let hold =
                limiter.subject("a").hold_within(id, 10 * MINUTE, 10 * MINUTE).await.unwrap();
            assert!(hold.into_ticket().is_ok());
            Instant::now()
        })
    }
}

#[test]
fn a_caller_that_is_woken_is_admitted_immediately_and_sends_few_calls() {
    run(async {
        let scene = Scene::new(true);
        let ticket = scene.holder().await;
        let waiting = scene.caller("waiting");
        sleep(20 * SECOND + 7 * MILLI).await;
        // Two calls at the start, and then a call every 250 ms.
        assert_eq!(scene.layer().calls.load(SeqCst), 2 + 80);
        let freed_at = Instant::now();
        scene.other.settle(&ticket, []).await.unwrap();
        scene.layer().wake_up.notify_waiters();
        assert_eq!(waiting.await.unwrap(), freed_at);
    });
}

#[test]
fn a_caller_whose_wake_up_is_lost_is_admitted_after_its_pause() {
    run(async {
        let scene = Scene::new(true);
        let ticket = scene.holder().await;
        let waiting = scene.caller("waiting");
        sleep(20 * SECOND + 7 * MILLI).await;
        let freed_at = Instant::now();
        scene.other.settle(&ticket, []).await.unwrap();
        assert_eq!(waiting.await.unwrap() - freed_at, 243 * MILLI);
    });
}

/// The slot becomes free after the first call was refused, and before the caller listens. So no
/// wake-up follows.
#[test]
fn a_slot_that_becomes_free_before_the_caller_listens_is_not_missed() {
    run(async {
        let scene = Scene::new(true);
        *scene.layer().settles.lock().unwrap() = Some(scene.holder().await);
        let started = Instant::now();
        assert_eq!(scene.caller("waiting").await.unwrap(), started);
        assert_eq!(scene.layer().calls.load(SeqCst), 2);
    });
}

#[test]
fn a_caller_sends_its_call_at_short_intervals_while_the_store_does_not_listen() {
    run(async {
        let scene = Scene::new(false);
        let ticket = scene.holder().await;
        let waiting = scene.caller("waiting");
        sleep(SECOND).await;
        let calls = scene.layer().calls.load(SeqCst);
        assert!(calls > 50, "{calls}");
        // While the store listens, the caller waits for wake-ups.
        scene.layer().is_listening.store(true, SeqCst);
        sleep(20 * SECOND).await;
        let calls = scene.layer().calls.load(SeqCst) - calls;
        assert!((80..90).contains(&calls), "{calls}");
        // The store wakes the caller, and then does not listen.
        scene.layer().is_listening.store(false, SeqCst);
        scene.layer().wake_up.notify_waiters();
        sleep(MINUTE).await;
        let calls = scene.layer().calls.load(SeqCst) - calls;
        assert!(calls > 600, "{calls}");
        let freed_at = Instant::now();
        scene.other.settle(&ticket, []).await.unwrap();
        assert!(waiting.await.unwrap() - freed_at <= 100 * MILLI);
    });
}

#[test]
fn leases_pass_the_wake_ups_on() {
    run(async {
        let scene = Scene::new(true);
        let leased = Arc::clone(scene.waiting.store()).leased(Lease::new());
        let policy = policy();
        let charges = [Charge::new(&policy, "a")];
        assert!(leased.until_turn(Charges::from(&charges[..]), 7).is_some());
    });
}
