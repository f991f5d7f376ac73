//! The scripts, assembled from a common head, the rules that they need, and a body.
//!
//! `--> name.lua` in a script stands for that file. A word in capitals stands for a number: of
//! `wire/layout.rs` or of `constants.lua`.

use std::sync::LazyLock;

use tidegate_core::algorithm::fixed_window::Start;

use super::layout;

#[cfg(test)]
#[path = "../scripts/tokens.rs"]
mod tokens;

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

/// A script.
#[derive(Debug)]
pub struct Script {
    name: &'static str,
    variant: &'static str,
    code: String,
    sha: String,
}

impl Script {
    /// Assembles a script from the head and a body. `own` are parts and words of this script alone.
    fn new(
        name: &'static str,
        variant: &'static str,
        body: &str,
        own: &[(&str, &'static str)],
    ) -> Self {
        Self::assemble(name, variant, &format!("{}\n{body}", lua!("head.lua")), own)
    }

    /// The same script for calls with an id: the body within an outer script.
    fn within(
        outer: &str,
        name: &'static str,
        variant: &'static str,
        body: &'static str,
        own: &[(&str, &'static str)],
    ) -> Self {
        let own = [own, &[("ITS_BODY", body)]].concat();
        Self::assemble(name, variant, outer, &own)
    }

    fn assemble(
        name: &'static str,
        variant: &'static str,
        text: &str,
        own: &[(&str, &'static str)],
    ) -> Self {
        let find = |word: &str| own.iter().find(|(name, _)| *name == word).map(|(_, text)| *text);
        let with_parts = with_parts(text, &|name| find(name).or_else(|| part(name)));
        let code = with_words(&with_parts, |word| find(word).or_else(|| constant(word)));
        let sha = redis::Script::new(&code).get_hash().to_owned();
        Self { name, variant, code, sha }
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

    /// Name: the rule by which it decides one charge, or `batch`. Label in metrics.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Which of several scripts of the name it is: `aligned`, `phased` or `anchored` of `fixed_window`, `list`
    /// of `sliding_log`, `single` of `batch`, and behind it `id` of those for calls with an id, `hold` of those that make a
    /// hold, and `settle` of those that settle or extend it; before these `lapse` of those that know what will be given
    /// back when it lapses; else empty.
    #[must_use]
    pub fn variant(&self) -> &'static str {
        self.variant
    }

    /// The source.
    #[must_use]
    pub fn code(&self) -> &str {
        &self.code
    }

    /// SHA-1 of the source in hexadecimal, by which EVALSHA names the script.
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
    /// Token bucket that refills by intervals.
    IntervalBucket = layout::INTERVAL_BUCKET,
}

/// What is remembered of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordKind {
    /// Nothing: the call has no id.
    None,
    /// The reply.
    Id,
    /// A hold.
    Hold,
}

/// What a script knows of the states.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateKind {
    /// Nothing of holds on them: to it, a state with holds is a foreign value.
    Plain,
    /// The holds that will be given back when they lapse.
    WithHolds,
}

/// Text of the file that a line `--> name` in a script stands for.
fn part(name: &str) -> Option<&'static str> {
    Some(match name {
        "fixed_window.lua" => lua!("fixed_window.lua"),
        "levels.lua" => lua!("levels.lua"),
        "sliding_log.lua" => lua!("sliding_log.lua"),
        "sliding_log/merge.lua" => lua!("sliding_log/merge.lua"),
        "sliding_log/search.lua" => lua!("sliding_log/search.lua"),
        "sliding_log/undo.lua" => lua!("sliding_log/undo.lua"),
        "sliding_log/whole.lua" => lua!("sliding_log/whole.lua"),
        "sliding_log/write.lua" => lua!("sliding_log/write.lua"),
        "sliding_log/write_list.lua" => lua!("sliding_log/write_list.lua"),
        "sliding_counter.lua" => lua!("sliding_counter.lua"),
        "token_bucket.lua" => lua!("token_bucket.lua"),
        "interval_bucket.lua" => lua!("interval_bucket.lua"),
        "head.lua" => lua!("head.lua"),
        "blocking.lua" => lua!("blocking.lua"),
        "hold_batch.lua" => lua!("hold_batch.lua"),
        "hold_epochs.lua" => lua!("hold_epochs.lua"),
        "hold_record.lua" => lua!("hold_record.lua"),
        "hold_single.lua" => lua!("hold_single.lua"),
        "id_record.lua" => lua!("id_record.lua"),
        "id_single.lua" => lua!("id_single.lua"),
        "id_batch.lua" => lua!("id_batch.lua"),
        "rules.lua" => lua!("rules.lua"),
        "ttl.lua" => lua!("ttl.lua"),
        "ttl_slack.lua" => lua!("ttl_slack.lua"),
        "read.lua" => lua!("read.lua"),
        "read_all.lua" => lua!("read_all.lua"),
        "settle_change.lua" => lua!("settle_change.lua"),
        "settle_epoch.lua" => lua!("settle_epoch.lua"),
        "settle_refunds.lua" => lua!("settle_refunds.lua"),
        "settle_record.lua" => lua!("settle_record.lua"),
        "settle_ttl.lua" => lua!("settle_ttl.lua"),
        "settle_write.lua" => lua!("settle_write.lua"),
        "state_holds.lua" => lua!("state_holds.lua"),
        "write_string.lua" => lua!("write_string.lua"),
        // Scripts that know the holds on states name these themselves.
        "batch_holds.lua"
        | "batch_holds_write.lua"
        | "hold_refunds.lua"
        | "hold_maxima.lua"
        | "hold_on_states.lua"
        | "settle_holds.lua"
        | "ITS_LOADS"
        | "ITS_HELD"
        | "ITS_HOLD"
        | "ITS_REPLY" => "",
        _ => return None,
    })
}

/// Script that acquires or peeks a single charge by a rule: the fastest one. A log that is stored as a list
/// has a script of its own, and so have calls with an id, and those that make a hold.
#[must_use]
pub fn single(rule: Rule, start: Start, is_list: bool, record: RecordKind) -> &'static Script {
    // `$read` is the command that reads the value, `$form` the condition for it to be of the usual form, `$list`
    // whether it is then a list, and `$end` whether only the end of it was read. A `$time` other than `nil` is
    // the time in a written value: where that is now, the value is the whole reply.
    macro_rules! log {
        ($variant:tt, $read:literal, $form:literal, $list:literal, $end:literal) => {
            single!(
                "LOG",
                "sliding_log.lua",
                $variant,
                "nil",
                $read,
                $form,
                $list,
                $end,
                "sliding_log/write.lua"
            )
        };
    }
    macro_rules! string {
        ($kind:literal, $size:literal, $rule:literal, $variant:tt, $time:literal) => {{
            const FORM: &str = concat!("#value == ", $size, " and value:byte() == ", $kind);
            single!(
                $kind,
                $rule,
                $variant,
                $time,
                "'GET', key",
                FORM,
                "false",
                "false",
                "write_string.lua"
            )
        }};
    }
    macro_rules! variant {
        ("", $of:literal) => {
            $of
        };
        ($variant:literal, $of:literal) => {
            concat!($variant, "_", $of)
        };
    }
    macro_rules! single {
        ($kind:literal, $rule:literal, $variant:tt, $time:literal, $read:literal, $form:expr,
         $list:literal, $end:literal, $write:literal) => {{
            const OWN: [(&str, &str); 9] = [
                ("ITS_KIND", $kind),
                ("ITS_READ", $read),
                ("ITS_FORM", $form),
                ("ITS_LIST", $list),
                ("ITS_END", $end),
                ("STATE_TIME", $time),
                ("ITS_RULE", concat!("--> ", $rule)),
                ("ITS_WRITE", concat!("--> ", $write)),
                // Only the general script charges beyond the limit.
                ("sliding_log/merge.lua", ""),
            ];
            const NAME: &str = $rule;
            fn own(outcome: &'static str) -> Vec<(&'static str, &'static str)> {
                [&OWN[..], &[("ITS_OUTCOME", outcome)]].concat()
            }
            static SCRIPT: LazyLock<Script> = LazyLock::new(|| {
                Script::new(name_of(NAME), $variant, lua!("single.lua"), &own(""))
            });
            static WITH_ID: LazyLock<Script> = LazyLock::new(|| {
                let (own, variant) = (own("--> id_single.lua"), variant!($variant, "id"));
                Script::within(lua!("id.lua"), name_of(NAME), variant, lua!("single.lua"), &own)
            });
            static OF_HOLD: LazyLock<Script> = LazyLock::new(|| {
                let (own, variant) = (own("--> hold_single.lua"), variant!($variant, "hold"));
                let own = [own, vec![("REFUNDS_LAPSED", "false")]].concat();
                Script::within(lua!("hold.lua"), name_of(NAME), variant, lua!("single.lua"), &own)
            });
            match record {
                RecordKind::None => &SCRIPT,
                RecordKind::Id => &WITH_ID,
                RecordKind::Hold => &OF_HOLD,
            }
        }};
    }
    match (rule, start) {
        (Rule::FixedWindow, Start::Aligned) => {
            string!("FIXED_ALIGNED", "WINDOW_SIZE", "fixed_window.lua", "aligned", "nil")
        }
        (Rule::FixedWindow, Start::Phased) => {
            string!("FIXED_PHASED", "WINDOW_SIZE", "fixed_window.lua", "phased", "nil")
        }
        // Anchored: `numbers` knows no other start.
        (Rule::FixedWindow, _) => {
            string!("FIXED_ANCHORED", "WINDOW_SIZE", "fixed_window.lua", "anchored", "nil")
        }
        (Rule::SlidingLog, _) if is_list => log!(
            "list",
            "'LINDEX', key, '-1'",
            "#value > LOG_END and (#value - LOG_HEAD - LOG_END) % RECORD == 0 \
             and value:byte() == LOG and value:byte(-1) == LOG",
            "true",
            "false"
        ),
        (Rule::SlidingLog, _) => log!(
            "",
            "'GETRANGE', key, '-LOG_END', '-1'",
            "#value == LOG_END and value:byte(-1) == LOG",
            "false",
            "value and #value == LOG_END"
        ),
        (Rule::SlidingCounter, _) => {
            string!("COUNTER", "COUNTER_SIZE", "sliding_counter.lua", "", "nil")
        }
        (Rule::TokenBucket, _) => string!("BUCKET", "BUCKET_SIZE", "token_bucket.lua", "", "time"),
        (Rule::IntervalBucket, _) => {
            string!("INTERVAL", "INTERVAL_SIZE", "interval_bucket.lua", "", "nil")
        }
    }
}

/// Name of the scripts by the rule in this file.
fn name_of(file: &'static str) -> &'static str {
    file.trim_end_matches(".lua")
}

/// Script for all other calls: of several charges, of other operations, several at once; or for one call with an
/// id, or one that makes a hold.
#[must_use]
pub fn batch(record: RecordKind, states: StateKind) -> &'static Script {
    match states {
        StateKind::Plain => batch_plain(record),
        StateKind::WithHolds => batch_with_holds(record),
    }
}

fn batch_plain(record: RecordKind) -> &'static Script {
    static SCRIPT: LazyLock<Script> =
        LazyLock::new(|| Script::new("batch", "", lua!("batch.lua"), &[("ITS_OUTCOME", "")]));
    static WITH_ID: LazyLock<Script> = LazyLock::new(|| {
        let own = [("ITS_OUTCOME", "--> id_batch.lua")];
        Script::within(lua!("id.lua"), "batch", "id", lua!("batch.lua"), &own)
    });
    static OF_HOLD: LazyLock<Script> = LazyLock::new(|| {
        let own = [("ITS_OUTCOME", "--> hold_batch.lua"), ("REFUNDS_LAPSED", "false")];
        Script::within(lua!("hold.lua"), "batch", "hold", lua!("batch.lua"), &own)
    });
    match record {
        RecordKind::None => &SCRIPT,
        RecordKind::Id => &WITH_ID,
        RecordKind::Hold => &OF_HOLD,
    }
}

fn batch_with_holds(record: RecordKind) -> &'static Script {
    // What is remembered or held is known in the general path alone, which keys take that are loaded.
    const LOADS: (&str, &str) = ("ITS_LOADS", "for k = 1, #KEYS do load(k) end");
    fn own(outcome: &'static str) -> Vec<(&'static str, &'static str)> {
        vec![
            ("ITS_OUTCOME", outcome),
            ("batch_holds.lua", lua!("batch_holds.lua")),
            ("batch_holds_write.lua", lua!("batch_holds_write.lua")),
            ("read_all.lua", "local found, others_absent = {}, false"),
        ]
    }
    static SCRIPT: LazyLock<Script> =
        LazyLock::new(|| Script::new("batch", "lapse", lua!("batch.lua"), &own("")));
    static WITH_ID: LazyLock<Script> = LazyLock::new(|| {
        let own = [own("--> id_batch.lua"), vec![LOADS]].concat();
        Script::within(lua!("id.lua"), "batch", "lapse_id", lua!("batch.lua"), &own)
    });
    static OF_HOLD: LazyLock<Script> = LazyLock::new(|| {
        let hold_refunds = ("hold_refunds.lua", lua!("hold_refunds.lua"));
        let hold_maxima = ("hold_maxima.lua", lua!("hold_maxima.lua"));
        let hold_on_states = ("hold_on_states.lua", lua!("hold_on_states.lua"));
        let lapses = ("REFUNDS_LAPSED", "max_open_of(place) > 0");
        let parts = vec![LOADS, hold_refunds, hold_maxima, hold_on_states, lapses];
        let own = [own("--> hold_batch.lua"), parts].concat();
        Script::within(lua!("hold.lua"), "batch", "lapse_hold", lua!("batch.lua"), &own)
    });
    match record {
        RecordKind::None => &SCRIPT,
        RecordKind::Id => &WITH_ID,
        RecordKind::Hold => &OF_HOLD,
    }
}

