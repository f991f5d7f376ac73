//! Settings of the tests, as variables of the environment.
#![expect(clippy::panic, reason = "a test that cannot read its settings fails by panicking")]

use std::str::FromStr;

/// Returns the seed of all random input: the variable `PROPTEST_RNG_SEED`, or 1.
pub(crate) fn seed() -> u64 {
    from_env("PROPTEST_RNG_SEED", 1)
}

/// A number by its name, or the default.
pub(crate) fn from_env<T: FromStr>(name: &str, default: T) -> T {
    std::env::var(name).map_or(default, |text| {
        text.parse().unwrap_or_else(|_| panic!("{name} is `{text}`, which is no number"))
    })
}
