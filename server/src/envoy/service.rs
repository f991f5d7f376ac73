//! The service that gRPC and `/json` share. It decides Envoy's requests, counts them, and handles
//! failures of the store.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitResponse;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::{Code, DescriptorStatus};
use tidegate_core::{Error, ErrorKind, Operation};

use crate::envoy::decide::{DecideError, Decided, Decider, Operated, RequestError};
use crate::envoy::event;
use crate::envoy::request::RateLimitRequest;
use crate::envoy::stats::Stats;
use crate::limits::config::{Config, ConfigError, ConfigFile, SameDomain};
use crate::limits::xds::messages::RateLimitConfig;
use crate::limits::{LoadError, StatKey};
use crate::observe::activity::Activity;
use crate::observe::unreadable;
use crate::observe::unreadable::Unreadable;
use crate::store::OnStoreError;

/// Decides requests, and counts the decisions.
#[derive(Debug)]
pub struct Service {
    decider: Decider,
    stats: Stats,
    on_store_error: OnStoreError,
    same_domain: SameDomain,
    starts_without_limits: bool,
    needs_domain: bool,
    leases_all: bool,
    activity: Option<Arc<Activity>>,
    is_draining: AtomicBool,
    old_limits: Mutex<Option<String>>,
    unreadable: unreadable::Log,
    unreadable_json: unreadable::Log,
}

/// The maximum time for which [`Service::ready`] waits for each store.
const READY_TIMEOUT: Duration = Duration::from_secs(1);

/// The reason why the service is not ready.
#[derive(Debug)]
#[non_exhaustive]
pub enum NotReady {
    /// No limits are in force yet.
    Config,
    /// A store returns an error.
    Store(Error),
    /// A store does not answer in time.
    Timeout,
    /// The server is shutting down: see [`Service::drain`].
    Draining,
}

impl std::fmt::Display for NotReady {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Config => f.write_str("no rate limit configuration loaded"),
            Self::Store(error) => error.fmt(f),
            Self::Timeout => write!(f, "the store has not answered within {READY_TIMEOUT:?}"),
            Self::Draining => f.write_str("the server is shutting down"),
        }
    }
}

impl std::error::Error for NotReady {}

impl Service {
    /// Creates a service without limits. It records its statistics with the recorder of [`metrics`]
    /// that is installed at this time.
    #[must_use]
    pub fn new(decider: Decider) -> Self {
        Self {
            decider,
            stats: Stats::new(),
            on_store_error: OnStoreError::default(),
            same_domain: SameDomain::default(),
            starts_without_limits: false,
            needs_domain: false,
            leases_all: false,
            activity: None,
            is_draining: AtomicBool::new(false),
            old_limits: Mutex::default(),
            unreadable: unreadable::Log::default(),
            unreadable_json: unreadable::Log::default(),
        }
    }

    /// Sets the answer to requests that the store cannot decide.
    #[must_use]
    pub fn on_store_error(self, on_store_error: OnStoreError) -> Self {
        Self { on_store_error, ..self }
    }

    /// Sets whether the service is [ready](Self::ready) before limits are loaded. The service
    /// answers requests with an error until limits are loaded.
    #[must_use]
    pub fn starting_without_limits(self, starts: bool) -> Self {
        Self { starts_without_limits: starts, ..self }
    }

    /// Sets whether the service is [ready](Self::ready) only while its limits have a domain. By
    /// default, limits without a domain are limits too.
    #[must_use]
    pub fn needing_domain(self, needs: bool) -> Self {
        Self { needs_domain: needs, ..self }
    }

    pub(crate) fn needs_domain(&self) -> bool {
        self.needs_domain
    }

    /// Sets whether a second file for the same domain is an error: see [`SameDomain`].
    #[must_use]
    pub fn same_domain(self, same_domain: SameDomain) -> Self {
        Self { same_domain, ..self }
    }

    /// Sets whether the server leases every limit that can be leased: see [`Config::lease_all`].
    #[must_use]
    pub fn leasing_all(self, leases_all: bool) -> Self {
        Self { leases_all, ..self }
    }

