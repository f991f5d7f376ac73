//! The scripts, put together of a common head, the rules they need, and a body.

use std::sync::LazyLock;

use tidegate_core::algorithm::fixed_window::Start;

/// A file of `src/scripts`.
#[cfg(not(tidegate_scripts_from_dir))]
macro_rules! lua {
    ($name:literal) => {
        include_str!(concat!("../scripts/", $name))
    };
}

/// The same, from the folder that `TIDEGATE_SCRIPTS_DIR` names, so that `.ci/mutants` tries changed
/// scripts without a build for each. Never in a normal build: it takes `--cfg` in `RUSTFLAGS`.
#[cfg(tidegate_scripts_from_dir)]
macro_rules! lua {
    ($name:literal) => {{
        static TEXT: LazyLock<String> = LazyLock::new(|| {
            let dir = std::env::var("TIDEGATE_SCRIPTS_DIR").unwrap_or_default();
            let path = std::path::Path::new(&dir).join($name);
            std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"))
        });
        TEXT.as_str()
    }};
}

/// A script and its name on the server.
#[derive(Debug)]
pub struct Script {
    name: &'static str,
    code: String,
    sha: String,
}

impl Script {
    /// The head and a body, with parts and words put in their place: first those of `own`, then those
    /// of all scripts.
    fn new(name: &'static str, body: &str, own: &[(&str, &str)]) -> Self {
        let find = |word: &str| own.iter().find(|(name, _)| *name == word).map(|(_, text)| *text);
        let whole = with_parts(&format!("{}\n{body}", lua!("head.lua")), &|name| {
            find(name).or_else(|| part(name))
        });
        let code = with_words(&with_words(&whole, find), common_word);
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

/// What a line `--> name` in a script stands for.
fn part(name: &str) -> Option<&'static str> {
    Some(match name {
        "fixed_window.lua" => lua!("fixed_window.lua"),
        "sliding_log.lua" => lua!("sliding_log.lua"),
        "sliding_counter.lua" => lua!("sliding_counter.lua"),
        "token_bucket.lua" => lua!("token_bucket.lua"),
        "interval_bucket.lua" => lua!("interval_bucket.lua"),
        "rules.lua" => lua!("rules.lua"),
        "log_lengthen.lua" => lua!("log_lengthen.lua"),
        "log_shorten.lua" => lua!("log_shorten.lua"),
        "log_whole.lua" => lua!("log_whole.lua"),
        "log_take_back.lua" => lua!("log_take_back.lua"),
        "log_search.lua" => lua!("log_search.lua"),
        "outlive.lua" => lua!("outlive.lua"),
        "life.lua" => lua!("life.lua"),
        "read.lua" => lua!("read.lua"),
        "write_string.lua" => lua!("write_string.lua"),
        "write_log.lua" => lua!("write_log.lua"),
        "write_list.lua" => lua!("write_list.lua"),
        _ => return None,
    })
}

/// The script for a single charge by a rule, to be acquired or peeked at: the shortest way. A log that
/// may grow long has one of its own.
#[must_use]
pub fn one(rule: Rule, start: Start, is_long: bool) -> &'static Script {
    /// What its values look like, whether they are lists, and what of them is but an end.
    macro_rules! log {
        ($read:literal, $form:literal, $list:literal, $end:literal) => {
            one!("LOG", "sliding_log.lua", "nil", $read, $form, $list, $end, "write_log.lua")
        };
    }
    macro_rules! string {
        ($kind:literal, $size:literal, $rule:literal, $time:literal) => {{
            const FORM: &str = concat!("#value == ", $size, " and value:byte() == ", $kind);
            one!($kind, $rule, $time, "'GET', key", FORM, "false", "false", "write_string.lua")
        }};
    }
    macro_rules! one {
        ($kind:literal, $rule:literal, $time:literal, $read:literal, $form:expr, $list:literal,
         $end:literal, $write:literal) => {{
            static SCRIPT: LazyLock<Script> = LazyLock::new(|| {
                Script::new(
                    $rule.trim_end_matches(".lua"),
                    lua!("one.lua"),
                    &[
                        ("ITS_KIND", $kind),
                        ("ITS_READ", $read),
                        ("ITS_FORM", $form),
                        ("ITS_LIST", $list),
                        ("ITS_END", $end),
                        ("ITS_TIME", $time),
                        ("ITS_RULE", concat!("--> ", $rule)),
                        ("ITS_WRITE", concat!("--> ", $write)),
                    ],
                )
            });
            &SCRIPT
        }};
    }
    match (rule, start) {
        (Rule::FixedWindow, Start::Aligned) => {
            string!("FIXED_ALIGNED", "WINDOW_SIZE", "fixed_window.lua", "nil")
        }
        (Rule::FixedWindow, Start::Phased) => {
            string!("FIXED_PHASED", "WINDOW_SIZE", "fixed_window.lua", "nil")
        }
        // Anchored: `numbers` knows no other start.
        (Rule::FixedWindow, _) => {
            string!("FIXED_ANCHORED", "WINDOW_SIZE", "fixed_window.lua", "nil")
        }
        (Rule::SlidingLog, _) if is_long => log!(
            "'LINDEX', key, '-1'",
            "#value > LOG_END and (#value - LOG_HEAD - LOG_END) % RECORD == 0 \
             and value:byte() == LOG and value:byte(-1) == LOG",
            "true",
            "false"
        ),
        (Rule::SlidingLog, _) => log!(
            "'GETRANGE', key, '-LOG_END', '-1'",
            "#value == LOG_END and value:byte(-1) == LOG",
            "false",
            "value and #value == LOG_END"
        ),
        (Rule::SlidingCounter, _) => {
            string!("COUNTER", "COUNTER_SIZE", "sliding_counter.lua", "nil")
        }
        (Rule::TokenBucket, _) => string!("BUCKET", "BUCKET_SIZE", "token_bucket.lua", "time"),
        (Rule::IntervalBucket, _) => {
            string!("INTERVAL", "INTERVAL_SIZE", "interval_bucket.lua", "nil")
        }
    }
}

