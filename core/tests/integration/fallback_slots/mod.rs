//! Tests of slots on the fallback store, while the store is away and after it is back.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, and so do its helpers")]

mod guards;
mod property;
mod two_stores;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate_core::layers::{FallbackStore, Layer, Layered};
use tidegate_core::{
    Answer, Call, Charge, Decision, Error, ErrorKind, Limiter, ManualClock, OnFailure, Operation,
    Policy, Share, Store, StoreExt, Ticket,
};
use tidegate_testkit::{ModelStore, decide_one_by_one};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const LEASE: Duration = Duration::from_secs(30);

const SIX: &str = "slots: concurrent 6 lease 30s";
const THREE: &str = "slots: concurrent 3 lease 30s";

/// The state of the connection to a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Link {
    Up,
    /// Calls do not arrive at the store.
    Down,
    /// Calls arrive at the store, but their answers are lost.
    Deaf,
}

/// A layer between a store and its clients that can cut the connection.
#[derive(Debug)]
struct Cut(Mutex<Link>);

impl Cut {
    fn new() -> Self {
        Self(Mutex::new(Link::Up))
    }

    fn set(&self, link: Link) {
        *self.0.lock().unwrap() = link;
    }
}

impl<S: Store> Layer<S> for Cut {
    const MAY_WAIT: bool = false;

    fn decide<'a>(&'a self, inner: &'a S, call: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
        match *self.0.lock().unwrap() {
            Link::Up => inner.decide(call),
            Link::Down => Answer::ready(Err(Error::new(ErrorKind::CircuitOpen, "down"))),
            Link::Deaf => inner.decide(call).map(|_| Err(Error::new(ErrorKind::Timeout, "deaf"))),
        }
    }

    fn decide_many<'a>(
        &'a self,
        inner: &'a S,
        calls: &'a [Call<'a>],
    ) -> Answer<'a, Vec<Result<Decision, Error>>> {
        decide_one_by_one(self, inner, calls)
    }
}

fn policy(text: &str) -> Policy {
    text.parse().unwrap()
}

fn half() -> Share {
    Share::new(1, 2).unwrap()
}

/// A process with its own fallback store. All processes share the main store.
struct Node {
    spare: Arc<ModelStore>,
    store: Arc<NodeStore>,
}

type NodeStore = FallbackStore<Layered<Cut, Arc<ModelStore>>>;

impl Node {
    fn new(main: &Arc<ModelStore>, clock: &ManualClock) -> Self {
        let spare = Arc::new(ModelStore::new(clock.clone()));
        let on_failure = OnFailure::fall_back_to(Arc::clone(&spare), half()).accept_no_share();
        let store = Arc::clone(main).layer(Cut::new());
        let store = store.on_failure(on_failure.open_for("open").clock(clock.clone()));
        Self { spare, store: Arc::new(store) }
    }

    fn limiter(&self, policies: &[&str]) -> Limiter<Arc<NodeStore>> {
        Limiter::new(Arc::clone(&self.store), policies.iter().map(|text| policy(text))).unwrap()
    }

    fn set(&self, link: Link) {
        self.store.inner().as_layer().set(link);
    }
}

async fn free(store: &impl Store, policy: &Policy) -> u64 {
    let charges = [Charge::new(policy, "a").cost(0)];
    let peek = store.decide(Call::new(Operation::Peek, &charges)).await.unwrap();
    peek.verdicts()[0].remaining()
}

/// Creates a node alone at a store.
fn node() -> (ManualClock, Arc<ModelStore>, Node) {
    let clock = ManualClock::default();
    let main = Arc::new(ModelStore::new(clock.clone()));
    let node = Node::new(&main, &clock);
    (clock, main, node)
}

async fn hold<S: Store>(limiter: &Limiter<S>, id: &str) -> Option<Ticket> {
    limiter.subject("a").hold(id, MINUTE).await.unwrap().into_ticket().ok()
}
