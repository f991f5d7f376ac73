//! The command line.

use std::env::{self, VarError};
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

#[cfg(feature = "redis")]
use crate::redis_commands;
use tidegate::replay::{Backend, Grants, LeaseSpan, Leasing, Pace, Settling, Slots, without_login};
use tidegate::suggest::Share;
use tidegate::trace::{self, By, Cost, Format, Input, Order, Pattern, TimeUnit};
use tidegate_core::{LimitSet, Lists, Policy};

/// The environment variable with the password of the store.
const STORE_PASSWORD: &str = "TIDEGATE_STORE_PASSWORD";

/// Tests rate limits on real traffic.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100)]
#[cfg_attr(not(feature = "redis"), command(after_help = WITHOUT_REDIS))]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[cfg(not(feature = "redis"))]
const WITHOUT_REDIS: &str = "This program was built without Redis. With `--features redis` it also \
has the commands `plan` and `scripts`, and it can replay on a server (`--store redis://…`).";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Replay(Box<Replay>),
    #[cfg(feature = "redis")]
    #[command(flatten)]
    Redis(redis_commands::Command),
}

/// Replay a log against policies, and show which requests the policies would have refused.
///
/// The log can come from a web server, a proxy or a load balancer, or be JSON, CSV or TSV. It can
/// be compressed with gzip or zstd. The format of each file is detected from its first lines.
#[derive(Debug, Args)]
#[command(after_long_help = FORMATS_AND_POLICIES)]
pub(crate) struct Replay {
    /// Files to read; `-` is standard input.
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,

    /// Policy, such as `sliding-log 100/1m`. The option can be repeated. Without --policy and
    /// --share, six policies with the same limit are compared.
    #[arg(short, long, value_name = "POLICY", value_parser = policy)]
    pub(crate) policy: Vec<Policy>,

    /// Limit of the six compared policies.
    #[arg(long, value_name = "COUNT/SPAN", default_value = "60/1m", conflicts_with_all = ["policy", "share"])]
    pub(crate) limit: String,

    /// Fair pool of all subjects, such as `1000/1m` for the policy `fair-pool 1000/1m`. The report
    /// shows the cost that the pool admits for each of the subjects with the largest demands. A
    /// policy with a name, such as `pool: fair-pool 1000/1m`, can get weights from --limit-set. The
    /// option can be repeated.
    #[arg(long, value_name = "COUNT/SPAN", value_parser = fair_pool)]
    share: Vec<Policy>,

    /// Subject that is limited: `ip` (the client's address without the port), `user`, `all` (all
    /// requests together), or the name of a field, such as `forwarded` for the `X-Forwarded-For` at
    /// the end of a line of nginx. Default: the client's address. Requests without a subject (`-`
    /// or empty) are counted and skipped.
    #[arg(long, value_name = "WHAT")]
    pub(crate) by: Option<By>,

    /// Name of the field with the subject. Use this option instead of --by for a field that is
    /// named `ip`, `user` or `all`.
    #[arg(long, value_name = "FIELD", conflicts_with = "by")]
    pub(crate) subject: Option<String>,

    /// Cost of a request: `1`, `bytes`, the name of a field, or a sum of fields (`a+b`). A line
    /// whose field is not a number is malformed and skipped, except that `-` as a number of bytes
    /// is 0.
    #[arg(long, value_name = "FIELDS", default_value = "1")]
    pub(crate) cost: Cost,

    /// Part of the cost that is known only when a request ends, such as the tokens of an answer: a
    /// field, or a sum of fields. --cost is the other part, and is then 0 by default.
    ///
    /// The policies decide as if the whole cost had been known at the start. In addition, each
    /// policy is replayed in three ways. `check` admits a request while the limit has any amount
    /// left, and charges the cost at the end. `fixed` and `learned` hold an estimate at the start,
    /// and settle it at the end. The report shows the maximum amount beyond the limit, the requests
    /// that were denied although they were within the limit, and the amounts that were held and not
    /// used. The late cost of a request can be up to 2^32 - 1. The three ways are always replayed
    /// in memory.
    #[arg(long, value_name = "FIELDS", value_parser = late_cost)]
    pub(crate) late_cost: Option<LateCost>,

    /// Estimate of the late cost in the way `fixed`, such as the `max_tokens` of a model. It is
    /// also the maximum of the estimates in the way `learned`. Default: the maximum late cost of
    /// all requests.
    #[arg(long, value_name = "COUNT", requires = "late_cost", value_parser = clap::value_parser!(u64).range(..=trace::COST_MAX))]
    pub(crate) estimate: Option<u64>,