/// The script for everything.
#[must_use]
pub fn many() -> &'static Script {
    static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new("many", lua!("many.lua"), &[]));
    &SCRIPT
}

/// The text with the parts in the place of the lines that name them, as far in as those.
fn with_parts<'p>(text: &str, meaning: &impl Fn(&str) -> Option<&'p str>) -> String {
    let mut whole = String::with_capacity(text.len() * 2);
    for line in text.lines() {
        let code = line.trim_start();
        match code.strip_prefix("--> ").and_then(|name| meaning(name.trim_end())) {
            Some(part) => {
                let indent = &line[..line.len() - code.len()];
                for line in with_parts(part, meaning).lines() {
                    whole.extend([if line.is_empty() { "" } else { indent }, line, "\n"]);
                }
            }
            None => whole.extend([line, "\n"]),
        }
    }
    whole
}

/// What a word of `words.lua` stands for: a number, or another word.
fn common_word(word: &str) -> Option<&'static str> {
    let line =
        lua!("words.lua").lines().find_map(|line| line.strip_prefix(word)?.strip_prefix(" = "));
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
        let own = [("KIND", "LOG"), ("FORM", "#value == INTERVAL_SIZE")];
        let script =
            Script::new("test", "if FORM and KIND == BUCKET then BUCKETS = RECORD end", &own);
        let last = script.code().lines().last();
        assert_eq!(last, Some("if #value == 29 and 0x94 == 0x96 then BUCKETS = 14 end"));
    }

    #[test]
    fn parts_are_put_in_their_place_as_deep_as_they_are_named() {
        let meaning = |name: &str| match name {
            "outer" => Some("first\n  --> inner\n"),
            "inner" => Some("last"),
            _ => None,
        };
        assert_eq!(with_parts("do\n  --> outer\nend", &meaning), "do\n  first\n    last\nend\n");
    }

    #[test]
    fn no_word_and_no_part_is_left_in_any_script() {
        let windows = [Start::Aligned, Start::Phased, Start::Anchored]
            .map(|start| one(Rule::FixedWindow, start, false));
        let others =
            [Rule::SlidingLog, Rule::SlidingCounter, Rule::TokenBucket, Rule::IntervalBucket]
                .map(|rule| one(rule, Start::Aligned, false));
        for script in windows
            .into_iter()
            .chain(others)
            .chain([one(Rule::SlidingLog, Start::Aligned, true), many()])
        {
            assert!(!script.code().contains("-->"), "{}", script.code());
            for line in script.code().lines().filter(|line| !line.trim_start().starts_with("--")) {
                let words = line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
                for word in words.filter(|word| word.len() > 1 && word.contains('_')) {
                    assert!(!word.chars().all(|c| c.is_ascii_uppercase() || c == '_'), "{line}");
                }
            }
        }
    }
}
