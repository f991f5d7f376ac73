//! What a replay found, and the ways to show it.
//!
//! A replay fills a [`Report`]; each writer shows the same one:
//!
//! * [`table`]: text for a terminal;
//! * [`json`]: one versioned document for machines;
//! * [`html`]: one self-contained page with plots.
//!
//! Subjects and file names are untrusted. Every writer makes what could steer
//! a terminal or a browser visible instead of passing it on (see [`escape`]).

pub mod escape;
pub mod html;
pub mod json;
mod leased;
pub mod number;
mod settling;
pub mod table;
pub mod time;

use serde::Serialize;

pub use leased::{LeasedReport, LeasedRun, Spread};
pub use settling::{Fill, SettlingReport, SettlingRun, Way};
pub use time::wait_text;

/// Everything a replay found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Where the records came from.
    pub source: Source,
    /// One entry per policy, in the order asked.
    pub policies: Vec<PolicyReport>,
    /// The answers to `--suggest`, if it was asked.
    pub suggestions: Vec<Suggestion>,
    /// What comes of costs that are known only when a request ends, if there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settling: Option<SettlingReport>,
    /// What leases would have done, if that was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leased: Option<LeasedReport>,
}

/// What was read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Source {
    /// The inputs, as named on the command line.
    pub inputs: Vec<String>,
    /// The formats found, such as `combined` or `csv`.
    pub formats: Vec<String>,
    /// Lines (records) read, whole or not.
    pub lines: u64,
    /// Lines that could not be read.
    pub malformed: u64,
    /// Lines whose subject is `-` or nothing: they are not replayed.
    pub without_subject: u64,
    /// Requests replayed.
    pub requests: u64,
    /// The sum of their costs.
    pub cost: u64,
    /// Distinct subjects.
    pub subjects: u64,
    /// What a subject is: `ip`, `user`, a field's name, or `all`.
    pub by: String,
    /// What a request costs: `1`, or the fields that add up.
    pub cost_of: String,
    /// `time` or `file`.
    pub order: String,
    /// Time of the first request, microseconds since 1970.
    #[serde(rename = "first_us")]
    pub first: Option<u64>,
    /// Time of the last.
    #[serde(rename = "last_us")]
    pub last: Option<u64>,
}

impl Source {
    /// The inputs in a few words: `access.log and 3 more`.
    #[must_use]
    pub fn title(&self) -> String {
        let name = |input: &str| match input {
            "-" => "standard input".to_owned(),
            path => path.to_owned(),
        };
        match self.inputs.as_slice() {
            [] => "nothing".to_owned(),
            [only] => name(only),
            [first, rest @ ..] => format!("{} and {} more", name(first), rest.len()),
        }
    }

    /// Whether requests cost something other than one each.
    #[must_use]
    pub fn has_costs(&self) -> bool {
        !matches!(self.cost_of.as_str(), "" | "1")
    }
}

/// What one policy would have done.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct PolicyReport {
    /// The policy as text, such as `sliding-log 60/1m`.
    pub policy: String,
    /// Its algorithm, such as `sliding-log`.
    pub algorithm: String,
    /// Requests admitted.
    pub admitted: u64,
    /// Requests denied.
    pub denied: u64,
    /// The cost of the requests admitted.
    pub cost_admitted: u64,
    /// The cost of the requests denied.
    pub cost_denied: u64,
    /// Requests whose cost is above the policy's capacity: they can never pass. They are among the
    /// denied.
    pub never: u64,
    /// Subjects denied at least once.
    pub subjects_denied: u64,
    /// The longest wait that a denial asked for, in microseconds (`None`: nothing was told to wait).
    #[serde(rename = "max_wait_us")]
    pub max_wait: Option<u64>,
    /// The most denied subjects, worst first. A list as long as `subjects_denied` is complete.
    pub offenders: Vec<Offender>,
    /// Requests over time.
    pub timeline: Timeline,
}

impl PolicyReport {
    /// Requests decided: the admitted and the denied.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.admitted.saturating_add(self.denied)
    }

    /// The cost of all requests decided.
    #[must_use]
    pub fn cost(&self) -> u64 {
        self.cost_admitted.saturating_add(self.cost_denied)
    }
}

/// A subject that was denied.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Offender {
    /// The subject as text; [`escape::printable`] makes it from bytes.
    pub subject: String,
    /// Its requests.
    pub requests: u64,
    /// How many of them were denied.
    pub denied: u64,
}

/// Admitted and denied requests in equal steps of time.
///
/// The policies of a report have the same start and step. Round steps (a minute, five, an hour)
/// look best; the page puts steps together where there are more than fit a phone.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Timeline {
    /// Start of the first step, microseconds since 1970.
    #[serde(rename = "start_us")]
    pub start: u64,
    /// Length of a step, microseconds.
    #[serde(rename = "step_us")]
    pub step: u64,
    /// Requests admitted in each step.
    pub admitted: Vec<u64>,
    /// Requests denied in each step.
    pub denied: Vec<u64>,
}

/// The smallest limit under which enough subjects would never have been refused.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Suggestion {
    /// The algorithm.
    pub algorithm: String,
    /// The policy as text.
    pub policy: String,
    /// The limit.
    pub limit: u64,
    /// The share asked for, as given (percent).
    pub asked: String,
    /// Subjects never refused under it.
    pub subjects_content: u64,
    /// All subjects.
    pub subjects: u64,
}
