//! The report of a replay, and the formats of the report.
//!
//! A replay fills a [`Report`]. Each writer writes the whole report:
//!
//! * [`table`]: text for a terminal;
//! * [`json`]: one versioned document for machines;
//! * [`html`]: one self-contained page with plots.
//!
//! Subjects and file names are untrusted. Every writer replaces characters that control a terminal
//! or a browser (see [`escape`]).

pub mod escape;
pub mod html;
pub mod json;
mod leased;
pub mod number;
mod settling;
mod slots;
pub mod table;
pub mod time;

use serde::Serialize;

pub use leased::{LeasedReport, LeasedRun, Spread};
pub use settling::{Fill, SettlingReport, SettlingRun, Way};
pub use slots::{SlotsReport, SlotsRun};
pub use time::wait_text;

/// The result of a replay.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The source of the records.
    pub source: Source,
    /// The report of each policy, in the order of the command line.
    pub policies: Vec<PolicyReport>,
    /// The suggestions, if `--suggest` is set.
    pub suggestions: Vec<Suggestion>,
    /// The report about late costs, if there are late costs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settling: Option<SettlingReport>,
    /// The report about slots, if there are policies of slots.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots: Option<SlotsReport>,
    /// The report about leases, if `--leased` is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leased: Option<LeasedReport>,
}

/// The input of a replay.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Source {
    /// The names of the inputs on the command line.
    pub inputs: Vec<String>,
    /// The detected formats, such as `combined` or `csv`.
    pub formats: Vec<String>,
    /// The number of lines (records), including malformed lines.
    pub lines: u64,
    /// The number of malformed lines.
    pub malformed: u64,
    /// The number of lines whose subject is `-` or empty. They are not replayed.
    pub without_subject: u64,
    /// The number of replayed requests.
    pub requests: u64,
    /// The sum of the costs of the replayed requests.
    pub cost: u64,
    /// The number of different subjects.
    pub subjects: u64,
    /// The subject: `ip`, `user`, the name of a field, or `all`.
    pub by: String,
    /// The cost of a request as text: `1`, or the names of fields joined by `+`.
    pub cost_of: String,
    /// `time` or `file`.
    pub order: String,
    /// The time of the first request, in microseconds since 1970.
    #[serde(rename = "first_us")]
    pub first: Option<u64>,
    /// The time of the last request, in microseconds since 1970.
    #[serde(rename = "last_us")]
    pub last: Option<u64>,
}

impl Source {
    /// Returns a short name of the inputs, such as `access.log and 3 more`.
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

    /// Returns `true` if a request can have a cost other than 1.
    #[must_use]
    pub fn has_costs(&self) -> bool {
        !matches!(self.cost_of.as_str(), "" | "1")
    }
}

/// The report of one policy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct PolicyReport {
    /// The policy as text, such as `sliding-log 60/1m`.
    pub policy: String,
    /// The algorithm of the policy, such as `sliding-log`.
    pub algorithm: String,
    /// The number of admitted requests.
    pub admitted: u64,
    /// The number of denied requests.
    pub denied: u64,
    /// The cost of the admitted requests.
    pub cost_admitted: u64,
    /// The cost of the denied requests.
    pub cost_denied: u64,
    /// The number of requests whose cost is above the capacity of the policy, so that the policy
    /// always denies them. `denied` includes these requests.
    pub never: u64,
    /// The number of subjects that were denied at least once.
    pub subjects_denied: u64,
    /// The longest wait after a denial, in microseconds, or `None` if no denial had a wait.
    #[serde(rename = "max_wait_us")]
    pub max_wait: Option<u64>,
    /// The most denied subjects, with the most denied subject first. The list is complete if its
    /// length is `subjects_denied`.
    pub offenders: Vec<Offender>,
    /// The requests over time.
    pub timeline: Timeline,
    /// The days with requests, in the time zone of a quota. Empty for other policies.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub days: Vec<Day>,
    /// The shares of the members of a fair pool, or `None` for other policies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shares: Option<SharesReport>,
    /// The grants to a quota or credits, or `None` if there were none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grants: Option<GrantsReport>,
    /// The warnings of the policy, or `None` if the policy never warns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warnings: Option<WarningsReport>,
    /// The pool, or `None` if there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<PoolReport>,
    /// The comparison with an earlier limit set, or `None` if there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compared: Option<ComparedReport>,
}

/// The shares of the members of a fair pool. The subjects of the log are its members.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct SharesReport {
    /// The number of members.
    pub subjects: u64,
    /// The cost of all requests.
    pub demand: u64,
    /// The cost that the pool admitted.
    pub admitted: u64,
    /// The number of windows with requests.
    pub windows: u64,
    /// The number of windows in which the pool refused a request.
    pub windows_refused: u64,
    /// The members with the largest demands, with the largest demand first. The list is complete if
    /// its length is `subjects`.
    pub members: Vec<Member>,
}

/// A member of a fair pool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Member {
    /// The subject as text, as [`escape::printable`] returns it.
    pub subject: String,
    /// The cost of all requests of the subject.
    pub demand: u64,
    /// The cost that the pool admitted for the subject.
    pub admitted: u64,
}