    /// Records the decisions in `activity`.
    #[must_use]
    pub fn activity(self, activity: Option<Arc<Activity>>) -> Self {
        Self { activity, ..self }
    }

    /// Returns the decider.
    #[must_use]
    pub fn decider(&self) -> &Decider {
        &self.decider
    }

    /// Replaces the current limits by the limits of files.
    ///
    /// # Errors
    ///
    /// Returns an error if a file could not be read or is not valid, or if the store does not
    /// support a policy. In this case, the previous limits stay in force.
    pub fn load(&self, files: Result<&[ConfigFile], &ConfigError>) -> Result<(), LoadError> {
        let names = files.unwrap_or_default().iter().map(|file| &*file.name);
        self.put(
            names,
            files
                .map_err(Clone::clone)
                .and_then(|files| Config::from_files(files, self.same_domain)),
        )
    }

    /// Replaces the current limits by the limits of a management server.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`load`](Self::load).
    pub fn load_resources(
        &self,
        resources: Result<&[RateLimitConfig], &ConfigError>,
    ) -> Result<(), LoadError> {
        let names = resources.unwrap_or_default().iter().map(|resource| &*resource.name);
        self.put(
            names,
            resources
                .map_err(Clone::clone)
                .and_then(|resources| Config::from_resources(resources, self.same_domain)),
        )
    }

