//! Generates a plausible access log to replay.
//!
//! A day of a small shop, in the combined format: ordinary visitors, crawlers, an office behind one
//! address, programs that use the API, and three incidents: a scraper that copies the catalogue, a viral
//! link, and a password guesser. All addresses are from the ranges reserved for documentation (RFC 5737,
//! RFC 3849).
//!
//! ```
//! use tidegate::sample::{Options, write};
//!
//! let mut log = Vec::new();
//! write(&Options { lines: 100, ..Options::default() }, &mut log)?;
//! assert_eq!(log.iter().filter(|&&byte| byte == b'\n').count(), 100);
//! # Ok::<(), std::io::Error>(())
//! ```

mod clients;
mod incidents;
pub(crate) mod random;
mod request;
mod site;

use std::io::{self, ErrorKind, Write};

use random::Random;
use request::Request;

/// Maximum number of lines: all of them are in memory until they are sorted.
pub const LINES_MAX: u64 = 5_000_000;

/// A day, in milliseconds.
const DAY: u64 = 24 * 3600 * 1000;

/// Options of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The same seed gives the same log, on every machine.
    pub seed: u64,
    /// How many lines, at most [`LINES_MAX`]. They fill a day, however many they are.
    pub lines: u64,
    /// When the day begins, in seconds since 1970.
    pub start: u64,
}

impl Default for Options {
    /// 20,000 lines, of the 2nd of March 2026.
    fn default() -> Self {
        Self { seed: 1, lines: 20_000, start: 1_772_409_600 }
    }
}

/// Generates the requests of one visit or incident.
type Make = fn(&mut Random, &mut Vec<Request>);

/// Sources of lines, and the share of each in thousandths.
const PARTS: &[(u64, Make)] = &[
    (500, clients::visitor),
    (100, clients::crawler),
    (80, clients::office),
    (90, clients::program),
    (110, incidents::scraper),
    (80, incidents::viral_link),
    (40, incidents::password_guesser),
];

/// Writes a log.
///
/// # Errors
///
/// When the options are out of bounds, or the log cannot be written.
pub fn write(options: &Options, to: &mut impl Write) -> io::Result<()> {
    let Options { seed, lines, start } = *options;
    if lines > LINES_MAX {
        let message = format!("{lines} lines are too many for a sample: at most {LINES_MAX}");
        return Err(io::Error::new(ErrorKind::InvalidInput, message));
    }
    let mut random = Random::new(seed);
    let mut requests = Vec::new();
    let mut in_thousand = 0;
    for &(share, make) in PARTS {
        in_thousand += share;
        // Rounded on the sum, so that all parts together are as many as were asked for.
        let wanted = usize::try_from(lines * in_thousand / 1000).unwrap_or(usize::MAX);
        while requests.len() < wanted {
            make(&mut random, &mut requests);
        }
        requests.truncate(wanted);
    }
    for request in &mut requests {
        // What would reach into the next day is from this morning instead.
        request.at %= DAY;
    }
    // A server writes a line when the request is done, with the time when it came.
    requests.sort_by_key(Request::done);
    requests.iter().try_for_each(|request| request.write(start, to))
}
