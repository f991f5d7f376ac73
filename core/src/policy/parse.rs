//! The grammar of policies. Configuration files and the command line use this grammar.
//!
//! ```text
//! policy    = [ name ":" ] limit { option }
//! limit     = algorithm count "/" span | "concurrent" count "lease" span | "quota" count "/" unit
//!           | "credits" count
//! unit      = "day" | "week" | "month" | "year"
//! algorithm = "fixed-window" | "sliding-log" | "sliding-counter" | "token-bucket" | "gcra"
//!           | "fair-pool"
//! option    = "anchored" | "phased"            for fixed-window
//!           | "grain" span                     for sliding-log
//!           | "burst" count                    for token-bucket and gcra
//!           | "by-interval"                    for token-bucket
//!           | "weight" count                   for fair-pool
//!           | "in" zone                        for quota, such as Europe/Amsterdam
//!           | "from" weekday                   for quota per week, such as monday
//!           | "at" time                        for quota, such as 05:00
//!           | "anchored" date                  for quota, such as 2026-01-31T09:00
//!           | "rollover" share                 for quota
//!           | "since" date                     for quota, such as 2026-01-31T09:00
//!           | "block" span [ growth ] [ "restart" ] for all except fair-pool
//!           | "shadow"                         for all
//!           | "leased"                         for all except concurrent and fair-pool
//!           | "max-hold" share                 for all
//!           | "warn" percentage                for all, such as warn 80%
//!           | "refund-lapsed"                  for all except concurrent and fair-pool
//!           | "count-failures"                 for all except concurrent and fair-pool, without
//!                                              refund-lapsed
//!           | "max-open-holds" count           with refund-lapsed or count-failures
//!           | "shards" count                   for all except fair-pool
//!           | "by-subject" | "whole"           after shards
//! growth    = "x" factor "up" "to" span "forget" span
//! span      = { [ number ] unit }              such as 1m, 90s, 1h30m, 250ms; `s` is 1s
//! share     = count "/" count                  such as 1/4
//! percentage = count "%"                      such as 80%
//! count     = digits, with optional `_`        such as 1_000
//! ```

use std::ops::Range;
use std::str::FromStr;
use std::time::Duration;

use super::block::Block;
use super::closest::closest;
use super::error::{Part, PolicyError, shown};
use super::quota::{self, Quota};
use super::shards::Shards;
use super::share::Share;
use super::spec::{
    Algorithm, Concurrent, FairPool, FixedWindow, SlidingCounter, SlidingLog, TokenBucket,
};
use super::{Lapse, Policy, span};
use crate::algorithm::calendar::Unit;
use crate::algorithm::shape::Start;
use crate::time::MAX_EXACT;

const ALGORITHMS: [&str; 9] = [
    "fixed-window",
    "sliding-log",
    "sliding-counter",
    "token-bucket",
    "gcra",
    "concurrent",
    "quota",
    "credits",
    "fair-pool",
];

fn hint(word: &str) -> Option<String> {
    let letters: String =
        word.chars().filter(char::is_ascii_alphabetic).take(32).collect::<String>();
    let meant = match letters.to_ascii_lowercase().as_str() {
        "slidingwindow" | "sliding" => {
            "did you mean `sliding-log` (exact) or `sliding-counter` (two numbers)?"
        }
        "fixed" | "window" => "did you mean `fixed-window`?",
        "leaky" | "leakybucket" => "did you mean `gcra` (a leaky bucket that refuses)?",
        "token" | "bucket" | "tokens" => "did you mean `token-bucket`?",
        "log" => "did you mean `sliding-log`?",
        "counter" => "did you mean `sliding-counter`?",
        "pool" | "fair" | "fairshare" | "fairshares" => {
            "did you mean `fair-pool` (a limit that subjects share)?"
        }
        "slots" | "concurrency" | "semaphore" | "parallel" => {
            "did you mean `concurrent` (slots in use at a time)?"
        }
        _ if word.starts_with(|c: char| c.is_ascii_digit()) && word.contains('/') => {
            return Some(format!("write an algorithm before it: `sliding-log {}`.", shown(word)));
        }
        _ => {
            let known = closest(word, &ALGORITHMS)?;
            return Some(format!("did you mean `{known}`?"));
        }
    };
    Some(meant.to_owned())
}