    /// Speed at which a request uses its late cost. It determines when a request ends, because the
    /// log does not contain that time.
    #[arg(long, value_name = "COUNT/SPAN", default_value = "50/1s", requires = "late_cost")]
    pub(crate) pace: Pace,

    /// Share of the requests whose late cost a learned estimate covers.
    #[arg(long, value_name = "SHARE", default_value = "9/10", requires = "late_cost")]
    pub(crate) cover: tidegate_core::Share,

    /// Field with the duration of a request, for policies of slots (`concurrent 10 lease 30s`). A
    /// request takes its slots when it begins, and frees them after its duration. The time of a
    /// record must be the time at which the request begins. This replay is always in memory.
    #[arg(long, value_name = "FIELD", conflicts_with = "late_cost")]
    pub(crate) duration: Option<String>,

    /// Unit of the durations: `s`, `ms`, `us` or `ns`. They can have a fraction.
    #[arg(
        long,
        value_name = "UNIT",
        value_enum,
        default_value = "ms",
        requires = "duration",
        hide_possible_values = true
    )]
    pub(crate) duration_unit: TimeUnit,

    /// File of a list that allows and denies subjects, for all policies. Each line has `allow` or
    /// `deny`, and an address, a prefix, or `subject` and a subject.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["late_cost", "duration", "leased", "suggest"])]
    pub(crate) lists: Option<PathBuf>,

    /// File of policies and overrides that replace the policies with the same names. Each line has
    /// a policy with a name, and optionally `until` and a time, and `for subject` and a subject.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["late_cost", "duration", "leased", "suggest"])]
    pub(crate) limit_set: Option<PathBuf>,

    /// File of the limit set before a change. The report shows the subjects that --limit-set denies
    /// more often than this set. Without --policy, the policies of both sets are replayed.
    #[arg(long, value_name = "FILE", requires = "limit_set")]
    pub(crate) limit_set_before: Option<PathBuf>,

    /// Pool that all subjects share, such as `gcra 1000/s` or `fair-pool 1000/1m`. A request that a
    /// policy refuses is charged to the pool, and is denied only if the pool refuses it too. Each
    /// policy is replayed with its own pool. The report shows the number of requests that the pool
    /// admitted, and the shares of a fair pool.
    #[arg(long, value_name = "POLICY", value_parser = policy, conflicts_with_all = ["late_cost", "duration", "leased", "suggest"])]
    pub(crate) pool: Option<Policy>,

    /// File of grants to quotas and credits, such as payments. It has the fields `time`, `subject`
    /// and `amount`, in any format that a log can have. A subject must be written as in the log.
    /// --time-unit also applies to this file. On a server, the ids of the grants expire about an
    /// hour after the replay.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["late_cost", "duration", "leased", "suggest"])]
    pub(crate) grants: Option<PathBuf>,

    /// Time after which each grant ends. Without this option, a grant lasts until it is spent.
    #[arg(long, value_name = "SPAN", requires = "grants", value_parser = span)]
    grants_last: Option<Duration>,

    /// Also replay on several nodes that share one store and admit busy subjects from leases
    /// (`.leased(..)`). The report shows the requests that the nodes deny too early, and the number
    /// of calls to the store. This replay is always in memory.
    #[arg(long)]
    leased: bool,

    /// Number of nodes with leases.
    #[arg(long, value_name = "COUNT", default_value_t = 8, requires = "leased", value_parser = clap::value_parser!(u16).range(1..=1_000))]
    nodes: u16,

    /// Seed for spreading the requests over the nodes at random. Default: the nodes get the
    /// requests in turn.
    #[arg(long, requires = "leased")]
    seed: Option<u64>,

    /// Time for which a node can use a chunk that it leased, from 1ms to 1h.
    #[arg(long, value_name = "SPAN", default_value = "1s", requires = "leased")]
    lease_span: LeaseSpan,

    /// Maximum share of the remaining amount that a node leases at one time.
    #[arg(long, value_name = "SHARE", default_value = "1/200", requires = "leased")]
    lease_share: tidegate_core::Share,

    /// Number of requests of a subject that a node must admit within a span before it leases.
    #[arg(long, value_name = "COUNT", default_value_t = 32, requires = "leased", value_parser = clap::value_parser!(u32).range(1..))]
    lease_hot_after: u32,

    /// Lease sliding logs and sliding counters too. With leases, they can admit the limit of a
    /// window within a time that is one span shorter than the window.
    #[arg(long, requires = "leased")]
    lease_sliding: bool,

    /// Name of the field with the time.
    #[arg(long, value_name = "FIELD")]
    pub(crate) time: Option<String>,

    /// Unit of times that are plain numbers: `s`, `ms`, `us` or `ns`.
    #[arg(long, value_name = "UNIT", value_enum, hide_possible_values = true)]
    pub(crate) time_unit: Option<TimeUnit>,

    /// Format of the files, if it is not detected correctly: `log`, `json`, `csv`, `tsv`, `w3c`,
    /// `alb`, `elb`, `haproxy`, `envoy` or `logfmt`.
    #[arg(long, value_enum, hide_possible_values = true)]
    pub(crate) format: Option<Format>,

    /// Format of a line as a regular expression, for logs in no known format. The named groups are
    /// the fields. The group `time` is the time, and `ip` or `subject` (or the group that --by
    /// names) is the subject. A group `cost`, if there is one, is the cost.
    #[arg(long, value_name = "REGEX", conflicts_with = "format")]
    pub(crate) pattern: Option<Pattern>,

    /// Order of the replay: `time` sorts the requests by time; `file` keeps the order of the lines,
    /// with a clock that never decreases.
    #[arg(long, value_enum, default_value = "time", hide_possible_values = true)]
    pub(crate) order: Order,

    /// Store of the states: `memory`, or the URL of a Redis (redis://127.0.0.1), of a Sentinel
    /// group (redis-sentinel://10.0.0.1,10.0.0.2#name) or of a Redis Cluster
    /// (redis-cluster://10.0.0.1:7000,10.0.0.2:7000).
    ///
    /// The keys on a server have a prefix that no other replay uses. The replay deletes the keys at
    /// the end, also after Ctrl-C. If that fails, a warning names the prefix, and the keys expire.
    /// Set the password in the environment variable TIDEGATE_STORE_PASSWORD, because other users of
    /// the machine can see a password in the URL.
    // `clap` takes `store` as text, and `Replay::backend` parses it later. If `clap` parsed it, the
    // error for an invalid value would print the password in the URL.
    #[arg(long, value_name = "STORE", default_value = "memory")]
    store: String,

    /// Percentage of the subjects, such as 99.9, that a limit must never refuse. The report then
    /// suggests the smallest such limit for each algorithm.
    #[arg(long, value_name = "PERCENT")]
    pub(crate) suggest: Option<Share>,

    /// Window of the suggested limits.
    #[arg(long, value_name = "SPAN", default_value = "1m", requires = "suggest", value_parser = span)]
    pub(crate) window: Duration,

    /// Print JSON instead of a table.
    #[arg(long)]
    pub(crate) json: bool,

    /// File for an HTML page with plots, in addition to the table.
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,

    /// File for the decisions, each as `1` (admitted) or `0` (denied), in the order of the replay.
    /// Each policy has its own line.
    #[arg(long, value_name = "FILE")]
    pub(crate) decisions: Option<PathBuf>,

    /// Stop at the first malformed line. Without this flag, malformed lines are counted, and the
    /// exit code is 1 if at least half of all lines are malformed.
    #[arg(long)]
    pub(crate) strict: bool,
}

