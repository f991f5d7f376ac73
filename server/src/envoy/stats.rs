//! Statistics under the names that envoyproxy/ratelimit uses in Prometheus. The program installs a
//! recorder of the crate `metrics`, which collects the statistics.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};

use crate::envoy::decide::{DecideError, Decided, Tally};
use crate::limits::StatKey;
use crate::observe::unreadable::unreadable_over_http;

/// The maximum number of limit keys with their own counters. Further keys share the counters of the
/// key `other`. Without this maximum, clients could create any number of counters, because some
/// keys contain values from requests.
pub const MAX_KEYS: usize = 10_000;

/// The maximum length in bytes of a key with its own counters. Longer keys share the counters of
/// the key `other`, because the recorder keeps every key in memory for as long as the server runs.
pub const MAX_KEY_BYTES: usize = 1_000;

/// The counters of a server.
pub struct Stats {
    limits: RwLock<HashMap<Arc<StatKey>, Arc<LimitCounters>>>,
    other: Arc<LimitCounters>,
    requests: Counter,
    response_time: Histogram,
    store_errors: Counter,
    service_errors: Counter,
    unknown_domains: Counter,
    shadowed: Counter,
    loads: Counter,
    load_errors: Counter,
    /// 1 if the last attempt to load a configuration succeeded; 0 if it failed, or if no
    /// configuration was loaded yet.
    is_last_load_in_force: Gauge,
    unreadable: Counter,
    unreadable_json: Counter,
}

struct LimitCounters {
    total: Counter,
    over: Counter,
    over_in_cache: Counter,
    near: Counter,
    within: Counter,
    shadow: Counter,
}

impl Stats {
    /// Creates the counters in the recorder of the crate `metrics` that is installed at this time.
    #[must_use]
    pub fn new() -> Self {
        let errors = |kind: &'static str| counter!("ratelimit_service_should_rate_limit_error", "err_type" => kind);
        let method = ("grpc_method", "ShouldRateLimit");
        Self {
            limits: RwLock::default(),
            other: Arc::new(LimitCounters::new(["other"; 2].into_iter())),
            requests: counter!("ratelimit_service_total_requests", &[method]),
            response_time: histogram!("ratelimit_service_response_time_seconds", &[method]),
            store_errors: errors("redis_error"),
            service_errors: errors("service_error"),
            unknown_domains: counter!("ratelimit_service_domain_not_found"),
            shadowed: counter!("ratelimit_service_global_shadow_mode"),
            loads: counter!("ratelimit_service_config_load_success"),
            load_errors: counter!("ratelimit_service_config_load_error"),
            is_last_load_in_force: gauge!("tidegate_server_config_last_load_success"),
            unreadable: counter!("tidegate_server_grpc_unreadable_requests_total"),
            unreadable_json: unreadable_over_http(),
        }
    }

    /// Counts a request.
    pub(crate) fn request(&self, decided: &Result<Decided, DecideError>, took: Duration) {
        self.requests.increment(1);
        self.response_time.record(took);
        match decided {
            Ok(decided) => {
                decided.tallies.iter().for_each(|tally| self.tally(tally));
                self.unknown_domains.increment(u64::from(!decided.is_domain_known));
                self.shadowed.increment(u64::from(decided.is_shadowed));
            }
            Err(DecideError::Store(_)) => self.store_errors.increment(1),
            Err(DecideError::Request(_)) => self.service_errors.increment(1),
        }
    }

    /// Counts an attempt to load a configuration, and whether it succeeded.
    pub(crate) fn load(&self, is_in_force: bool) {
        if is_in_force {
            self.loads.increment(1);
        } else {
            self.load_errors.increment(1);
        }
        self.is_last_load_in_force.set(f64::from(u8::from(is_in_force)));
    }

    /// Counts a gRPC request whose message cannot be read.
    pub(crate) fn unreadable(&self) {
        self.unreadable.increment(1);
    }

    /// Counts a request to `/json` whose body cannot be read.
    pub(crate) fn unreadable_json(&self) {
        self.unreadable_json.increment(1);
    }

    fn tally(&self, tally: &Tally) {
        let counters = self.counters(&tally.key);
        counters.total.increment(tally.total);
        counters.over.increment(tally.over);
        counters.over_in_cache.increment(tally.over_in_cache);
        counters.near.increment(tally.near);
        counters.within.increment(tally.within);
        counters.shadow.increment(tally.shadow);
    }

    fn counters(&self, key: &Arc<StatKey>) -> Arc<LimitCounters> {
        if key.name().len() > MAX_KEY_BYTES {
            return Arc::clone(&self.other);
        }
        let known = self.limits.read().unwrap_or_else(PoisonError::into_inner).get(key).cloned();
        if let Some(counters) = known {
            return counters;
        }
        let mut limits = self.limits.write().unwrap_or_else(PoisonError::into_inner);
        if limits.len() >= MAX_KEYS && !limits.contains_key(key) {
            return Arc::clone(&self.other);
        }
        let new = || Arc::new(LimitCounters::new(key.labels()));
        Arc::clone(limits.entry(Arc::clone(key)).or_insert_with(new))
    }
}

impl Default for Stats {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Stats {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stats").finish_non_exhaustive()
    }
}

impl LimitCounters {
    fn new<'v>(values: impl Iterator<Item = &'v str>) -> Self {
        let names = ["domain", "key1", "key2"].into_iter();
        let labels: Vec<_> = names.zip(values.map(str::to_owned)).collect();
        Self {
            total: counter!("ratelimit_service_rate_limit_total_hits", &labels),
            over: counter!("ratelimit_service_rate_limit_over_limit", &labels),
            over_in_cache: counter!(
                "ratelimit_service_rate_limit_over_limit_with_local_cache",
                &labels
            ),
            near: counter!("ratelimit_service_rate_limit_near_limit", &labels),
            within: counter!("ratelimit_service_rate_limit_within_limit", &labels),
            shadow: counter!("ratelimit_service_rate_limit_shadow_mode", &labels),
        }
    }
}
