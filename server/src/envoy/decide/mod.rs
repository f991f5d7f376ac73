//! Decides requests of Envoy's rate-limit protocol. The domain and the descriptors of a request
//! select limits. The store counts the hits of the request for these limits, and its answers
//! determine the response.
//!
//! A limit is written as `rate_limit:` or as `policy:`. The two kinds decide differently:
//!
//! | | `rate_limit:` | `policy:` |
//! |---|---|---|
//! | a refused hit | is counted, as in envoyproxy/ratelimit | is not charged |
//! | several limits of a request | each limit counts separately | all policies are charged, or none; none if a `rate_limit:` refuses |
//! | a request with 0 hits | is refused if the count is *above* the limit | is refused if one hit would not be admitted |
//! | a refund of hits | reduces the count, at most to 0 | refunds the charge, without hits that were refused and never charged |
//! | `duration_until_reset` | the time until the window ends | for a refused request, the time until it is admitted; otherwise the time until the whole limit is available |
//!
//! A policy of slots (`concurrent`) decides like other policies. But its hits are the slots of a
//! hold, and a refund settles the hold.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
//! use std::sync::Arc;
//! use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::Code;
//! use tidegate_memory::MemoryStore;
//! use tidegate_server::limits::config::{Config, ConfigFile, SameDomain};
//! use tidegate_server::envoy::decide::{Behaviour, Decider};
//! use tidegate_server::envoy::request::{Entry, RateLimitDescriptor, RateLimitRequest};
//!
//! let text = "{domain: shop, descriptors: [{key: user, policy: fixed-window 1/1h}]}";
//! let file = ConfigFile { name: "shop.yaml".into(), text: text.into() };
//! let decider = Decider::new(Arc::new(MemoryStore::new()), Behaviour::default());
//! decider.set_config(Config::from_files(&[file], SameDomain::Refuse)?)?;
//!
//! let entry = Entry { key: "user".into(), value: "alice".into() };
//! let request = RateLimitRequest {
//!     domain: "shop".into(),
//!     descriptors: vec![RateLimitDescriptor { entries: vec![entry], ..Default::default() }],
//!     hits_addend: 0, // as if it were 1
//! };
//! assert_eq!(decider.decide(&request).await?.response.overall_code(), Code::Ok);
//! assert_eq!(decider.decide(&request).await?.response.overall_code(), Code::OverLimit);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod carry_out;
mod deny_cache;
mod error;
mod matching;
mod metadata;
mod operate;
mod plan;
mod respond;
mod slots;
mod subject;
mod tally;

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitResponse;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::Code;
use tidegate_core::{
    Clock, CurrentLimits, DenyCache, Error, ErrorKind, LimitSet, Operation, PolicyLists, Share,
    Store,
};

use carry_out::Stores;
use deny_cache::LimitStore;
pub use error::{DecideError, RequestError};
use matching::Match;
pub(crate) use operate::Operated;
pub use plan::MAX_DESCRIPTORS;
use plan::Target;
pub use tally::{NearLimitRatio, Tally};

use crate::envoy::request::RateLimitRequest;
use crate::limits::StatKey;
use crate::limits::config::{Config, Kind, Limit};

/// Settings that apply to all limits.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Behaviour {
    /// Whether the server is a shadow, which refuses no request. The statuses of the descriptors
    /// still report exceeded limits.
    pub is_shadow: bool,
    /// Whether each `rate_limit:` is a quota, as with `quota_mode: true`. Quotas refuse a request
    /// only if all of them are exceeded.
    pub all_are_quotas: bool,
    /// Whether only the exceeded limits count the hits of a request that exceeds a `rate_limit:`.
    pub spares_others_when_over: bool,
    /// Whether a `rate_limit:` that is not a quota decides like a policy: a request charges all of
    /// its limits or none, and refused hits are not counted. In this case, hits of a `rate_limit:`
    /// cannot be refunded.
    pub all_or_none: bool,
    /// The names of the headers in responses; `None` for no headers.
    pub headers: Option<HeaderNames>,
    /// Whether responses have dynamic metadata.
    pub has_metadata: bool,
    /// The share of a limit above which hits count as near the limit.
    pub near_limit_ratio: NearLimitRatio,
}

