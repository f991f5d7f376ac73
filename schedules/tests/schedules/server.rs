//! A store on a slow server, with a ledger of its calls.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use shuttle::future::yield_now;
use tidegate_core::{
    Answer, Call, Charge, Clock, Decision, Error, Operation, Policy, Store, Timestamp, scheduled,
};
use tidegate_memory::MemoryStore;

/// The virtual time, as a clock.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct VirtualClock;

impl Clock for VirtualClock {
    fn now(&self) -> Timestamp {
        // The virtual time starts at the beginning of a day, which is also the beginning of each
        // window.
        Timestamp::from_micros(1_728_000_000_000_000).saturating_add(scheduled::now())
    }
}

/// The clock of a server. Each reading adds one microsecond to the virtual time.
///
/// With this clock, each call has a different time. If a hold and a refund had the same time, the
/// settlement of the hold could not know their order, and would refund less.
#[derive(Debug, Default)]
pub(crate) struct ServerClock(AtomicU64);

impl Clock for ServerClock {
    fn now(&self) -> Timestamp {
        let readings = Duration::from_micros(self.0.fetch_add(1, Ordering::Relaxed));
        VirtualClock.now().saturating_add(readings)
    }
}

/// A store that executes each call at some time between its start and its answer. Other tasks can
/// run before and after the execution. All clones are the same store.
#[derive(Debug, Clone)]
pub(crate) struct Server(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    store: MemoryStore<ServerClock>,
    ledger: Mutex<Ledger>,
}

/// The executed calls. A task locks the ledger only within one step.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) calls: Vec<Entry>,
    /// The subjects that have a hold in flight.
    holding: HashSet<Vec<u8>>,
    settlements: HashMap<Vec<u8>, usize>,
}

/// An executed call.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) operation: Operation,
    pub(crate) is_allowed: bool,
}

impl Server {
    pub(crate) fn new() -> Self {
        let store = MemoryStore::builder().clock(ServerClock::default()).build();
        Self(Arc::new(Shared { store, ledger: Mutex::default() }))
    }

    pub(crate) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.0.ledger.lock().expect("no step panics that holds it")
    }

    /// Returns the number of allowed calls whose operation satisfies `is_wanted`.
    pub(crate) fn allowed(&self, is_wanted: impl Fn(Operation) -> bool) -> usize {
        let ledger = self.ledger();
        ledger.calls.iter().filter(|call| call.is_allowed && is_wanted(call.operation)).count()
    }

    /// Peeks at the state, without an entry in the ledger.
    pub(crate) fn peek(&self, policy: &Policy, subject: &str) -> Decision {
        self.carry_out(Call::new(Operation::Peek, &[Charge::new(policy, subject)]))
            .expect("a peek is answered")
    }

    /// Returns the used part of the limit of a subject.
    pub(crate) fn used(&self, policy: &Policy, subject: &str) -> u64 {
        policy.limit() - self.peek(policy, subject).verdicts()[0].remaining()
    }

    fn carry_out(&self, call: Call<'_>) -> Result<Decision, Error> {
        self.0.store.decide(call).into_ready().expect("it is in memory")
    }

    async fn answer(&self, call: Call<'_>) -> Result<Decision, Error> {
        let _holding = Holding::new(self, &call);
        yield_now().await;
        let answer = self.carry_out(call);
        self.record(&call, &answer);
        yield_now().await;
        answer
    }

    fn record(&self, call: &Call<'_>, answer: &Result<Decision, Error>) {
        let mut ledger = self.ledger();
        if let (Operation::Settle, Some(id)) = (call.operation, call.id) {
            let settlements = ledger.settlements.entry(id.id.to_vec()).or_default();
            *settlements += 1;
            assert_eq!(*settlements, 1, "a chunk is settled once");
        }
        ledger.calls.push(Entry {
            operation: call.operation,
            is_allowed: answer.as_ref().is_ok_and(Decision::is_allowed),
        });
    }
}

/// A guard for a hold in flight. It checks that a subject has only one hold in flight at a time.
struct Holding<'a>(&'a Server, Option<Vec<u8>>);

impl<'a> Holding<'a> {
    fn new(server: &'a Server, call: &Call<'_>) -> Self {
        let is_hold = call.operation == Operation::Hold;
        let subject = call.charges.get(0).filter(|_| is_hold).map(|charge| charge.subject.to_vec());
        if let Some(subject) = &subject {
            let is_only = server.ledger().holding.insert(subject.clone());
            assert!(is_only, "one chunk of a subject is fetched at a time");
        }
        Self(server, subject)
    }
}

impl Drop for Holding<'_> {
    fn drop(&mut self) {
        if let Some(subject) = &self.1 {
            self.0.ledger().holding.remove(subject);
        }
    }
}

impl Store for Server {
    fn decide<'a>(&'a self, call: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
        Answer::later(self.answer(call))
    }

    fn now(&self) -> Answer<'_, Result<Timestamp, Error>> {
        self.0.store.now()
    }

    fn supports(&self, policy: &Policy) -> Result<(), Error> {
        self.0.store.supports(policy)
    }
}
