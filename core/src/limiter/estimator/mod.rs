//! An estimator, which learns the costs of requests from the costs of past requests.

mod histogram;

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

use histogram::{Histogram, MAX_HALF_LIFE};

use crate::Share;

const MAX_KEY: usize = 256;

/// An estimator of costs. It learns from the costs of past requests, so that a [hold](crate::Hold)
/// charges little more than the actual cost.
///
/// Requests are grouped by keys, such as a model, a route or a class of users. The application
/// chooses a share of the requests, for example 9/10. For each key, this share of the requests
/// costs at most the estimate. If a request costs more than its estimate, the settlement of the
/// hold [charges](crate::Operation::Settle) the difference. With a larger share, fewer requests
/// exceed their estimate, but the holds are larger.
///
/// ```
/// use tidegate_core::{Estimator, Share};
///
/// // 9 of 10 answers have at most as many tokens as estimated. Unknown models: 1,000 tokens.
/// let output = Estimator::new(Share::new(9, 10)?, 1_000);
/// let (input_tokens, max_tokens) = (350, 4_096);
/// assert_eq!(input_tokens + output.estimate("small", max_tokens), 1_350);
///
/// for tokens in 1..=100 {
///     output.observe("small", tokens); // when an answer is complete
/// }
/// let estimate = output.estimate("small", max_tokens);
/// assert_eq!(estimate, 95); // at least 90, and less than an eighth above it
/// assert_eq!(output.estimate("small", 50), 50); // the client has asked for less
/// # Ok::<(), tidegate_core::PolicyError>(())
/// ```
///
/// # Accuracy
///
/// * Costs are counted in buckets. The upper bound of each bucket is less than 1/8 above the upper
///   bound of the previous bucket. Costs below 16 are counted exactly. With a share of 9/10, at
///   least 9/10 of the weight of all observed costs is at or below the estimate. The estimate is
///   less than 1/8 above the lowest cost with this property.
/// * After every [`half_life`](Self::half_life) observed costs of a key, the weights of these and
///   all earlier costs are halved. If the costs of the requests change, the earlier costs have at
///   most half of the total weight after two half-lives, and at most 1/16 after five half-lives
///   (1,000 requests by default). With a share of 9/10, the estimate then covers at least 89 % of
///   the new costs, and is in their range.
/// * The same observations in the same order give the same estimates.
///
/// # Memory
///
/// Each key needs about 2 KiB, and the length of the key. At most [`max_keys`](Self::max_keys) keys
/// have their own estimate, and need 2.4 MB by default. All further keys, and all keys longer than
/// 256 bytes, share one estimate. Do not let clients choose keys, because one client could use all
/// of the keys.
///
/// Threads share an estimator by reference. An access locks the map of keys for reading, and locks
/// the histogram of its key. Both locks are held for less than a microsecond, and never during a
/// call to the store.
#[derive(Debug)]
pub struct Estimator {
    share: Share,
    default: u64,
    max_keys: usize,
    min_observations: u32,
    half_life: u32,
    keys: RwLock<HashMap<Box<[u8]>, Mutex<Histogram>>>,
    /// The costs of all keys without their own histogram. Such a key is too long, or was observed
    /// when `max_keys` other keys had a histogram.
    others: Mutex<Histogram>,
}

impl Estimator {
    /// Creates an estimator. For each key, at least `share` of the requests, such as 9/10, cost at
    /// most the estimate. The estimate for a key is `default` until
    /// [enough](Self::min_observations) costs of the key were observed. A high default is safe,
    /// because a settlement refunds the difference.
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

    /// Sets the maximum number of keys that have their own estimate. The default is 1,000.
    #[must_use]
    pub fn max_keys(self, max_keys: usize) -> Self {
        Self { max_keys, ..self }
    }

    /// Sets the minimum number of observations of a key, which is at least 1 and by default 30. If
    /// a key has fewer observations than this minimum, its estimate is the default estimate. A
    /// share of 99/100 needs some hundreds of observations for a good estimate.
    #[must_use]
    pub fn min_observations(self, observations: u32) -> Self {
        Self { min_observations: observations.max(1), ..self }
    }

    /// Sets the half-life: the number of observations of a key after which their weights are
    /// halved. The half-life is from 1 to 2^26, and 200 by default. An estimate depends mainly on
    /// the observations of the last one or two half-lives.
    #[must_use]
    pub fn half_life(self, observations: u32) -> Self {
        let half_life = observations.clamp(1, MAX_HALF_LIFE);
        // No cost was observed before the settings are complete, so the replacement of `others`
        // loses nothing.
        Self { half_life, others: Mutex::new(Histogram::new(half_life)), ..self }
    }

    /// Returns the expected cost of a request with this key. The result is at most `max`, for
    /// example the maximum number of tokens that the request asks for. It is at least 1, even if
    /// `max` is 0.
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

    /// Records the actual cost of a request with this key.
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
            // After this thread unlocked the map, another thread possibly inserted this key, or
            // filled the map. So this thread checks both again.
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

/// Locks a histogram, even if another thread panicked while it held the lock. The histogram is
/// consistent after a panic, because the code that changes several of its fields cannot panic.
fn lock(histogram: &Mutex<Histogram>) -> MutexGuard<'_, Histogram> {
    histogram.lock().unwrap_or_else(PoisonError::into_inner)
}
