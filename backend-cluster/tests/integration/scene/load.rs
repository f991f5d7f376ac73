//! The load of a test: callers that make calls until the load is stopped.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tidegate_cluster::{Call, Charge, ClusterStore, ErrorKind, Policy, Store};
use tidegate_test_servers::eventually;
use tokio::task::JoinSet;

use super::SOON;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    Allowed { remaining: u64 },
    Denied,
    Failed(ErrorKind, String),
}

/// A call of the load that has ended.
#[derive(Debug, Clone)]
pub(crate) struct Event {
    /// The index of the call's subject in the load's list of subjects.
    pub(crate) subject: usize,
    pub(crate) started: Instant,
    pub(crate) duration: Duration,
    pub(crate) outcome: Outcome,
}

/// Callers that make calls for a list of subjects in turn. A subject is a policy and a tenant.
pub(crate) struct Load {
    callers: JoinSet<()>,
    shared: Arc<Shared>,
}

struct Shared {
    store: ClusterStore,
    subjects: Vec<(Policy, String)>,
    pause: Duration,
    next: AtomicUsize,
    is_over: AtomicBool,
    events: Mutex<Vec<Event>>,
}

impl Load {
    /// Starts the callers. Returns when at least as many calls as subjects have ended.
    pub(crate) async fn start(
        store: &ClusterStore,
        subjects: Vec<(Policy, String)>,
        callers: usize,
    ) -> Self {
        let shared = Arc::new(Shared {
            store: store.clone(),
            subjects,
            // A caller pauses between two calls, so that the callers do not overload the servers.
            pause: Duration::from_millis(1),
            next: AtomicUsize::new(0),
            is_over: AtomicBool::new(false),
            events: Mutex::new(vec![]),
        });
        let mut running = JoinSet::new();
        for _ in 0..callers {
            running.spawn(call_again_and_again(Arc::clone(&shared)));
        }
        let load = Self { callers: running, shared };
        load.wait_for_calls(load.shared.subjects.len()).await;
        load
    }

    /// Waits until `calls` more calls of the load have ended.
    pub(crate) async fn wait_for_calls(&self, calls: usize) {
        let count = || self.shared.events.lock().unwrap().len();
        let wanted = count() + calls;
        let is_enough = async || (count() >= wanted).then_some(());
        eventually(SOON, "more calls", is_enough).await.unwrap();
    }

    /// Stops the callers, and returns all calls in the order in which their answers arrived.
    pub(crate) async fn stop(self) -> Vec<Event> {
        self.shared.is_over.store(true, Ordering::Relaxed);
        // A caller that panicked has already printed its message.
        let _ = self.callers.join_all().await;
        self.shared.events.lock().unwrap().clone()
    }
}

async fn call_again_and_again(shared: Arc<Shared>) {
    while !shared.is_over.load(Ordering::Relaxed) {
        let subject = shared.next.fetch_add(1, Ordering::Relaxed) % shared.subjects.len();
        let (policy, tenant) = &shared.subjects[subject];
        let started = Instant::now();
        let decided =
            shared.store.decide(Call::acquire(&[Charge::new(policy, "s").tenant(tenant)])).await;
        let duration = started.elapsed();
        let outcome = match decided {
            Ok(decision) if decision.is_allowed() => {
                Outcome::Allowed { remaining: decision.verdicts()[0].remaining() }
            }
            Ok(_) => Outcome::Denied,
            Err(error) => Outcome::Failed(error.kind(), error.to_string()),
        };
        shared.events.lock().unwrap().push(Event { subject, started, duration, outcome });
        tokio::time::sleep(shared.pause).await;
    }
}

impl Event {
    pub(crate) fn is_allowed(&self) -> bool {
        matches!(self.outcome, Outcome::Allowed { .. })
    }

    pub(crate) fn error(&self) -> Option<(ErrorKind, &str)> {
        match &self.outcome {
            Outcome::Failed(kind, message) => Some((*kind, message)),
            _ => None,
        }
    }

    pub(crate) fn answered(&self) -> Instant {
        self.started + self.duration
    }
}
