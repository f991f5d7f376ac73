//! The server program. [`App::build`] opens the stores and listeners that the settings name, and
//! [`App::run`] serves requests.

mod limit_commands;
mod limits;
mod listeners;
mod outages;
mod signals;
mod stores;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use metrics_exporter_prometheus::PrometheusHandle;
use tidegate_cluster::LimitBook;
use tidegate_core::layers::LeasedStore;
use tidegate_core::{CurrentLimits, PolicyLists, Store, StoreExt, Warnings};
use tidegate_memory::MemoryStore;
use tidegate_server::calls::resp::{self, RespSettings};
use tidegate_server::calls::{Calls, v1};
use tidegate_server::envoy::decide::Decider;
use tidegate_server::envoy::service::Service;
use tidegate_server::envoy::{debug, grpc, json};
use tidegate_server::limits::admin::{self, AdminTokens};
use tidegate_server::limits::config::SameDomain;
use tidegate_server::net::{descriptors, http};
use tidegate_server::observe::activity::{Activity, ActivitySettings, LastWarnings, Source};
use tidegate_server::observe::unreadable::Unreadable;
use tidegate_server::observe::{page, prometheus};
use tidegate_server::store::{self, OnStoreError};

use crate::log::say;
use crate::settings::{KEPT_IN_STORE, Settings, read_only_settings};
pub(crate) use limit_commands::change_limits;
use limits::{LimitSource, Limits, ListFiles};
use listeners::{Listeners, Running};
pub(crate) use signals::shutdown;

pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A server that is ready to serve.
pub(crate) struct App<'s> {
    settings: &'s Settings,
    service: Arc<Service>,
    /// The store for calls of RESP and `/v1`.
    store: Arc<dyn Store>,
    leases: Vec<Leases>,
    activity: Option<Arc<Activity>>,
    metrics: PrometheusHandle,
    limits: Limits,
    lists: Option<ListFiles>,
    current_limits: CurrentLimits,
    limit_source: Option<LimitSource>,
    /// The limit set of the store, if clients may show or change it.
    limit_book: Option<LimitBook>,
    listeners: Listeners,
    resp_settings: Option<RespSettings>,
}

/// Checks the settings as [`App::build`] does, without connecting to a store and without the
/// addresses of the listeners, and checks the limits in `directory`. Prints the numbers of limits.
///
/// # Errors
///
/// Returns an error if a setting or a limit is not valid.
pub(crate) fn check(
    settings: &Settings,
    directory: Option<&Path>,
    same_domain: SameDomain,
) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let Settings { store, limit_set, .. } = settings;
        let opened = store::open_watched(&store.url, &store.settings()?, Warnings::new(|_| {}))?;
        if let Some(url) = &store.per_second_url {
            store::open(url, &store.per_second_settings(url)?)?;
        }
        let limit_book = opened.limit_book.as_ref();
        served_book(settings, limit_book)?;
        if limit_set.as_deref() == Some(Path::new(KEPT_IN_STORE)) {
            limits::kept_in_store(limit_book)?;
        }
        listeners::check(settings).await
    })?;
    limits::check(settings, directory, same_domain)
}

/// Returns the limit set of the store if the settings let clients show or change it.
fn served_book(
    settings: &Settings,
    limit_book: Option<&LimitBook>,
) -> Result<Option<LimitBook>, Failure> {
    let AdminTokens { read, write, .. } = &settings.page.limits_tokens;
    if read.is_none() && write.is_none() {
        return Ok(None);
    }
    let message = "page.limits_read_token and page.limits_write_token need a store on a server, \
                   because store.url is `memory`, which cannot keep a limit set";
    limit_book.map(|book| Some(book.clone())).ok_or_else(|| message.into())
}

