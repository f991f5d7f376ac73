//! Estimates of costs, learned from past ones.

mod histogram;

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

use histogram::{Histogram, MAX_HALF_LIFE};

use crate::Share;

/// The maximum length of a key with estimates of its own, in bytes.
const MAX_KEY: usize = 256;

/// Estimates what a request will cost from what past ones did, so that a [hold](crate::hold) takes little more than is used.
///
/// Requests are grouped by keys, such as a model, a route or a class of users. The estimate of a key is such that the
/// chosen share of its requests cost no more. Those that cost more are [charged](crate::Operation::Settle) the
/// difference when they are settled; a larger share makes them fewer, and the holds larger.
///
/// ```
/// use tidegate_core::{Share, hold::Estimator};
///
/// // 9 of 10 answers have no more tokens than this. A model that is not known yet: 1,000.
/// let output = Estimator::new(Share::new(9, 10)?, 1_000);
/// let (input_tokens, max_tokens) = (350, 4_096);
/// assert_eq!(input_tokens + output.estimate("small", max_tokens), 1_350);
///
/// for tokens in 1..=100 {
///     output.observe("small", tokens); // once the answer is complete
/// }
/// let estimate = output.estimate("small", max_tokens);
/// assert_eq!(estimate, 95); // at least 90, and less than an eighth above it
/// assert_eq!(output.estimate("small", 50), 50); // the client has asked for less
/// # Ok::<(), tidegate_core::PolicyError>(())
/// ```
///
/// # Accuracy
///
/// * Costs are counted in buckets whose bounds are less than 1/8 apart, and exactly below 16. At least the share of
///   the observed costs, by weight, is at or below the estimate, and the estimate is less than 1/8 above the smallest
///   cost for which this is so.
/// * Weights are halved each time [`half_life`](Self::half_life) costs of a key were observed. When the costs change,
///   the earlier ones have at most half of the weight after two half-lives, and at most 1/16 after five (1,000
///   requests by default): then an estimate for 9 of 10 is within the new costs, and covers at least 89 % of them.
/// * It is deterministic: the same observations in the same order give the same estimates.
///
/// # Memory
///
/// About 2 KiB and the key, at most 256 bytes, for each key that was observed; at most
/// [`max_keys`](Self::max_keys), so 2.4 MB by default. All other keys, and longer ones, share one estimate. Let no
/// client choose keys: it could take the room of others.
///
/// Threads share an estimator by reference. A look-up takes a read lock and the lock of its key for less than a
/// microsecond, and never waits for the store.
#[derive(Debug)]
pub struct Estimator {
    share: Share,
    default: u64,
    max_keys: usize,
    min_observations: u32,
    half_life: u32,
    keys: RwLock<HashMap<Box<[u8]>, Mutex<Histogram>>>,
    /// Of all keys without a histogram of their own, once there is no room for more.
    others: Mutex<Histogram>,
}

impl Estimator {
    /// Estimates that cover this share of the requests, such as 9/10. `default` is that of a key before
    /// [enough](Self::min_observations) was observed; a high one is safe.
    #[must_use]
    pub fn new(share: Share, default: u64) -> Self {
        let half_life = 200;
        Self {
            share,
            default,
            max_keys: 1_000,
            min_observations: 30,
            half_life,
            keys: RwLock::default(),
            others: Mutex::new(Histogram::new(half_life)),
        }
    }

    /// The maximum number of keys with estimates of their own. Default: 1,000.
    #[must_use]
    pub fn max_keys(self, max_keys: usize) -> Self {
        Self { max_keys, ..self }
    }

    /// The number of observations before which the default is used. Default: 30, and at least 1. A share of 99/100 needs
    /// some hundreds for a good estimate.
    #[must_use]
    pub fn min_observations(self, observations: u32) -> Self {
        Self { min_observations: observations.max(1), ..self }
    }

    /// The number of observations of a key after which the weights of earlier ones are halved, from 1 to 2^26.
    /// Default: 200. An estimate is based on about one to two half-lives.
    #[must_use]
    pub fn half_life(self, observations: u32) -> Self {
        let half_life = observations.clamp(1, MAX_HALF_LIFE);
        // Settings are made before anything is observed.
        Self { half_life, others: Mutex::new(Histogram::new(half_life)), ..self }
    }

    /// What a request of this key is expected to cost: at least 1, and at most `max` (if that is not 0), such as the
    /// request's own maximum.
    #[must_use]
    pub fn estimate(&self, key: &(impl AsRef<[u8]> + ?Sized), max: u64) -> u64 {
        self.learned(key.as_ref()).unwrap_or(self.default).min(max).max(1)
    }

    fn learned(&self, key: &[u8]) -> Option<u64> {
        let quantile = |histogram: &Mutex<Histogram>| {
            let histogram = lock(histogram);
            let is_known = histogram.observed() >= self.min_observations;
            is_known.then(|| histogram.quantile(self.share))
        };
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        match keys.get(key) {
            Some(histogram) => quantile(histogram),
            None if self.has_room_for(key, keys.len()) => None,
            None => {
                drop(keys);
                quantile(&self.others)
            }
        }
    }

    /// Learns what a request of this key has cost.
    pub fn observe(&self, key: &(impl AsRef<[u8]> + ?Sized), actual: u64) {
        let key = key.as_ref();
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(histogram) = keys.get(key) {
            return lock(histogram).observe(actual, self.half_life);
        }
        let has_room = self.has_room_for(key, keys.len());
        drop(keys);
        if has_room {
            let mut keys = self.keys.write().unwrap_or_else(PoisonError::into_inner);
            // Another thread may have inserted the key, or taken the room.
            if keys.contains_key(key) || self.has_room_for(key, keys.len()) {
                let new = || Mutex::new(Histogram::new(self.half_life));
                let histogram = keys.entry(key.into()).or_insert_with(new);
                return lock(histogram).observe(actual, self.half_life);
            }
        }
        lock(&self.others).observe(actual, self.half_life);
    }

    fn has_room_for(&self, key: &[u8], keys: usize) -> bool {
        key.len() <= MAX_KEY && keys < self.max_keys
    }
}

/// A panic leaves no histogram half-changed, as nothing that could panic comes between changes.
fn lock(histogram: &Mutex<Histogram>) -> MutexGuard<'_, Histogram> {
    histogram.lock().unwrap_or_else(PoisonError::into_inner)
}