impl FromStr for Policy {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Self, PolicyError> {
        Parser { text, at: 0, spans: Vec::new() }.policy()
    }
}

struct Word<'t> {
    text: &'t str,
    span: Range<usize>,
}

impl Word<'_> {
    fn shown(&self) -> String {
        shown(self.text)
    }
}

struct Parser<'t> {
    text: &'t str,
    at: usize,
    /// The positions of the numbers and of the name in the text. An error about a number or about
    /// the name marks its position.
    spans: Vec<(Part, Range<usize>)>,
}

impl<'t> Parser<'t> {
    fn policy(mut self) -> Result<Policy, PolicyError> {
        let all = 0..self.text.trim_end().len();
        let name = self.name()?;
        let keyword = self.expect("an algorithm, such as `sliding-log`")?;
        let mut algorithm = self.algorithm(&keyword)?;
        let (mut block, mut shards, mut max_hold) = (None, None, None);
        let (mut lapse, mut max_open_holds) = (Lapse::Stays, None);
        let (mut leased, mut shadow, mut warn) = (false, false, None);
        let mut seen: Vec<&str> = Vec::new();
        while let Some(word) = self.next() {
            if seen.contains(&word.text) {
                return Err(self.error(&word, format!("`{}` is given twice", word.shown())));
            }
            seen.push(word.text);
            match word.text {
                "leased" | "refund-lapsed" | "count-failures" | "max-open-holds"
                    if matches!(algorithm, Algorithm::Concurrent(_)) =>
                {
                    return Err(self.unknown_option(&algorithm, &word));
                }
                "block" | "leased" | "refund-lapsed" | "count-failures" | "max-open-holds"
                | "shards" | "by-subject" | "whole"
                    if matches!(algorithm, Algorithm::FairPool(_)) =>
                {
                    return Err(self.unknown_option(&algorithm, &word));
                }
                "block" => block = Some(self.block()?),
                "shadow" => shadow = true,
                "leased" => leased = true,
                "refund-lapsed" | "count-failures" if lapse != Lapse::Stays => {
                    let message = "`refund-lapsed` and `count-failures` exclude each other";
                    return Err(self.error(&word, message.to_owned()));
                }
                "refund-lapsed" => lapse = Lapse::Refunds,
                "count-failures" => lapse = Lapse::IsFailure,
                "max-open-holds" => {
                    let expected = "a number after `max-open-holds`";
                    max_open_holds = Some(self.count(Part::MaxOpenHolds, expected)?);
                }
                "max-hold" => max_hold = Some(self.max_hold()?),
                "warn" => warn = Some(self.percentage()?),
                "shards" => {
                    shards =
                        Some(Shards::any(self.count(Part::Shards, "a number after `shards`")?));
                }
                "by-subject" | "whole" => shards = Some(self.kind_of_shards(&word, shards)?),
                _ => algorithm = self.option(algorithm, &word)?,
            }
        }
        let build = || {
            let mut policy = match &name {
                Some(word) => Policy::new(word.text, algorithm)?,
                None => Policy::unnamed(algorithm)?,
            };
            if let Some(block) = block {
                policy = policy.block_with(block)?;
            }
            if let Some(shards) = shards {
                policy = policy.sharded(shards)?;
            }
            if let Some(share) = max_hold {
                policy = policy.max_hold_of(share)?;
            }
            if let Some(percent) = warn {
                policy = policy.warn_at(percent)?;
            }
            match lapse {
                Lapse::Stays => {}
                Lapse::Refunds => policy = policy.refund_lapsed(),
                Lapse::IsFailure => policy = policy.count_failures(),
            }
            if let Some(count) = max_open_holds {
                policy = policy.max_open_holds_of(count)?;
            }
            if leased {
                policy = policy.leased();
            }
            Ok(if shadow { policy.shadow() } else { policy })
        };
        build().map_err(|error: PolicyError| {
            let span = self.spans.iter().find(|(part, _)| *part == error.part());
            error.at(self.text, span.map_or(all, |(_, span)| span.clone()))
        })
    }

