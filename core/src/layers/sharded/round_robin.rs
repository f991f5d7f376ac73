//! A counter per key, for round-robin routing.

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Charge;

/// The number of counters, in 8 KiB.
const COUNTERS: usize = 1024;

/// Counts the requests of each key, from a random start.
///
/// On a collision the older counter is replaced, and the new one starts at a random value. The requests of both keys
/// are then routed at random, which may refuse too early, but never admits too much.
pub(super) struct RoundRobin {
    /// The upper half has a part of the key's hash, the lower half the turn.
    counters: Box<[AtomicU64]>,
    hasher: RandomState,
}

/// The hash of a key: its low half selects the counter, its high half is compared.
#[derive(Debug, Clone, Copy)]
pub(super) struct Key(u64);

impl RoundRobin {
    pub(super) fn new() -> Self {
        let counters = (0..COUNTERS).map(|_| AtomicU64::new(0)).collect();
        Self { counters, hasher: RandomState::new() }
    }

    /// The key of all charges together. With a counter per policy, calls for the same policies would interleave, and
    /// some might only ever get even turns.
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

    /// Takes the next turn.
    pub(super) fn take(&self, key: Key) -> u32 {
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

    /// The next turn, without taking it.
    pub(super) fn peek(&self, key: Key) -> u32 {
        self.turn(key, self.counter(key).load(Ordering::Relaxed))
    }

    fn turn(&self, key: Key, word: u64) -> u32 {
        let (its_tag, turn) = (word >> 32, low_half(word));
        if its_tag == tag(key) {
            return turn;
        }
        // The start depends on the counter that is replaced, so it differs each time.
        low_half(self.hasher.hash_one((key.0, word)))
    }

    fn counter(&self, Key(hash): Key) -> &AtomicU64 {
        let index = usize::try_from(u64::from(low_half(hash))).unwrap_or_default() % COUNTERS;
        &self.counters[index]
    }
}

/// Never the tag of an unused counter.
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
        let first = turns.peek(alice);
        for n in 0..5 {
            assert_eq!(turns.peek(alice), first.wrapping_add(n));
            assert_eq!(turns.take(alice), first.wrapping_add(n));
        }
        let other = RoundRobin::new();
        assert_ne!(first, other.peek(key(&other, "alice")), "equal by a chance of one in 2^32");
    }

    #[test]
    fn colliding_keys_restart_at_random() {
        let turns = RoundRobin::new();
        let (alice, bob) = (Key(7 << 32 | 5), Key(9 << 32 | 5));
        // In turn, each would only ever have odd or even turns of one count between them.
        let odd = (0..64).filter(|_| turns.take(bob) % 2 + turns.take(alice) % 2 == 1).count();
        assert!((10..54).contains(&odd), "{odd} of 64");
    }
}
