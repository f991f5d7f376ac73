use std::fmt;
use std::sync::Arc;

use tidegate_core::layers::ShardedStore;
use tidegate_core::{Answer, Call, Charges, Decision, Error, Policy, Store, Timestamp};
use tidegate_redis::connection::check_runtime;
use tidegate_redis::{LimitBook, Run, protocol};

use crate::dispatch::{batch, single};
use crate::inner::Inner;
use crate::ready;
use crate::routing::slots::slot_of;

/// A store on a Redis Cluster. If all states of a call are in one slot, a script on one node
/// decides the call in one round trip. The [front page of the crate](crate) describes the store.
///
/// A clone of the store shares the connections and the slot map (the assignment of slots to nodes).
#[derive(Debug, Clone)]
pub struct ClusterStore(Arc<ShardedStore<Slots>>);

/// The store without shards. [`ShardedStore`] selects the shard of each charge before it passes a
/// call to this store.
struct Slots(Arc<Inner>);

impl ClusterStore {
    /// Checks that the store can decide calls. A program can call this function when it starts.
    ///
    /// The check finds the nodes of the cluster. It checks each primary like
    /// [`RedisStore::ready`](tidegate_redis::RedisStore::ready) checks a single server.
    ///
    /// ```no_run
    /// # async fn run() -> Result<(), tidegate_cluster::Error> {
    /// use tidegate_cluster::ClusterStore;
    ///
    /// let store = ClusterStore::new(["redis://10.0.0.1:7000", "redis://10.0.0.2:7000"])?;
    /// store.ready().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if a primary cannot decide calls. If several primaries cannot decide calls,
    /// returns one of their errors.
    pub async fn ready(&self) -> Result<(), Error> {
        ready::check(&self.0.inner().0).await
    }

    /// Returns the limit set that is kept on the cluster, under the prefix of this store. It is in
    /// one hash slot.
    #[must_use]
    pub fn limit_book(&self) -> LimitBook {
        let inner: Arc<Inner> = Arc::clone(&self.0.inner().0);
        LimitBook::new(Arc::clone(&inner) as Arc<dyn Run>, &inner.keys)
    }

    pub(crate) fn from_inner(inner: Inner) -> Self {
        Self(Arc::new(ShardedStore::new(Slots(Arc::new(inner)))))
    }
}

impl Store for ClusterStore {
    fn decide<'a>(&'a self, call: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
        self.0.decide(call)
    }

    fn decide_many<'a>(
        &'a self,
        calls: &'a [Call<'a>],
    ) -> Answer<'a, Vec<Result<Decision, Error>>> {
        self.0.decide_many(calls)
    }

    fn now(&self) -> Answer<'_, Result<Timestamp, Error>> {
        self.0.now()
    }

    fn ready(&self) -> Answer<'_, Result<(), Error>> {
        Answer::later(Self::ready(self))
    }

    fn batch_group(&self, call: &Call<'_>) -> Option<u64> {
        self.0.batch_group(call)
    }

    fn until_turn(&self, charges: Charges<'_>, place: u64) -> Option<Answer<'_, ()>> {
        self.0.until_turn(charges, place)
    }

    fn supports(&self, policy: &Policy) -> Result<(), Error> {
        self.0.supports(policy)
    }
}

impl Store for Slots {
    fn decide<'a>(&'a self, call: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
        Answer::later(async move {
            check_runtime()?;
            single::decide(&self.0, call).await
        })
    }

    fn decide_many<'a>(
        &'a self,
        calls: &'a [Call<'a>],
    ) -> Answer<'a, Vec<Result<Decision, Error>>> {
        Answer::later(async move {
            match check_runtime() {
                Ok(()) => batch::decide(&self.0, calls).await,
                Err(error) => calls.iter().map(|_| Err(protocol::in_a_batch(&error))).collect(),
            }
        })
    }

    fn now(&self) -> Answer<'_, Result<Timestamp, Error>> {
        Answer::later(self.0.now())
    }

    fn batch_group(&self, call: &Call<'_>) -> Option<u64> {
        batch::batch_group(&self.0, call)
    }

    fn until_turn(&self, charges: Charges<'_>, place: u64) -> Option<Answer<'_, ()>> {
        // All states of a hold are in one slot.
        let node = self.0.slot_map.primary(slot_of(&self.0.keys, &charges.get(0)?))?;
        node.connections.until_turn(self.0.keys.keys_of_slots(charges), place)
    }

    fn supports(&self, policy: &Policy) -> Result<(), Error> {
        protocol::supports(policy)
    }
}

impl fmt::Debug for Slots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slots")
            .field("nodes", &self.0.slot_map.nodes())
            .field("replicas", &self.0.replicas)
            .field("clock", &self.0.clock)
            .finish_non_exhaustive()
    }
}
