//! Settings of the tests, as variables of the environment.
#![expect(clippy::panic, reason = "a test that cannot read its settings fails by panicking")]

use std::str::FromStr;

/// A number by its name, or the default.
pub(crate) fn from_env<T: FromStr>(name: &str, default: T) -> T {
    std::env::var(name).map_or(default, |text| {
        text.parse().unwrap_or_else(|_| panic!("{name} is `{text}`, which is no number"))
    })
}
