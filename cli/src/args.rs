//! The command line.

use std::env::{self, VarError};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use tidegate::plan::memory::Names;
use tidegate::plan::{Wanted, units};
use tidegate::replay::{Place, without_login};
use tidegate::suggest::Share;
use tidegate::trace::{By, Cost, Format, Order, Pattern, TimeUnit};
use tidegate_core::Policy;

/// The environment variable with the password of the store.
const STORE_PASSWORD: &str = "TIDEGATE_STORE_PASSWORD";

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
    /// Work out what so many subjects take in Redis: memory, nodes, CPU, with the arithmetic.
    Plan(Plan),
}

/// Reads the logs of web servers, proxies and load balancers, JSON, CSV and TSV, plain or packed with
/// gzip or zstd. The format of each file is found by its first lines.
#[derive(Debug, Args)]
#[command(after_long_help = FORMATS_AND_POLICIES)]
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

    /// What a subject is: `ip` (the client's address, without port), `user`, `all` (all requests
    /// together), or the name of a field, such as `forwarded` for the `X-Forwarded-For` at the end of a
    /// line of nginx. Without it, the client's address. Requests that have `-` or nothing there are
    /// counted and left out.
    #[arg(long, value_name = "WHAT")]
    pub(crate) by: Option<By>,

    /// The field that is the subject: as --by, for a field that is called `ip`, `user` or `all`.
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

    /// The format, if it is detected wrongly: `log`, `json`, `csv`, `tsv`, `w3c`, `alb`, `elb`,
    /// `haproxy`, `envoy` or `logfmt`.
    #[arg(long)]
    pub(crate) format: Option<Format>,

    /// What the lines look like, if they are in no known format: a regular expression whose named groups
    /// are the fields. `time` is the time, `ip` or `subject` (or another, with --by) the subject, and
    /// `cost`, if there is such a group, the cost.
    #[arg(long, value_name = "REGEX", conflicts_with = "format")]
    pub(crate) pattern: Option<Pattern>,

    /// `time`: in order of time, whatever the order of the lines. `file`: in order of the lines,
    /// with a clock that never steps back.
    #[arg(long, default_value = "time")]
    pub(crate) order: Order,

    /// Where states are kept: `memory`, the URL of a Redis, such as redis://127.0.0.1, that of a Sentinel
    /// group, such as redis-sentinel://10.0.0.1,10.0.0.2#name, or that of a Redis Cluster, such as
    /// redis-cluster://10.0.0.1:7000,10.0.0.2:7000. There they are under a prefix
    /// of their own, and taken away at the end, also after Ctrl-C; if that fails, the result stands, a warning names the
    /// prefix, and what is left expires by itself. A password is better given in the environment
    /// variable TIDEGATE_STORE_PASSWORD than in the URL, where others see it.
    // Read after the command line is: what refuses a value there repeats it, with the password.
    #[arg(long, value_name = "STORE", default_value = "memory")]
    store: String,

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

    /// End at the first malformed line, instead of counting it. Without it, the exit code is 1 only if
    /// half of all lines or more are malformed.
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

/// The figures are measured ones: docs/scale.md says on what, and how far they hold.
#[derive(Debug, Args)]
#[command(after_long_help = PLANS)]
pub(crate) struct Plan {
    /// Subjects that have a state at one time: those with a request within as long as a key lives,
    /// which is told for each policy.
    #[arg(long, value_name = "COUNT", value_parser = subjects)]
    subjects: u64,

    /// A policy that each request is charged to; any number of times.
    #[arg(short, long, required = true, value_name = "POLICY", value_parser = policy)]
    policy: Vec<Policy>,

    /// Requests, of all subjects together: `500k/s`, `20M/m`, `100/h`.
    #[arg(long, value_name = "COUNT/UNIT", value_parser = units::rate_per_hour)]
    rate: u64,

    /// The memory of a node.
    #[arg(long, value_name = "BYTES", default_value = "16GiB", value_parser = node_memory)]
    node_memory: u64,

    /// Requests per second that a node decides on at most, if you have measured it.
    #[arg(long, value_name = "COUNT", value_parser = node_decisions)]
    node_decisions: Option<u64>,

