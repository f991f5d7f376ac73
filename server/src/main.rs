//! The program `tidegate-server`: see the README.
//!
//! Exit codes: 0 ended by a signal, or a directory that is valid; 1 a configuration, an address or a store that is
//! not; 2 bad usage.

mod descriptors;
mod limits;
mod log;
mod outages;
mod settings;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use tidegate_core::Store;
use tidegate_core::layers::BreakerWatch;
use tidegate_server::activity::{Activity, ActivitySettings, Source, WatchedStore};
use tidegate_server::calls::Calls;
use tidegate_server::config::{Config, SameDomain, left_out};
use tidegate_server::decide::Decider;
use tidegate_server::listener::Listener;
use tidegate_server::service::{Service, Unreadable};
use tidegate_server::store::{MEMORY, open_watched};
use tidegate_server::v1::{self, Access};
use tidegate_server::{debug, http, json, page, prometheus, resp, rls};
use tokio::net::TcpListener;
use tokio::sync::watch;

use limits::Limits;
use log::{say, write_error};
use settings::{Address, Listener as ListenerSettings, Settings, Task, read_only_settings};

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> ExitCode {
    let result = match settings::read() {
        Task::Serve(mut settings) => {
            log::start(settings.log);
            serve(&mut settings).map_err(|error| tracing::error!("{error}"))
        }
        Task::Check(directory, same_domain) => {
            check(directory.as_deref(), same_domain).map_err(|error| command_failed(&*error))
        }
        #[cfg(feature = "top")]
        Task::Top(top) => top.run().map_err(|error| command_failed(&error)),
        Task::Done => Ok(()),
    };
    result.map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS)
}

fn command_failed(error: &dyn std::error::Error) {
    write_error(format_args!("tidegate-server: {error}"));
}

fn check(directory: Option<&Path>, same_domain: SameDomain) -> Result<(), Failure> {
    let Some(directory) = directory else {
        say("the settings are valid; the limits come from a management server");
        return Ok(());
    };
    let config = Config::from_directory(directory, same_domain)?;
    let warnings = config.warnings().iter().map(ToString::to_string);
    for warning in warnings.chain(left_out(directory)) {
        write_error(format_args!("warning: {warning}"));
    }
    say(format_args!("{} limits in {} domains", config.limits(), config.domains().len()));
    Ok(())
}

fn warn(config: &Config) {
    for warning in config.warnings() {
        tracing::warn!("{warning}");
    }
}

fn warn_of_files(directory: &Path) {
    for message in left_out(directory) {
        tracing::warn!("{message}");
    }
}

/// The number of tasks that a thread runs before it looks for connections that have become
/// readable. With Tokio's default, a request waits for 61 tasks.
const EVENT_INTERVAL: u32 = 4;

fn serve(args: &mut Settings) -> Result<(), Failure> {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.enable_all().event_interval(EVENT_INTERVAL).build()?.block_on(serve_all(args))
}

