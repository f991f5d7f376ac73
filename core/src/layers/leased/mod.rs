//! Leases: chunks of a subject's budget, from which a node admits in memory.
//!
//! A chunk is charged in the store before it is used, so nothing that happens to a node, a clock or an answer makes more
//! be admitted. `docs/design.md` has the proofs.

mod chunk;
mod config;
mod entry;
mod grant;
mod heat;
mod in_flight;
mod key;
mod meter;
mod pass;
mod table;

use std::fmt;
use std::sync::Arc;

pub use config::Lease;

use self::config::Settings;
use self::grant::Ids;
use self::key::{call_hash, is_plain_acquire};
use self::meter::{CostFate, HoldOutcome};
use self::table::{Admission, Leases};
use crate::{Answer, Call, Clock, Decision, Error, Policy, Store, SystemClock, Timestamp};

/// A store that admits from leased chunks of another's budgets: see [`Lease`].
///
/// Cheap to clone: clones share the leases. When the last one is dropped within a Tokio runtime, a task gives back what
/// was not used; [`close`](Self::close) does that and waits for it.
pub struct LeasedStore<S, C = SystemClock> {
    owner: Arc<Owner<S, C>>,
}

/// The inner store and its leases, which tasks keep until they end.
struct Shared<S, C> {
    inner: S,
    clock: C,
    leases: Arc<Leases>,
    ids: Ids,
}

/// What only stores have, and no task: with the last of them the leases end.
struct Owner<S, C> {
    shared: Arc<Shared<S, C>>,
    /// A function, as a destructor knows nothing of the store but its type.
    close: fn(&Arc<Shared<S, C>>),
}

impl<S, C> Drop for Owner<S, C> {
    fn drop(&mut self) {
        (self.close)(&self.shared);
    }
}

impl<S, C: Clock> Shared<S, C> {
    fn new(inner: S, clock: C, settings: Settings) -> Self {
        let (leases, ids) = (Arc::new(Leases::new(settings)), Ids::new());
        Self { inner, clock, leases, ids }
    }

    /// Microseconds.
    fn now(&self) -> u64 {
        self.clock.now().as_micros()
    }
}

impl<S, C> LeasedStore<S, C> {
    /// The inner store. It counts what is in chunks as taken.
    ///
    /// There is no `into_inner`, because clones of this store and its tasks share the inner store.
    /// To keep a store of your own, pass a clone or an `Arc` of it.
    #[must_use]
    pub fn inner(&self) -> &S {
        &self.owner.shared.inner
    }

    /// Statistics of the leases: a handle that stays valid when the store is moved into a limiter.
    #[must_use]
    pub fn stats(&self) -> LeaseStats {
        LeaseStats(Arc::clone(&self.owner.shared.leases))
    }
}

impl<S: Store + 'static, C: Clock + 'static> LeasedStore<S, C> {
    fn new(shared: Arc<Shared<S, C>>) -> Self {
        let close = |shared: &Arc<Shared<S, C>>| shared.spawn_settle(shared.leases.close());
        Self { owner: Arc::new(Owner { shared, close }) }
    }

    /// Ends all leases, gives back what was not used, and waits until the store has answered. From then on, the store
    /// decides on each call.
    ///
    /// To be called before a process ends, or what it holds is missing until it recovers by itself.
    pub async fn close(&self) {
        let shared = &self.owner.shared;
        shared.settle(shared.leases.close()).await;
        shared.leases.in_flight.all_calls_ended().await;
    }

    /// Admits a call from a chunk, or passes it on.
    fn acquire<'a>(&'a self, call: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
        let shared = &self.owner.shared;
        let hash = call_hash(call.charges, &shared.leases.hasher);
        match shared.admit(hash, &call) {
            Ok(decision) => Answer::ready(Ok(decision)),
            Err(is_leased) => shared.pass_acquire(call, Some((hash, is_leased))),
        }
    }
}

impl<S: Store + 'static, C: Clock + 'static> Shared<S, C> {
    /// A decision from a chunk; or whether the call is leased, although it goes to the store.
    fn admit(self: &Arc<Self>, hash: u64, call: &Call<'_>) -> Result<Decision, bool> {
        let admission = self.leases.admit(hash, call.charges, self.now());
        self.leases.meter.call(admission.decision.is_some());
        self.admitted(admission)
    }