/// Script for several calls, each of which acquires a single charge: see `single_charges.rs`.
#[must_use]
pub fn batch_single() -> &'static Script {
    static KEYS: LazyLock<[String; 4]> = LazyLock::new(|| {
        ["fixed_window.lua", "sliding_counter.lua", "token_bucket.lua", "interval_bucket.lua"]
            .map(|rule| lua!("batch_single_keys.lua").replace("ITS_RULE", rule))
    });
    static SCRIPT: LazyLock<Script> = LazyLock::new(|| {
        let [window, counter, bucket, interval] = &*KEYS;
        let own: [(&str, &'static str); 4] = [
            ("keys of fixed_window.lua", window),
            ("keys of sliding_counter.lua", counter),
            ("keys of token_bucket.lua", bucket),
            ("keys of interval_bucket.lua", interval),
        ];
        // It begins with the head itself.
        Script::assemble("batch", "single", lua!("batch_single.lua"), &own)
    });
    &SCRIPT
}

/// Script that settles or extends a hold of a single charge by a rule. `None` of a log, for which the general one does.
#[must_use]
pub fn settle_single(rule: Rule, start: Start) -> Option<&'static Script> {
    macro_rules! script {
        ($rule:literal, $number:literal, $kind:literal, $size:literal, $variant:literal) => {{
            static SCRIPT: LazyLock<Script> = LazyLock::new(|| {
                let own = [
                    ("ITS_RULE", concat!("--> ", $rule)),
                    ("RULE_NUMBER", $number),
                    ("REFUNDS_OF_STATE", "nil"),
                    ("ITS_KIND", $kind),
                    ("ITS_FORM", concat!("#value == ", $size, " and value:byte() == ", $kind)),
                ];
                Script::assemble(name_of($rule), $variant, lua!("settle_single.lua"), &own)
            });
            Some(&SCRIPT)
        }};
    }
    macro_rules! window {
        ($kind:literal, $variant:literal) => {
            script!("fixed_window.lua", "FIXED_WINDOW", $kind, "WINDOW_SIZE", $variant)
        };
    }
    match (rule, start) {
        (Rule::FixedWindow, Start::Aligned) => window!("FIXED_ALIGNED", "aligned_settle"),
        (Rule::FixedWindow, Start::Phased) => window!("FIXED_PHASED", "phased_settle"),
        // Anchored: `numbers` knows no other start.
        (Rule::FixedWindow, _) => window!("FIXED_ANCHORED", "anchored_settle"),
        (Rule::SlidingLog, _) => None,
        (Rule::SlidingCounter, _) => {
            script!("sliding_counter.lua", "SLIDING_COUNTER", "COUNTER", "COUNTER_SIZE", "settle")
        }
        (Rule::TokenBucket, _) => {
            script!("token_bucket.lua", "TOKEN_BUCKET", "BUCKET", "BUCKET_SIZE", "settle")
        }
        (Rule::IntervalBucket, _) => {
            script!("interval_bucket.lua", "INTERVAL_BUCKET", "INTERVAL", "INTERVAL_SIZE", "settle")
        }
    }
}