    /// Puts a configuration in force, and records whether this succeeded. `names` are the names of
    /// its files or resources.
    fn put<'n>(
        &self,
        names: impl ExactSizeIterator<Item = &'n str>,
        config: Result<Config, ConfigError>,
    ) -> Result<(), LoadError> {
        let loaded = config
            .map(|config| if self.leases_all { config.lease_all() } else { config })
            .map_err(LoadError::Config)
            .and_then(|config| self.decider.set_config(config).map_err(LoadError::Store));
        self.stats.load(loaded.is_ok());
        if let Some(activity) = &self.activity {
            activity.loaded(names, loaded.as_ref().map(|()| self.decider.config()));
        }
        loaded
    }

    /// Returns `true` if limits are in force, and have a domain if the service [needs
    /// one](Self::needing_domain), or if the service [starts without
    /// limits](Self::starting_without_limits).
    #[must_use]
    pub fn has_limits(&self) -> bool {
        let is_enough = |config: &Config| !self.needs_domain || !config.domains().is_empty();
        self.starts_without_limits || self.decider.config().is_some_and(|config| is_enough(&config))
    }

    /// Makes the service report that it is not [ready](Self::ready). The server calls this function
    /// when it shuts down. The service still decides requests.
    pub fn drain(&self) {
        self.is_draining.store(true, Ordering::Relaxed);
    }

    /// Sets the reason why the limit set in force is possibly not the newest, or `None` if it is
    /// the newest.
    pub fn set_old_limits(&self, why: Option<String>) {
        *self.old_limits.lock().unwrap_or_else(PoisonError::into_inner) = why;
    }

    /// Returns the reason why the limit set in force is possibly not the newest. The service stays
    /// [ready](Self::ready), because it decides by the last valid version.
    #[must_use]
    pub fn old_limits(&self) -> Option<String> {
        self.old_limits.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Checks that limits are in force, that the stores can decide, and that the server is not
    /// shutting down.
    ///
    /// # Errors
    ///
    /// Returns the reason why the service is not ready.
    pub async fn ready(&self) -> Result<(), NotReady> {
        if self.is_draining.load(Ordering::Relaxed) {
            return Err(NotReady::Draining);
        }
        if !self.has_limits() {
            return Err(NotReady::Config);
        }
        for store in self.decider.stores() {
            match tokio::time::timeout(READY_TIMEOUT, store.ready()).await {
                Ok(ready) => ready.map_err(NotReady::Store)?,
                Err(_) => return Err(NotReady::Timeout),
            }
        }
        Ok(())
    }

    /// Decides a request.
    ///
    /// # Errors
    ///
    /// Returns an error if the request is not valid, or if the store is misconfigured. With
    /// [`OnStoreError::Error`], any other failure of the store is an error too. With
    /// [`OnStoreError::Share`], it is an error only if the fallback store also fails.
    pub async fn should_rate_limit(
        &self,
        request: &RateLimitRequest,
    ) -> Result<RateLimitResponse, DecideError> {
        let start = Instant::now();
        let decided = self.decider.decide(request).await;
        let took = start.elapsed();
        self.count(&decided, took, || self.decider.limits_of(request));
        let decided = match &decided {
            Err(DecideError::Store(error)) if may_hide(error) => match self.on_store_error {
                OnStoreError::Error => decided,
                OnStoreError::Allow => return Ok(admitted(request)),
                OnStoreError::Deny => return Ok(self.decider.refusal_without_store(request)),
                OnStoreError::Share(share) => {
                    self.decider.decide_by_fallback(request, share).await.unwrap_or(decided)
                }
            },
            _ => decided,
        };
        decided.map(|decided| decided.response)
    }

    /// Executes a reset or a block of an operator on the states of the limits of a request, and
    /// records bans. `reason` is the reason if the block is a ban.
    ///
    /// # Errors
    ///
    /// Returns an error if the request is not valid, if one of its limits does not support the
    /// operation, or if a store fails.
    pub(crate) async fn operate(
        &self,
        operation: Operation,
        reason: Option<String>,
        request: &RateLimitRequest,
    ) -> Result<Vec<Operated>, DecideError> {
        let operated = self.decider.operate(operation, request).await?;
        let is_unban = matches!(operation, Operation::Block { span } if span.is_zero());
        if let Some(activity) = &self.activity
            && (reason.is_some() || is_unban)
        {
            event::record_bans(activity, &operated, reason.as_deref());
        }
        Ok(operated)
    }

    fn count(
        &self,
        decided: &Result<Decided, DecideError>,
        took: Duration,
        limits: impl FnOnce() -> Vec<(Arc<StatKey>, Vec<u8>)>,
    ) {
        self.stats.request(decided, took);
        if let Some(activity) = &self.activity {
            event::record(activity, decided, self.decider.is_shadow(), took, limits);
        }
    }

    /// Counts and logs a gRPC request whose message cannot be read.
    pub(crate) fn unreadable(&self, peer: Option<SocketAddr>, reason: &str) {
        self.count_unreadable(reason);
        self.stats.unreadable();
        self.unreadable.add(peer, reason);
    }

    /// Counts and logs a request to `/json` whose body cannot be read.
    pub(crate) fn unreadable_json(&self, reason: &str) {
        self.count_unreadable(reason);
        self.stats.unreadable_json();
        self.unreadable_json.add(None, reason);
    }

    fn count_unreadable(&self, reason: &str) {
        let error = DecideError::Request(RequestError::new(reason));
        self.count(&Err(error), Duration::ZERO, Vec::new);
    }

    /// Calls `report` with the gRPC requests whose message cannot be read: immediately for the
    /// first such request, and then at most once every 10 s.
    ///
    /// This function never returns; drop the future to stop it.
    pub async fn follow_unreadable(&self, report: impl Fn(Unreadable)) {
        self.unreadable.follow(report).await;
    }

    /// Calls `report` with requests to `/json` whose body cannot be read, as often as
    /// [`follow_unreadable`](Self::follow_unreadable) reports gRPC requests.
    pub async fn follow_unreadable_json(&self, report: impl Fn(Unreadable)) {
        self.unreadable_json.follow(report).await;
    }
}

/// Returns `true` if the setting [`OnStoreError`] applies to `error`. It does not apply to invalid
/// requests and wrong settings, which are always errors.
fn may_hide(error: &Error) -> bool {
    !error.kind().is_invalid_request() && error.kind() != ErrorKind::Misconfigured
}

/// Creates the response to a request that the store did not decide, and that is admitted.
fn admitted(request: &RateLimitRequest) -> RateLimitResponse {
    let code = Code::Ok.into();
    let status = DescriptorStatus { code, ..DescriptorStatus::default() };
    RateLimitResponse {
        overall_code: code,
        statuses: vec![status; request.descriptors.len()],
        ..RateLimitResponse::default()
    }
}