impl Behaviour {
    /// Returns `true` if the limit is a quota, by its own setting or by the setting for all limits.
    fn is_quota(&self, limit: &Limit) -> bool {
        self.all_are_quotas || limit.is_quota
    }
}

/// The names of response headers.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeaderNames {
    /// The name of the header with the limit.
    pub limit: String,
    /// The name of the header with the remaining amount.
    pub remaining: String,
    /// The name of the header with the seconds until the limit resets.
    pub reset: String,
}

impl Default for HeaderNames {
    fn default() -> Self {
        let [limit, remaining, reset] =
            ["RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"].map(str::to_owned);
        Self { limit, remaining, reset }
    }
}

/// A decision and the statistics about it.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Decided {
    /// The response.
    pub response: RateLimitResponse,
    /// One tally for each descriptor that has a limit and is not a refund.
    pub tallies: Vec<Tally>,
    /// Whether the domain is configured.
    pub is_domain_known: bool,
    /// Whether the request was admitted only because the [server](Behaviour::is_shadow) is a
    /// shadow.
    pub is_shadowed: bool,
}

/// Decides requests by the current limits.
#[derive(Debug)]
pub struct Decider {
    store: LimitStore,
    per_second: Option<LimitStore>,
    fallback: Option<LimitStore>,
    config: ArcSwapOption<Config>,
    lists: PolicyLists,
    limits: CurrentLimits,
    behaviour: Behaviour,
}

