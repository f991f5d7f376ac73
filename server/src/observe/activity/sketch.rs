/// The keys that occur most in a stream of any length. This is the Space-Saving sketch of Metwally,
/// Agrawal and El Abbadi (2005). A key is a hash, and the sketch keeps a value for each key.
///
/// After a sketch of capacity `k` has counted `n` occurrences of keys, two bounds hold:
///
/// * The upper bound of a key's count is never below the true count, and exceeds it by at most
///   `n / k`.
/// * Each key that occurred more than `n / k` times is in the sketch.
///
/// ```
/// use tidegate_server::observe::activity::Sketch;
///
/// let mut sketch = Sketch::new(2);
/// for key in [7, 7, 8, 7, 9, 7] {
///     sketch.add(key, || format!("key {key}"));
/// }
/// assert_eq!(sketch.estimate(7).at_most, 4);
/// assert_eq!(sketch.estimate(7).at_least, 4);
/// ```
#[derive(Debug)]
pub struct Sketch<V> {
    capacity: usize,
    /// The hashes of the entries. They have their own vector, because the sketch searches them for
    /// each counted key.
    hashes: Vec<u64>,
    entries: Vec<Entry<V>>,
    total: u64,
}

#[derive(Debug)]
struct Entry<V> {
    count: u64,
    /// The count of the key that this key replaced, or 0. `count` includes it, because this key may
    /// have occurred earlier, before another key replaced it.
    error: u64,
    value: V,
}

/// The bounds of a key's count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Estimate {
    /// The lower bound of the count.
    pub at_least: u64,
    /// The upper bound of the count.
    pub at_most: u64,
}

impl Estimate {
    pub(super) fn plus(self, other: Self) -> Self {
        Self { at_least: self.at_least + other.at_least, at_most: self.at_most + other.at_most }
    }
}

impl<V> Sketch<V> {
    /// Creates a sketch that keeps at most `capacity` keys. A capacity of 0 becomes 1.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self { capacity: capacity.max(1), hashes: Vec::new(), entries: Vec::new(), total: 0 }
    }

    /// Counts one occurrence of a key. If the key is not in the sketch, `value` creates its value.
    /// Returns the value, which the caller can change.
    pub fn add(&mut self, hash: u64, value: impl FnOnce() -> V) -> Option<&mut V> {
        self.total += 1;
        if let Some(index) = self.index(hash) {
            let entry = self.entries.get_mut(index)?;
            entry.count += 1;
            return Some(&mut entry.value);
        }
        if self.hashes.len() < self.capacity {
            self.hashes.push(hash);
            self.entries.push(Entry { count: 1, error: 0, value: value() });
            return self.entries.last_mut().map(|entry| &mut entry.value);
        }
        let smallest = self.entries.iter_mut().zip(&mut self.hashes);
        let (entry, place) = smallest.min_by_key(|(entry, _)| entry.count)?;
        *place = hash;
        *entry = Entry { count: entry.count + 1, error: entry.count, value: value() };
        Some(&mut entry.value)
    }

    /// Returns the bounds of a key's count. The key does not have to be in the sketch.
    #[must_use]
    pub fn estimate(&self, hash: u64) -> Estimate {
        match self.index(hash).and_then(|index| self.entries.get(index)) {
            Some(entry) => entry.estimate(),
            None if self.hashes.len() < self.capacity => Estimate::default(),
            None => {
                let min = self.entries.iter().map(|entry| entry.count).min();
                Estimate { at_least: 0, at_most: min.unwrap_or(0) }
            }
        }
    }

    /// Returns the maximum count of a key that is not in the sketch.
    pub(super) fn max_missing(&self) -> u64 {
        // A key is forgotten only when another key replaces it, and then has its count as error.
        self.entries.iter().map(|entry| entry.error).max().unwrap_or(0)
    }

    /// Returns the keys in the sketch with the bounds of their counts, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, Estimate, &V)> {
        let entries = self.hashes.iter().zip(&self.entries);
        entries.map(|(hash, entry)| (*hash, entry.estimate(), &entry.value))
    }

    /// Returns the number of counted occurrences of all keys.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }

    fn index(&self, hash: u64) -> Option<usize> {
        self.hashes.iter().position(|known| *known == hash)
    }
}

impl<V> Entry<V> {
    fn estimate(&self) -> Estimate {
        Estimate { at_least: self.count - self.error, at_most: self.count }
    }
}
