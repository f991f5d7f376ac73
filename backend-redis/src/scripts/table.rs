//! The table of all scripts. A row contains an entry (the first file of a script), flags for
//! `@when`, and the texts of placeholders.

use std::sync::OnceLock;

use tidegate_core::algorithm::fixed_window::Start;

use super::assemble::{Meaning, assemble};
use super::{RecordKind, Rule, Script, StateKind};

/// A form in which a state is stored. Each form has its own scripts for calls of one charge.
#[derive(Debug, Clone, Copy)]
enum Form {
    AlignedWindow,
    PhasedWindow,
    AnchoredWindow,
    LogString,
    LogList,
    Counter,
    Bucket,
    Interval,
    Calendar,
    Pool,
}

impl Form {
    const ALL: [Self; 10] = [
        Self::AlignedWindow,
        Self::PhasedWindow,
        Self::AnchoredWindow,
        Self::LogString,
        Self::LogList,
        Self::Counter,
        Self::Bucket,
        Self::Interval,
        Self::Calendar,
        Self::Pool,
    ];

    /// Returns the columns of the table: the rule, the variant, the flag, VALUE_KIND and
    /// VALUE_SIZE. The rule is also the name of the script and of the file in `rules`. The flag
    /// selects the commands that read and write the form.
    #[rustfmt::skip]
    const fn row(self) -> [&'static str; 5] {
        match self {
            Self::AlignedWindow => ["fixed_window", "aligned", "string", "FIXED_ALIGNED", "WINDOW_SIZE"],
            Self::PhasedWindow => ["fixed_window", "phased", "string", "FIXED_PHASED", "WINDOW_SIZE"],
            Self::AnchoredWindow => ["fixed_window", "anchored", "string", "FIXED_ANCHORED", "WINDOW_SIZE"],
            Self::LogString => ["sliding_log", "", "log_string", "LOG", "LOG_END"],
            Self::LogList => ["sliding_log", "list", "log_list", "LOG", "LOG_END"],
            Self::Counter => ["sliding_counter", "", "string", "COUNTER", "COUNTER_SIZE"],
            Self::Bucket => ["token_bucket", "", "string", "BUCKET", "BUCKET_SIZE"],
            Self::Interval => ["interval_bucket", "", "string", "INTERVAL", "INTERVAL_SIZE"],
            Self::Calendar => ["quota", "", "string", "CALENDAR", "CALENDAR_SIZE"],
            Self::Pool => ["fair_pool", "", "pool", "POOL", "POOL_HEAD"],
        }
    }

    /// Returns `None` for slots, because their scripts know the holds on states.
    const fn new(rule: Rule, start: Start, is_list: bool) -> Option<Self> {
        Some(match (rule, start) {
            (Rule::FixedWindow, Start::Aligned) => Self::AlignedWindow,
            (Rule::FixedWindow, Start::Phased) => Self::PhasedWindow,
            // `numbers` returns only aligned, phased and anchored starts, so this start is
            // anchored.
            (Rule::FixedWindow, _) => Self::AnchoredWindow,
            (Rule::SlidingLog, _) if is_list => Self::LogList,
            (Rule::SlidingLog, _) => Self::LogString,
            (Rule::SlidingCounter, _) => Self::Counter,
            (Rule::TokenBucket, _) => Self::Bucket,
            (Rule::IntervalBucket, _) => Self::Interval,
            (Rule::Quota, _) => Self::Calendar,
            (Rule::FairPool, _) => Self::Pool,
            (Rule::Concurrent, _) => return None,
        })
    }

    const fn has_settle_single(self) -> bool {
        !matches!(self, Self::LogString | Self::LogList | Self::Pool)
    }
}

impl RecordKind {
    const ALL: [Self; 3] = [Self::None, Self::Id, Self::Hold];

    /// Returns the entry of a script that writes a record of the kind `self`, and the flag of the
    /// kind. The flag is also a part of the variant. The entries `id` and `hold` wrap the entry
    /// `body`.
    const fn entry_and_flag(self, body: &'static str) -> (&'static str, &'static str) {
        match self {
            Self::None => (body, ""),
            Self::Id => ("id", "id"),
            Self::Hold => ("hold", "hold"),
        }
    }
}

impl StateKind {
    const ALL: [Self; 2] = [Self::Plain, Self::WithHolds];

