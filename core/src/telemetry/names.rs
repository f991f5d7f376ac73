//! The metrics of this crate: names, labels and help texts.
//!
//! `docs/metrics.md` has the same table for operators, and a test compares both tables. No label
//! has a value from a request, so subjects and tenants do not appear. The values of the label
//! `policy` come from the configuration. At most [`MAX_POLICIES`] policies have their own series.

/// The maximum number of policies with their own series, per observed store. All other policies are
/// counted under [`OTHER_POLICIES`]. So a program that makes names of policies at run time does not
/// create an unbounded number of series.
pub const MAX_POLICIES: usize = 256;

/// The value of the label `policy` for all policies beyond the first [`MAX_POLICIES`]. No policy
/// can have this name.
pub const OTHER_POLICIES: &str = "(other)";

/// The bounds of the buckets in seconds, for all histograms of this crate. The names of these
/// histograms end in `_seconds`. The smallest bounds fit a decision in memory, and the largest
/// bounds a server that nearly times out.
///
/// Set these bounds in the Prometheus recorder. Without these bounds, the recorder exports
/// quantiles, which cannot be added up over processes.
pub const SECONDS_BUCKETS: [f64; 13] = [
    0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0,
];

/// A metric: name, kind, labels and help text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metric {
    /// The name of the metric.
    pub name: &'static str,
    /// The kind of the metric.
    pub kind: Kind,
    /// The names of the labels of the metric.
    pub labels: &'static [&'static str],
    /// The help text of the metric.
    pub help: &'static str,
}

/// The kind of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// A counter.
    Counter,
    /// A gauge.
    Gauge,
    /// A histogram of seconds.
    Histogram,
}

impl Kind {
    /// Returns the name of this kind of metric, such as `gauge`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

impl Metric {
    /// Creates a metric. A store can define its own metrics.
    #[must_use]
    pub const fn new(
        kind: Kind,
        name: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
    ) -> Self {
        Self { name, kind, labels, help }
    }

    /// Describes the metric to the installed recorder.
    pub fn describe(&self) {
        match self.kind {
            Kind::Counter => metrics::describe_counter!(self.name, metrics::Unit::Count, self.help),
            Kind::Gauge => metrics::describe_gauge!(self.name, metrics::Unit::Count, self.help),
            Kind::Histogram => {
                metrics::describe_histogram!(self.name, metrics::Unit::Seconds, self.help);
            }
        }
    }
}

/// Calls to the store. For a batch, each of its calls is counted.
pub const CALLS: Metric = Metric::new(
    Kind::Counter,
    "tidegate_calls_total",
    &["operation", "outcome"],
    "Calls to the store, by operation and outcome.",
);

/// Verdicts of policies.
pub const DECISIONS: Metric = Metric::new(
    Kind::Counter,
    "tidegate_decisions_total",
    &["policy", "outcome", "shadow"],
    "Verdicts on acquires and reservations, by policy.",
);

/// Charges that a list allows or denies.
pub const LISTED: Metric = Metric::new(
    Kind::Counter,
    "tidegate_listed_total",
    &["policy", "list"],
    "Verdicts that an entry of a list allows (allow) or denies (deny), by policy.",
);

/// Admissions near the limit.
pub const NEAR_LIMIT: Metric = Metric::new(
    Kind::Counter,
    "tidegate_near_limit_total",
    &["policy", "shadow"],
    "Admitted calls after which the policy warns or, without `warn`, less than a fifth of the limit remains.",
);

/// Reported warnings.
pub const WARNINGS: Metric = Metric::new(
    Kind::Counter,
    "tidegate_warnings_total",
    &[],
    "Subjects that reached the percentage of `warn`, once per window.",
);

/// The cost of holds.
pub const HELD: Metric = Metric::new(
    Kind::Counter,
    "tidegate_held_total",
    &["policy", "shadow"],
    "Cost held by admitted holds, an estimate. The held cost minus the settled cost is reserved and unspent.",
);

/// The cost of settlements.
pub const SETTLED: Metric = Metric::new(
    Kind::Counter,
    "tidegate_settled_total",
    &["policy", "shadow"],
    "Actual cost at which holds were settled.",
);

/// Degraded decisions.
pub const DEGRADED: Metric = Metric::new(
    Kind::Counter,
    "tidegate_degraded_total",
    &["answer", "reason"],
    "Decisions made without the store, by fallback and by kind of error.",
);

/// Errors.
pub const STORE_ERRORS: Metric = Metric::new(
    Kind::Counter,
    "tidegate_store_errors_total",
    &["kind"],
    "Calls that returned an error to the caller, by kind of error.",
);

/// Latency of calls.
pub const STORE_SECONDS: Metric = Metric::new(
    Kind::Histogram,
    "tidegate_store_seconds",
    &["operation"],
    "Latency of calls for the caller; a batch counts once.",
);

/// Waiting callers.
pub const WAITERS: Metric =
    Metric::new(Kind::Gauge, "tidegate_waiters", &[], "Callers that wait to be admitted.");

/// The limit of waiting callers.
pub const WAITERS_LIMIT: Metric = Metric::new(
    Kind::Gauge,
    "tidegate_waiters_limit",
    &[],
    "Maximum number of callers that may wait at a time.",
);

/// Hits and misses of the deny cache.
pub const DENY_CACHE: Metric = Metric::new(
    Kind::Counter,
    "tidegate_deny_cache_total",
    &["answer"],
    "Calls answered by the deny cache (hit), and passed on to the store (miss).",
);

/// States of circuit breakers.
pub const BREAKER_STATE: Metric = Metric::new(
    Kind::Gauge,
    "tidegate_breaker_state",
    &["state"],
    "Number of circuit breakers in this state.",
);

/// Openings of circuit breakers.
pub const BREAKER_OPENED: Metric = Metric::new(
    Kind::Counter,
    "tidegate_breaker_opened_total",
    &[],
    "Number of times a circuit breaker opened, also after a failed probe.",
);

/// Acquires through a store with leases.
pub const LEASE_CALLS: Metric = Metric::new(
    Kind::Counter,
    "tidegate_lease_calls_total",
    &["answer"],
    "Acquires admitted from a leased chunk (local), and passed on to the store (store).",
);

/// Chunks of leases.
pub const LEASES: Metric = Metric::new(
    Kind::Counter,
    "tidegate_leases_total",
    &["outcome"],
    "Chunks of budget that leases requested from the store, by outcome.",
);

/// The cost in chunks.
pub const LEASED_COST: Metric = Metric::new(
    Kind::Counter,
    "tidegate_leased_cost_total",
    &["fate"],
    "Cost in granted chunks, the part of it that was returned (given-back), and the part that was neither used nor returned (stranded).",
);

/// All metrics.
pub const ALL: [Metric; 18] = [
    CALLS,
    DECISIONS,
    LISTED,
    NEAR_LIMIT,
    WARNINGS,
    HELD,
    SETTLED,
    DEGRADED,
    STORE_ERRORS,
    STORE_SECONDS,
    WAITERS,
    WAITERS_LIMIT,
    DENY_CACHE,
    BREAKER_STATE,
    BREAKER_OPENED,
    LEASE_CALLS,
    LEASES,
    LEASED_COST,
];
