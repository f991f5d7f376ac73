//! Generates the load with `wrk`.

use std::process::Command;

use super::Options;
use crate::Outcome;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sample {
    pub(super) per_second: u64,
    /// The median and the 99th percentile of the latencies, in nanoseconds.
    pub(super) p50: u64,
    pub(super) p99: u64,
}

/// The installed `wrk`.
#[derive(Debug)]
pub(super) struct Generator {
    pub(super) version: String,
}

impl Generator {
    pub(super) fn find() -> Outcome<Self> {
        let output = Command::new("wrk").arg("--version").output().map_err(|error| {
            format!(
                "cannot run `wrk`, which makes the load: {error}; install it \
                 (apt-get install wrk, brew install wrk, or https://github.com/wg/wrk)"
            )
        })?;
        let said = String::from_utf8_lossy(&output.stdout);
        let version = said.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
        Ok(Self { version })
    }

    pub(super) fn run(&self, port: u16, options: &Options) -> Outcome<Sample> {
        let Options { seconds, connections, .. } = options;
        let output = Command::new("wrk")
            .args(["--threads", "1", "--latency"])
            .args(["--connections", &connections.to_string()])
            .args(["--duration", &format!("{seconds}s")])
            .arg(format!("http://127.0.0.1:{port}/"))
            .output()?;
        let said = String::from_utf8_lossy(&output.stdout);
        read(&said).ok_or_else(|| format!("`wrk` said, instead of figures: {said}").into())
    }
}

/// Parses the output of `wrk`. Returns `None` if a figure is missing or a request failed.
fn read(said: &str) -> Option<Sample> {
    let value = |name: &str| {
        let line = said.lines().find_map(|line| line.trim().strip_prefix(name))?;
        line.split_whitespace().next()
    };
    if value("Non-2xx").or(value("Socket errors")).is_some() {
        return None;
    }
    let per_second = value("Requests/sec:")?.split('.').next()?.parse().ok()?;
    Some(Sample { per_second, p50: nanos(value("50%")?)?, p99: nanos(value("99%")?)? })
}

/// Returns the nanoseconds of a time such as `1.25ms`.
fn nanos(text: &str) -> Option<u64> {
    let units = [("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];
    let (number, unit) =
        units.into_iter().find_map(|(word, unit)| Some((text.strip_suffix(word)?, unit)))?;
    let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
    let digits = u32::try_from(part.len()).ok()?;
    let part: u64 = part.parse().ok()?;
    Some(whole.parse::<u64>().ok()? * unit + part * unit / 10_u64.checked_pow(digits)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "Running 1s test @ http://127.0.0.1:1/
  1 threads and 32 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency   316.22us  172.85us   4.52ms   94.08%
  Latency Distribution
     50%  285.00us
     75%  340.00us
     90%  413.00us
     99%    1.05ms
  101467 requests in 1.00s, 13.06MB read
Requests/sec: 101243.98
Transfer/sec:     13.03MB
";

    #[test]
    fn the_figures_are_read() {
        let sample = Sample { per_second: 101_243, p50: 285_000, p99: 1_050_000 };
        assert_eq!(read(SAID), Some(sample));
    }

    #[test]
    fn figures_of_requests_that_did_not_pass_are_none() {
        for problem in ["  Non-2xx or 3xx responses: 7\n", "  Socket errors: connect 0, read 3\n"] {
            assert_eq!(read(&format!("{SAID}{problem}")), None);
        }
        assert_eq!(read(""), None);
    }

    #[test]
    fn times_are_read_in_every_unit() {
        for (text, expected) in [("7us", 7_000), ("1.5ms", 1_500_000), ("2.00s", 2_000_000_000)] {
            assert_eq!(nanos(text), Some(expected), "{text}");
        }
        assert_eq!(nanos("1.5"), None);
    }
}