const FORMATS_AND_POLICIES: &str = "\
Formats:
  log      common and combined format of Apache, nginx, Traefik and others, also with other words before it
  json     one object per line, objects over several lines, or an array, also as `{\"Records\":[…]}`; \
with the field names of Caddy, Traefik, Envoy, HAProxy, GCP, Cloudflare, Azure, AWS CloudTrail, WAF and API Gateway, and others
  csv, tsv with a header
  w3c      IIS, CloudFront
  alb, elb load balancers of AWS
  haproxy  option httplog, option tcplog
  envoy    the default format, and the format of Istio
  logfmt   key=value
The lines can be wrapped by syslog (RFC 3164 and 5424), journalctl -o json, Docker (json-file, compose) or Kubernetes \
(CRI), and they can be UTF-16 with a byte-order mark. JSON and logfmt without a time get the time of the line around them. \
If syslog omits the year, the most recent possible year is assumed. For other formats, use --pattern:
  --pattern '^(?<time>\\S+) \\S+ (?<ip>\\S+) .* cost=(?<cost>\\d+)'

Policies:
  fixed-window 100/1m [anchored | phased]
  sliding-log 100/1m [grain 1s]
  sliding-counter 100/1m
  token-bucket 10/1s [burst 100] [by-interval]
  gcra 10/1s [burst 100]
  concurrent 10 lease 30s (with --duration)
  quota 1000/month in Europe/Amsterdam [rollover 1/2]
  credits 500 (with --grants)
  fair-pool 1000/1m [weight 3]