impl<'s> App<'s> {
    /// Opens the stores, puts the limits of a directory in force, and binds the listeners.
    ///
    /// # Errors
    ///
    /// Returns an error if a setting, a limit or an address is not valid.
    pub(crate) async fn build(settings: &'s mut Settings) -> Result<Self, Failure> {
        for warning in &settings.warnings {
            tracing::warn!("{warning}");
        }
        if let Some(warning) = descriptors::fit(settings.max_connections()) {
            tracing::warn!("{warning}");
        }
        let settings = &*settings;
        // A metric belongs to the recorder that is installed when the metric is created. So the
        // recorder is installed before the first metric is created.
        let recorder = prometheus::recorder()?;
        let metrics = recorder.handle();
        metrics::set_global_recorder(recorder)?;
        prometheus::register();
        let memory: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let (lists, current_limits) = (PolicyLists::new(), CurrentLimits::default());
        let Opened { service, activity, leases, limit_book } =
            open(settings, &memory, &lists, &current_limits).await?;
        let limit_book = limit_book.map(|book| book.max_loaded(settings.max_overrides));
        let directory = settings.lists.clone();
        let list_files = directory.map(|directory| ListFiles::read(directory, lists.clone()));
        let list_files = list_files.transpose()?;
        let limits = match &settings.xds {
            Some(settings) => Limits::Xds(Box::new(settings.clone())),
            None => Limits::from_directory(settings.directory.clone(), &service)?,
        };
        let store = Arc::clone(service.decider().store());
        let store = settings.store.on_error.around(store, &memory);
        // Each layer takes time in each call, so the store has only the layers that are used.
        let store: Arc<dyn Store> =
            if list_files.is_some() { Arc::new(store.listed(lists)) } else { store };
        let store: Arc<dyn Store> = match &settings.limit_set {
            Some(_) => Arc::new(store.adjusted(current_limits.clone())),
            None => store,
        };
        let served_book = served_book(settings, limit_book.as_ref())?;
        let book = limit_book.as_ref();
        let open = |name: &PathBuf| LimitSource::open(name, book, &current_limits, &*store);
        let limit_source = settings.limit_set.as_ref().map(open).transpose()?;
        let listeners = Listeners::bind(settings).await?;
        let resp_settings =
            listeners.resp.as_ref().map(|resp| settings.resp.settings(resp.address));
        let resp_settings = resp_settings.transpose()?;
        Ok(Self {
            settings,
            service,
            store,
            leases,
            activity,
            metrics,
            limits,
            lists: list_files,
            current_limits,
            limit_source,
            limit_book: served_book,
            listeners,
            resp_settings,
        })
    }

    /// Serves until `shutdown` is ready and the requests in flight are answered.
    ///
    /// # Errors
    ///
    /// Returns an error if the task of a protocol has panicked.
    pub(crate) async fn run(self, shutdown: impl Future<Output = ()>) -> Result<(), Failure> {
        let Self { settings, service, store, leases, activity, metrics, limits, .. } = self;
        let Listeners { grpc, http, resp, page, debug, metrics_alone } = self.listeners;
        let access = settings.http.listener.access(http.address);
        say(format_args!("gRPC on {}, JSON on {}", grpc.address, http.url()));
        http.warn_if_closed(&access, "/v1", "http");
        let limits = limits.follow(Arc::clone(&service));
        if let Some(lists) = self.lists {
            lists.follow();
        }
        if let Some(source) = self.limit_source {
            let (limits, store) = (self.current_limits, Arc::clone(&store));
            source.follow(limits, store, Arc::clone(&service), activity.clone()).await;
        }
        let followed = Arc::clone(&service);
        // This task runs until the program ends.
        tokio::spawn(async move {
            tokio::join!(
                followed.follow_unreadable(log_unreadable("gRPC")),
                followed.follow_unreadable_json(log_unreadable("/json")),
            )
        });

        let (mut envoy, mut others) = (Running::new(), Running::new());
        if let (Some(resp), Some(settings)) = (resp, self.resp_settings) {
            say(format_args!("RESP on {}", resp.address));
            let calls = calls(&store, Source::Resp, "RESP", activity.clone());
            others.start(resp, |listener, until| resp::serve(listener, calls, settings, until));
        }
        let mut start_http = |bound, routes, settings| {
            others.start(bound, |listener, until| http::serve(listener, routes, settings, until));
        };
        let v1 = calls(&store, Source::V1, "/v1", activity.clone());
        let routes = json::routes(Arc::clone(&service), Some(metrics.clone()));
        let routes = routes.merge(json::operator_routes(Arc::clone(&service), access.clone()));
        start_http(http, routes.merge(v1::routes(v1, access)), settings.http.settings());
        if let Some(debug) = debug {
            say(format_args!("debug port on {}", debug.url()));
            let routes = debug::routes(Arc::clone(&service), metrics.clone());
            start_http(debug, routes, read_only_settings());
        }
        if let Some(metrics_alone) = metrics_alone {
            say(format_args!("metrics on {}", metrics_alone.url()));
            let routes = prometheus::routes(metrics, settings.http.metrics_path.clone());
            start_http(metrics_alone, routes, read_only_settings());
        }
        if let (Some(page), Some(activity)) = (page, activity) {
            let access = settings.page.listener.access(page.address);
            say(format_args!("page on {}", page.url()));
            page.warn_if_closed(&access, "the page", "page");
            let sampled = Arc::clone(&activity);
            // This task runs until the program ends.
            tokio::spawn(async move { sampled.run().await });
            let mut routes = page::routes(activity, access);
            if let Some(book) = self.limit_book {
                routes = routes.merge(admin::routes(book, store, &settings.page.limits_tokens));
            }
            start_http(page, routes, settings.page.settings());
        }
        let grpc_settings = settings.grpc.settings();
        envoy.start(grpc, |listener, until| grpc::serve(listener, service, grpc_settings, until));

        shutdown.await;
        // gRPC accepts requests until its drain is over. The other protocols stop after gRPC, so
        // that the metrics and the page show the last requests of gRPC.
        envoy.stop().await?;
        limits.abort();
        others.stop().await?;
        // The leases return their unspent chunks, because the store would otherwise keep these
        // chunks charged.
        let closed = leases.iter().map(Leases::close);
        let closed = tokio::time::timeout(CLOSE_TIMEOUT, join_all(closed)).await;
        if closed.is_err() {
            tracing::warn!(
                "the store has not answered the return of all leases within {CLOSE_TIMEOUT:?}"
            );
        }
        Ok(())
    }
}

