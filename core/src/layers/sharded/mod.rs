//! Limits that are split over shards, so that several nodes decide on one tenant.

mod round_robin;
mod routed_call;
pub(crate) mod shard_pick;

use super::layered::{Layer, Layered};
use crate::store::send_all;
use crate::{Answer, Call, Decision, Error, Policy, Store};

use round_robin::RoundRobin;
use routed_call::{RoutedCall, SubCall, has_shards};

/// A store that routes charges of policies [with shards](crate::Policy::sharded) to their shares.
///
/// This store is useful around a store that keeps its states on many nodes, such as a Redis
/// Cluster. It replaces each charge to a policy with shards by a charge to one of the policy's
/// [shares](crate::Policy::shares). A share is a policy with its own name and its own states. Other
/// charges are sent unchanged. `ClusterStore` contains this layer. A store that keeps all states in
/// one place does not need this layer, and does not split limits.
///
/// * Policies with equal numbers of shards use the same shard in a call. So a call for several such
///   policies still needs only one slot of the cluster.
/// * If requests can use any shard, they are routed round robin, from a random start. If a shard
///   refuses a request, the layer sends the request to a second shard. There is no second attempt
///   if a policy without another shard also refuses, or if the cost is above each share. A refusal
///   charges nothing, so nothing must be refunded.
/// * If each subject has one shard, a refund is sent to this shard. If requests can use any shard,
///   a refund is sent to the shard of the last request of this client. If that shard has charged
///   less than the refund, it refunds only the charged amount.
/// * A reset or a block is sent to all shards of a split limit, in one call for each shard.
/// * A reservation is possible only if each subject has one shard.
///
/// `docs/scale.md` shows how often a request is refused although another shard has room.
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
pub type ShardedStore<S> = Layered<ShardedLayer, S>;

/// The layer of a [`ShardedStore`].
#[derive(Debug)]
pub struct ShardedLayer {
    turns: RoundRobin,
}

impl<S> ShardedStore<S> {
    /// Creates a store that routes charges to shares in `inner`.
    pub fn new(inner: S) -> Self {
        Self::around(inner, ShardedLayer { turns: RoundRobin::new() })
    }
}

impl ShardedLayer {
    async fn decide_one(&self, inner: &impl Store, call: Call<'_>) -> Result<Decision, Error> {
        Error::single(self.decide_each(inner, &[call]).await)
    }

    async fn decide_each(
        &self,
        inner: &impl Store,
        calls: &[Call<'_>],
    ) -> Vec<Result<Decision, Error>> {
        let routed: Vec<_> = calls.iter().map(|call| RoutedCall::new(*call, &self.turns)).collect();
        let first = routed.iter().flatten().map(|routed| (routed, routed.first())).collect();
        let first = send(inner, first).await;
        let second = routed.iter().flatten().zip(&first).filter_map(|(routed, first)| {
            let part = routed.second(first.as_ref().ok()?)?;
            Some((routed, vec![part]))
        });
        let mut second = send(inner, second.collect()).await.into_iter();
        let mut first = first.into_iter();
        routed
            .into_iter()
            .map(|routed| {
                let routed = routed?;
                let first = first.next().unwrap_or_else(|| Err(Error::no_answer()))?;
                match routed.second(&first) {
                    None => Ok(first),
                    Some(_) => {
                        let second = second.next().unwrap_or_else(|| Err(Error::no_answer()))?;
                        Ok(routed_call::better(first, second))
                    }
                }
            })
            .collect()
    }
}

async fn send(
    inner: &impl Store,
    requests: Vec<(&RoutedCall<'_>, Vec<SubCall<'_>>)>,
) -> Vec<Result<Decision, Error>> {
    let calls: Vec<Call<'_>> = requests
        .iter()
        .flat_map(|(routed, parts)| parts.iter().map(|part| part.call(routed.call())))
        .collect();
    let mut answers = send_all(inner, &calls).await.into_iter();
    requests
        .iter()
        .map(|(routed, parts)| {
            // All answers to the sub-calls of this call are removed from `answers`, even if one of
            // them is an error. If some stayed in `answers`, the next call would get them.
            let answers: Vec<_> = answers.by_ref().take(parts.len()).collect();
            let decisions = answers.into_iter().collect::<Result<Vec<Decision>, _>>()?;
            routed.answer(parts, decisions)
        })
        .collect()
}

impl<S: Store> Layer<S> for ShardedLayer {
    const MAY_WAIT: bool = true;

    fn decide<'a>(&'a self, inner: &'a S, call: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
        if !has_shards(&call) {
            return inner.decide(call);
        }
        Answer::later(self.decide_one(inner, call))
    }

    fn decide_many<'a>(
        &'a self,
        inner: &'a S,
        calls: &'a [Call<'a>],
    ) -> Answer<'a, Vec<Result<Decision, Error>>> {
        if !calls.iter().any(has_shards) {
            return inner.decide_many(calls);
        }
        Answer::later(self.decide_each(inner, calls))
    }

    /// Returns `None` for a call to a policy with shards, because the layer chooses the shard, and
    /// so the node, only when it sends the call.
    fn batch_group(&self, inner: &S, call: &Call<'_>) -> Option<u64> {
        if has_shards(call) { None } else { inner.batch_group(call) }
    }

    fn supports(&self, inner: &S, policy: &Policy) -> Result<(), Error> {
        inner.supports(policy)?;
        policy.shares().iter().try_for_each(|share| inner.supports(share))
    }
}