impl SharesReport {
    /// Returns the sums of all members that are not in the list, or `None` if the list is complete.
    #[must_use]
    pub fn others(&self) -> Option<Member> {
        let count = self.subjects.saturating_sub(self.members.len() as u64);
        let rest = |all: u64, part: fn(&Member) -> u64| {
            self.members.iter().map(part).fold(all, u64::saturating_sub)
        };
        (count > 0).then(|| Member {
            subject: number::counted(count, "other", "others"),
            demand: rest(self.demand, |member| member.demand),
            admitted: rest(self.admitted, |member| member.admitted),
        })
    }
}

/// The comparison of a policy with an earlier limit set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ComparedReport {
    /// The number of subjects that are denied now and were never denied before.
    pub subjects_new: u64,
    /// The number of subjects that are denied more often than before.
    pub subjects_more: u64,
    /// The number of subjects that are denied less often than before.
    pub subjects_fewer: u64,
    /// The number of requests that were denied before.
    pub denied_before: u64,
    /// The subjects that are denied more often, with the largest increase first. The list is
    /// complete if its length is `subjects_more`.
    pub subjects: Vec<ComparedSubject>,
}

/// A subject that is denied more often than before.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ComparedSubject {
    /// The subject as text, as [`escape::printable`] returns it.
    pub subject: String,
    /// The number of requests of the subject.
    pub requests: u64,
    /// The number of requests that were denied before.
    pub denied_before: u64,
    /// The number of requests that are denied now.
    pub denied: u64,
}

/// The requests that a policy refused and the pool paid for. The numbers of the policy include
/// them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct PoolReport {
    /// The policy of the pool as text.
    pub policy: String,
    /// The number of requests that the pool admitted.
    pub admitted: u64,
    /// The cost of these requests.
    pub cost_admitted: u64,
    /// The shares of the members of a fair pool, or `None` for other policies. The demand of a
    /// member is the cost of the requests that the policy refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shares: Option<SharesReport>,
}

impl PolicyReport {
    /// Returns the shares of the policy and of its pool. A text names the fair pool.
    pub(crate) fn all_shares(&self) -> impl Iterator<Item = (String, &SharesReport)> {
        let own = self.shares.iter().map(|shares| (self.policy.clone(), shares));
        let pool = self.pool.iter().filter_map(|pool| {
            let name = format!("{}, after {}", pool.policy, self.policy);
            Some((name, pool.shares.as_ref()?))
        });
        own.chain(pool)
    }
}

/// The requests at which a policy [warned](tidegate_core::Policy::warn_at).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct WarningsReport {
    /// The number of requests at which the policy warned, admitted or denied.
    pub requests: u64,
    /// The number of subjects of these requests.
    pub subjects: u64,
}

/// The grants that topped up a quota or credits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct GrantsReport {
    /// The sum of the amounts of all made grants.
    pub amount: u64,
    /// The number of made grants.
    pub made: u64,
    /// The number of grants that the store refused, because the subject had 16 open grants or
    /// because their sum would have been above 2^52.
    pub refused: u64,
}

/// The requests of one day.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Day {
    /// The date, such as `2026-03-29`.
    pub date: String,
    /// The number of admitted requests.
    pub admitted: u64,
    /// The number of denied requests.
    pub denied: u64,
}

impl Day {
    /// Returns the number of requests.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.admitted.saturating_add(self.denied)
    }
}

impl PolicyReport {
    /// Returns the number of decided requests.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.admitted.saturating_add(self.denied)
    }

    /// Returns the cost of all decided requests.
    #[must_use]
    pub fn cost(&self) -> u64 {
        self.cost_admitted.saturating_add(self.cost_denied)
    }
}

/// A subject that was denied.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Offender {
    /// The subject as text, as [`escape::printable`] returns it.
    pub subject: String,
    /// The number of requests of the subject.
    pub requests: u64,
    /// The number of denied requests of the subject.
    pub denied: u64,
}

/// The admitted and denied requests, in equal steps of time.
///
/// All policies of a report have the same start and the same length of a step. Lengths such as a
/// minute, five minutes or an hour look best. The page joins steps if there are too many steps for
/// a phone.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Timeline {
    /// The start of the first step, in microseconds since 1970.
    #[serde(rename = "start_us")]
    pub start: u64,
    /// The length of a step, in microseconds.
    #[serde(rename = "step_us")]
    pub step: u64,
    /// The number of admitted requests in each step.
    pub admitted: Vec<u64>,
    /// The number of denied requests in each step.
    pub denied: Vec<u64>,
}

/// The smallest limit that would have admitted all requests of at least a given share of the
/// subjects.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Suggestion {
    /// The algorithm.
    pub algorithm: String,
    /// The policy as text.
    pub policy: String,
    /// The limit.
    pub limit: u64,
    /// The share of the subjects that was given to `--suggest`, in percent.
    pub asked: String,
    /// The number of subjects that this limit would never have refused.
    pub subjects_content: u64,
    /// The number of all subjects.
    pub subjects: u64,
}
