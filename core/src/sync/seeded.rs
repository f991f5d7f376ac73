//! Hashers with seeds. The seeds are random, except if a simulation sets a seed for its thread.

use std::cell::Cell;
use std::hash::BuildHasher;

use foldhash::{SharedSeed, fast, quality};

thread_local! {
    static SEED: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Sets the seed of this thread. It determines the seeds of all hashers that this thread creates
/// afterwards.
pub fn seed_hashes(seed: u64) {
    SEED.set(Some(seed));
}

fn next_seed() -> Option<u64> {
    let seed = SEED.get()?;
    SEED.set(Some(seed.wrapping_add(1)));
    Some(seed)
}

macro_rules! seeded {
    ($($name:ident: $kind:ident),*) => {$(
        #[derive(Debug, Clone)]
        pub(crate) struct $name($kind::SeedableRandomState);

        impl Default for $name {
            fn default() -> Self {
                Self(next_seed().map_or_else($kind::SeedableRandomState::random, |seed| {
                    $kind::SeedableRandomState::with_seed(seed, SharedSeed::global_fixed())
                }))
            }
        }

        impl BuildHasher for $name {
            type Hasher = $kind::FoldHasher<'static>;

            #[inline(always)]
            fn build_hasher(&self) -> Self::Hasher {
                self.0.build_hasher()
            }
        }
    )*};
}
seeded!(RandomState: quality, FastRandomState: fast);

#[cfg(test)]
mod tests {
    use super::*;

    fn hashes() -> [u64; 2] {
        [RandomState::default().hash_one(7), FastRandomState::default().hash_one(7)]
    }

    #[test]
    fn hashes_follow_from_the_seed_of_the_thread() {
        let hashes_with = |seed| {
            std::thread::spawn(move || {
                seed_hashes(seed);
                (hashes(), hashes())
            })
            .join()
            .unwrap()
        };
        assert_eq!(hashes_with(1), hashes_with(1));
        assert_ne!(hashes_with(1), hashes_with(1_000));
        assert_ne!(hashes_with(1).0, hashes_with(1).1, "each hasher has its own seed");
        assert_ne!(hashes(), hashes(), "random without a seed");
    }
}
