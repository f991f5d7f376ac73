//! The Lua scripts. `README.md` in this folder describes how to read, print and change them.

mod assemble;
mod table;
#[cfg(test)]
mod tokens;

pub use table::{all, batch, batch_single, settle, settle_single, single};

use crate::values::layout;

/// A script.
#[derive(Debug)]
pub struct Script {
    name: &'static str,
    variant: String,
    code: String,
    sha: String,
}

impl Script {
    /// Creates a script. Its variant consists of the parts that are not empty.
    fn new(name: &'static str, variant: &[&str], code: String) -> Self {
        let variant: Vec<_> = variant.iter().copied().filter(|part| !part.is_empty()).collect();
        let sha = redis::Script::new(&code).get_hash().to_owned();
        Self { name, variant: variant.join("_"), code, sha }
    }

    /// The names of all scripts.
    pub const NAMES: [&'static str; 6] = [
        "fixed_window",
        "sliding_log",
        "sliding_counter",
        "token_bucket",
        "interval_bucket",
        "batch",
    ];

    /// Returns the name, a label of metrics: the rule of a script for one charge, or `batch`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the variant, which distinguishes the scripts of one name. It is empty or consists of
    /// these parts, joined by `_`:
    ///
    /// | part | scripts |
    /// |---|---|
    /// | `aligned`, `phased`, `anchored` | fixed windows with this start |
    /// | `list` | logs that are stored as a list |
    /// | `single` | the usual batch |
    /// | `lapse` | scripts that know the holds on states |
    /// | `id` | calls with an id |
    /// | `hold`, `settle` | calls that make a hold; calls that settle or extend a hold |
    #[must_use]
    pub fn variant(&self) -> &str {
        &self.variant
    }

    /// Returns the code.
    #[must_use]
    pub fn code(&self) -> &str {
        &self.code
    }

    /// Returns SHA-1 of the code in hexadecimal, by which EVALSHA names the script.
    #[must_use]
    pub fn sha(&self) -> &str {
        &self.sha
    }
}

/// One of the algorithms, as the scripts number them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Rule {
    /// Fixed window.
    FixedWindow = layout::FIXED_WINDOW,
    /// Sliding log.
    SlidingLog = layout::SLIDING_LOG,
    /// Sliding counter.
    SlidingCounter = layout::SLIDING_COUNTER,
    /// Token bucket with continuous refill, and GCRA.
    TokenBucket = layout::TOKEN_BUCKET,
    /// Token bucket that is refilled once per period.
    IntervalBucket = layout::INTERVAL_BUCKET,
}

/// The record that a script writes under the id of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordKind {
    /// Nothing: the call has no id.
    None,
    /// The reply.
    Id,
    /// A hold.
    Hold,
}

/// Whether a script knows the holds on states.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateKind {
    /// It does not: a state with holds is a foreign value.
    Plain,
    /// It refunds the holds that have lapsed, and knows the open ones.
    WithHolds,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_directive_and_no_placeholder_is_left_in_any_script() {
        for script in all() {
            assert!(!script.code().contains("---"), "{}", script.code());
            for line in script.code().lines().filter(|line| !line.trim_start().starts_with("--")) {
                let words = line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
                for word in words.filter(|word| word.len() > 1 && word.contains('_')) {
                    assert!(!word.chars().all(|c| c.is_ascii_uppercase() || c == '_'), "{line}");
                }
            }
        }
    }

    /// Calls without holds do not pay for the code for holds.
    #[test]
    fn only_scripts_that_lapse_know_holds_on_states() {
        for script in all() {
            let knows_holds = script.variant().starts_with("lapse");
            assert_eq!(script.code().contains("read_holds"), knows_holds, "{script:?}");
        }
    }

    #[test]
    fn no_two_scripts_have_the_same_name_and_variant() {
        let mut titles: Vec<_> =
            all().iter().map(|script| (script.name(), script.variant())).collect();
        titles.sort_unstable();
        assert!(titles.windows(2).all(|pair| pair[0] != pair[1]), "{titles:?}");
        assert!(titles.iter().all(|(name, _)| Script::NAMES.contains(name)), "{titles:?}");
    }
}
