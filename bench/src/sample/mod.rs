//! Generates a plausible access log to replay: one day of a small shop, in the combined format.
//!
//! The log has ordinary visitors, crawlers, an office behind one address, programs that use the
//! API, and three incidents: a scraper, a viral link and a password guesser. All addresses are
//! reserved for documentation (RFC 5737, RFC 3849).
//!
//! `samples/shop.log.zst` is such a log.

mod clients;
mod incidents;
mod random;
mod request;
mod site;
#[cfg(test)]
mod tests;

use std::io::{self, BufWriter, ErrorKind, Write};

use crate::Outcome;
use random::Random;
use request::Request;

/// The maximum number of lines. The program keeps all lines in memory to sort them.
const MAX_LINES: u64 = 5_000_000;

const DAY: u64 = 24 * 3600 * 1000;

/// The start of the day: 2 March 2026, in seconds since 1970.
const START: i64 = 1_772_409_600;

#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Options {
    /// Seed. The same seed generates the same log on every machine.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Number of lines. The log covers one day, regardless of this number.
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(..=MAX_LINES))]
    pub(crate) lines: u64,
}

pub(crate) fn print(options: &Options) -> Outcome<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    match write(options, &mut out).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// A function that adds the requests of one visit or incident.
type Make = fn(&mut Random, &mut Vec<Request>);

/// The sources of lines, each with its share in thousandths.
const PARTS: &[(u64, Make)] = &[
    (500, clients::visitor),
    (100, clients::crawler),
    (80, clients::office),
    (90, clients::program),
    (110, incidents::scraper),
    (80, incidents::viral_link),
    (40, incidents::password_guesser),
];

pub(crate) fn write(options: &Options, to: &mut impl Write) -> io::Result<()> {
    let Options { seed, lines } = *options;
    let mut random = Random::new(seed);
    let mut requests = Vec::new();
    let mut thousandths = 0;
    for &(share, make) in PARTS {
        thousandths += share;
        // The cumulative share is rounded instead of each share, so that the log has exactly
        // `lines` lines.
        let wanted = usize::try_from(lines * thousandths / 1000).unwrap_or(usize::MAX);
        while requests.len() < wanted {
            make(&mut random, &mut requests);
        }
        requests.truncate(wanted);
    }
    for request in &mut requests {
        // A request that would be on the next day is moved to the morning of this day.
        request.at %= DAY;
    }
    // The log is in the order in which requests end, although each line has the time when its
    // request began.
    requests.sort_by_key(Request::end);
    requests.iter().try_for_each(|request| request.write(to))
}
