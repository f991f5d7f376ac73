use std::fmt;
use std::sync::Arc;

use tidegate_core::shards::ShardedStore;
use tidegate_core::{Answer, Call, Clock, Decision, Error, ErrorKind, Policy, Store, Timestamp};
use tidegate_redis::connection::{ScriptTimes, check_runtime, first_success};
use tidegate_redis::wire::Keys;

use crate::across;
use crate::batch;
use crate::builder::ClusterStoreBuilder;
use crate::errand::{Calls, Decided, Errand};
use crate::map::Map;
use crate::node::Node;
use crate::place::parts;
use crate::ready;
use crate::replicas::Replicas;
use crate::scout::Scout;

/// States on a Redis Cluster, decided on by scripts in one round trip. See the [crate's front
/// page](crate).
///
/// Cheap to clone: clones share the connections, and what is known of the cluster.
#[derive(Debug, Clone)]
pub struct ClusterStore(Arc<ShardedStore<Slots>>);

/// What decides once it is known which shard of a policy a charge goes to.
struct Slots(Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) keys: Keys,
    pub(crate) map: Arc<Map>,
    pub(crate) scout: Arc<Scout>,
    pub(crate) replicas: Option<Replicas>,
    pub(crate) script_times: ScriptTimes,
    /// Only in tests; else the nodes' clocks count.
    pub(crate) clock: Option<Arc<dyn Clock>>,
}

impl ClusterStore {
    /// A store on the cluster that these nodes belong to, of which any number may be named:
    /// `redis://[user:password@]host[:port]`, or `rediss://…` for TLS.
    ///
    /// Does not connect yet: that happens at the first call, which also asks the nodes who serves what.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidCall`] if there are no URLs, if one is none or names a database, or if they
    /// differ in more than the address.
    pub fn connect(urls: impl IntoIterator<Item = impl Into<String>>) -> Result<Self, Error> {
        Self::builder().urls(urls).build()
    }

    /// A store with settings of one's own.
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
    /// let store = ClusterStore::connect(["redis://10.0.0.1:7000", "redis://10.0.0.2:7000"])?;
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

    pub(crate) fn new(inner: Inner) -> Self {
        Self(Arc::new(ShardedStore::new(Slots(Arc::new(inner)))))
    }
}

impl Inner {
    pub(crate) async fn decide_one(self: &Arc<Self>, call: Call<'_>) -> Result<Decision, Error> {
        // A single charge lies in one slot, whatever it is.
        if call.charges.len() > 1 {
            call.check()?;
            if parts(&self.keys, &call).len() > 1 {
                return across::decide(self, call).await;
            }
        }
        let decided = self.decide_in_slot(call).await?;
        Replicas::check(self.replicas.as_ref(), &call, decided)
    }

    /// Decides on a call whose charges are kept in one slot.
    async fn decide_in_slot(&self, call: Call<'_>) -> Result<Decided, Error> {
        let errand = self.errand(Calls::from_buf([(0, call)]))?;
        let ended = self.carry(vec![errand]).await;
        ended.into_iter().next().map_or_else(|| Err(no_answer()), |(_, decided)| decided)
    }

    /// Decides on calls of which each is kept in one slot, those of one slot in the order asked.
    pub(crate) async fn decide_in_slots(&self, calls: &[Call<'_>]) -> Vec<Result<Decided, Error>> {
        self.send_to_slots(calls, |place, call| self.errand(Calls::from_buf([(place, call)]))).await
    }

    /// What each of these calls would be answered. Writes nothing.
    pub(crate) async fn look_in_slots(&self, calls: &[Call<'_>]) -> Vec<Result<Decided, Error>> {
        let look = |place, call| Errand::look(&self.keys, self.time(), place, call);
        self.send_to_slots(calls, look).await
    }

    async fn send_to_slots<'a>(
        &self,
        calls: &[Call<'a>],
        errand: impl Fn(usize, Call<'a>) -> Result<Errand<'a>, Error>,
    ) -> Vec<Result<Decided, Error>> {
        let mut answers: Vec<_> = calls.iter().map(|_| Err(no_answer())).collect();
        let mut sent = Vec::with_capacity(calls.len());
        for (place, call) in calls.iter().enumerate() {
            match errand(place, *call) {
                Ok(errand) => sent.push(errand),
                Err(error) => answers[place] = Err(error),
            }
        }
        for (place, decided) in self.carry(sent).await {
            answers[place] = decided;
        }
        answers
    }

    /// A script call, not sent yet.
    pub(crate) fn errand<'a>(&self, calls: Calls<'a>) -> Result<Errand<'a>, Error> {
        Errand::new(&self.keys, self.time(), calls)
    }

    /// What the nodes are told to take for their clocks' time, if anything.
    fn time(&self) -> Option<Timestamp> {
        self.clock.as_ref().map(|clock| clock.now())
    }

    /// The time by the clock of any node.
    async fn now(&self) -> Result<Timestamp, Error> {
        check_runtime()?;
        if let Some(clock) = &self.clock {
            return Ok(clock.now());
        }
        let ask = |node: Arc<Node>| async move { node.connections.next().time().await };
        let time = first_success(self.map.nodes().into_iter().map(ask)).await;
        time.unwrap_or_else(|| Err(no_answer()))
    }
}

pub(crate) fn no_answer() -> Error {
    Error::new(ErrorKind::Protocol, "the call was left out")
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

    fn supports(&self, policy: &Policy) -> Result<(), Error> {
        self.0.supports(policy)
    }
}

impl Store for Slots {
    fn decide<'a>(&'a self, call: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
        Answer::later(async move {
            check_runtime()?;
            self.0.decide_one(call).await
        })
    }

    fn decide_many<'a>(
        &'a self,
        calls: &'a [Call<'a>],
    ) -> Answer<'a, Vec<Result<Decision, Error>>> {
        Answer::later(async move {
            match check_runtime() {
                Ok(()) => batch::decide(&self.0, calls).await,
                Err(error) => calls.iter().map(|_| Err(error.repeated("in a batch"))).collect(),
            }
        })
    }

    fn now(&self) -> Answer<'_, Result<Timestamp, Error>> {
        Answer::later(self.0.now())
    }
}

impl fmt::Debug for Slots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slots")
            .field("nodes", &self.0.map.nodes())
            .field("replicas", &self.0.replicas)
            .field("clock", &self.0.clock)
            .finish_non_exhaustive()
    }
}
