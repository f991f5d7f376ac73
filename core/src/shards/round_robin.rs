//! Whose turn it is: a count per key, for the keys that were asked last.

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Charge;

/// How many keys are counted: 8 KiB of counts.
const KEYS: usize = 1024;

/// Counts the requests of each key, from anywhere.
///
/// Two keys that meet in one place drive each other out, and begin anywhere anew: their requests go
/// to shards at random, which is worse than in turn, and no mistake.
pub(super) struct RoundRobin {
    /// In the upper half a part of the key's hash, in the lower the turn.
    places: Box<[AtomicU64]>,
    hasher: RandomState,
}

/// A key's place, and what tells it from others there.
#[derive(Debug, Clone, Copy)]
pub(super) struct Key(u64);

impl RoundRobin {
    pub(super) fn new() -> Self {
        let places = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
        Self { places, hasher: RandomState::new() }
    }

    /// What is asked together is counted together: calls for the same policies take turns of their
    /// own, or those for one of them might only ever have the even ones.
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

    /// The next turn, which is then over.
    pub(super) fn take(&self, key: Key) -> u32 {
        let place = self.place(key);
        let mut word = place.load(Ordering::Relaxed);
        loop {
            let turn = self.turn(key, word);
            let next = tag(key) << 32 | u64::from(turn.wrapping_add(1));
            match place.compare_exchange_weak(word, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return turn,
                Err(now) => word = now,
            }
        }
    }

    /// The next turn, which stays the next.
    pub(super) fn look(&self, key: Key) -> u32 {
        self.turn(key, self.place(key).load(Ordering::Relaxed))
    }

    fn turn(&self, key: Key, word: u64) -> u32 {
        let (its_tag, turn) = (word >> 32, low_half(word));
        if its_tag == tag(key) {
            return turn;
        }
        // Where the key begins depends on what it drives out, and so is another each time.
        low_half(self.hasher.hash_one((key.0, word)))
    }

    fn place(&self, Key(hash): Key) -> &AtomicU64 {
        let place = usize::try_from(u64::from(low_half(hash))).unwrap_or_default() % KEYS;
        &self.places[place]
    }
}

/// Never that of a place where nobody was.
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
    fn turns_are_taken_one_after_the_other_from_anywhere() {
        let turns = RoundRobin::new();
        let alice = key(&turns, "alice");
        let first = turns.look(alice);
        for n in 0..5 {
            assert_eq!(turns.look(alice), first.wrapping_add(n));
            assert_eq!(turns.take(alice), first.wrapping_add(n));
        }
        let other = RoundRobin::new();
        assert_ne!(first, other.look(key(&other, "alice")), "equal by a chance of one in 2^32");
    }

    #[test]
    fn keys_that_drive_each_other_out_begin_anywhere_anew() {
        let turns = RoundRobin::new();
        let (alice, bob) = (Key(7 << 32 | 5), Key(9 << 32 | 5));
        // In turn, each would only ever have odd or even turns of one count between them.
        let odd = (0..64).filter(|_| turns.take(bob) % 2 + turns.take(alice) % 2 == 1).count();
        assert!((10..54).contains(&odd), "{odd} of 64");
    }
}
