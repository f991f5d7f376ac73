//! Prints the windows of quotas.
//!
//! ```sh
//! echo 'quota 1/month anchored 2026-01-31T09:00 in Europe/Amsterdam' |
//!     cargo run --quiet --package tidegate-core --example windows 1767225600 1798761600
//! ```
//!
//! The arguments are two times in seconds since 1970. The program reads one policy per line, and
//! prints one line per policy: the ends of all windows that end between these times, in seconds.
//! For a policy that is not valid or not a quota, the line begins with `error:`.

use std::io::{BufWriter, Error, ErrorKind, Write, stdin, stdout};

use tidegate_core::Policy;
use tidegate_core::engine::Rule;

const SECOND: u64 = 1_000_000;

fn main() -> Result<(), Error> {
    let times: Vec<u64> = std::env::args().skip(1).filter_map(|time| time.parse().ok()).collect();
    let &[from, to] = &times[..] else {
        let message = "the arguments must be two times in seconds since 1970";
        return Err(Error::new(ErrorKind::InvalidInput, message));
    };
    let mut out = BufWriter::new(stdout().lock());
    for line in stdin().lines() {
        match ends(&line?, from, to) {
            Ok(ends) => writeln!(out, "{}", ends.join(" "))?,
            Err(error) => writeln!(out, "error: {error}")?,
        }
    }
    out.flush()
}

fn ends(policy: &str, from: u64, to: u64) -> Result<Vec<String>, String> {
    let policy: Policy = policy.parse().map_err(|error| format!("{error}"))?;
    let Rule::Quota(quota) = policy.rule() else {
        return Err(format!("`{policy}` is not a quota"));
    };
    let mut ends = vec![];
    let mut now = from.saturating_mul(SECOND);
    loop {
        now = quota.window_at(now).end;
        if now > to.saturating_mul(SECOND) {
            return Ok(ends);
        }
        ends.push((now / SECOND).to_string());
    }
}
