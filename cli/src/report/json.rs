//! Writes the report as one JSON document, for machines.
//!
//! ```json
//! {
//!   "version": 1,
//!   "source": {
//!     "inputs": ["access.log"], "formats": ["combined"],
//!     "lines": 10, "malformed": 1, "without_subject": 0, "requests": 9, "cost": 9, "subjects": 2,
//!     "by": "ip", "cost_of": "1", "order": "time",
//!     "first_us": 1762128000000000, "last_us": 1762128009000000
//!   },
//!   "policies": [{
//!     "policy": "sliding-log 3/1m", "algorithm": "sliding-log",
//!     "admitted": 6, "denied": 3, "cost_admitted": 6, "cost_denied": 3,
//!     "never": 0, "subjects_denied": 1, "max_wait_us": 59000000,
//!     "offenders": [{"subject": "2001:db8::1", "requests": 6, "denied": 3}],
//!     "timeline": {"start_us": 1762128000000000, "step_us": 5000000,
//!                  "admitted": [4, 2], "denied": [1, 2]}
//!   }],
//!   "suggestions": [{
//!     "algorithm": "sliding-log", "policy": "sliding-log 6/1m", "limit": 6,
//!     "asked": "99.9", "subjects_content": 2, "subjects": 2
//!   }],
//!   "settling": {
//!     "late_cost_of": "output", "late_cost": 700, "pace": "50/1s", "estimate": 400, "cover": "9/10",
//!     "runs": [{
//!       "policy": "sliding-log 3000/1m", "limit": 3000, "way": "fixed",
//!       "admitted": 6, "denied": 3, "cost_admitted": 600, "cost_denied": 300,
//!       "overshoot": 0, "overshoot_of_overage": 0, "overage": 0, "falsely_denied": 1,
//!       "idle_cost_s": 95, "idle_cost": 11,
//!       "fill": {"start_us": 1762128000000000, "step_us": 5000000, "used": [410, 0], "idle": [300, 0]}
//!     }]
//!   },
//!   "slots": {
//!     "duration_of": "request_time", "peak_wanted": 12,
//!     "runs": [{
//!       "policy": "concurrent 10 lease 30s", "limit": 10,
//!       "admitted": 6, "denied": 3, "subjects_denied": 1, "peak": 10
//!     }]
//!   },
//!   "leased": {
//!     "nodes": 8, "seed": null, "span": "1s", "share": "1/200", "hot_after": 32, "sliding": false,
//!     "runs": [{
//!       "policy": "fixed-window 3000/1m",
//!       "admitted": 2990, "denied": 1010, "cost_admitted": 2990, "cost_denied": 1010,
//!       "denied_without": 1000, "denied_too_early": 12, "cost_denied_too_early": 12, "admitted_instead": 2,
//!       "from_chunks": 2100, "store_calls": 2400, "chunks": 300, "chunks_not_granted": 1,
//!       "granted": 2150, "given_back": 45, "stranded": 5
//!     }]
//!   }
//! }
//! ```
//!
//! * A value whose name ends in `_us` is in microseconds. Times count from 1970-01-01 00:00 UTC.
//!   `first_us` and `last_us` are `null` if there were no requests. `max_wait_us` is `null` if no
//!   denial had a wait.
//! * Numbers are integers of up to 64 bits. They are never rounded or written as floats. A reader
//!   that stores numbers as doubles loses the low bits of numbers above 2^53.
//! * `never` counts the denied requests whose cost is above the capacity of the policy.
//! * `offenders` is sorted, with the most denied subject first. The list is complete if its length
//!   is `subjects_denied`. `asked` is the share that was given to `--suggest`.
//! * A quota also has `days`, such as `[{"date": "2026-03-29", "admitted": 6, "denied": 3}]`. The
//!   dates are in the time zone of the quota. A day without requests is omitted.
//! * A quota with grants has `grants`, such as `{"amount": 500, "made": 2, "refused": 0}`. `amount`
//!   is the sum of all made grants.
//! * A fair pool has `shares`, such as `{"subjects": 2, "demand": 9, "admitted": 6, "windows": 1,
//!   "windows_refused": 1, "members": [{"subject": "acme", "demand": 8, "admitted": 5}]}`. `demand`
//!   and `admitted` are costs, and `windows_refused` counts the windows in which the pool refused a
//!   request. `members` is sorted by `demand`. It is complete if its length is `subjects`.
//! * A policy with `warn` has `warnings`, such as `{"requests": 12, "subjects": 3}`: the requests
//!   at which it warned, and their subjects.
//! * With `--pool`, a policy has `pool`, such as `{"policy": "pool: gcra 9/1s burst 9", "admitted":
//!   8, "cost_admitted": 8}`. The numbers `admitted` and `cost_admitted` of the policy include the
//!   requests that the pool admitted. If the pool is a fair pool, `pool` also has `shares`, whose
//!   `demand` is the cost of the requests that the policy refused.
//! * With `--limit-set-before`, a policy has `compared`: the numbers of subjects that are denied
//!   now and were not before (`subjects_new`), more often (`subjects_more`) and less often
//!   (`subjects_fewer`), and the list `subjects` with `requests`, `denied_before` and `denied`.
//! * `settling` exists if `--late-cost` is set. `way` is `check`, `fixed` or `learned`.
//!   `idle_cost_s` is in units of cost times seconds, and `idle_cost` is the average over time.
//! * `slots` exists if there are policies of slots. `peak_wanted` and `peak` are numbers of slots
//!   of one subject.
//! * `leased` exists if `--leased` is set. `seed` is `null` if the nodes get the requests in turn.
//!   `denied_too_early` counts requests that are denied with leases and admitted without leases.
//!   `admitted_instead` counts requests that are admitted with leases and denied without leases. So
//!   `admitted` of the policy is `admitted` of the run, plus `denied_too_early`, minus
//!   `admitted_instead`. `granted`, `given_back` and `stranded` are costs.
//! * Within a version, new fields can be added. Existing fields are never renamed or removed, and
//!   their meaning does not change.
//! * The document is one line of ASCII. Other characters are `\u` escapes, so that a subject cannot
//!   control a terminal that shows the document.

use std::io;

use serde::Serialize;
use serde_json::ser::Formatter;

use super::Report;

/// The version of the documents.
pub const VERSION: u32 = 1;

#[derive(Serialize)]
struct Document<'a> {
    version: u32,
    #[serde(flatten)]
    report: &'a Report,
}

/// Writes the report as one line of JSON.
///
/// # Errors
///
/// Returns the error of the writer. The error keeps its kind, so that the caller can detect a
/// broken pipe.
pub fn write(report: &Report, out: &mut impl io::Write) -> io::Result<()> {
    let document = Document { version: VERSION, report };
    let mut serializer = serde_json::Serializer::with_formatter(&mut *out, Ascii);
    document.serialize(&mut serializer)?;
    out.write_all(b"\n")
}

/// A formatter for compact JSON whose text is printable ASCII.
struct Ascii;

impl Formatter for Ascii {
    fn write_string_fragment<W: ?Sized + io::Write>(
        &mut self,
        out: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        let mut units = [0; 2];
        let mut plain = 0;
        for (at, c) in fragment.char_indices() {
            if matches!(c, ' '..='~') {
                continue;
            }
            out.write_all(&fragment.as_bytes()[plain..at])?;
            for unit in c.encode_utf16(&mut units) {
                write!(out, "\\u{unit:04x}")?;
            }
            plain = at + c.len_utf8();
        }
        out.write_all(&fragment.as_bytes()[plain..])
    }
}
