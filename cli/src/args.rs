//! The command line.

use std::env::{self, VarError};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use tidegate::plan::memory::Names;
use tidegate::plan::{Wanted, units};
use tidegate::replay::{Backend, LeaseSpan, Leasing, Pace, Settling, without_login};
use tidegate::suggest::Share;
use tidegate::trace::{self, By, Cost, Format, Order, Pattern, TimeUnit};
use tidegate_core::Policy;

/// The environment variable with the password of the store.
const STORE_PASSWORD: &str = "TIDEGATE_STORE_PASSWORD";

/// Tests rate limits on real traffic.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Replay a log against policies, and show which requests they would have refused.
    Replay(Box<Replay>),
    /// Generate an access log of one day at a small shop: visitors, crawlers, and three kinds of
    /// abuse.
    Sample(Sample),
    /// Calculate the memory, nodes and CPU that a number of subjects takes in Redis.
    Plan(Plan),
    /// Print the Lua scripts that a Redis server gets, as they are sent.
    Scripts(Scripts),
}

/// Reads the logs of web servers, proxies and load balancers, JSON, CSV and TSV, plain or packed with
/// gzip or zstd. The format of each file is detected from its first lines.
#[derive(Debug, Args)]
#[command(after_long_help = FORMATS_AND_POLICIES)]
pub(crate) struct Replay {
    /// The files to read; `-` is standard input.
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,

    /// A policy, such as `sliding-log 100/1m`; may be repeated. Without one, six policies with the
    /// same limit are compared.
    #[arg(short, long, value_name = "POLICY", value_parser = policy)]
    pub(crate) policy: Vec<Policy>,

    /// The limit of the compared policies, if no policy is given.
    #[arg(long, value_name = "COUNT/SPAN", default_value = "60/1m", conflicts_with = "policy")]
    pub(crate) limit: String,

    /// The subject: `ip` (the client's address, without port), `user`, `all` (all requests
    /// together), or the name of a field, such as `forwarded` for the `X-Forwarded-For` at the end of a
    /// line of nginx. Default: the client's address. Requests without a subject (`-` or empty) are
    /// counted and left out.
    #[arg(long, value_name = "WHAT")]
    pub(crate) by: Option<By>,

    /// The field that is the subject. As --by, for a field named `ip`, `user` or `all`.
    #[arg(long, value_name = "FIELD", conflicts_with = "by")]
    pub(crate) subject: Option<String>,

    /// The cost of a request: `1`, `bytes`, a field's name, or a sum of them (`a+b`). A line with a
    /// field that is not a number is malformed and left out; only `-` for a number of bytes is 0.
    #[arg(long, value_name = "FIELDS", default_value = "1")]
    pub(crate) cost: Cost,

    /// The part of the cost that is known only when a request ends, such as the tokens of an answer: a field,
    /// or a sum of them. --cost is the other part (default: 0). The policies decide as if all had been known;
    /// besides, each is replayed in three ways: `check` admits while anything is left and charges at the end;
    /// `fixed` and `learned` hold an estimate and settle it at the end. Reported are the overshoot, what was
    /// denied falsely, and what was held idle. At most 2^32 - 1 for a request; replayed in memory.
    #[arg(long, value_name = "FIELDS", value_parser = late_cost)]
    pub(crate) late_cost: Option<LateCost>,

    /// The fixed estimate of the late cost, such as the `max_tokens` of a model, and the maximum of the learned
    /// one. Default: the maximum late cost of all requests, so that it is never too low.
    #[arg(long, value_name = "COUNT", requires = "late_cost", value_parser = clap::value_parser!(u64).range(..=trace::COST_MAX))]
    pub(crate) estimate: Option<u64>,

    /// How fast the late cost of a request comes, as the log does not say when requests end.
    #[arg(long, value_name = "COUNT/SPAN", default_value = "50/1s", requires = "late_cost")]
    pub(crate) pace: Pace,

    /// The share of the requests whose late cost the learned estimate is to cover.
    #[arg(long, value_name = "SHARE", default_value = "9/10", requires = "late_cost")]
    pub(crate) cover: tidegate_core::Share,

    /// Also replay on several nodes that admit hot subjects from leases (`.leased(..)`), around one store that answers at
    /// once, and report what they deny too early, and how often they call the store. Replayed in memory.
    #[arg(long)]
    leased: bool,

