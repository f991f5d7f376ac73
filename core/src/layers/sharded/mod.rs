//! Limits that are split over shards, so that several nodes decide on one tenant.
//!
//! [`Policy::sharded`](crate::Policy::sharded) describes policies with shards. This module routes calls to them: a
//! [`ShardedStore`] around a store whose states lie on many nodes, such as a Redis Cluster, replaces each charge to
//! such a policy by one to a [share](crate::Policy::shares), which is a policy with a name and states of its own.
//! Other charges are passed on. `ClusterStore` has this built in; a store that keeps all states in one place does not
//! need it, and keeps each limit whole.
//!
//! * Policies with the same number of shards use the same shard in a call, so that a call for several of them alone
//!   still concerns one slot.
//! * If any shard will do, requests are routed round robin, from a random start. A request that a shard refuses is
//!   sent to a second one, unless that cannot help: another policy refuses too, or no share admits such a cost. A
//!   refusal takes nothing, so nothing has to be given back.
//! * A refund goes to the subject's shard, or, if any will do, to that of this client's last request. If less was
//!   taken there, less is given back.
//! * A reset and a block go to all shards of a limit that is split, as a call for each.
//! * A reservation is possible only if a subject has a shard of its own.
//!
//! `tidegate-bench shards` measures how often requests are refused although another shard has room; `docs/scale.md`
//! has the figures.

mod round_robin;
mod routed_call;
pub(crate) mod shard_pick;

use crate::{Answer, Call, Decision, Error, Policy, Store, Timestamp};

use round_robin::RoundRobin;
use routed_call::{RoutedCall, SubCall, has_shards, no_answer};

/// A store that routes charges of policies [with shards](crate::Policy::sharded) to their shares.
///
/// ```
/// use tidegate_core::layers::ShardedStore;
/// use tidegate_core::Limiter;
/// use tidegate_memory::MemoryStore;
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let limiter = Limiter::new(
///     ShardedStore::new(MemoryStore::new()), // as an example; in memory it has no benefit
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
    /// Wraps a store.
    pub fn new(inner: S) -> Self {
        Self { inner, turns: RoundRobin::new() }
    }

    /// The inner store.
    #[must_use]
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// Unwraps the inner store.
    #[must_use]
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S: Store> ShardedStore<S> {
    async fn decide_one(&self, call: Call<'_>) -> Result<Decision, Error> {
        self.decide_each(&[call]).await.pop().unwrap_or_else(|| Err(no_answer()))
    }

    async fn decide_each(&self, calls: &[Call<'_>]) -> Vec<Result<Decision, Error>> {
        let routed: Vec<_> = calls.iter().map(|call| RoutedCall::new(*call, &self.turns)).collect();
        let first = routed.iter().flatten().map(|it| (it, it.first())).collect();
        let first = self.send(first).await;
        let second = routed.iter().flatten().zip(&first).filter_map(|(routed, first)| {
            let part = routed.second(first.as_ref().ok()?)?;
            Some((routed, vec![part]))
        });
        let mut second = self.send(second.collect()).await.into_iter();
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

    /// Sends the sub-calls of several calls, and returns a decision for each call.
    async fn send(
        &self,
        requests: Vec<(&RoutedCall<'_>, Vec<SubCall<'_>>)>,
    ) -> Vec<Result<Decision, Error>> {
        let calls: Vec<Call<'_>> = requests
            .iter()
            .flat_map(|(routed, parts)| parts.iter().map(|part| part.call(routed.call())))
            .collect();
        let mut decisions = match &calls[..] {
            [] => vec![],
            [call] => vec![self.inner.decide(*call).await],
            calls => self.inner.decide_many(calls).await,
        }
        .into_iter();
        requests
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

    /// A call to shards is not batched: the node that it goes to is known when it is routed.
    fn batch_group(&self, call: &Call<'_>) -> Option<u64> {
        if has_shards(call) { None } else { self.inner.batch_group(call) }
    }

    fn supports(&self, policy: &Policy) -> Result<(), Error> {
        self.inner.supports(policy)?;
        policy.shares().iter().try_for_each(|share| self.inner.supports(share))
    }
}
