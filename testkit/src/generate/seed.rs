//! Random numbers that are determined by the seed of the test run.

use proptest::test_runner::{Config, RngAlgorithm, RngSeed, TestRng, TestRunner};

use crate::env;

/// Returns a random number generator. The variable `PROPTEST_RNG_SEED` (default 1) and `stream`
/// determine its numbers. A test with several generators gives each of them its own `stream`.
#[must_use]
pub fn seeded_rng(stream: u64) -> TestRng {
    // The default algorithm of proptest is slow: in a debug build, it takes as long as the rest of
    // a test.
    let rng_algorithm = RngAlgorithm::XorShift;
    let rng_seed = RngSeed::Fixed(env::seed() ^ (stream << 32));
    TestRunner::new(Config { rng_algorithm, rng_seed, ..Config::default() }).new_rng()
}