/// Script that settles or extends any other hold.
#[must_use]
pub fn settle(states: StateKind) -> &'static Script {
    static PLAIN: LazyLock<Script> = LazyLock::new(|| {
        let own = [("STATE_HAS_HOLDS", "false"), ("REFUNDS_OF_STATE", "nil")];
        Script::assemble("batch", "settle", lua!("settle.lua"), &own)
    });
    static WITH_HOLDS: LazyLock<Script> = LazyLock::new(|| {
        let own = [
            ("settle_holds.lua", lua!("settle_holds.lua")),
            ("STATE_HAS_HOLDS", "holds_of[key]"),
            ("REFUNDS_OF_STATE", "holds_of[key]"),
            ("ITS_HELD", "held_cost = left_of(place, held_cost, epoch)"),
            ("ITS_HOLD", "change_hold(place, it, totals[place])"),
            ("ITS_REPLY", "add_open_holds(answer)"),
        ];
        Script::assemble("batch", "lapse_settle", lua!("settle.lua"), &own)
    });
    match states {
        StateKind::Plain => &PLAIN,
        StateKind::WithHolds => &WITH_HOLDS,
    }
}

/// All scripts: those for calls without an id, those for calls with one, those that make holds, and those that
/// settle them.
#[must_use]
pub fn all() -> Vec<&'static Script> {
    let of = |record| {
        let start = Start::Aligned;
        [
            single(Rule::FixedWindow, Start::Aligned, false, record),
            single(Rule::FixedWindow, Start::Phased, false, record),
            single(Rule::FixedWindow, Start::Anchored, false, record),
            single(Rule::SlidingLog, start, false, record),
            single(Rule::SlidingLog, start, true, record),
            single(Rule::SlidingCounter, start, false, record),
            single(Rule::TokenBucket, start, false, record),
            single(Rule::IntervalBucket, start, false, record),
            batch(record, StateKind::Plain),
            batch(record, StateKind::WithHolds),
        ]
    };
    let mut all = [of(RecordKind::None), of(RecordKind::Id), of(RecordKind::Hold)].concat();
    let starts = [Start::Aligned, Start::Phased, Start::Anchored];
    all.extend(starts.map(|start| settle_single(Rule::FixedWindow, start)).into_iter().flatten());
    let others = [Rule::SlidingCounter, Rule::TokenBucket, Rule::IntervalBucket];
    all.extend(others.map(|rule| settle_single(rule, Start::Aligned)).into_iter().flatten());
    all.extend([batch_single(), settle(StateKind::Plain), settle(StateKind::WithHolds)]);
    all
}