async fn serve_all(args: &mut Settings) -> Result<(), Failure> {
    for warning in &args.warnings {
        tracing::warn!("{warning}");
    }
    descriptors::fit(args.max_connections());
    let args = &*args;
    // Before anything that counts is made.
    let recorder = prometheus::recorder()?;
    let metrics = recorder.handle();
    metrics::set_global_recorder(recorder)?;
    prometheus::register();
    let mut ended = Box::pin(signals()?);
    // A store that does not answer may take its time.
    let (service, activity) = tokio::select! {
        made = service(args) => made?,
        () = &mut ended => return Ok(()),
    };
    let limits = match &args.xds {
        Some(settings) => Limits::Xds(Box::new(settings.clone())),
        None => Limits::from_directory(args.directory.clone(), &service)?,
    };

    let grpc = args.grpc.listener.open(listen(args.grpc.listener.required_address()?).await?)?;
    let http = args.http.listener.open(listen(args.http.listener.required_address()?).await?)?;
    let resp = match &args.resp.listener.address {
        Some(address) => {
            let listener = listen(address).await?;
            let address = listener.local_addr()?;
            let settings = args.resp.settings(address)?;
            Some((args.resp.listener.open(listener)?, address, settings))
        }
        None => None,
    };
    let page = match &args.page.listener.address {
        Some(address) => Some(args.page.listener.open(listen(address).await?)?),
        None => None,
    };
    let debug = match &args.http.debug {
        Some(address) => Some(listen(address).await?),
        None => None,
    };
    let metrics_alone = match &args.http.metrics {
        Some(address) => Some(listen(address).await?),
        None => None,
    };
    let http_address = http.local_addr()?;
    let scheme = if http.is_encrypted() { "https" } else { "http" };
    say(format_args!("gRPC on {}, JSON on {scheme}://{http_address}", grpc.local_addr()?));
    let access = args.http.listener.access(http_address);
    if access == Access::Closed {
        tracing::error!(
            "/v1 is not served on {http_address}, which other machines reach: set a password (TIDEGATE_HTTP_PASSWORD, or \
             http.password_file in the settings file), or http.without_password = true in the settings file"
        );
    }

    let (stop, stopped) = watch::channel(false);
    let (stop_grpc, grpc_stopped) = watch::channel(false);
    let until_stopped = |mut stopped: watch::Receiver<bool>| async move {
        // The sender lives until the end.
        let _ = stopped.wait_for(|stopped| *stopped).await;
    };
    let limits = limits.follow(Arc::clone(&service));
    let followed = Arc::clone(&service);
    // Ends with the program.
    tokio::spawn(async move {
        tokio::join!(
            followed.follow_unreadable(log_unreadable("gRPC")),
            followed.follow_unreadable_json(log_unreadable("/json")),
        )
    });
    let store = args.store.on_error.around(Arc::clone(service.decider().store()));
    let resp = resp.map(|(listener, address, settings)| {
        say(format_args!("RESP on {address}"));
        let stopped = until_stopped(stopped.clone());
        let calls = calls(&store, Source::Resp, "RESP", activity.clone());
        tokio::spawn(resp::serve(listener, calls, settings, stopped))
    });
    let routes = json::routes(Arc::clone(&service), Some(metrics.clone()));
    let routes =
        routes.merge(v1::routes(calls(&store, Source::V1, "/v1", activity.clone()), access));
    let debug = match debug {
        Some(listener) => {
            say(format_args!("debug port on http://{}", listener.local_addr()?));
            let routes = debug::routes(Arc::clone(&service), metrics.clone());
            let until = until_stopped(stopped.clone());
            Some(tokio::spawn(http::serve(listener, routes, read_only_settings(), until)))
        }
        None => None,
    };
    let metrics_alone = match metrics_alone {
        Some(listener) => {
            say(format_args!("metrics on http://{}", listener.local_addr()?));
            let routes = prometheus::routes(metrics, args.http.metrics_path.clone());
            let until = until_stopped(stopped.clone());
            Some(tokio::spawn(http::serve(listener, routes, read_only_settings(), until)))
        }
        None => None,
    };
    let page = match (page, activity) {
        (Some(listener), Some(activity)) => {
            let access = page_access(&args.page.listener, &listener)?;
            let (run, until) = (Arc::clone(&activity), until_stopped(stopped.clone()));
            tokio::spawn(async move { run.run().await });
            let routes = page::routes(activity, access);
            Some(tokio::spawn(http::serve(listener, routes, read_only_settings(), until)))
        }
        _ => None,
    };
    let until = until_stopped(stopped);
    let http = tokio::spawn(http::serve(http, routes, args.http.settings(), until));
    let grpc =
        tokio::spawn(rls::serve(grpc, service, args.grpc.settings(), until_stopped(grpc_stopped)));

    ended.await;
    stop_grpc.send_replace(true);
    // It takes requests for a while, and these are counted as all are.
    grpc.await?;
    stop.send_replace(true);
    limits.abort();
    http.await?;
    for served in [resp, debug, metrics_alone, page].into_iter().flatten() {
        served.await?;
    }
    Ok(())
}

/// The readers of the page, whose address is told.
fn page_access(settings: &ListenerSettings, listener: &Listener) -> Result<Access, Failure> {
    let address = listener.local_addr()?;
    let scheme = if listener.is_encrypted() { "https" } else { "http" };
    say(format_args!("page on {scheme}://{address}"));
    let access = settings.access(address);
    if access == Access::Closed {
        tracing::error!(
            "the page is not served on {address}, which other machines reach: set a password (TIDEGATE_PAGE_PASSWORD, or \
             page.password_file in the settings file), or page.without_password = true in the settings file"
        );
    }
    Ok(access)
}