/// A store with leases. At the end of the program, the store returns the unspent chunks of its
/// leases.
type Leases = LeasedStore<Arc<dyn Store>>;

/// The maximum time that the program waits at its end until the leases are returned.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// The service of Envoy, and the parts of its stores that the program uses directly.
struct Opened {
    service: Arc<Service>,
    /// The activity for the page, if there is a page.
    activity: Option<Arc<Activity>>,
    /// The leases of all stores.
    leases: Vec<Leases>,
    /// The limit set of the store, if the store can keep one.
    limit_book: Option<LimitBook>,
}

/// Opens the stores. `lists` allow and deny, and `limits` replace policies. If the settings require
/// a fallback, the store `memory` decides while another store is away.
async fn open(
    settings: &Settings,
    memory: &Arc<dyn Store>,
    lists: &PolicyLists,
    limits: &CurrentLimits,
) -> Result<Opened, Failure> {
    let store = &settings.store;
    let last_warnings = LastWarnings::new(settings.page.shows_subjects);
    let recorded = last_warnings.clone();
    let warnings = Warnings::new(move |warning| {
        tracing::debug!(policy = warning.policy.name(), "a subject is near its limit");
        recorded.record(warning);
    });
    let connections = store.settings()?;
    let opened =
        stores::open("store", "the store", &store.url, &connections, warnings.clone()).await?;
    let limit_book = opened.limit_book;
    let decider = Decider::new(opened.store, settings.answers.clone());
    let mut decider = decider.with_lists(lists.clone()).with_limits(limits.clone());
    let (mut watched, mut leases) = (vec![opened.watched], Vec::from_iter(opened.leases));
    if let Some(url) = &store.per_second_url {
        let connections = store.per_second_settings(url)?;
        let (role, name) = ("limits per second", "the store of limits per second");
        let opened = stores::open(role, name, url, &connections, warnings).await?;
        decider = decider.with_per_second_store(opened.store);
        watched.push(opened.watched);
        leases.extend(opened.leases);
    }
    if let Some(cache) = store.deny_cache(watched.len()) {
        decider = decider.with_deny_cache(&cache);
    } else if let Some(cache) = store.deny_cache_for_policies() {
        decider = decider.with_deny_cache_for_policies(cache);
    }
    if let OnStoreError::Share(_) = store.on_error {
        decider = decider.with_fallback(Arc::clone(memory));
    }
    let activity = settings.page.listener.address.is_some().then(|| {
        let mut shown = ActivitySettings::default();
        shown.shows_subjects = settings.page.shows_subjects;
        shown.on_store_error = store.on_error;
        let activity = Activity::new(shown, watched, Instant::now());
        Arc::new(activity.with_warnings(last_warnings))
    });
    let service = Service::new(decider)
        .same_domain(settings.same_domain)
        .on_store_error(store.on_error)
        .starting_without_limits(settings.starts_without_limits)
        .needing_domain(settings.needs_domain)
        .leasing_all(settings.leases_all)
        .activity(activity.clone());
    Ok(Opened { service: Arc::new(service), activity, leases, limit_book })
}

/// Returns a function that logs unreadable requests of a protocol.
fn log_unreadable(protocol: &'static str) -> impl Fn(Unreadable) {
    move |unreadable| {
        let Unreadable { requests, peer, reason, .. } = unreadable;
        let peer = peer.map(|peer| format!(", from {peer}")).unwrap_or_default();
        tracing::error!(
            "{requests} requests of {protocol} were not decided because they cannot be read; the \
             last one{peer}: {reason}"
        );
    }
}

/// Creates the `Calls` of a protocol, and spawns a task that logs unreadable requests of the
/// protocol.
fn calls(
    store: &Arc<dyn Store>,
    source: Source,
    protocol: &'static str,
    activity: Option<Arc<Activity>>,
) -> Arc<Calls> {
    let calls = Arc::new(Calls::new(Arc::clone(store)).activity(source, activity));
    let followed = Arc::clone(&calls);
    // This task runs until the program ends.
    tokio::spawn(async move { followed.follow_unreadable(log_unreadable(protocol)).await });
    calls
}