    /// Replicas of each primary.
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u8).range(0..=9))]
    replicas: u8,

    /// The length of a subject.
    #[arg(long, value_name = "COUNT", default_value_t = 20, value_parser = clap::value_parser!(u32).range(0..=1_048_576))]
    subject_bytes: u32,

    /// The length of a tenant; 0 for none.
    #[arg(long, value_name = "COUNT", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=1_048_576))]
    tenant_bytes: u32,

    /// The prefix of the keys.
    #[arg(long, default_value = "tidegate")]
    prefix: String,

    /// Records in the log of a subject, for sliding logs; else full ones are planned for.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    log_records: Option<u64>,
}

impl Plan {
    /// What is to be planned for.
    pub(crate) fn wanted(&self) -> Wanted {
        let len = |bytes: u32| usize::try_from(bytes).unwrap_or(usize::MAX);
        Wanted {
            policies: self.policy.clone(),
            subjects: self.subjects,
            rate_per_hour: self.rate,
            node_memory: self.node_memory,
            node_decisions: self.node_decisions,
            replicas: self.replicas.into(),
            names: Names {
                prefix: self.prefix.clone(),
                tenant_bytes: len(self.tenant_bytes),
                subject_bytes: len(self.subject_bytes),
            },
            log_records: self.log_records,
        }
    }
}

fn subjects(text: &str) -> Result<u64, String> {
    at_least(units::count(text)?, 1, "subjects; there is at least 1")
}

fn node_memory(text: &str) -> Result<u64, String> {
    at_least(units::bytes(text)?, 64 << 20, "bytes are too few for a Redis; at least 64MiB")
}

fn node_decisions(text: &str) -> Result<u64, String> {
    at_least(units::count(text)?, 1, "decisions a second; a node makes at least 1")
}

fn at_least(number: u64, least: u64, or_else: &str) -> Result<u64, String> {
    if number < least { Err(format!("{number} {or_else}")) } else { Ok(number) }
}

const PLANS: &str = "\
Examples:
  tidegate plan --subjects 100M --policy 'api: token-bucket 10/1s burst 20' --rate 500k/s
  tidegate plan --subjects 1B --rate 2M/s --node-memory 64GiB --replicas 2 --tenant-bytes 8 \
--policy 'second: token-bucket 10/1s' --policy 'day: sliding-counter 10000/1d'
  tidegate plan --subjects 5M --rate 20k/s --policy 'login: sliding-log 100/1h' --log-records 4";

const FORMATS_AND_POLICIES: &str = "\
Formats:
  log      common and combined, of Apache, nginx, Traefik and others, with other words in front
  json     one object a line, objects over several lines, or an array, also as `{\"Records\":[…]}`; \
with the names of Caddy, Traefik, Envoy, HAProxy, GCP, Cloudflare, Azure, AWS CloudTrail, WAF and API Gateway, and others
  csv, tsv with a header
  w3c      IIS, CloudFront
  alb, elb load balancers of AWS
  haproxy  option httplog, option tcplog
  envoy    the default format, and that of Istio
  logfmt   key=value
Each may be in lines of syslog (RFC 3164 and 5424), Docker (json-file, compose) or Kubernetes (CRI), \
and in UTF-16 with a byte-order mark. Of anything else, --pattern says what the lines look like:
  --pattern '^(?<time>\\S+) \\S+ (?<ip>\\S+) .* cost=(?<cost>\\d+)'

Policies:
  fixed-window 100/1m [anchored | phased]
  sliding-log 100/1m [grain 1s]
  sliding-counter 100/1m
  token-bucket 10/1s [burst 100] [by-interval]
  gcra 10/1s [burst 100]
Each may have a name in front (`login: sliding-log 5/15m`) and `block 15m` behind, which shuts a \
subject out for that long after a refusal; `shards 8` [by-subject | whole] spreads it over as many \
slots of a cluster. Spans are written 250ms, 90s, 1m, 1h30m, 7d.";

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

    /// Where the states are to be kept.
    pub(crate) fn place(&self) -> Result<Place, String> {
        let password = match env::var(STORE_PASSWORD) {
            Ok(password) => Some(password),
            Err(VarError::NotPresent) => None,
            Err(VarError::NotUnicode(_)) => {
                return Err(format!("{STORE_PASSWORD} is not valid UTF-8"));
            }
        };
        let password = password.as_deref().filter(|password| !password.is_empty());
        Place::parse(&self.store, password)
            .map_err(|error| format!("--store {}: {error}", without_login(&self.store)))
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
