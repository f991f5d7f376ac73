//! Leases: a node charges chunks of a limit in the store, and admits calls from these chunks in
//! memory.
//!
//! The store charges a chunk before the node uses the chunk. So leases admit no more than the
//! limit, regardless of failures of nodes, clocks and the network. `docs/design.md` has the exact
//! bounds.
//!
//! | module | contents |
//! |---|---|
//! | [`config`] | the settings, and the behavior that users can rely on |
//! | [`table`] | all leases; answers an acquire, and returns the work to do in the store ([`todo`]) |
//! | [`entry`], [`chunk`] | one lease and its chunks |
//! | [`key`], [`heat`] | the calls that can be leased, and the calls that are made often enough |
//! | [`grant`] | the calls to the store that charge and return chunks |
//! | [`keeper`] | the tasks that make the calls of [`grant`] |
//! | [`pass`] | the path to the store of a call that no chunk admits |
//! | [`barrier`] | the return of chunks before a call that needs the whole remaining amount |
//! | [`refused`] | the search for the cause of a refusal, and the decision to send the call again |
//! | [`in_flight`] | the calls that a barrier or a refused caller waits for |
//! | [`meter`], [`stats`] | the counters of leases, and their public form |

mod barrier;
mod chunk;
mod config;
mod entry;
mod grant;
mod heat;
mod in_flight;
mod keeper;
mod key;
mod meter;
mod pass;
mod refused;
mod stats;
mod table;
mod todo;

use std::fmt;
use std::sync::Arc;

pub use config::Lease;
pub use stats::LeaseStats;

use self::barrier::Barrier;
use self::keeper::Keeper;
use self::key::is_plain_acquire;
use self::pass::{pass, pass_many};
use self::table::StoreCall;
use crate::{
    Answer, Call, Charge, Charges, Clock, Decision, Error, Policy, Store, SystemClock, Timestamp,
};

/// A store that admits calls in memory, from chunks that its inner store has granted: see
/// [`Lease`].
///
/// Clones are cheap and share the leases. When the last clone is dropped within a Tokio runtime, a
/// task returns the unspent costs of all chunks. [`close`](Self::close) also returns the unspent
/// costs, and waits for the answers of the store.
pub struct LeasedStore<S, C = SystemClock> {
    owner: Arc<Owner<S, C>>,
}

/// An `Owner` ends the leases when it is dropped. All clones of a `LeasedStore` share one `Owner`,
/// and the tasks have no reference to it. So it is dropped with the last clone.
struct Owner<S, C> {
    keeper: Arc<Keeper<S, C>>,
    /// Ends the leases. This field is a function pointer, because `drop` cannot have the bounds on
    /// `S` and `C` that are needed to end the leases.
    close: fn(&Arc<Keeper<S, C>>),
}

impl<S, C> Drop for Owner<S, C> {
    fn drop(&mut self) {
        (self.close)(&self.keeper);
    }
}

impl<C: Clock> Lease<C> {
    pub(in crate::layers) fn wrap<S>(self, inner: S) -> LeasedStore<S, C>
    where
        S: Store + 'static,
        C: 'static,
    {
        let keeper = Arc::new(Keeper::new(inner, self.clock, self.settings));
        let close = |keeper: &Arc<Keeper<S, C>>| keeper.run(keeper.table.close());
        LeasedStore { owner: Arc::new(Owner { keeper, close }) }
    }
}

impl<S, C> LeasedStore<S, C> {
    /// Returns the inner store. The inner store counts the whole cost of a chunk as used.
    ///
    /// There is no `into_inner`, because the clones and the tasks of this store share the inner
    /// store. To keep access to the inner store, create the leases around a clone or an `Arc` of
    /// the inner store.
    #[must_use]
    pub fn inner(&self) -> &S {
        &self.owner.keeper.grantor.store
    }

    /// Returns a handle to the statistics of the leases. The handle stays valid when the store is
    /// moved into a limiter.
    #[must_use]
    pub fn stats(&self) -> LeaseStats {
        LeaseStats(Arc::clone(&self.owner.keeper.table))
    }
}

impl<S: Store + 'static, C: Clock + 'static> LeasedStore<S, C> {
    /// Ends all leases, returns the unspent costs of their chunks, and waits until the inner store
    /// has answered. After that, the inner store decides each call.
    ///
    /// Call `close` before the process ends. Otherwise, the unspent costs stay charged until the
    /// states recover.
    pub async fn close(&self) {
        let keeper = &self.owner.keeper;
        keeper.settle(keeper.table.close().settle).await;
        keeper.table.in_flight.all_calls_ended().await;
    }
}

impl<S: Store + 'static, C: Clock + 'static> Store for LeasedStore<S, C> {
    fn decide<'a>(&'a self, call: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
        let keeper = &self.owner.keeper;
        if !is_plain_acquire(&call) || !keeper.table.settings.can_lease(call.charges) {
            return pass(keeper, StoreCall { call, candidate: None });
        }
        match keeper.admit(call.charges) {
            Ok(decision) => Answer::ready(Ok(decision)),
            Err(candidate) => pass(keeper, StoreCall { call, candidate: Some(candidate) }),
        }
    }

    fn decide_many<'a>(
        &'a self,
        calls: &'a [Call<'a>],
    ) -> Answer<'a, Vec<Result<Decision, Error>>> {
        pass_many(&self.owner.keeper, calls)
    }

    fn now(&self) -> Answer<'_, Result<Timestamp, Error>> {
        self.inner().now()
    }

    fn ready(&self) -> Answer<'_, Result<(), Error>> {
        self.inner().ready()
    }

    /// Returns `None` for a call that a chunk admits, because this call is not sent to the store.
    /// Also returns `None` for a call before which the node possibly returns chunks, because the
    /// other calls of its batch would wait for the return too.
    fn batch_group(&self, call: &Call<'_>) -> Option<u64> {
        let keeper = &self.owner.keeper;
        let is_answered_alone = if is_plain_acquire(call) {
            keeper.table.would_admit(call.charges, keeper.now())
        } else {
            Barrier::before(call) != Barrier::None && !keeper.table.has_no_chunks()
        };
        if is_answered_alone { None } else { self.inner().batch_group(call) }
    }

    fn until_turn(&self, charges: Charges<'_>, place: u64) -> Option<Answer<'_, ()>> {
        self.inner().until_turn(charges, place)
    }

    fn adjusted_policy<'a>(&'a self, charge: Charge<'a>) -> Answer<'a, Option<Policy>> {
        self.inner().adjusted_policy(charge)
    }

    fn supports(&self, policy: &Policy) -> Result<(), Error> {
        self.inner().supports(policy)
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
            .field("inner", self.inner())
            .field("clock", &self.owner.keeper.clock)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}