impl Decider {
    /// Creates a decider without limits. [`set_config`](Self::set_config) sets the limits.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, behaviour: Behaviour) -> Self {
        let store = LimitStore::new(store);
        let config = ArcSwapOption::empty();
        let (lists, limits) = (PolicyLists::new(), CurrentLimits::default());
        Self { store, per_second: None, fallback: None, config, lists, limits, behaviour }
    }

    /// Sets a separate store for each `rate_limit:` with a window of one second.
    #[must_use]
    pub fn with_per_second_store(self, store: Arc<dyn Store>) -> Self {
        Self { per_second: Some(LimitStore::new(store)), ..self }
    }

    /// Adds a cache of denials around each store, so that a flood of refused requests does not
    /// reach the stores.
    ///
    /// Each store gets its own cache with the configured maximum memory. A `rate_limit:` does not
    /// count hits that the cache refuses, but its count stays above the limit until the window
    /// ends.
    #[must_use]
    pub fn with_deny_cache<C: Clock + Clone + 'static>(self, cache: &DenyCache<C>) -> Self {
        let per_second = self.per_second.map(|store| store.cached(cache.clone(), true));
        Self { store: self.store.cached(cache.clone(), true), per_second, ..self }
    }

    /// Adds a cache of denials for requests that a `policy:` without `refunds: true` refuses. The
    /// cache does not answer other calls.
    #[must_use]
    pub fn with_deny_cache_for_policies<C>(self, cache: DenyCache<C>) -> Self
    where
        C: Clock + Clone + 'static,
    {
        Self { store: self.store.cached(cache, false), ..self }
    }

    /// Adds a store that decides when a store fails: see
    /// [`decide_by_fallback`](Self::decide_by_fallback).
    #[must_use]
    pub fn with_fallback(self, store: Arc<dyn Store>) -> Self {
        Self { fallback: Some(LimitStore::new(store)), ..self }
    }

    /// Sets the lists that allow and deny, by the names of the limits. The value of the last entry
    /// of a descriptor is looked up in the lists of its limit. For slots, the last entry is the id
    /// of the hold, so that the entry before it is looked up.
    #[must_use]
    pub fn with_lists(self, lists: PolicyLists) -> Self {
        Self { lists, ..self }
    }

    /// Sets the limits that replace the policies of limits with the same names. The value of a
    /// descriptor that is looked up in the lists also selects the override.
    #[must_use]
    pub fn with_limits(self, limits: CurrentLimits) -> Self {
        Self { limits, ..self }
    }

    /// Returns the store, with the cache of denials around it if a cache is set.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store.store
    }

    /// Returns all stores.
    pub(crate) fn stores(&self) -> impl Iterator<Item = &Arc<dyn Store>> {
        std::iter::once(&self.store).chain(&self.per_second).map(|store| &store.store)
    }

    /// Returns `true` if the server is a shadow, which refuses no request.
    pub(crate) fn is_shadow(&self) -> bool {
        self.behaviour.is_shadow
    }

    /// Returns the current limits, or `None` if no limits were set yet.
    #[must_use]
    pub fn config(&self) -> Option<Arc<Config>> {
        self.config.load_full()
    }

    /// Replaces the current limits. A request that is being decided still uses the previous limits.
    /// The store keeps all states.
    ///
    /// # Errors
    ///
    /// Returns an error if the store cannot keep the states of a policy. In this case, the previous
    /// limits stay in force.
    pub fn set_config(&self, config: Config) -> Result<(), Error> {
        let mut result = Ok(());
        config.for_each_limit(&mut |limit| {
            let supported = match &limit.kind {
                Kind::Unlimited => Ok(()),
                Kind::Counted(counted) => self.store().supports(&counted.policy),
                Kind::Policy(limit) => self.store().supports(&limit.policy),
                Kind::Slots(policy) => self.store().supports(policy),
            };
            if let (Err(error), Ok(())) = (supported, &result) {
                result = Err(error.with_context(&limit.place));
            }
        });
        result?;
        self.config.store(Some(Arc::new(config)));
        Ok(())
    }

    /// Returns the limits that apply to a request, and their subjects. Returns an empty list if the
    /// request is not valid.
    pub(crate) fn limits_of(&self, request: &RateLimitRequest) -> Vec<(Arc<StatKey>, Vec<u8>)> {
        let limits = self.limits.set();
        let Some(config) = self.config.load_full() else { return vec![] };
        let planned = plan::matches(&config, request)
            .and_then(|matches| self.plan(&matches, request, &limits));
        let limited =
            planned.unwrap_or_default().into_iter().filter_map(|planned| match planned.target {
                Target::Limited(limited) => Some(limited),
                Target::None | Target::Unlimited => None,
            });
        limited.map(|limited| (Arc::clone(&limited.limit.stat_key), limited.subject)).collect()
    }

    /// Returns the response to a request that a store did not decide, and that is refused if one of
    /// its limits can refuse a request.
    pub(crate) fn refusal_without_store(&self, request: &RateLimitRequest) -> RateLimitResponse {
        let limits = self.limits.set();
        let planned = self.config.load_full().and_then(|config| {
            let matches = plan::matches(&config, request).ok()?;
            self.plan(&matches, request, &limits).ok()
        });
        let planned = planned.unwrap_or_default();
        let statuses = respond::statuses_without_store(&planned);
        let is_over = respond::is_over_limit(&planned, &statuses, &self.behaviour);
        let code = if is_over && !self.behaviour.is_shadow { Code::OverLimit } else { Code::Ok };
        RateLimitResponse { overall_code: code.into(), statuses, ..RateLimitResponse::default() }
    }

    fn plan(
        &self,
        matches: &[Option<Match<'_>>],
        request: &RateLimitRequest,
        limits: &LimitSet,
    ) -> Result<Vec<plan::Planned>, RequestError> {
        // One time for all descriptors, which the server reads only if it can matter.
        let limits = (!limits.is_empty()).then(|| (limits, self.limits.now()));
        plan::plan(matches, request, &self.behaviour, &self.lists, limits)
    }

    /// Decides a request.
    ///
    /// # Errors
    ///
    /// Returns an error if the request is not valid, or if the store fails.
    pub async fn decide(&self, request: &RateLimitRequest) -> Result<Decided, DecideError> {
        let stores = Stores { all: &self.store, per_second: self.per_second.as_ref() };
        self.decide_on(request, stores, None).await
    }

    /// Decides a request on the [fallback store](Self::with_fallback), with a share of each limit.
    /// The share is rounded down; if the result is 0, all hits are refused. Returns `None` if there
    /// is no fallback store.
    ///
    /// # Errors
    ///
    /// Returns an error if the request is not valid, or if the fallback store fails.
    pub async fn decide_by_fallback(
        &self,
        request: &RateLimitRequest,
        share: Share,
    ) -> Option<Result<Decided, DecideError>> {
        let stores = Stores { all: self.fallback.as_ref()?, per_second: None };
        Some(self.decide_on(request, stores, Some(share)).await)
    }

    /// Returns the plan of a request by the current limits, and these limits.
    async fn planned(
        &self,
        request: &RateLimitRequest,
    ) -> Result<(Arc<Config>, Vec<plan::Planned>), RequestError> {
        let config = self.config.load_full();
        let config =
            config.ok_or_else(|| RequestError::new("no rate limit configuration loaded"))?;
        let planned = {
            let matches = plan::matches(&config, request)?;
            let limits = match self.limits.is_partial() {
                true => plan::load(&matches, request, &self.limits).await,
                false => self.limits.set(),
            };
            self.plan(&matches, request, &limits)?
        };
        Ok((config, planned))
    }

    /// Executes a reset or a block on the subject of each limit that applies to a request, and
    /// returns these limits. The hits of the request have no effect.
    ///
    /// # Errors
    ///
    /// Returns an error if the request is not valid, or if one of its limits does not support the
    /// operation; the states are then unchanged. Returns an error if a store fails; the operation
    /// was then possibly executed for some of the limits.
    pub(crate) async fn operate(
        &self,
        operation: Operation,
        request: &RateLimitRequest,
    ) -> Result<Vec<Operated>, DecideError> {
        let (_, planned) = self.planned(request).await?;
        let stores = Stores { all: &self.store, per_second: self.per_second.as_ref() };
        operate::operate(operation, &planned, stores).await
    }

    async fn decide_on(
        &self,
        request: &RateLimitRequest,
        stores: Stores<'_>,
        share: Option<Share>,
    ) -> Result<Decided, DecideError> {
        let (config, mut planned) = self.planned(request).await?;
        let behaviour = &self.behaviour;
        planned.iter().for_each(plan::Planned::count_list);
        if let Some(share) = share {
            for descriptor in &mut planned {
                descriptor.scale(share).map_err(|error| {
                    let error = error.to_string();
                    DecideError::Store(Error::new(ErrorKind::Unsupported, error))
                })?;
            }
        }
        let is_over = |answers: &[_]| {
            let statuses = respond::statuses(&planned, answers);
            !behaviour.is_shadow && respond::is_over_limit(&planned, &statuses, behaviour)
        };
        let mut answers = vec![None; planned.len()];
        let cached =
            match carry_out::carry_out(&planned, stores, behaviour, &mut answers, is_over).await {
                Ok(cached) => cached,
                // A list, or a limit in another store, refuses the request.
                Err(_) if is_over(&answers) => vec![],
                Err(error) => return Err(error),
            };

        let statuses = respond::statuses(&planned, &answers);
        let is_over = respond::is_over_limit(&planned, &statuses, behaviour);
        let is_refused = is_over && !behaviour.is_shadow;
        let code = if is_refused { Code::OverLimit } else { Code::Ok };
        let warnings = respond::warnings(&planned, &answers);
        let headers = behaviour.headers.as_ref();
        let headers = headers.map(|names| respond::headers(&planned, &statuses, behaviour, names));
        let mut headers = headers.unwrap_or_default();
        headers.extend(respond::warning_header(&warnings));
        let response = RateLimitResponse {
            overall_code: code.into(),
            response_headers_to_add: headers,
            dynamic_metadata: behaviour
                .has_metadata
                .then(|| metadata::metadata(request, &planned, &statuses, &warnings)),
            statuses,
            ..RateLimitResponse::default()
        };
        Ok(Decided {
            response,
            tallies: respond::tallies(
                planned,
                &answers,
                is_refused,
                &cached,
                behaviour.near_limit_ratio,
            ),
            is_domain_known: config.domain(&request.domain).is_some(),
            is_shadowed: is_over && behaviour.is_shadow,
        })
    }
}
