//! Random numbers that follow from the seed of the test run.

use proptest::test_runner::{Config, RngAlgorithm, RngSeed, TestRng, TestRunner};

use crate::env;

/// Returns a generator of random numbers that follows from the variable `PROPTEST_RNG_SEED` (1) and
/// from `stream`, which distinguishes the generators of a test.
#[must_use]
pub fn seeded_rng(stream: u64) -> TestRng {
    // Without optimization, the default algorithm takes as long as the rest of a test.
    let rng_algorithm = RngAlgorithm::XorShift;
    let rng_seed = RngSeed::Fixed(env::seed() ^ (stream << 32));
    TestRunner::new(Config { rng_algorithm, rng_seed, ..Config::default() }).new_rng()
}