Each policy can begin with a name (`login: sliding-log 5/15m`). It can end with `block 15m`, which blocks a subject for \
that long after a refusal, with `warn 80%`, and with `shards 8 [by-subject | whole]`, which spreads the policy over that many slots of a \
cluster. Times are written as 250ms, 90s, 1m, 1h30m or 7d.";

/// Parses a policy. The error is formatted with `{:#}`, which also shows the position of the
/// mistake in the text.
pub(crate) fn policy(text: &str) -> Result<Policy, String> {
    text.parse().map_err(|error| format!("{error:#}"))
}

/// Parses the limit of a fair pool, or a policy that is a fair pool.
fn fair_pool(text: &str) -> Result<Policy, String> {
    let prefix = if text.contains("fair-pool") { "" } else { "fair-pool " };
    let expected = "a share is a limit such as `1000/1m`, or a policy such as `fair-pool 1000/1m`";
    match policy(&format!("{prefix}{text}")) {
        Ok(policy) if policy.is_fair_pool() => Ok(policy),
        Ok(policy) => Err(format!("{expected}: `{policy}` is not a fair pool")),
        Err(error) => Err(format!("{expected}: {error}")),
    }
}

/// The names of the fields whose sum is the late cost: the part of the cost that is known only when
/// a request ends.
#[derive(Debug, Clone)]
pub(crate) struct LateCost(Vec<String>);

fn late_cost(text: &str) -> Result<LateCost, String> {
    match text.parse().map_err(|error: trace::BadOption| error.to_string())? {
        Cost::One => Err(
            "the late cost is 1; it must be the name of a field, or several names joined by `+`"
                .into(),
        ),
        Cost::Fields(fields) => Ok(LateCost(fields)),
    }
}

/// Parses a duration in the syntax of policies.
fn span(text: &str) -> Result<Duration, String> {
    tidegate_core::parse_duration(text).map_err(|error| error.to_string())
}

impl Replay {
    /// Returns the policies of --policy and --share.
    pub(crate) fn given(&self) -> impl Iterator<Item = &Policy> {
        self.policy.iter().chain(&self.share)
    }

