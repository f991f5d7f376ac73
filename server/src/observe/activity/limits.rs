use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{PoisonError, RwLock};

use super::MAX_LIMITS;
use super::counts::{Counts, History, Kind};

/// The rates of each limit, by the name of the limit.
#[derive(Debug)]
pub(super) struct Limits<K>(RwLock<Inner<K>>);

#[derive(Debug)]
struct Inner<K> {
    limits: HashMap<K, Rates>,
    /// The decisions of all limits that are not in `limits`, because it already has [`MAX_LIMITS`]
    /// entries.
    other: Rates,
}

#[derive(Debug, Default)]
struct Rates {
    counts: Counts,
    history: History,
}

impl<K> Default for Limits<K> {
    fn default() -> Self {
        Self(RwLock::new(Inner { limits: HashMap::new(), other: Rates::default() }))
    }
}

impl<K: Clone + Eq + Hash> Limits<K> {
    pub(super) fn count(&self, name: &K, kind: Kind) {
        let inner = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(rates) = inner.limits.get(name) {
            rates.counts.count(kind);
        } else if inner.limits.len() >= MAX_LIMITS {
            inner.other.counts.count(kind);
        } else {
            drop(inner);
            self.add(name, kind);
        }
    }

    #[cold]
    fn add(&self, name: &K, kind: Kind) {
        let mut inner = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let Inner { limits, other } = &mut *inner;
        // Another thread may have added the limit before this thread acquired the lock.
        let has_place = limits.len() < MAX_LIMITS || limits.contains_key(name);
        let rates = if has_place { limits.entry(name.clone()).or_default() } else { other };
        rates.counts.count(kind);
    }

    /// Appends a sample to the history of each limit. Removes each limit without a decision in the
    /// last minute, so that other limits can take its place.
    pub(super) fn sample(&self) {
        let mut inner = self.0.write().unwrap_or_else(PoisonError::into_inner);
        inner.limits.retain(|_, rates| {
            rates.history.push(&rates.counts);
            rates.history.sum() > 0
        });
        let other = &mut inner.other;
        other.history.push(&other.counts);
    }

    /// Calls `see` for each limit that has its own rates. Also calls `see` without a name, for the
    /// sums of all other limits.
    pub(super) fn for_each(&self, mut see: impl FnMut(Option<&K>, &History)) {
        let inner = self.0.read().unwrap_or_else(PoisonError::into_inner);
        for (name, rates) in &inner.limits {
            see(Some(name), &rates.history);
        }
        see(None, &inner.other.history);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_that_two_threads_add_has_one_place_and_none_is_added_beyond_the_bound() {
        let limits = Limits::default();
        for name in 0..MAX_LIMITS {
            limits.count(&name, Kind::Admitted);
        }
        // If two threads count the first decision of a limit concurrently, both call `add`. The
        // second call finds the limit.
        limits.add(&0, Kind::Refused);
        limits.add(&MAX_LIMITS, Kind::Refused);
        limits.sample();
        let (mut names, mut first, mut other) = (0, 0, 0);
        limits.for_each(|name, history| {
            let refused = history.series(Kind::Refused).sum();
            match name {
                Some(0) => first = refused,
                Some(_) => assert_eq!(refused, 0),
                None => other = refused,
            }
            names += usize::from(name.is_some());
        });
        assert_eq!((names, first, other), (MAX_LIMITS, 1, 1));
    }
}
