//! Limits that are kept in several places, so that several nodes decide on one tenant.
//!
//! [`Policy::sharded`](crate::Policy::sharded) says what a policy with shards means. Here is how a call
//! gets to them: a [`ShardedStore`] around a store whose states lie in many places, such as the nodes
//! of a Redis Cluster, makes of each charge to such a policy one to a
//! [share](crate::Policy::shares), which is a policy with a name and a place of its own. What has no
//! shards passes through as it is. `ClusterStore` has this built in; a store that keeps all states
//! in one place needs none of it, and keeps each limit whole.
//!
//! * Policies with as many shards meet in one: a call for several of them is still one for one slot,
//!   if it is for nothing else.
//! * Where any shard will do, requests take turns (round robin, from a random start). One that a shard refuses is sent to
//!   a second, unless that could not help, as another policy refuses too, or no share has room
//!   for such a cost. Nothing is taken by a refusal, so that nothing has to be given back.
//! * A refund goes to the subject's shard, or, where any will do, to that of this client's last
//!   request: if less was taken there, less is given back, and never more than was taken.
//! * A reset and a block go to all shards of a limit that is split, as a call for each.
//! * A place can be reserved only where a subject has a shard of its own.
//!
//! How often requests are refused although there is room elsewhere, when just the limit arrives, is
//! measured by `tidegate-bench shards`, and stands in `docs/scale.md`.

mod round_robin;
mod routed_call;
pub(crate) mod shard_pick;

use crate::{Answer, Call, Decision, Error, ErrorKind, Policy, Store, Timestamp};

use round_robin::RoundRobin;
use routed_call::{RoutedCall, SubCall, has_shards};

/// A store around one whose states lie in many places, which spreads the policies that
/// [have shards](crate::Policy::sharded).
///
/// ```
/// use tidegate_core::shards::ShardedStore;
/// use tidegate_core::Limiter;
/// use tidegate_memory::MemoryStore;
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let limiter = Limiter::new(
///     ShardedStore::new(MemoryStore::new()), // to see it at work; in memory nothing is gained by it
///     ["sliding-log 11/1h shards 4".parse()?],
/// )?;
/// let mut admitted = 0;
/// for _ in 0..20 {
///     admitted += usize::from(limiter.acquire("everybody").await?.is_allowed());
/// }
/// assert_eq!(admitted, 11); // 3 + 3 + 3 + 2
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Debug)]
pub struct ShardedStore<S> {
    inner: S,
    turns: RoundRobin,
}

impl<S> ShardedStore<S> {
    /// Around a store.
    pub fn new(inner: S) -> Self {
        Self { inner, turns: RoundRobin::new() }
    }

    /// The store around which this is.
    #[must_use]
    pub fn inner(&self) -> &S {
        &self.inner
    }
}

impl<S: Store> ShardedStore<S> {
    async fn decide_one(&self, call: Call<'_>) -> Result<Decision, Error> {
        self.decide_each(&[call]).await.pop().unwrap_or_else(|| Err(no_answer()))
    }

    async fn decide_each(&self, calls: &[Call<'_>]) -> Vec<Result<Decision, Error>> {
        let routed: Vec<_> = calls.iter().map(|call| RoutedCall::new(*call, &self.turns)).collect();
        let first = routed.iter().flatten().map(|it| (it, it.first())).collect();
        let first = self.ask(first).await;
        let second = routed.iter().flatten().zip(&first).filter_map(|(routed, first)| {
            let part = routed.second(first.as_ref().ok()?)?;
            Some((routed, vec![part]))
        });
        let mut second = self.ask(second.collect()).await.into_iter();
        let mut first = first.into_iter();
        routed
            .into_iter()
            .map(|routed| {
                let routed = routed?;
                let first = first.next().unwrap_or_else(|| Err(no_answer()))?;
                match routed.second(&first) {
                    None => Ok(first),
                    Some(_) => {
                        let second = second.next().unwrap_or_else(|| Err(no_answer()))?;
                        Ok(routed_call::better(first, second))
                    }
                }
            })
            .collect()
    }

    /// The decisions on calls that became these parts.
    async fn ask(
        &self,
        asked: Vec<(&RoutedCall<'_>, Vec<SubCall<'_>>)>,
    ) -> Vec<Result<Decision, Error>> {
        let calls: Vec<Call<'_>> = asked
            .iter()
            .flat_map(|(routed, parts)| parts.iter().map(|part| part.call(routed.operation())))
            .collect();
        let mut decisions = match &calls[..] {
            [] => vec![],
            [call] => vec![self.inner.decide(*call).await],
            calls => self.inner.decide_many(calls).await,
        }
        .into_iter();
        asked
            .iter()
            .map(|(routed, parts)| {
                let its: Vec<_> = decisions.by_ref().take(parts.len()).collect();
                let its: Vec<Decision> = its.into_iter().collect::<Result<_, _>>()?;
                routed.answer(parts, its)
            })
            .collect()
    }
}

impl<S: Store> Store for ShardedStore<S> {
    fn decide<'a>(&'a self, call: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
        if !has_shards(&call) {
            return self.inner.decide(call);
        }
        Answer::later(self.decide_one(call))
    }

    fn decide_many<'a>(
        &'a self,
        calls: &'a [Call<'a>],
    ) -> Answer<'a, Vec<Result<Decision, Error>>> {
        if !calls.iter().any(has_shards) {
            return self.inner.decide_many(calls);
        }
        Answer::later(self.decide_each(calls))
    }

    fn now(&self) -> Answer<'_, Result<Timestamp, Error>> {
        self.inner.now()
    }

    fn ready(&self) -> Answer<'_, Result<(), Error>> {
        self.inner.ready()
    }

    fn supports(&self, policy: &Policy) -> Result<(), Error> {
        self.inner.supports(policy)?;
        policy.shares().iter().try_for_each(|share| self.inner.supports(share))
    }
}

fn no_answer() -> Error {
    Error::new(ErrorKind::Protocol, "the store left out a call")
}
