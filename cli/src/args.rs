//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use tidegate::replay::Place;
use tidegate::suggest::Share;
use tidegate::trace::{By, Cost, Format, Order, TimeUnit};
use tidegate_core::Policy;

/// Rate limits, tried out on real traffic.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show what policies would have done to the requests of a log.
    Replay(Box<Replay>),
    /// Make up an access log of a day at a small shop: visitors, crawlers, and three kinds of
    /// trouble.
    Sample(Sample),
}

/// Reads access logs (common, combined), JSON lines, CSV and TSV, plain or packed with gzip or zstd.
/// The format is found by looking.
#[derive(Debug, Args)]
#[command(after_long_help = POLICIES)]
pub(crate) struct Replay {
    /// What to read; `-` is standard input.
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,

    /// A policy, such as `sliding-log 100/1m`; any number of times. Without one, six policies of
    /// one limit are compared.
    #[arg(short, long, value_name = "POLICY", value_parser = policy)]
    pub(crate) policy: Vec<Policy>,

    /// The limit at which policies are compared where none is given.
    #[arg(long, value_name = "COUNT/SPAN", default_value = "60/1m", conflicts_with = "policy")]
    pub(crate) limit: String,

    /// Who is limited: `ip`, `user`, `all` together, or a field's name. Without it, the address
    /// where there is one, else all together.
    #[arg(long, value_name = "WHO")]
    pub(crate) by: Option<By>,

    /// The field that names who is limited.
    #[arg(long, value_name = "FIELD", conflicts_with = "by")]
    pub(crate) subject: Option<String>,

    /// What a request costs: `1`, `bytes`, a field's name, or several that add up (`a+b`).
    #[arg(long, value_name = "FIELDS", default_value = "1")]
    pub(crate) cost: Cost,

    /// The field that holds the time.
    #[arg(long, value_name = "FIELD")]
    pub(crate) time: Option<String>,

    /// The unit of times that are plain numbers: `s`, `ms`, `us` or `ns`.
    #[arg(long, value_name = "UNIT")]
    pub(crate) time_unit: Option<TimeUnit>,

    /// The format, where looking finds another: `log`, `json`, `csv` or `tsv`.
    #[arg(long)]
    pub(crate) format: Option<Format>,

    /// `time`: in order of time, whatever the order of the lines. `file`: in order of the lines,
    /// with a clock that never steps back.
    #[arg(long, default_value = "time")]
    pub(crate) order: Order,

    /// Where states are kept: `memory`, the URL of a Redis, such as redis://127.0.0.1, or that of a
    /// Redis Cluster, such as redis-cluster://10.0.0.1:7000,10.0.0.2:7000. There they are under a prefix
    /// of their own, and taken away at the end; if that fails, the result stands, a warning names the
    /// prefix, and what is left expires by itself.
    #[arg(long, value_name = "STORE", default_value = "memory")]
    pub(crate) store: Place,

    /// Also find the smallest limit, per algorithm, under which this share of the subjects (in
    /// percent, such as 99.9) would never have been refused.
    #[arg(long, value_name = "PERCENT")]
    pub(crate) suggest: Option<Share>,

    /// The window of the limits to suggest.
    #[arg(long, value_name = "SPAN", default_value = "1m", requires = "suggest", value_parser = span)]
    pub(crate) window: Duration,

    /// Print JSON instead of a table.
    #[arg(long)]
    pub(crate) json: bool,

    /// Write a page with plots as well.
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,

    /// Write each decision as `1` or `0`, in the order of the replay; one line per policy where
    /// there are several.
    #[arg(long, value_name = "FILE")]
    pub(crate) decisions: Option<PathBuf>,

    /// End at the first malformed line, instead of counting it.
    #[arg(long)]
    pub(crate) strict: bool,
}

/// Written to standard output, in the combined format.
#[derive(Debug, Args)]
pub(crate) struct Sample {
    /// The same seed makes the same log, on every machine.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,

    /// How many lines. They fill a day, however many they are.
    #[arg(long, default_value_t = 20_000)]
    pub(crate) lines: u64,
}

const POLICIES: &str = "\
Policies:
  fixed-window 100/1m [anchored | phased]
  sliding-log 100/1m [grain 1s]
  sliding-counter 100/1m
  token-bucket 10/1s [burst 100] [by-interval]
  gcra 10/1s [burst 100]
Each may have a name in front (`login: sliding-log 5/15m`) and `block 15m` behind, which shuts a \
subject out for that long after a refusal. Spans are written 250ms, 90s, 1m, 1h30m, 7d.";

/// The one-line message of an error does not say where in the text it is; this does.
fn policy(text: &str) -> Result<Policy, String> {
    text.parse().map_err(|error| format!("{error:#}"))
}

/// A span, as the policy grammar reads it.
fn span(text: &str) -> Result<Duration, String> {
    tidegate_core::policy::parse_span(text).map_err(|error| error.to_string())
}

impl Replay {
    /// The policies to replay against.
    pub(crate) fn policies(&self) -> Result<Vec<Policy>, String> {
        if !self.policy.is_empty() {
            return Ok(self.policy.clone());
        }
        let limit = &self.limit;
        let parse = |text: String| {
            text.parse::<Policy>().map_err(|error| format!("--limit {limit}: {error:#}"))
        };
        // The same average rate, but only a sixth of it at once.
        let burst = (parse(format!("fixed-window {limit}"))?.limit() / 6).max(1);
        let compared = [
            format!("fixed-window {limit}"),
            format!("fixed-window {limit} anchored"),
            format!("sliding-log {limit}"),
            format!("sliding-counter {limit}"),
            format!("token-bucket {limit}"),
            format!("gcra {limit} burst {burst}"),
        ];
        compared.into_iter().map(parse).collect()
    }

    /// Who is limited.
    pub(crate) fn who(&self) -> By {
        match (&self.subject, &self.by) {
            (Some(field), _) => By::Field(field.clone()),
            (None, Some(by)) => by.clone(),
            (None, None) => By::Auto,
        }
    }
}
