//! The counters of round-robin routing.

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Charge;

const COUNTERS: usize = 1024;

/// Counts the requests of each key, from a random start.
///
/// Two keys can have the same counter. Then a request of one key overwrites the counter of the
/// other key, and the other key starts again at a random turn. So the requests of both keys are
/// routed at random. A request is possibly refused too early, but never too much is admitted.
pub(super) struct RoundRobin {
    /// The counters. The upper half of a counter is a part of the hash of its key, and the lower
    /// half is the next turn of the key.
    counters: Box<[AtomicU64]>,
    hasher: RandomState,
}

/// The hash of a key. The low half of the hash selects a counter. The high half is compared with
/// the upper half of the counter, to check whether the counter belongs to this key.
#[derive(Debug, Clone, Copy)]
pub(super) struct Key(u64);

impl RoundRobin {
    pub(super) fn new() -> Self {
        let counters = (0..COUNTERS).map(|_| AtomicU64::new(0)).collect();
        Self { counters, hasher: RandomState::new() }
    }

    /// Returns one key for all charges of a call. If each policy had its own key, two kinds of
    /// calls with a common policy would share the turns of this policy. If these calls alternated,
    /// one kind would get only even turns, and so possibly only every second shard.
    pub(super) fn key<'a>(&self, charges: impl Iterator<Item = Charge<'a>>) -> Key {
        let mut hasher = self.hasher.build_hasher();
        for charge in charges {
            hasher.write_u64(charge.policy.state_hash());
            hasher.write_usize(charge.tenant.len());
            hasher.write(charge.tenant);
            hasher.write_usize(charge.subject.len());
            hasher.write(charge.subject);
        }
        Key(hasher.finish())
    }

    pub(super) fn next_turn(&self, key: Key) -> u32 {
        let counter = self.counter(key);
        let mut word = counter.load(Ordering::Relaxed);
        loop {
            let turn = self.turn(key, word);
            let next = tag(key) << 32 | u64::from(turn.wrapping_add(1));
            match counter.compare_exchange_weak(word, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return turn,
                Err(now) => word = now,
            }
        }
    }

    pub(super) fn peek_turn(&self, key: Key) -> u32 {
        self.turn(key, self.counter(key).load(Ordering::Relaxed))
    }

    fn turn(&self, key: Key, word: u64) -> u32 {
        if word >> 32 == tag(key) {
            return low_half(word);
        }
        // The random start is a hash of the key and of the overwritten counter, so that each start
        // differs.
        low_half(self.hasher.hash_one((key.0, word)))
    }

    fn counter(&self, Key(hash): Key) -> &AtomicU64 {
        let index = usize::try_from(u64::from(low_half(hash))).unwrap_or_default() % COUNTERS;
        &self.counters[index]
    }
}

/// Returns the part of the key's hash that a counter contains. It is never 0, because an unused
/// counter contains 0.
fn tag(Key(hash): Key) -> u64 {
    hash >> 32 | 1
}

fn low_half(word: u64) -> u32 {
    let [a, b, c, d, ..] = word.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

impl fmt::Debug for RoundRobin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RoundRobin").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Policy;

    fn key(turns: &RoundRobin, subject: &str) -> Key {
        let policy: Policy = "p: fixed-window 9/1s".parse().unwrap();
        turns.key([Charge::new(&policy, subject)].into_iter())
    }

    #[test]
    fn turns_are_consecutive_from_a_random_start() {
        let turns = RoundRobin::new();
        let alice = key(&turns, "alice");
        let first = turns.peek_turn(alice);
        for n in 0..5 {
            assert_eq!(turns.peek_turn(alice), first.wrapping_add(n));
            assert_eq!(turns.next_turn(alice), first.wrapping_add(n));
        }
        let other = RoundRobin::new();
        assert_ne!(
            first,
            other.peek_turn(key(&other, "alice")),
            "equal by a chance of one in 2^32"
        );
    }

    #[test]
    fn colliding_keys_restart_at_random() {
        let turns = RoundRobin::new();
        let (alice, bob) = (Key(7 << 32 | 5), Key(9 << 32 | 5));
        // Two keys with one counter must not share its turns. Otherwise one key would always get
        // odd turns, and the other key even turns.
        let odd =
            (0..64).filter(|_| turns.next_turn(bob) % 2 + turns.next_turn(alice) % 2 == 1).count();
        assert!((10..54).contains(&odd), "{odd} of 64");
    }
}
