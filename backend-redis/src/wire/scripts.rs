//! The scripts, put together of a common head, the rules they need, and a body.

use std::sync::LazyLock;

use tidegate_core::algorithm::fixed_window::Start;

/// A script and its name on the server.
#[derive(Debug)]
pub struct Script {
    name: &'static str,
    code: String,
    sha: String,
}

impl Script {
    /// Puts parts together; `words` are put in their place besides those of `words.lua`.
    fn new(name: &'static str, parts: &[&str], words: &[(&str, &str)]) -> Self {
        let code = parts.join("\n").replace("--> read.lua", READ);
        let code = with_words(&code, |word| {
            let own = words.iter().find(|(name, _)| *name == word).map(|(_, value)| *value);
            own.or_else(|| common_word(word))
        });
        let sha = redis::Script::new(&code).get_hash().to_owned();
        Self { name, code, sha }
    }

    /// All names that there are.
    pub const NAMES: [&'static str; 6] = [
        "fixed_window",
        "sliding_log",
        "sliding_counter",
        "token_bucket",
        "interval_bucket",
        "many",
    ];

    /// What it is for: the rule that it decides by, or `many`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The source.
    #[must_use]
    pub fn code(&self) -> &str {
        &self.code
    }

    /// What EVALSHA calls it by: the SHA-1 of its source, in hexadecimal.
    #[must_use]
    pub fn sha(&self) -> &str {
        &self.sha
    }
}

/// One of the algorithms, as the scripts number them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// Fixed window.
    FixedWindow = 1,
    /// Sliding log.
    SlidingLog,
    /// Sliding counter.
    SlidingCounter,
    /// Token bucket with continuous refill, and GCRA.
    TokenBucket,
    /// Token bucket that refills by intervals.
    IntervalBucket,
}

const HEAD: &str = include_str!("../scripts/head.lua");
const FIXED_WINDOW: &str = include_str!("../scripts/fixed_window.lua");
const SLIDING_LOG: &str = include_str!("../scripts/sliding_log.lua");
const SLIDING_COUNTER: &str = include_str!("../scripts/sliding_counter.lua");
const TOKEN_BUCKET: &str = include_str!("../scripts/token_bucket.lua");
const INTERVAL_BUCKET: &str = include_str!("../scripts/interval_bucket.lua");
const READ: &str = include_str!("../scripts/read.lua");
const WORDS: &str = include_str!("../scripts/words.lua");
const ONE: &str = include_str!("../scripts/one.lua");
const MANY: &str = include_str!("../scripts/many.lua");

/// The script for a single charge by a rule, to be acquired or peeked at: the shortest way.
#[must_use]
pub fn one(rule: Rule, start: Start) -> &'static Script {
    macro_rules! one {
        ($source:ident, $name:literal, $write_list:literal, $kind:literal, $size:literal) => {{
            const NAMES: &str = concat!("local rule, write_list = ", $name, ", ", $write_list);
            static SCRIPT: LazyLock<Script> = LazyLock::new(|| {
                Script::new(
                    $name,
                    &[HEAD, $source, NAMES, ONE],
                    &[("ITS_KIND", $kind), ("ITS_SIZE", $size)],
                )
            });
            &SCRIPT
        }};
    }
    match (rule, start) {
        (Rule::FixedWindow, Start::Aligned) => {
            one!(FIXED_WINDOW, "fixed_window", "nil", "FIXED_ALIGNED", "22")
        }
        (Rule::FixedWindow, Start::Phased) => {
            one!(FIXED_WINDOW, "fixed_window", "nil", "FIXED_PHASED", "22")
        }
        (Rule::FixedWindow, Start::Anchored) => {
            one!(FIXED_WINDOW, "fixed_window", "nil", "FIXED_ANCHORED", "22")
        }
        (Rule::SlidingLog, _) => one!(SLIDING_LOG, "sliding_log", "write_list", "LOG", "45"),
        (Rule::SlidingCounter, _) => {
            one!(SLIDING_COUNTER, "sliding_counter", "nil", "COUNTER", "29")
        }
        (Rule::TokenBucket, _) => one!(TOKEN_BUCKET, "token_bucket", "nil", "BUCKET", "22"),
        (Rule::IntervalBucket, _) => {
            one!(INTERVAL_BUCKET, "interval_bucket", "nil", "INTERVAL", "22")
        }
    }
}

/// The script for everything.
#[must_use]
pub fn many() -> &'static Script {
    static SCRIPT: LazyLock<Script> = LazyLock::new(|| {
        let parts =
            [HEAD, FIXED_WINDOW, SLIDING_LOG, SLIDING_COUNTER, TOKEN_BUCKET, INTERVAL_BUCKET, MANY];
        Script::new("many", &parts, &[])
    });
    &SCRIPT
}

/// What a word of `words.lua` stands for: a number, or another word.
fn common_word(word: &str) -> Option<&'static str> {
    let line = WORDS.lines().find_map(|line| line.strip_prefix(word)?.strip_prefix(" = "));
    line.map(str::trim_end)
}

/// The text with all words replaced that stand for something, again and again until none is left.
fn with_words<'w>(text: &str, meaning: impl Fn(&str) -> Option<&'w str>) -> String {
    let mut replaced = String::with_capacity(text.len());
    let is_of_a_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut rest = text;
    while let Some(start) = rest.find(is_of_a_word) {
        let (between, from_word) = rest.split_at(start);
        let end = from_word.find(|c| !is_of_a_word(c)).unwrap_or(from_word.len());
        let (mut word, after) = from_word.split_at(end);
        while let Some(meant) = meaning(word) {
            word = meant;
        }
        replaced.push_str(between);
        replaced.push_str(word);
        rest = after;
    }
    replaced + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_put_in_their_place_and_other_names_are_left() {
        let script = Script::new(
            "test",
            &["if KIND == BUCKET then BUCKET_SIZE = RECORD end"],
            &[("KIND", "LOG")],
        );
        assert_eq!(script.code(), "if 0x94 == 0x96 then BUCKET_SIZE = 14 end");
    }

    #[test]
    fn no_word_is_left_in_any_script() {
        let all = [Start::Aligned, Start::Phased, Start::Anchored]
            .map(|start| one(Rule::FixedWindow, start));
        for script in all.into_iter().chain([many(), one(Rule::SlidingLog, Start::Aligned)]) {
            for line in script.code().lines().filter(|line| !line.trim_start().starts_with("--")) {
                let words = line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
                for word in words.filter(|word| word.len() > 1 && word.contains('_')) {
                    assert!(!word.chars().all(|c| c.is_ascii_uppercase() || c == '_'), "{line}");
                }
            }
        }
    }
}