    /// Returns the text before the first colon as the name. Returns `None` if there is no colon.
    fn name(&mut self) -> Result<Option<Word<'t>>, PolicyError> {
        let Some(colon) = self.text.find(':') else {
            return Ok(None);
        };
        // The times of a quota contain colons too.
        let rest = self.text.trim_start().strip_prefix("quota").unwrap_or_default();
        if rest.starts_with(char::is_whitespace) && !rest.trim_start().starts_with(':') {
            return Ok(None);
        }
        let head = &self.text[..colon];
        let start = colon - head.trim_start().len();
        let name = Word { text: head.trim(), span: start..start + head.trim().len() };
        if name.text.is_empty() {
            let mark = Word { text: ":", span: colon..colon + 1 };
            return Err(self.error(&mark, "there is no name before the colon".into()));
        }
        self.at = colon + 1;
        self.spans.push((Part::Name, name.span.clone()));
        Ok(Some(name))
    }

    fn algorithm(&mut self, keyword: &Word<'t>) -> Result<Algorithm, PolicyError> {
        if !ALGORITHMS.contains(&keyword.text) {
            let hint = hint(keyword.text).map_or(". ".to_owned(), |hint| format!("; {hint} "));
            let shown = keyword.shown();
            return Err(self.error(
                keyword,
                format!(
                    "`{shown}` is not an algorithm{hint}There are fixed-window, sliding-log, \
                     sliding-counter, token-bucket, gcra, concurrent, quota, credits and fair-pool"
                ),
            ));
        }
        if keyword.text == "concurrent" {
            return Ok(self.slots()?.into());
        }
        if keyword.text == "quota" {
            return Ok(self.quota()?.into());
        }
        if keyword.text == "credits" {
            let word = self.expect("a number after `credits`")?;
            return Ok(Quota::credits(self.number(&word)?).into());
        }
        let (count, period) = self.rate()?;
        Ok(match keyword.text {
            "fixed-window" => FixedWindow::new(count, period).into(),
            "sliding-log" => SlidingLog::new(count, period).into(),
            "sliding-counter" => SlidingCounter::new(count, period).into(),
            "fair-pool" => FairPool::new(count, period).into(),
            "token-bucket" => TokenBucket::new(count, period).into(),
            _ => TokenBucket::gcra(count, period).into(),
        })
    }

    /// Reads the number of slots, the word `lease` and the lease.
    fn slots(&mut self) -> Result<Concurrent, PolicyError> {
        let word = self.expect_part(Part::Slots, "a number of slots, such as `10`")?;
        let count = self.number(&word)?;
        self.keyword("lease", "`lease` and a span of time, such as `lease 30s`")?;
        let lease = self.span(Part::Lease, "a span of time after `lease`, such as `30s`")?;
        Ok(Concurrent::new(count, lease))
    }

    /// Reads the count and the unit of a quota. The time zone follows as an option.
    fn quota(&mut self) -> Result<Quota, PolicyError> {
        let (count, unit) = self.count_per("day, week, month or year", "1000/month")?;
        let count = self.number(&count)?;
        match Unit::ALL.into_iter().find(|known| known.keyword() == unit.text) {
            Some(unit) => Ok(Quota::new(count, unit, "")),
            None => {
                let shown = unit.shown();
                let message = format!(
                    "`{shown}` is not a unit of the calendar; a quota is per day, week, month or \
                     year, and a `fixed-window` is for any span, such as `1h`"
                );
                Err(self.error(&unit, message))
            }
        }
    }

    fn option(&mut self, algorithm: Algorithm, word: &Word<'t>) -> Result<Algorithm, PolicyError> {
        Ok(match (algorithm, word.text) {
            (Algorithm::Quota(spec), _) if spec.is_credits() => {
                return Err(self.unknown_option(&Algorithm::Quota(spec), word));
            }
            (Algorithm::FixedWindow(spec), "phased") if spec.start == Start::Aligned => {
                spec.phased().into()
            }
            (Algorithm::FixedWindow(spec), "anchored") if spec.start == Start::Aligned => {
                spec.anchored().into()
            }
            (Algorithm::SlidingLog(spec), "grain") => {
                let expected = "a span of time after `grain`, such as `1s`";
                let word = self.expect_part(Part::Grain, expected)?;
                spec.grain(self.duration(&word)?).into()
            }
            (Algorithm::TokenBucket(spec), "burst") => {
                let word = self.expect_part(Part::Burst, "a number after `burst`")?;
                spec.burst(self.number(&word)?).into()
            }
            (Algorithm::TokenBucket(spec), "by-interval") if !spec.is_gcra() => {
                spec.by_interval().into()
            }
            (Algorithm::FairPool(spec), "weight") => {
                let word = self.expect_part(Part::Weight, "a number after `weight`")?;
                spec.weight(self.number(&word)?).into()
            }
            (Algorithm::Quota(spec), "in") => {
                let expected = "a time zone after `in`, such as `Europe/Amsterdam`";
                let zone = self.expect_part(Part::Zone, expected)?.text.to_owned();
                Quota { zone, ..*spec }.into()
            }
            (Algorithm::Quota(spec), "from") => {
                let first_day =
                    self.read(Part::Whole, "a day of the week", "monday", quota::parse_weekday)?;
                Quota { first_day: Some(first_day), ..*spec }.into()
            }
            (Algorithm::Quota(spec), "at") => {
                let time = self.read(Part::Whole, "a time of day", "05:00", quota::parse_time)?;
                spec.at(time).into()
            }
            (Algorithm::Quota(spec), "anchored") => {
                let example = "2026-01-31T09:00";
                let anchor = self.read(Part::Anchor, "a date", example, quota::parse_anchor)?;
                spec.anchored(anchor).into()
            }
            (Algorithm::Quota(spec), "rollover") => {
                let share =
                    self.read(Part::Rollover, "a share", "1/2", |text| text.parse().ok())?;
                spec.rollover(share).into()
            }
            (Algorithm::Quota(spec), "since") => {
                let example = "2026-01-31T09:00";
                let since = self.read(Part::Since, "a date", example, quota::parse_anchor)?;
                spec.since(since).into()
            }
            (algorithm, _) => return Err(self.unknown_option(&algorithm, word)),
        })
    }

    /// Reads the next word with `parse`, which returns `None` if the word is not `what`.
    fn read<T>(
        &mut self,
        part: Part,
        what: &str,
        example: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<T, PolicyError> {
        let word = self.expect_part(part, &format!("{what}, such as `{example}`"))?;
        parse(word.text).ok_or_else(|| {
            let shown = word.shown();
            self.error(&word, format!("`{shown}` is not {what}, such as `{example}`"))
        })
    }

    fn unknown_option(&self, algorithm: &Algorithm, word: &Word<'t>) -> PolicyError {
        let own: &[&str] = match algorithm {
            Algorithm::FixedWindow(_) => &["anchored", "phased"],
            Algorithm::SlidingLog(_) => &["grain"],
            Algorithm::SlidingCounter(_) => &[],
            Algorithm::TokenBucket(bucket) if bucket.is_gcra() => &["burst"],
            Algorithm::TokenBucket(_) => &["burst", "by-interval"],
            Algorithm::Concurrent(_) => &[],
            Algorithm::FairPool(_) => &["weight"],
            Algorithm::Quota(spec) if spec.is_credits() => &[],
            Algorithm::Quota(_) => &["in", "from", "at", "anchored", "rollover", "since"],
        };
        let rate_options: &[&str] = match algorithm {
            Algorithm::Concurrent(_) | Algorithm::FairPool(_) => &[],
            _ => &["refund-lapsed", "count-failures", "max-open-holds", "leased"],
        };
        let state_options: &[&str] = match algorithm {
            Algorithm::FairPool(_) => &[],
            _ => &["block", "shards"],
        };
        let known: Vec<&str> =
            [own, state_options, &["max-hold", "warn"], rate_options, &["shadow"]].concat();
        let hint = closest(word.text, &known)
            .filter(|known| *known != word.text)
            .map_or(String::new(), |known| format!(", did you mean `{known}`?"));
        let exclusive = if own.contains(&word.text) {
            "`anchored` and `phased` exclude each other".to_owned()
        } else {
            format!(
                "`{}` is not an option of {}{hint}; it takes {}",
                word.shown(),
                algorithm.keyword(),
                known.join(", "),
            )
        };
        self.error(word, exclusive)
    }

    fn rate(&mut self) -> Result<(u64, Duration), PolicyError> {
        let (count, period) = self.count_per("span", "100/1m")?;
        Ok((self.number(&count)?, self.duration(&period)?))
    }

    /// Reads a count, a slash and a `unit`, such as the `example`.
    fn count_per(
        &mut self,
        unit: &str,
        example: &str,
    ) -> Result<(Word<'t>, Word<'t>), PolicyError> {
        let word = self.expect_part(Part::Rate, &format!("a rate, such as `{example}`"))?;
        let Some(slash) = word.text.find('/') else {
            return Err(self.error(
                &word,
                format!(
                    "`{}` is not a rate; write a count, a slash and a {unit}: `{example}`",
                    word.shown()
                ),
            ));
        };
        let (count, period) = (&word.text[..slash], &word.text[slash + 1..]);
        let middle = word.span.start + slash;
        let count_word = Word { text: count, span: word.span.start..middle };
        let period_word = Word { text: period, span: middle + 1..word.span.end };
        if period.is_empty() {
            return Err(self.error(
                &word,
                format!("`{}` has no {unit} after the slash; write `{example}`", word.shown()),
            ));
        }
        Ok((count_word, period_word))
    }

    /// Reads a number of 32 bits. A larger number becomes `u32::MAX`. It exceeds the maximum of
    /// `part`, so the policy is then refused with an error about `part`.
    fn count(&mut self, part: Part, expected: &str) -> Result<u32, PolicyError> {
        let word = self.expect_part(part, expected)?;
        Ok(u32::try_from(self.number(&word)?).unwrap_or(u32::MAX))
    }

    /// Reads the length of a block, its growth and `restart`.
    fn block(&mut self) -> Result<Block, PolicyError> {
        let span = self.span(Part::Block, "a span of time after `block`, such as `15m`")?;
        let mut block = Block::new(span);
        let is_factor = |word: &str| {
            word.strip_prefix('x')
                .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        };
        if let Some(word) = self.next_if(is_factor) {
            let digits = Word { text: &word.text[1..], span: word.span.start + 1..word.span.end };
            let factor = u32::try_from(self.number(&digits)?).unwrap_or(u32::MAX);
            self.spans.push((Part::BlockFactor, word.span));
            self.keyword("up", "`up to` and a span of time after the factor, such as `up to 1d`")?;
            self.keyword("to", "`to` after `up`, such as `up to 1d`")?;
            let up_to = self.span(Part::BlockMax, "a span of time after `up to`, such as `1d`")?;
            let expected = "`forget` and a span of time after `up to`, such as `forget 7d`";
            self.keyword("forget", expected)?;
            let expected = "a span of time after `forget`, such as `7d`";
            block = block.growing(factor, up_to, self.span(Part::BlockForget, expected)?);
        }
        let restarts = self.next_if(|word| word == "restart").is_some();
        Ok(if restarts { block.restarting() } else { block })
    }

    fn kind_of_shards(
        &self,
        word: &Word<'_>,
        shards: Option<Shards>,
    ) -> Result<Shards, PolicyError> {
        let kind = match word.text {
            "whole" => Shards::whole,
            _ => Shards::by_subject,
        };
        match shards {
            Some(shards) if shards == Shards::any(shards.count()) => Ok(kind(shards.count())),
            Some(_) => {
                Err(self.error(word, "`by-subject` and `whole` exclude each other".to_owned()))
            }
            None => Err(self.error(
                word,
                format!("`{0}` must follow a number of shards: `shards 8 {0}`", word.text),
            )),
        }
    }

    fn max_hold(&mut self) -> Result<Share, PolicyError> {
        let expected = "a share of the limit after `max-hold`, such as `1/4`";
        let word = self.expect_part(Part::MaxHold, expected)?;
        word.text.parse().map_err(|error: PolicyError| self.error(&word, error.to_string()))
    }

    /// Reads a percentage, whose sign can be a word of its own. A larger number becomes 255, which
    /// is above the maximum.
    fn percentage(&mut self) -> Result<u8, PolicyError> {
        let word = self.expect_part(Part::Warn, "a percentage after `warn`, such as `80%`")?;
        let digits = word.text.strip_suffix('%');
        if digits.is_none() && self.next_if(|word| word == "%").is_none() {
            let shown = word.shown();
            return Err(self.error(&word, format!("`{shown}` is not a percentage, such as `80%`")));
        }
        let text = digits.unwrap_or(word.text);
        let number = Word { text, span: word.span.start..word.span.start + text.len() };
        Ok(u8::try_from(self.number(&number)?).unwrap_or(u8::MAX))
    }

    fn number(&self, word: &Word<'t>) -> Result<u64, PolicyError> {
        let digits: String = word.text.chars().filter(|&c| c != '_').collect();
        let is_number = word.text.starts_with(|c: char| c.is_ascii_digit())
            && digits.bytes().all(|b| b.is_ascii_digit());
        if !is_number {
            let what = if word.text.is_empty() {
                "there is no number here".to_owned()
            } else {
                format!("`{}` is not a whole number", word.shown())
            };
            return Err(self.error(word, format!("{what}; write 100 or 1_000")));
        }
        digits.parse().ok().filter(|&number| number <= MAX_EXACT).ok_or_else(|| {
            let number = word.shown();
            self.error(
                word,
                format!("the number is {number}; it must be at most 2^52 = {MAX_EXACT}"),
            )
        })
    }

    fn duration(&self, word: &Word<'t>) -> Result<Duration, PolicyError> {
        span::parse(word.text).map_err(|message| self.error(word, message))
    }

    fn span(&mut self, part: Part, expected: &str) -> Result<Duration, PolicyError> {
        let word = self.expect_part(part, expected)?;
        self.duration(&word)
    }

    fn keyword(&mut self, keyword: &str, expected: &str) -> Result<(), PolicyError> {
        let word = self.expect(expected)?;
        if word.text == keyword {
            return Ok(());
        }
        let shown = word.shown();
        Err(self.error(&word, format!("`{shown}` is not `{keyword}`; there must be {expected}")))
    }

    /// Reads the next word, and stores its position as the position of `part`. Returns an error if
    /// there is no further word.
    fn expect_part(&mut self, part: Part, expected: &str) -> Result<Word<'t>, PolicyError> {
        let word = self.expect(expected)?;
        self.spans.push((part, word.span.clone()));
        Ok(word)
    }

    fn expect(&mut self, expected: &str) -> Result<Word<'t>, PolicyError> {
        let end = self.text.trim_end().len();
        self.next().ok_or_else(|| {
            let nothing = Word { text: "", span: end..end };
            self.error(&nothing, format!("there must be {expected}"))
        })
    }

    fn next(&mut self) -> Option<Word<'t>> {
        let rest = &self.text[self.at..];
        let start = self.at + (rest.len() - rest.trim_start().len());
        let rest = &self.text[start..];
        let end = start + rest.find(char::is_whitespace).unwrap_or(rest.len());
        self.at = end;
        (start < end).then(|| Word { text: &self.text[start..end], span: start..end })
    }

    /// Reads the next word if `is_expected` returns `true` for it.
    fn next_if(&mut self, is_expected: impl FnOnce(&str) -> bool) -> Option<Word<'t>> {
        let at = self.at;
        let word = self.next().filter(|word| is_expected(word.text));
        if word.is_none() {
            self.at = at;
        }
        word
    }

    fn error(&self, word: &Word<'_>, message: String) -> PolicyError {
        PolicyError::new(message).at(self.text, word.span.clone())
    }
}