    /// Returns the policies to replay against.
    pub(crate) fn policies(&self) -> Result<Vec<Policy>, String> {
        let slots = self.given().find(|policy| policy.is_concurrent());
        match (slots, &self.duration) {
            (Some(policy), None) => {
                return Err(format!(
                    "`{policy}` limits requests at a time, so it needs --duration, the field with the duration of \
                     a request"
                ));
            }
            (None, Some(_)) => {
                return Err(
                    "--duration needs a policy of slots, such as `concurrent 10 lease 30s`"
                        .to_owned(),
                );
            }
            _ => {}
        }
        let pool = self.given().find(|policy| policy.is_fair_pool());
        if let (Some(pool), Some(_)) = (pool, &self.late_cost) {
            return Err(format!(
                "`{pool}` is a fair pool, so it cannot be combined with --late-cost, which measures each subject by itself"
            ));
        }
        let rates: Vec<Policy> =
            self.given().filter(|policy| !policy.is_concurrent()).cloned().collect();
        if rates.is_empty() && slots.is_some() && self.decisions.is_some() {
            return Err("--decisions needs a policy that is not of slots".to_owned());
        }
        if self.given().next().is_some() {
            return Ok(rates);
        }
        let limit = &self.limit;
        let parse = |text: String| {
            text.parse::<Policy>().map_err(|error| format!("--limit {limit}: {error:#}"))
        };
        // The GCRA policy has the same average rate as the other compared policies, but its burst
        // is only a sixth of the limit.
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

    /// Reads the file of the list.
    pub(crate) fn lists(&self) -> Result<Option<Lists>, String> {
        self.lists.as_deref().map(parse_file).transpose()
    }

    /// Reads the file of the limit set.
    pub(crate) fn limit_set(&self) -> Result<Option<LimitSet>, String> {
        let Some(path) = &self.limit_set else { return Ok(None) };
        if let Some(policy) = self.given().find(|policy| !policy.is_named()) {
            return Err(format!(
                "--limit-set replaces policies by their names, and `{policy}` has no name; give it \
                 one, as in `plan: {policy}`"
            ));
        }
        parse_file(path).map(Some)
    }

    /// Reads the file of the earlier limit set.
    pub(crate) fn limit_set_before(&self) -> Result<Option<LimitSet>, String> {
        self.limit_set_before.as_deref().map(parse_file).transpose()
    }

    /// Returns the policies of both limit sets, each name once. A policy of the earlier set counts
    /// only if the set of `--limit-set` has no policy of its name.
    pub(crate) fn policies_of_sets(
        set: Option<&LimitSet>,
        before: Option<&LimitSet>,
    ) -> Result<Vec<Policy>, String> {
        let all = set.into_iter().chain(before).flat_map(LimitSet::policies);
        // Slots need the durations of requests.
        let mut policies: Vec<Policy> =
            all.filter(|policy| !policy.is_concurrent()).cloned().collect();
        // The order of equal names stays, so the policy of the new set is first.
        policies.sort_by(|one, other| one.name().cmp(other.name()));
        policies.dedup_by(|later, first| later.name() == first.name());
        match policies.is_empty() {
            true => {
                Err("the limit sets have only overrides; give the policies of the program with \
                         --policy"
                    .to_owned())
            }
            false => Ok(policies),
        }
    }

    /// Reads the file of the grants.
    pub(crate) fn grants(&self) -> Result<Option<Grants>, String> {
        let Some(path) = &self.grants else { return Ok(None) };
        if !self.policy.iter().any(Policy::is_quota) {
            return Err("--grants needs a quota or credits, such as `credits 500`".to_owned());
        }
        let stdin = Path::new("-");
        if path == stdin && self.files.iter().any(|file| file == stdin) {
            return Err("--grants - and the log cannot both be standard input".to_owned());
        }
        Grants::read(Input::from_arg(path), self.time_unit, self.grants_last).map(Some)
    }

    /// Returns the backend in which the replay stores its states.
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

    /// Returns the names of the fields in `--late-cost`, or an empty list if the option is not set.
    pub(crate) fn late_cost(&self) -> Vec<String> {
        self.late_cost.as_ref().map_or_else(Vec::new, |fields| fields.0.clone())
    }

    /// Returns the field with the durations.
    pub(crate) fn duration(&self) -> Option<trace::Duration> {
        let field = self.duration.clone()?;
        Some(trace::Duration { field, unit: self.duration_unit })
    }

    /// Returns the settings of the replay against slots, or `None` without `--duration`.
    pub(crate) fn slots(&self) -> Option<Slots> {
        let duration_of = self.duration.clone()?;
        let policies =
            self.policy.iter().filter(|policy| policy.is_concurrent()).cloned().collect();
        Some(Slots { policies, duration_of })
    }

    /// Returns the settings of the replay with late costs, or `None` if `--late-cost` is not set.
    pub(crate) fn settling(&self) -> Option<Settling> {
        let fields = self.late_cost.as_ref()?;
        Some(Settling {
            late_cost_of: fields.0.join("+"),
            estimate: self.estimate,
            pace: self.pace,
            cover: self.cover,
        })
    }

    /// Returns the settings of the replay on nodes with leases, or `None` if `--leased` is not set.
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

    /// Returns the subject that `--subject` or `--by` selects. Without these options, the reader
    /// selects the subject.
    pub(crate) fn subject(&self) -> By {
        match (&self.subject, &self.by) {
            (Some(field), _) => By::Field(field.clone()),
            (None, Some(by)) => by.clone(),
            (None, None) => By::Auto,
        }
    }
}

/// Reads a file, and parses its text. The error contains the path.
fn parse_file<T: FromStr<Err: Display>>(path: &Path) -> Result<T, String> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| format!("{}: the file cannot be read: {error}", path.display()))?;
    text.parse().map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_and_durations_need_each_other() {
        let policies = |options: &[&str]| {
            let args = ["tidegate", "replay", "log"].iter().chain(options);
            let Ok(Cli { command: Command::Replay(replay) }) = Cli::try_parse_from(args) else {
                panic!("{options:?}")
            };
            replay.policies()
        };
        let slots = ["-p", "concurrent 10 lease 30s"];
        assert!(policies(&slots).unwrap_err().contains("--duration"));
        assert!(policies(&["--duration", "took"]).unwrap_err().contains("concurrent"));
        let duration = ["--duration", "took"];
        assert!(policies(&[slots, duration].concat()).unwrap().is_empty());
        let file = ["--decisions", "file"];
        assert!(policies(&[slots, duration, file].concat()).unwrap_err().contains("--decisions"));
        let both = policies(&[slots, duration, file, ["-p", "gcra 1/s"]].concat()).unwrap();
        assert_eq!(both.len(), 1);
    }
}
