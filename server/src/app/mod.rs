//! The program: [`App::build`] opens everything that the settings name, and [`App::run`] serves
//! it.

mod limits;
mod listeners;
mod outages;
mod signals;
mod stores;

use std::sync::Arc;
use std::time::Instant;

use metrics_exporter_prometheus::PrometheusHandle;
use tidegate_core::Store;
use tidegate_server::calls::{Calls, resp, v1};
use tidegate_server::envoy::decide::Decider;
use tidegate_server::envoy::service::Service;
use tidegate_server::envoy::{debug, grpc, json};
use tidegate_server::net::descriptors;
use tidegate_server::observe::activity::{Activity, ActivitySettings, Source};
use tidegate_server::observe::unreadable::Unreadable;
use tidegate_server::observe::{page, prometheus};

use crate::args::Serve;
use limits::Limits;
pub(crate) use limits::check;
use listeners::{Listeners, Running};
pub(crate) use signals::shutdown;

pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A server that is ready to serve.
pub(crate) struct App {
    service: Arc<Service>,
    /// The store for calls of RESP and `/v1`.
    store: Arc<dyn Store>,
    activity: Option<Arc<Activity>>,
    metrics: PrometheusHandle,
    limits: Limits,
    listeners: Listeners,
}

impl App {
    /// Opens the stores, puts the limits of a directory in force, and binds the listeners.
    ///
    /// # Errors
    ///
    /// Returns an error if a setting, a limit or an address is not valid.
    pub(crate) async fn build(settings: &mut Serve) -> Result<Self, Failure> {
        settings.check()?;
        if let Some(warning) = descriptors::fit(settings.max_connections()) {
            stderr!("warning: {warning}");
        }
        let settings = &*settings;
        // A metric belongs to the recorder that is installed when the metric is created.
        let recorder = prometheus::recorder()?;
        let metrics = recorder.handle();
        metrics::set_global_recorder(recorder)?;
        prometheus::register();
        let xds = settings.xds_settings()?;
        let (service, activity) = service(settings).await?;
        let limits = match xds {
            Some(settings) => Limits::Xds(Box::new(settings)),
            None => Limits::from_directory(settings.directory(), &service)?,
        };
        let store = settings.on_store_error().around(Arc::clone(service.decider().store()));
        let listeners = Listeners::bind(settings).await?;
        Ok(Self { service, store, activity, metrics, limits, listeners })
    }

    /// Serves until `shutdown` is ready and the requests in flight are answered.
    ///
    /// # Errors
    ///
    /// Returns an error if the task of a protocol has panicked.
    pub(crate) async fn run(self, shutdown: impl Future<Output = ()>) -> Result<(), Failure> {
        let Self { service, store, activity, metrics, limits, listeners } = self;
        let Listeners { grpc, http, resp, debug, metrics_alone, page } = listeners;
        stdout!("gRPC on {}, JSON on {}", grpc.address, http.url());
        http.warn_if_closed("/v1", "HTTP");
        let limits = limits.follow(Arc::clone(&service));
        let followed = Arc::clone(&service);
        // The task ends with the program.
        tokio::spawn(async move {
            tokio::join!(
                followed.follow_unreadable(log_unreadable("gRPC")),
                followed.follow_unreadable_json(log_unreadable("/json")),
            )
        });

        let (mut envoy, mut others) = (Running::new(), Running::new());
        if let Some(resp) = resp {
            stdout!("RESP on {}", resp.address);
            let calls = calls(&store, Source::Resp, "RESP", activity.clone());
            others.start(resp, |listener, settings, until| {
                resp::serve(listener, calls, settings, until)
            });
        }
        let v1 = calls(&store, Source::V1, "/v1", activity.clone());
        let routes = json::routes(Arc::clone(&service), Some(metrics.clone()))
            .merge(v1::routes(v1, http.settings.access.clone()));
        others.start_http(http, routes);
        if let Some(debug) = debug {
            stdout!("debug port on {}", debug.url());
            others.start_http(debug, debug::routes(Arc::clone(&service), metrics.clone()));
        }
        if let Some((metrics_alone, path)) = metrics_alone {
            stdout!("metrics on {}", metrics_alone.url());
            others.start_http(metrics_alone, prometheus::routes(metrics, path));
        }
        if let (Some(page), Some(activity)) = (page, activity) {
            stdout!("page on {}", page.url());
            page.warn_if_closed("the page", "PAGE");
            let sampled = Arc::clone(&activity);
            // The task ends with the program.
            tokio::spawn(async move { sampled.run().await });
            let routes = page::routes(activity, page.settings.access.clone());
            others.start_http(page, routes);
        }
        envoy.start(grpc, |listener, settings, until| {
            grpc::serve(listener, service, settings, until)
        });

        shutdown.await;
        // gRPC takes requests until its drain is over. The other protocols serve until then, so
        // that the metrics and the page include these requests.
        envoy.stop().await?;
        limits.abort();
        others.stop().await
    }
}

/// Returns the service, and the activity that the page shows if there is a page.
async fn service(settings: &Serve) -> Result<(Arc<Service>, Option<Arc<Activity>>), Failure> {
    let url = settings.store_url()?;
    let opened = stores::open("store", "the store", &url, &settings.connections.of(&url)?).await?;
    let mut decider = Decider::new(opened.store, settings.behaviour());
    let mut watched = vec![opened.watched];
    if let Some(url) = settings.per_second_url()? {
        let connections = settings.connections.of_per_second(&url)?;
        let (role, name) = ("limits per second", "the store of limits per second");
        let opened = stores::open(role, name, &url, &connections).await?;
        decider = decider.with_per_second_store(opened.store);
        watched.push(opened.watched);
    }
    if let Some(cache) = settings.deny_cache(watched.len()) {
        decider = decider.with_deny_cache(&cache);
    }
    let activity = settings.page.address().is_some().then(|| {
        let mut shown = ActivitySettings::default();
        shown.shows_subjects = settings.page.page_subjects;
        shown.on_store_error = settings.on_store_error();
        Arc::new(Activity::new(shown, watched, Instant::now()))
    });
    let service = Service::new(decider)
        .same_domain(settings.domains.same_domain())
        .on_store_error(settings.on_store_error())
        .starting_without_limits(settings.xds.starts_without_limits())
        .activity(activity.clone());
    Ok((Arc::new(service), activity))
}

/// Returns a function that logs requests of a protocol that cannot be read.
fn log_unreadable(protocol: &'static str) -> impl Fn(Unreadable) {
    move |unreadable| {
        let Unreadable { requests, peer, reason, .. } = unreadable;
        let peer = peer.map(|peer| format!(", from {peer}")).unwrap_or_default();
        stderr!(
            "tidegate-server: {requests} requests of {protocol} were not decided because they cannot be read; the \
             last one{peer}: {reason}"
        );
    }
}

/// Returns the calls of a protocol, and logs requests that cannot be read.
fn calls(
    store: &Arc<dyn Store>,
    source: Source,
    protocol: &'static str,
    activity: Option<Arc<Activity>>,
) -> Arc<Calls> {
    let calls = Arc::new(Calls::new(Arc::clone(store)).activity(source, activity));
    let followed = Arc::clone(&calls);
    // The task ends with the program.
    tokio::spawn(async move { followed.follow_unreadable(log_unreadable(protocol)).await });
    calls
}