    /// Returns the flag, the part of the variant, and the meanings of the placeholders STATE_HOLDS
    /// and REFUNDS_LAPSED. STATE_HOLDS is the foot of a state with holds (the fixed-size end of its
    /// value), or `false`. REFUNDS_LAPSED is the condition that the policy of a charge refunds
    /// lapsed holds.
    const fn row(self) -> (&'static str, &'static str, [Meaning<'static>; 2]) {
        let (flag, variant, state_holds, refunds_lapsed) = match self {
            Self::Plain => ("plain", "", "false", "false"),
            Self::WithHolds => ("lapse", "lapse", "feet_by_key[key]", "max_open_holds(place) > 0"),
        };
        (flag, variant, [("STATE_HOLDS", state_holds), ("REFUNDS_LAPSED", refunds_lapsed)])
    }
}

type Slot = OnceLock<Script>;

/// Returns the script that acquires or peeks a single charge. It is the fastest script. For slots,
/// there is no such script.
#[must_use]
pub fn single(
    rule: Rule,
    start: Start,
    is_list: bool,
    record: RecordKind,
) -> Option<&'static Script> {
    Form::new(rule, start, is_list).map(|form| single_of(form, record))
}

fn single_of(form: Form, record: RecordKind) -> &'static Script {
    static SLOTS: [[Slot; 3]; Form::ALL.len()] =
        [const { [const { Slot::new() }; 3] }; Form::ALL.len()];
    SLOTS[form as usize][record as usize].get_or_init(|| {
        let (entry, flag) = record.entry_and_flag("single");
        one_charge(form, entry, flag, &["plain", flag])
    })
}

/// Returns the script that settles or extends a hold of a single charge. Returns `None` for a log,
/// for slots and for a fair pool, because [`settle`] returns the script for holds on these states.
#[must_use]
pub fn settle_single(rule: Rule, start: Start) -> Option<&'static Script> {
    Form::new(rule, start, false).and_then(settle_single_of)
}

fn settle_single_of(form: Form) -> Option<&'static Script> {
    static SLOTS: [Slot; Form::ALL.len()] = [const { Slot::new() }; Form::ALL.len()];
    form.has_settle_single().then(|| {
        SLOTS[form as usize].get_or_init(|| one_charge(form, "settle_single", "settle", &["plain"]))
    })
}

fn one_charge(form: Form, entry: &str, last: &str, flags: &[&str]) -> Script {
    let [rule, variant, storage, kind, size] = form.row();
    let (file, code) = (format!("rules/{rule}"), rule.to_uppercase());
    let own = [
        ("RULE", &file[..]),
        ("BODY", "single"),
        ("RULE_CODE", &code[..]),
        ("VALUE_KIND", kind),
        ("VALUE_SIZE", size),
    ];
    let (_, _, states) = StateKind::Plain.row();
    let code = assemble(entry, &[flags, &[storage, rule]].concat(), &[&own[..], &states].concat());
    Script::new(rule, &[variant, last], code)
}

/// Returns the script that decides any calls and batches: calls with several charges, with any
/// operation, and several calls in a batch.
#[must_use]
pub fn batch(record: RecordKind, states: StateKind) -> &'static Script {
    static SLOTS: [[Slot; 3]; 2] = [const { [const { Slot::new() }; 3] }; 2];
    SLOTS[states as usize][record as usize].get_or_init(|| {
        let (entry, flag) = record.entry_and_flag("batch");
        any_charges(states, entry, flag)
    })
}

/// Returns the script that settles or extends any hold.
#[must_use]
pub fn settle(states: StateKind) -> &'static Script {
    static SLOTS: [Slot; 2] = [const { Slot::new() }; 2];
    SLOTS[states as usize].get_or_init(|| any_charges(states, "settle", "settle"))
}

fn any_charges(states: StateKind, entry: &str, last: &str) -> Script {
    let (states, variant, own) = states.row();
    let code =
        assemble(entry, &["general", states, last], &[&[("BODY", "batch")], &own[..]].concat());
    Script::new("batch", &[variant, last], code)
}

#[must_use]
pub fn batch_single() -> &'static Script {
    static SLOT: Slot = Slot::new();
    SLOT.get_or_init(|| Script::new("batch", &["single"], assemble("usual", &[], &[])))
}

#[must_use]
pub fn all() -> Vec<&'static Script> {
    let mut all = vec![];
    for record in RecordKind::ALL {
        all.extend(Form::ALL.map(|form| single_of(form, record)));
        all.extend(StateKind::ALL.map(|states| batch(record, states)));
    }
    all.extend(Form::ALL.into_iter().filter_map(settle_single_of));
    all.push(batch_single());
    all.extend(StateKind::ALL.map(settle));
    all
}