    /// The number of nodes with leases.
    #[arg(long, value_name = "COUNT", default_value_t = 8, requires = "leased", value_parser = clap::value_parser!(u16).range(1..=1_000))]
    nodes: u16,

    /// Spread the requests over the nodes at random, by this seed. Default: one after another in turn.
    #[arg(long, requires = "leased")]
    seed: Option<u64>,

    /// How long a node may use what it has leased: 1ms to 1h.
    #[arg(long, value_name = "SPAN", default_value = "1s", requires = "leased")]
    lease_span: LeaseSpan,

    /// The maximum share of what remains that a node leases at a time.
    #[arg(long, value_name = "SHARE", default_value = "1/200", requires = "leased")]
    lease_share: tidegate_core::Share,

    /// How many requests of a subject a node has to admit within a span before it leases.
    #[arg(long, value_name = "COUNT", default_value_t = 32, requires = "leased", value_parser = clap::value_parser!(u32).range(1..))]
    lease_hot_after: u32,

    /// Lease sliding logs and counters too, which then admit in a window less a span what they admit in a window.
    #[arg(long, requires = "leased")]
    lease_sliding: bool,

    /// The field that holds the time.
    #[arg(long, value_name = "FIELD")]
    pub(crate) time: Option<String>,

    /// The unit of times that are plain numbers: `s`, `ms`, `us` or `ns`.
    #[arg(long, value_name = "UNIT", value_enum, hide_possible_values = true)]
    pub(crate) time_unit: Option<TimeUnit>,

    /// The format, if it is detected wrongly: `log`, `json`, `csv`, `tsv`, `w3c`, `alb`, `elb`,
    /// `haproxy`, `envoy` or `logfmt`.
    #[arg(long, value_enum, hide_possible_values = true)]
    pub(crate) format: Option<Format>,

    /// The format of a line as a regular expression, if no known format fits. Its named groups are the
    /// fields: `time` is the time, `ip` or `subject` (or another, with --by) the subject, and `cost`, if
    /// there is such a group, the cost.
    #[arg(long, value_name = "REGEX", conflicts_with = "format")]
    pub(crate) pattern: Option<Pattern>,

    /// The order of the replay. `time`: by time, whatever the order of the lines. `file`: by line, with
    /// a clock that never steps back.
    #[arg(long, value_enum, default_value = "time", hide_possible_values = true)]
    pub(crate) order: Order,

    /// The store of the states: `memory`, or the URL of a Redis (redis://127.0.0.1), of a Sentinel group
    /// (redis-sentinel://10.0.0.1,10.0.0.2#name) or of a Redis Cluster
    /// (redis-cluster://10.0.0.1:7000,10.0.0.2:7000). On a server, keys have a prefix of their own and are
    /// deleted at the end, also after Ctrl-C; if that fails, a warning names the prefix, and the keys expire
    /// by themselves. Set the password in the environment variable TIDEGATE_STORE_PASSWORD: in the URL,
    /// other users of the machine can see it.
    // Parsed after the command line: clap's error for an invalid value would print the password.
    #[arg(long, value_name = "STORE", default_value = "memory")]
    store: String,

    /// Also find the smallest limit, per algorithm, under which this percentage of the subjects (such
    /// as 99.9) would never have been refused.
    #[arg(long, value_name = "PERCENT")]
    pub(crate) suggest: Option<Share>,

    /// The window of the suggested limits.
    #[arg(long, value_name = "SPAN", default_value = "1m", requires = "suggest", value_parser = span)]
    pub(crate) window: Duration,

    /// Print JSON instead of a table.
    #[arg(long)]
    pub(crate) json: bool,

    /// Also write an HTML page with plots.
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,

    /// Write each decision as `1` (admitted) or `0`, in the order of the replay; one line per policy if
    /// there are several.
    #[arg(long, value_name = "FILE")]
    pub(crate) decisions: Option<PathBuf>,

    /// End at the first malformed line. Otherwise malformed lines are counted, and the exit code is 1 if
    /// they are half of all lines or more.
    #[arg(long)]
    pub(crate) strict: bool,
}

/// Writes to standard output, in the combined format.
#[derive(Debug, Args)]
pub(crate) struct Sample {
    /// The seed. The same seed generates the same log, on every machine.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,