/// Replaces the lines that name parts by the parts, and those in the parts too.
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

/// Literal of a constant, by its name.
fn constant(name: &str) -> Option<&'static str> {
    let of_scripts = || {
        let mut lines = lua!("constants.lua").lines();
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(" = ")).map(str::trim_end)
    };
    layout::literal(name).or_else(of_scripts)
}

/// Replaces words by their meaning, and the words in that too. Comments stay as they are.
fn with_words(text: &str, meaning: impl Fn(&str) -> Option<&'static str>) -> String {
    let mut replaced = String::with_capacity(text.len());
    for line in text.lines() {
        if line.trim_start().starts_with("--") {
            replaced.push_str(line);
        } else {
            replace_words(line, &meaning, &mut replaced);
        }
        replaced.push('\n');
    }
    replaced
}

fn replace_words(
    text: &str,
    meaning: &impl Fn(&str) -> Option<&'static str>,
    replaced: &mut String,
) {
    let is_of_a_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut rest = text;
    while let Some(start) = rest.find(is_of_a_word) {
        let (between, from_word) = rest.split_at(start);
        let end = from_word.find(|c| !is_of_a_word(c)).unwrap_or(from_word.len());
        let (word, after) = from_word.split_at(end);
        replaced.push_str(between);
        match meaning(word) {
            Some(meant) => replace_words(meant, meaning, replaced),
            None => replaced.push_str(word),
        }
        rest = after;
    }
    replaced.push_str(rest);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_replaced_and_other_names_and_comments_are_left() {
        let own = [("KIND", "LOG"), ("FORM", "#value == INTERVAL_SIZE")];
        let body = "-- LOG\n  -- of RECORD\nif FORM and KIND == BUCKET then BUCKETS = RECORD end -- RECORD";
        let script = Script::new("test", "", body, &own);
        let lines: Vec<_> = script.code().lines().rev().take(3).collect();
        let code = "if #value == 29 and 0x94 == 0x96 then BUCKETS = 14 end -- 14";
        assert_eq!(lines, [code, "  -- of RECORD", "-- LOG"]);
    }

    #[test]
    fn parts_are_replaced_however_deep_they_are_named() {
        let meaning = |name: &str| match name {
            "outer" => Some("first\n  --> inner\n"),
            "inner" => Some("last"),
            _ => None,
        };
        assert_eq!(with_parts("do\n  --> outer\nend", &meaning), "do\n  first\n    last\nend\n");
    }

    #[test]
    fn no_word_and_no_part_is_left_in_any_script() {
        for script in all() {
            assert!(!script.code().contains("-->"), "{}", script.code());
            for line in script.code().lines().filter(|line| !line.trim_start().starts_with("--")) {
                let words = line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
                for word in words.filter(|word| word.len() > 1 && word.contains('_')) {
                    assert!(!word.chars().all(|c| c.is_ascii_uppercase() || c == '_'), "{line}");
                }
            }
        }
    }

    /// What calls without holds run does not depend on what is done for those with holds.
    #[test]
    fn only_scripts_that_lapse_know_holds_on_states() {
        for script in all() {
            let knows_holds = script.variant().starts_with("lapse");
            assert_eq!(script.code().contains("read_holds"), knows_holds, "{script:?}");
        }
    }

    #[test]
    fn a_number_that_both_sides_know_is_not_defined_a_second_time() {
        for line in lua!("constants.lua").lines() {
            let name = line.split(" = ").next().unwrap_or_default();
            assert_eq!(layout::literal(name), None, "{name}");
        }
    }

    #[test]
    fn each_script_has_a_name_and_variant_of_its_own() {
        let mut titles: Vec<_> =
            all().iter().map(|script| (script.name(), script.variant())).collect();
        titles.sort_unstable();
        assert!(titles.windows(2).all(|pair| pair[0] != pair[1]), "{titles:?}");
        assert!(titles.iter().all(|(name, _)| Script::NAMES.contains(name)), "{titles:?}");
    }
}
