//! Settings of the tests, read from environment variables.
#![expect(clippy::panic, reason = "a test with a setting that is not valid fails by panicking")]

use std::str::FromStr;

/// Returns the seed of all random input: the variable `PROPTEST_RNG_SEED`, or 1.
pub(crate) fn seed() -> u64 {
    from_env("PROPTEST_RNG_SEED", 1)
}

/// Returns the number in an environment variable, or `default` if the variable is not set.
pub(crate) fn from_env<T: FromStr>(name: &str, default: T) -> T {
    std::env::var(name).map_or(default, |text| {
        text.parse().unwrap_or_else(|_| panic!("{name} is `{text}`; it must be a number"))
    })
}