    /// The number of lines, spread over one day.
    #[arg(long, default_value_t = 20_000)]
    pub(crate) lines: u64,
}

/// The arithmetic is based on measurements: docs/scale.md has their conditions and limits.
#[derive(Debug, Args)]
#[command(after_long_help = PLANS)]
pub(crate) struct Plan {
    /// The number of subjects that have a state at one time: those with a request within the lifetime of
    /// a key, which is printed for each policy.
    #[arg(long, value_name = "COUNT", value_parser = subjects)]
    subjects: u64,

    /// A policy that each request is charged to; may be repeated.
    #[arg(short, long, required = true, value_name = "POLICY", value_parser = policy)]
    policy: Vec<Policy>,

    /// The request rate of all subjects together: `500k/s`, `20M/m`, `100/h`.
    #[arg(long, value_name = "COUNT/UNIT", value_parser = units::rate_per_hour)]
    rate: u64,

    /// The memory of a node.
    #[arg(long, value_name = "BYTES", default_value = "16GiB", value_parser = node_memory)]
    node_memory: u64,

    /// The maximum number of decisions per second of a node, if you have measured it.
    #[arg(long, value_name = "COUNT", value_parser = node_decisions)]
    node_decisions: Option<u64>,

    /// Callers share batches (`.coalesced()`): a decision then costs a node half as much.
    #[arg(long, conflicts_with = "node_decisions")]
    coalesced: bool,

    /// The percentage of the requests that are decided without a node: admitted from leases, or refused from the deny
    /// cache. Their metrics report it.
    #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=99))]
    local: u8,

    /// The number of replicas of each primary.
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u8).range(0..=9))]
    replicas: u8,

    /// The length of a subject, in bytes.
    #[arg(long, value_name = "COUNT", default_value_t = 20, value_parser = clap::value_parser!(u32).range(0..=1_048_576))]
    subject_bytes: u32,

    /// The length of a tenant, in bytes; 0 for none.
    #[arg(long, value_name = "COUNT", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=1_048_576))]
    tenant_bytes: u32,

    /// The prefix of the keys.
    #[arg(long, default_value = "tidegate")]
    prefix: String,

    /// The number of records in the log of a subject, for sliding logs. Default: a full log.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    log_records: Option<u64>,
}

