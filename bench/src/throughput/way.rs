//! The ways to a decision.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use tidegate_redis::core::layers::{DenyCacheStats, LeasedStore};
use tidegate_redis::{Call, Charge, DenyCache, Lease, Policy, RedisStore, Store, StoreExt};

use crate::Outcome;

const BATCH: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub(crate) enum Way {
    /// No call, to measure the cost of the load itself.
    Nothing,
    /// `INCR`, one command for each call.
    Incr,
    /// One call per decision.
    Single,
    /// Batches of 64 decisions of one caller.
    Batch,
    /// Batches of the calls of several callers.
    Coalesced,
    /// Leases whose chunks are fetched by single calls.
    Leased,
    /// Leases whose chunks are fetched by coalesced calls.
    LeasedCoalesced,
    /// Refusals by the deny cache.
    DenyCache,
}

impl Way {
    pub(crate) fn decisions(self) -> usize {
        if self == Self::Batch { BATCH } else { 1 }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nothing => "(the load alone)",
            Self::Incr => "`INCR`",
            Self::Single => "single calls",
            Self::Batch => "batches of 64",
            Self::Coalesced => "coalesced",
            Self::Leased => "leased",
            Self::LeasedCoalesced => "leased, coalesced",
            Self::DenyCache => "deny cache",
        })
    }
}

/// A caller that makes calls in one way.
pub(crate) enum Caller {
    Nothing,
    Incr(MultiplexedConnection),
    Store(Arc<dyn Store>),
    Leased(LeasedStore<Arc<dyn Store>>),
    DenyCache(Arc<dyn Store>, DenyCacheStats),
}

impl Caller {
    pub(crate) fn new(
        way: Way,
        store: &RedisStore,
        connection: &MultiplexedConnection,
        span: Duration,
    ) -> Self {
        let leased = |store| Self::Leased(StoreExt::leased(store, Lease::new().span(span)));
        let store = store.clone();
        match way {
            Way::Nothing => Self::Nothing,
            Way::Incr => Self::Incr(connection.clone()),
            Way::Single | Way::Batch => Self::Store(Arc::new(store)),
            Way::Coalesced => Self::Store(Arc::new(store.coalesced())),
            Way::Leased => leased(Arc::new(store)),
            Way::LeasedCoalesced => leased(Arc::new(store.coalesced())),
            Way::DenyCache => {
                let store = store.deny_cache(DenyCache::new());
                let stats = store.stats();
                Self::DenyCache(Arc::new(store), stats)
            }
        }
    }

    /// Makes one call. Returns the number of decisions that allow.
    pub(crate) async fn call(&self, policy: &Policy, subjects: &[&str]) -> Outcome<usize> {
        match self {
            Self::Nothing => Ok(subjects.len()),
            Self::Incr(connection) => {
                for subject in subjects {
                    let key = format!("tidegate:{}:{subject}", policy.name());
                    let mut connection = connection.clone();
                    let _: u64 = redis::cmd("INCR").arg(key).query_async(&mut connection).await?;
                }
                Ok(subjects.len())
            }
            Self::Store(store) | Self::DenyCache(store, _) => decide(store, policy, subjects).await,
            Self::Leased(store) => decide(store, policy, subjects).await,
        }
    }

    /// Returns the number of calls that were decided without the server.
    pub(crate) fn local(&self) -> u64 {
        match self {
            Self::Leased(store) => store.stats().local(),
            Self::DenyCache(_, stats) => stats.hits(),
            Self::Nothing | Self::Incr(_) | Self::Store(_) => 0,
        }
    }

    /// Closes the leases. The store then refunds the unused parts of all chunks.
    pub(crate) async fn close(&self) {
        if let Self::Leased(store) = self {
            store.close().await;
        }
    }
}

async fn decide(store: &impl Store, policy: &Policy, subjects: &[&str]) -> Outcome<usize> {
    if let [subject] = subjects {
        let charges = [Charge::new(policy, subject)];
        return Ok(usize::from(store.decide(Call::acquire(&charges)).await?.is_allowed()));
    }
    let charges: Vec<_> = subjects.iter().map(|subject| [Charge::new(policy, subject)]).collect();
    let calls: Vec<_> = charges.iter().map(|charges| Call::acquire(charges)).collect();
    let mut allowed = 0;
    for decision in store.decide_many(&calls).await {
        allowed += usize::from(decision?.is_allowed());
    }
    Ok(allowed)
}
