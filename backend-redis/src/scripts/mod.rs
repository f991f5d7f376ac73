//! The Lua scripts. `README.md` in this folder describes how to read, print and change them.

mod assemble;
mod table;
#[cfg(test)]
mod tokens;

pub use table::{all, batch, batch_single, settle, settle_single, single};

use crate::values::layout;

#[derive(Debug)]
pub struct Script {
    name: &'static str,
    variant: String,
    code: String,
    sha: String,
}

impl Script {
    /// Creates a script. Scripts with the same `name` differ in their variant, a text such as
    /// `lapse_settle`. The parameter `variant` lists the parts of this text. Empty parts are
    /// ignored.
    fn new(name: &'static str, variant: &[&str], code: String) -> Self {
        let variant: Vec<_> = variant.iter().copied().filter(|part| !part.is_empty()).collect();
        let sha = redis::Script::new(&code).get_hash().to_owned();
        Self { name, variant: variant.join("_"), code, sha }
    }

    pub const NAMES: [&'static str; 8] = [
        "fixed_window",
        "sliding_log",
        "sliding_counter",
        "token_bucket",
        "interval_bucket",
        "quota",
        "fair_pool",
        "batch",
    ];

    /// Returns the name of the script, which is also a label of metrics. For a script for one
    /// charge, the name is the rule. For every other script, the name is `batch`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the variant, which distinguishes the scripts with the same name. The variant is
    /// empty or consists of these parts, joined by `_`:
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

    #[must_use]
    pub fn code(&self) -> &str {
        &self.code
    }

    /// Returns SHA-1 of the code in hexadecimal. The command EVALSHA names a script by this digest.
    #[must_use]
    pub fn sha(&self) -> &str {
        &self.sha
    }
}

/// An algorithm, with the number by which the scripts distinguish it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Rule {
    FixedWindow = layout::FIXED_WINDOW,
    SlidingLog = layout::SLIDING_LOG,
    SlidingCounter = layout::SLIDING_COUNTER,
    TokenBucket = layout::TOKEN_BUCKET,
    /// The token bucket that is refilled once per period.
    IntervalBucket = layout::INTERVAL_BUCKET,
    /// Slots. Only the scripts that know the holds on states have this rule.
    Concurrent = layout::CONCURRENT,
    Quota = layout::QUOTA,
    FairPool = layout::FAIR_POOL,
}

/// The record that a script writes under the id of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordKind {
    None,
    Id,
    Hold,
}

/// Whether a script can read the holds in the values of states.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateKind {
    /// The script cannot read holds, and treats a state with holds as a foreign value.
    Plain,
    /// The script reads the holds, refunds the lapsed holds, and reports the open holds.
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

    /// A user with the documented permissions can execute each script.
    #[test]
    fn each_command_of_a_script_is_a_documented_permission() {
        let documented = include_str!("../builder.rs");
        for script in all() {
            for part in
                script.code().split("call('").skip(1).chain(script.code().split("call, '").skip(1))
            {
                let command = part.split('\'').next().unwrap_or_default();
                let is_name = |word: &str| word == command;
                let words = documented.split(|c: char| !c.is_ascii_alphanumeric());
                assert!(words.into_iter().any(is_name), "{command} in {script:?}");
            }
        }
    }

    /// The code for holds costs time, so only scripts that need this code contain it.
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