impl Plan {
    /// The input of the plan.
    pub(crate) fn wanted(&self) -> Wanted {
        let len = |bytes: u32| usize::try_from(bytes).unwrap_or(usize::MAX);
        Wanted {
            policies: self.policy.clone(),
            subjects: self.subjects,
            rate_per_hour: self.rate,
            node_memory: self.node_memory,
            node_decisions: self.node_decisions,
            is_coalesced: self.coalesced,
            local_percent: self.local,
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

/// Without arguments, lists the scripts: name, size, and the SHA-1 by which EVALSHA and the server's log name
/// them.
#[derive(Debug, Args)]
#[command(after_long_help = SCRIPTS)]
pub(crate) struct Scripts {
    /// The name of a script to print.
    pub(crate) name: Option<String>,

    /// Write all scripts to a folder, a file each.
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["name", "call"])]
    pub(crate) dir: Option<PathBuf>,

    /// Print a shell command that makes one call to a policy: the script's argument is binary.
    #[arg(long, value_name = "POLICY", value_parser = policy, conflicts_with = "name")]
    pub(crate) call: Option<Policy>,

    /// The subject of the call.
    #[arg(long, default_value = "alice", requires = "call")]
    pub(crate) subject: String,

    /// The cost of the call.
    #[arg(long, value_name = "COUNT", default_value_t = 1, requires = "call")]
    pub(crate) cost: u64,

    /// The prefix of the keys.
    #[arg(long, default_value = "tidegate", requires = "call")]
    pub(crate) prefix: String,
}

const SCRIPTS: &str = "\
Examples:
  tidegate scripts token_bucket
  tidegate scripts --dir scripts
  cd scripts && tidegate scripts --call 'api: token-bucket 10/1s burst 20' --subject alice | sh

The header of each script describes its keys, its argument and its reply. `batch` decides all calls \
that the other scripts do not: of several charges, of other operations, several at once.";

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
  tidegate plan --subjects 5M --rate 20k/s --policy 'login: sliding-log 100/1h' --log-records 4
  tidegate plan --subjects 1M --rate 1M/s --policy 'ingest: fixed-window 1000000/1m' --coalesced --local 90";

const FORMATS_AND_POLICIES: &str = "\
Formats:
  log      common and combined, of Apache, nginx, Traefik and others, also with other words in front
  json     one object a line, objects over several lines, or an array, also as `{\"Records\":[…]}`; \
with the names of Caddy, Traefik, Envoy, HAProxy, GCP, Cloudflare, Azure, AWS CloudTrail, WAF and API Gateway, and others
  csv, tsv with a header
  w3c      IIS, CloudFront
  alb, elb load balancers of AWS
  haproxy  option httplog, option tcplog
  envoy    the default format, and that of Istio
  logfmt   key=value
Each may be in lines of syslog (RFC 3164 and 5424), journalctl -o json, Docker (json-file, compose) or Kubernetes \
(CRI), and in UTF-16 with a byte-order mark. JSON and logfmt without a time get the time of these lines; a year that \
syslog leaves out is the last possible one. For other formats use --pattern:
  --pattern '^(?<time>\\S+) \\S+ (?<ip>\\S+) .* cost=(?<cost>\\d+)'

Policies:
  fixed-window 100/1m [anchored | phased]
  sliding-log 100/1m [grain 1s]
  sliding-counter 100/1m
  token-bucket 10/1s [burst 100] [by-interval]
  gcra 10/1s [burst 100]
Each may have a name in front (`login: sliding-log 5/15m`) and `block 15m` behind, which blocks a \
subject for that long after a refusal; `shards 8` [by-subject | whole] spreads it over that many \
slots of a cluster. Times are written 250ms, 90s, 1m, 1h30m, 7d.";

/// Parses a policy. The alternate form of an error shows the position in the text.
fn policy(text: &str) -> Result<Policy, String> {
    text.parse().map_err(|error| format!("{error:#}"))
}

/// Names of the fields with the late cost.
#[derive(Debug, Clone)]
pub(crate) struct LateCost(Vec<String>);

fn late_cost(text: &str) -> Result<LateCost, String> {
    match text.parse().map_err(|error: trace::BadOption| error.to_string())? {
        Cost::One => Err("it is a field's name, or several joined by `+`".to_owned()),
        Cost::Fields(fields) => Ok(LateCost(fields)),
    }
}

/// Parses a duration of the policy grammar.
fn span(text: &str) -> Result<Duration, String> {
    tidegate_core::parse_duration(text).map_err(|error| error.to_string())
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

    /// The store of the states.
    pub(crate) fn backend(&self) -> Result<Backend, String> {
        let password = match env::var(STORE_PASSWORD) {
            Ok(password) => Some(password),
            Err(VarError::NotPresent) => None,
            Err(VarError::NotUnicode(_)) => {
                return Err(format!("{STORE_PASSWORD} is not valid UTF-8"));
            }
        };
        let password = password.as_deref().filter(|password| !password.is_empty());
        Backend::parse(&self.store, password)
            .map_err(|error| format!("--store {}: {error}", without_login(&self.store)))
    }

    /// The fields with the late cost.
    pub(crate) fn late_cost(&self) -> Vec<String> {
        self.late_cost.as_ref().map_or_else(Vec::new, |fields| fields.0.clone())
    }

    /// How late costs are settled, if there are any.
    pub(crate) fn settling(&self) -> Option<Settling> {
        let fields = self.late_cost.as_ref()?;
        Some(Settling {
            late_cost_of: fields.0.join("+"),
            estimate: self.estimate,
            pace: self.pace,
            cover: self.cover,
        })
    }

    /// The nodes with leases, if they are asked for.
    pub(crate) fn leasing(&self) -> Option<Leasing> {
        self.leased.then_some(Leasing {
            nodes: self.nodes,
            seed: self.seed,
            span: self.lease_span,
            share: self.lease_share,
            hot_after: self.lease_hot_after,
            sliding: self.lease_sliding,
        })
    }

    /// The subject that is limited.
    pub(crate) fn subject(&self) -> By {
        match (&self.subject, &self.by) {
            (Some(field), _) => By::Field(field.clone()),
            (None, Some(by)) => by.clone(),
            (None, None) => By::Auto,
        }
    }
}
