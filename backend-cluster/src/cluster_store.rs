use std::fmt;
use std::sync::Arc;

use tidegate_core::layers::ShardedStore;
use tidegate_core::{Answer, Call, Decision, Error, Policy, Store, Timestamp};
use tidegate_redis::connection::check_runtime;
use tidegate_redis::wire;

use crate::builder::ClusterStoreBuilder;
use crate::dispatch::{batch, single};
use crate::inner::Inner;
use crate::ready;

/// A store on a Redis Cluster, which decides by scripts. See the [crate's front page](crate).
///
/// Cheap to clone: clones share the connections and the slot map.
#[derive(Debug, Clone)]
pub struct ClusterStore(Arc<ShardedStore<Slots>>);

/// The store below [`ShardedStore`], which selects the shard of a charge.
struct Slots(Arc<Inner>);

impl ClusterStore {
    /// A store on the cluster that these nodes belong to, of which any number may be given:
    /// `redis://[user:password@]host[:port]`, or `rediss://…` for TLS.
    ///
    /// Does not connect: the first call does, and loads the slot map.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`](crate::ErrorKind::InvalidConfig) if there are no URLs, if one is malformed or names a database, or if they
    /// differ in more than the address.
    pub fn new(urls: impl IntoIterator<Item = impl Into<String>>) -> Result<Self, Error> {
        Self::builder().urls(urls).build()
    }

    /// A builder for a store with other settings.
    pub fn builder() -> ClusterStoreBuilder {
        ClusterStoreBuilder::new()
    }

    /// Checks when a program starts that the store can decide: finds the nodes, and on each of the primaries
    /// does what [`RedisStore::ready`](tidegate_redis::RedisStore::ready) does on one server.
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
    /// The first that a call would meet, on any of the primaries.
    pub async fn ready(&self) -> Result<(), Error> {
        ready::check(&self.0.inner().0).await
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
                Err(error) => {
                    calls.iter().map(|_| Err(error.clone().with_context("in a batch"))).collect()
                }
            }
        })
    }

    fn now(&self) -> Answer<'_, Result<Timestamp, Error>> {
        Answer::later(self.0.now())
    }

    fn batch_group(&self, call: &Call<'_>) -> Option<u64> {
        batch::group_of(&self.0, call)
    }

    fn supports(&self, policy: &Policy) -> Result<(), Error> {
        wire::supports(policy)
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
