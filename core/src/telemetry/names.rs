//! The metrics, by name: everything that this crate tells a recorder, and what it means.
//!
//! `docs/metrics.md` is the same for operators, and a test holds the two together. No label is ever made
//! from a request: subjects and tenants do not appear, and the names of policies come from the
//! configuration, of which at most [`MAX_POLICIES`] are told apart.

/// How many policies one observed store tells apart; what comes later is counted under
/// [`OTHER_POLICIES`], so that names made at run time cannot flood whoever collects the metrics.
pub const MAX_POLICIES: usize = 256;

/// The value of the label `policy` for all policies after the first [`MAX_POLICIES`]. No policy can
/// have this name.
pub const OTHER_POLICIES: &str = "(other)";

/// Bounds of buckets, in seconds, that suit the histograms here, whose names all end in `_seconds`: from
/// a decision in memory to a server that is about to be given up. Some recorders have to be told, as
/// that of Prometheus, which otherwise shows quantiles that cannot be added up over processes.
pub const SECONDS_BUCKETS: [f64; 13] = [
    0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0,
];

/// A metric: its name, and what there is to know about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metric {
    /// The name.
    pub name: &'static str,
    /// How its value behaves.
    pub kind: Kind,
    /// The names of its labels.
    pub labels: &'static [&'static str],
    /// What it says.
    pub help: &'static str,
}

/// How the value of a metric behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// It only grows.
    Counter,
    /// It goes up and down.
    Gauge,
    /// It is a distribution, of seconds.
    Histogram,
}

impl Kind {
    /// The word for it.
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
    /// A metric, for a store that has some of its own to tell.
    #[must_use]
    pub const fn new(
        kind: Kind,
        name: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
    ) -> Self {
        Self { name, kind, labels, help }
    }

    /// Tells the recorder that is installed what the metric means.
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

/// Calls, one by one also where many were sent together.
pub const CALLS: Metric = Metric::new(
    Kind::Counter,
    "tidegate_calls_total",
    &["operation", "outcome"],
    "Calls to the store, by what was asked and what came of it.",
);

/// Verdicts of policies.
pub const DECISIONS: Metric = Metric::new(
    Kind::Counter,
    "tidegate_decisions_total",
    &["policy", "outcome", "shadow"],
    "Verdicts on what was to be acquired or reserved, by policy.",
);

/// Admissions that left little.
pub const NEAR_LIMIT: Metric = Metric::new(
    Kind::Counter,
    "tidegate_near_limit_total",
    &["policy", "shadow"],
    "Allowed verdicts that left less than a fifth of the limit.",
);

/// Decisions that the store did not make.
pub const DEGRADED: Metric = Metric::new(
    Kind::Counter,
    "tidegate_degraded_total",
    &["answer", "reason"],
    "Decisions made otherwise than by asking the store, by who decided and why.",
);

/// Calls without a decision.
pub const STORE_ERRORS: Metric = Metric::new(
    Kind::Counter,
    "tidegate_store_errors_total",
    &["kind"],
    "Calls that ended in an error, as the caller sees it.",
);

/// How long calls took.
pub const STORE_SECONDS: Metric = Metric::new(
    Kind::Histogram,
    "tidegate_store_seconds",
    &["operation"],
    "Time from the call to its answer, as the caller sees it; a batch counts once.",
);

/// Who waits.
pub const WAITERS: Metric =
    Metric::new(Kind::Gauge, "tidegate_waiters", &[], "Callers who wait for their turn.");

/// How many may wait.
pub const WAITERS_LIMIT: Metric =
    Metric::new(Kind::Gauge, "tidegate_waiters_limit", &[], "Callers who may wait at once.");

/// What the deny cache was good for.
pub const DENY_CACHE: Metric = Metric::new(
    Kind::Counter,
    "tidegate_deny_cache_total",
    &["answer"],
    "Calls that the deny cache answered (hit), and those it passed on (miss).",
);

/// What breakers are doing.
pub const BREAKER_STATE: Metric = Metric::new(
    Kind::Gauge,
    "tidegate_breaker_state",
    &["state"],
    "How many circuit breakers are in this state.",
);

/// How often breakers opened.
pub const BREAKER_OPENED: Metric = Metric::new(
    Kind::Counter,
    "tidegate_breaker_opened_total",
    &[],
    "How often a circuit breaker opened, also after a probe that failed.",
);

/// All of them.
pub const ALL: [Metric; 11] = [
    CALLS,
    DECISIONS,
    NEAR_LIMIT,
    DEGRADED,
    STORE_ERRORS,
    STORE_SECONDS,
    WAITERS,
    WAITERS_LIMIT,
    DENY_CACHE,
    BREAKER_STATE,
    BREAKER_OPENED,
];
