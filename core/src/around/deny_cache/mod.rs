//! Refusals that are remembered, so that a flood of refused requests costs the store nothing.

mod asked;
mod generations;
mod many;
mod moment;
mod refusal;
mod sent;
mod settings;
mod table;

use std::fmt;
use std::sync::Arc;

use foldhash::quality::RandomState;

pub use settings::DenyCache;

use self::asked::Asked;
use self::generations::Generations;
use self::moment::{Moment, Moments};
use self::refusal::is_asking;
use self::sent::Sent;
use self::table::Table;
use super::meters::CacheMeter;
use crate::{Answer, Call, Clock, Decision, Error, Policy, Store, SystemClock, Timestamp};

/// A store around another that answers refusals from memory until they end: see [`DenyCache`].
pub struct DenyCacheStore<S, C = SystemClock> {
    inner: S,
    clock: C,
    cache: Arc<Cache>,
}

/// All that is remembered.
#[derive(Debug)]
struct Cache {
    table: Table,
    generations: Generations,
    moments: Moments,
    hasher: RandomState,
    only_exact: bool,
    /// Bytes that it takes while nothing is remembered.
    fixed_bytes: usize,
    most_bytes: usize,
    meter: CacheMeter,
}

impl Cache {
    fn find(&self, asked: &Asked<'_>, at: Moment) -> Option<Decision> {
        let known = self.table.find(asked, at, &self.generations);
        match known {
            Some(_) => self.meter.hit(),
            None => self.meter.miss(),
        }
        known
    }
}

impl<S, C> DenyCacheStore<S, C> {
    /// The store around which this is.
    #[must_use]
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// What the cache has done and what it takes, to be looked at whenever one likes: it stays good
    /// when the store has gone into a limiter.
    #[must_use]
    pub fn stats(&self) -> DenyCacheStats {
        DenyCacheStats(Arc::clone(&self.cache))
    }
}

impl<S: Store, C: Clock> Store for DenyCacheStore<S, C> {
    fn decide<'a>(&'a self, call: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
        let asked = Asked::new(call, &self.cache.hasher);
        let at = self.cache.moments.now(&self.clock);
        if is_asking(call.operation)
            && let Some(decision) = self.cache.find(&asked, at)
        {
            return Answer::ready(Ok(decision));
        }
        let sent = Sent::new(&self.cache, asked, at);
        match self.inner.decide(call).into_ready() {
            Ok(answer) => {
                sent.answered(&answer);
                Answer::ready(answer)
            }
            Err(later) => Answer::later(async move {
                let answer = later.await;
                sent.answered(&answer);
                answer
            }),
        }
    }

    fn decide_many<'a>(
        &'a self,
        calls: &'a [Call<'a>],
    ) -> Answer<'a, Vec<Result<Decision, Error>>> {
        self.decide_all(calls)
    }

    fn now(&self) -> Answer<'_, Result<Timestamp, Error>> {
        self.inner.now()
    }

    fn ready(&self) -> Answer<'_, Result<(), Error>> {
        self.inner.ready()
    }

    fn supports(&self, policy: &Policy) -> Result<(), Error> {
        self.inner.supports(policy)
    }
}

impl<S: fmt::Debug, C: fmt::Debug> fmt::Debug for DenyCacheStore<S, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DenyCacheStore")
            .field("inner", &self.inner)
            .field("clock", &self.clock)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

/// What a [`DenyCache`] has done and what it takes, for metrics.
#[derive(Clone)]
pub struct DenyCacheStats(Arc<Cache>);

impl DenyCacheStats {
    /// Calls that were answered from memory.
    #[must_use]
    pub fn hits(&self) -> u64 {
        self.0.table.sums().hits
    }

    /// Acquires and peeks that the store was asked, though they might have been remembered: all that
    /// are admitted are among them.
    #[must_use]
    pub fn misses(&self) -> u64 {
        self.0.table.sums().misses
    }

    /// Refusals that are remembered, those included that are over and have not been looked at since.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.table.sums().len
    }

    /// Whether no refusal is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that the cache takes, as they were asked of the allocator. A policy counts with each of
    /// its refusals, as each may be the last to hold it; so mostly it is less.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.fixed_bytes + self.0.table.sums().bytes
    }

    /// Bytes that the cache never exceeds.
    #[must_use]
    pub fn most_bytes(&self) -> usize {
        self.0.most_bytes
    }
}

impl fmt::Debug for DenyCacheStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sums = self.0.table.sums();
        f.debug_struct("DenyCacheStats")
            .field("hits", &sums.hits)
            .field("misses", &sums.misses)
            .field("len", &sums.len)
            .field("bytes", &self.bytes())
            .finish()
    }
}