/// The service, and what records what it does, if a page shows it.
async fn service(args: &Settings) -> Result<(Arc<Service>, Option<Arc<Activity>>), Failure> {
    let url = &args.store.url;
    let (store, breaker) = open_watched(url, &args.store.settings()?)?;
    let shown = WatchedStore::new("store", url, Arc::clone(&store), breaker.clone());
    begin("the store", shown.url(), &store, breaker).await;
    let mut watched = vec![shown];
    let mut decider = Decider::new(store, args.answers.clone());
    if let Some(url) = &args.store.per_second_url {
        let (store, breaker) = open_watched(url, &args.store.per_second_settings(url)?)?;
        let shown =
            WatchedStore::new("limits per second", url, Arc::clone(&store), breaker.clone());
        begin("the store of limits per second", shown.url(), &store, breaker).await;
        watched.push(shown);
        decider = decider.with_per_second_store(store);
    }
    if let Some(cache) = args.store.deny_cache(watched.len()) {
        decider = decider.with_deny_cache(&cache);
    }
    let activity = args.page.listener.address.is_some().then(|| {
        let mut settings = ActivitySettings::default();
        settings.shows_subjects = args.page.shows_subjects;
        settings.on_store_error = args.store.on_error;
        Arc::new(Activity::new(settings, watched, Instant::now()))
    });
    let service = Service::new(decider)
        .same_domain(args.same_domain)
        .on_store_error(args.store.on_error)
        .starting_without_limits(args.starts_without_limits)
        .activity(activity.clone());
    Ok((Arc::new(service), activity))
}

/// Says which store it is, and that it cannot decide, if so: now and from now on. A store that is down at the start is
/// no reason not to start: requests are answered as when it fails later.
async fn begin(what: &str, url: &str, store: &Arc<dyn Store>, breaker: Option<BreakerWatch>) {
    if url == MEMORY {
        tracing::info!(
            "{what} is the memory of this process: counts end with it, and no other server has them"
        );
    } else {
        tracing::info!("{what} is {url}");
    }
    if let Err(error) = store.ready().await {
        tracing::error!("{what} is not ready: {error:#}");
    }
    if let Some(breaker) = breaker {
        // Ends with the program.
        tokio::spawn(outages::report(what.to_owned(), Arc::clone(store), breaker));
    }
}

/// Returns a function that logs requests of a protocol that cannot be read.
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

/// Returns the calls of a protocol, and logs those that cannot be read.
fn calls(
    store: &Arc<dyn Store>,
    source: Source,
    protocol: &'static str,
    activity: Option<Arc<Activity>>,
) -> Arc<Calls> {
    let calls = Arc::new(Calls::new(Arc::clone(store)).activity(source, activity));
    let followed = Arc::clone(&calls);
    // Ends with the program.
    tokio::spawn(async move { followed.follow_unreadable(log_unreadable(protocol)).await });
    calls
}

fn report(service: &Service) {
    if let Some(config) = service.decider().config() {
        warn(&config);
        tracing::info!("{} limits in {} domains", config.limits(), config.domains().len());
    }
}

async fn listen(address: &Address) -> Result<TcpListener, Failure> {
    let Address { host, port, name } = address;
    // An address of IPv6 may be written as in a URL.
    let bare = host.strip_prefix('[').and_then(|it| it.strip_suffix(']')).unwrap_or(host);
    TcpListener::bind((bare, *port)).await.map_err(|error| {
        let shown = if bare.contains(':') { format!("[{bare}]") } else { bare.to_owned() };
        format!("cannot listen on {shown}:{port} ({name}): {error}").into()
    })
}

/// Waits for a signal to end. From now on none ends the program by itself, nor is one lost, as those would be that the
/// first process of a container does not wait for.
#[cfg(unix)]
fn signals() -> std::io::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    // As envoyproxy/ratelimit. Files are read again when they change, and not by a signal.
    let mut hangup = signal(SignalKind::hangup())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            _ = hangup.recv() => {}
        }
    })
}

#[cfg(not(unix))]
fn signals() -> std::io::Result<impl Future<Output = ()>> {
    Ok(async {
        // Without a handler, the system ends the program.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    })
}
