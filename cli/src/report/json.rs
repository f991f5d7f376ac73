//! One JSON document, for machines.
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
//! * What ends in `_us` is in microseconds; a moment counts from 1970-01-01 00:00 UTC. `first_us`,
//!   `last_us` and `max_wait_us` are `null` where there is none.
//! * Numbers are integers of up to 64 bits. None is rounded, and none is written as a float: a
//!   reader that keeps numbers as doubles loses the low bits of those above 2^53.
//! * `never` counts the denied requests that no wait would let pass. `offenders` is worst first,
//!   and complete if it is as long as `subjects_denied`. `asked` is text, as it was given.
//! * `settling` is there if a late cost was given. `way` is `check`, `fixed` or `learned`. `idle_cost_s` is
//!   in units of cost times seconds, and `idle_cost` the average over time.
//! * `leased` is there if `--leased` was given. `seed` is `null` if requests were spread in turn. `denied_too_early` counts
//!   requests that are admitted without leases, and `admitted_instead` those that are denied without them, so `admitted` of
//!   the policy is that of the run, plus the former, less the latter. `granted`, `given_back` and `stranded` are costs.
//! * Within a version, fields are added but never renamed, removed, or given another meaning.
//! * The document is one line of ASCII: other characters are `\u` escapes, so that no subject can
//!   steer a terminal that the document is printed on.

use std::io;

use serde::Serialize;
use serde_json::ser::Formatter;

use super::Report;

/// The version that documents carry.
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
/// The writer's, with its kind kept: a broken pipe is still one.
pub fn write(report: &Report, out: &mut impl io::Write) -> io::Result<()> {
    let document = Document { version: VERSION, report };
    let mut serializer = serde_json::Serializer::with_formatter(&mut *out, Ascii);
    document.serialize(&mut serializer)?;
    out.write_all(b"\n")
}

/// Compact JSON in which all text is printable ASCII.
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