    /// Returns `true` if a chunk answers the call now, or if the call may need the return of
    /// chunks.
    fn is_answered_alone(&self, call: &Call<'_>) -> bool {
        if is_plain_acquire(call) {
            let hash = call_hash(call.charges, &self.leases.hasher);
            return self.leases.would_admit(hash, call.charges, self.now());
        }
        pass::concerns_chunks(call) && !self.leases.have_no_chunks()
    }

    /// The same for a call that the store has refused.
    fn admit_refused(self: &Arc<Self>, hash: u64, call: &Call<'_>) -> Result<Decision, bool> {
        self.admitted(self.leases.admit_refused(hash, call.charges, self.now()))
    }

    fn admitted(self: &Arc<Self>, admission: Admission) -> Result<Decision, bool> {
        if let Some(rest) = admission.rest {
            self.spawn_settle(vec![rest]);
        }
        if let Some(fetch) = admission.fetch {
            self.spawn_fetch(fetch);
        }
        admission.decision.ok_or(admission.is_leased)
    }
}

impl<S: Store + 'static, C: Clock + 'static> Store for LeasedStore<S, C> {
    fn decide<'a>(&'a self, call: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
        if is_plain_acquire(&call) { self.acquire(call) } else { self.owner.shared.pass(call) }
    }

    fn decide_many<'a>(
        &'a self,
        calls: &'a [Call<'a>],
    ) -> Answer<'a, Vec<Result<Decision, Error>>> {
        self.owner.shared.pass_many(calls)
    }

    fn now(&self) -> Answer<'_, Result<Timestamp, Error>> {
        self.owner.shared.inner.now()
    }

    fn ready(&self) -> Answer<'_, Result<(), Error>> {
        self.owner.shared.inner.ready()
    }

    /// Returns `None` for a call that a chunk answers, and for a call that may wait for the return
    /// of chunks, because the other calls of a batch would wait as well.
    fn batch_group(&self, call: &Call<'_>) -> Option<u64> {
        let shared = &self.owner.shared;
        (!shared.is_answered_alone(call)).then(|| shared.inner.batch_group(call))?
    }

    fn supports(&self, policy: &Policy) -> Result<(), Error> {
        self.owner.shared.inner.supports(policy)
    }
}

impl<S, C> Clone for LeasedStore<S, C> {
    fn clone(&self) -> Self {
        Self { owner: Arc::clone(&self.owner) }
    }
}

impl<S: fmt::Debug, C: fmt::Debug> fmt::Debug for LeasedStore<S, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeasedStore")
            .field("inner", &self.owner.shared.inner)
            .field("clock", &self.owner.shared.clock)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

/// Statistics of [leases](Lease).
#[derive(Clone)]
pub struct LeaseStats(Arc<Leases>);

impl LeaseStats {
    /// Calls that were admitted from a chunk.
    #[must_use]
    pub fn local(&self) -> u64 {
        self.0.calls().0
    }

    /// Acquires that went to the store.
    #[must_use]
    pub fn passed(&self) -> u64 {
        self.0.calls().1
    }

    /// The number of calls that are leased, with those that have no chunk at the moment.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether no call is leased.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of chunks that the store has granted.
    #[must_use]
    pub fn chunks(&self) -> u64 {
        self.0.meter.holds(HoldOutcome::Granted)
    }

    /// The number of chunks that the store has refused, or not answered.
    #[must_use]
    pub fn chunks_not_granted(&self) -> u64 {
        self.0.meter.holds(HoldOutcome::Refused) + self.0.meter.holds(HoldOutcome::Failed)
    }

    /// The cost in all chunks that were granted, of all charges.
    #[must_use]
    pub fn granted(&self) -> u64 {
        self.0.meter.costs(CostFate::Granted)
    }

    /// How much of it was given back.
    #[must_use]
    pub fn given_back(&self) -> u64 {
        self.0.meter.costs(CostFate::GivenBack)
    }

    /// How much of it was neither used nor given back: it came back by itself before, or stays charged until it does.
    #[must_use]
    pub fn stranded(&self) -> u64 {
        self.0.meter.costs(CostFate::Stranded)
    }
}

impl fmt::Debug for LeaseStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseStats")
            .field("local", &self.local())
            .field("passed", &self.passed())
            .field("len", &self.len())
            .field("chunks", &self.chunks())
            .field("chunks_not_granted", &self.chunks_not_granted())
            .field("granted", &self.granted())
            .field("given_back", &self.given_back())
            .field("stranded", &self.stranded())
            .finish()
    }
}
