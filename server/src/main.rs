//! The program `tidegate-server`: see the README.
//!
//! Exit codes: 0 ended by a signal, or a directory that is valid; 1 a configuration, an address or a store that is
//! not; 2 bad usage.

#[macro_use]
mod lines;
mod descriptors;
mod limits;
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
use settings::{Cli, Command, Serve, read_only_settings};

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> ExitCode {
    let mut cli = Cli::read();
    let result = match &cli.command {
        Some(Command::Check { directory, domains }) => check(directory, domains.same_domain()),
        #[cfg(feature = "top")]
        Some(Command::Top(args)) => args.run().map_err(Into::into),
        None => serve(&mut cli.serve),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            stderr!("tidegate-server: {error}");
            ExitCode::FAILURE
        }
    }
}

fn check(directory: &Path, same_domain: SameDomain) -> Result<(), Failure> {
    let config = Config::from_directory(directory, same_domain)?;
    warn(&config);
    warn_of_files(directory);
    stdout!("{} limits in {} domains", config.limits(), config.domains().len());
    Ok(())
}

fn warn(config: &Config) {
    for warning in config.warnings() {
        stderr!("warning: {warning}");
    }
}

fn warn_of_files(directory: &Path) {
    for message in left_out(directory) {
        stderr!("warning: {message}");
    }
}

/// The number of tasks that a thread runs before it looks for connections that have become
/// readable. With Tokio's default, a request waits for 61 tasks.
const EVENT_INTERVAL: u32 = 4;

fn serve(args: &mut Serve) -> Result<(), Failure> {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.enable_all().event_interval(EVENT_INTERVAL).build()?.block_on(serve_all(args))
}

async fn serve_all(args: &mut Serve) -> Result<(), Failure> {
    args.check()?;
    descriptors::fit(args.max_connections());
    let args = &*args;
    // Before anything that counts is made.
    let recorder = prometheus::recorder()?;
    let metrics = recorder.handle();
    metrics::set_global_recorder(recorder)?;
    prometheus::register();
    let xds = args.xds_settings()?;
    let mut ended = Box::pin(signals()?);
    // A store that does not answer may take its time.
    let (service, activity) = tokio::select! {
        made = service(args) => made?,
        () = &mut ended => return Ok(()),
    };
    let limits = match xds {
        Some(settings) => Limits::Xds(Box::new(settings)),
        None => Limits::from_directory(args.directory(), &service)?,
    };

    let grpc = args.tls.grpc().listener(listen("GRPC_PORT", args.grpc.address()).await?)?;
    let http = args.tls.http().listener(listen("PORT", args.http.address()).await?)?;
    let resp = match args.resp.address() {
        Some(address) => {
            let listener = listen("TIDEGATE_RESP_PORT", address).await?;
            let address = listener.local_addr()?;
            let settings = args.resp.settings(address)?;
            Some((args.tls.resp().listener(listener)?, address, settings))
        }
        None => None,
    };
    let page = match args.page.address() {
        Some(address) => {
            let listener = listen("TIDEGATE_PAGE_PORT", address).await?;
            Some(args.tls.page().listener(listener)?)
        }
        None => None,
    };
    let debug = match args.debug.address() {
        Some(address) => Some(listen("DEBUG_PORT", address).await?),
        None => None,
    };
    let metrics_alone = match args.prometheus.address()? {
        Some(address) => Some(listen("PROMETHEUS_ADDR", address).await?),
        None => None,
    };
    let http_address = http.local_addr()?;
    let scheme = if http.is_encrypted() { "https" } else { "http" };
    stdout!("gRPC on {}, JSON on {scheme}://{http_address}", grpc.local_addr()?);
    let access = args.http.access(http_address);
    if access == Access::Closed {
        stderr!(
            "tidegate-server: /v1 is not served on {http_address}, which other machines reach, without a password \
             (TIDEGATE_HTTP_PASSWORD), or being told that it needs none (TIDEGATE_HTTP_WITHOUT_PASSWORD)"
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
    let store = args.on_store_error().around(Arc::clone(service.decider().store()));
    let resp = resp.map(|(listener, address, settings)| {
        stdout!("RESP on {address}");
        let stopped = until_stopped(stopped.clone());
        let calls = calls(&store, Source::Resp, "RESP", activity.clone());
        tokio::spawn(resp::serve(listener, calls, settings, stopped))
    });
    let routes = json::routes(Arc::clone(&service), Some(metrics.clone()));
    let routes =
        routes.merge(v1::routes(calls(&store, Source::V1, "/v1", activity.clone()), access));
    let debug = match debug {
        Some(listener) => {
            stdout!("debug port on http://{}", listener.local_addr()?);
            let routes = debug::routes(Arc::clone(&service), metrics.clone());
            let until = until_stopped(stopped.clone());
            Some(tokio::spawn(http::serve(listener, routes, read_only_settings(), until)))
        }
        None => None,
    };
    let metrics_alone = match metrics_alone {
        Some(listener) => {
            stdout!("metrics on http://{}", listener.local_addr()?);
            let routes = prometheus::routes(metrics, args.prometheus.path());
            let until = until_stopped(stopped.clone());
            Some(tokio::spawn(http::serve(listener, routes, read_only_settings(), until)))
        }
        None => None,
    };
    let page = match (page, activity) {
        (Some(listener), Some(activity)) => {
            let access = page_access(args, &listener)?;
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
fn page_access(args: &Serve, listener: &Listener) -> Result<Access, Failure> {
    let address = listener.local_addr()?;
    let scheme = if listener.is_encrypted() { "https" } else { "http" };
    stdout!("page on {scheme}://{address}");
    let access = args.page.access(address);
    if access == Access::Closed {
        stderr!(
            "tidegate-server: the page is not served on {address}, which other machines reach, without a password \
             (TIDEGATE_PAGE_PASSWORD), or being told that it needs none (TIDEGATE_PAGE_WITHOUT_PASSWORD)"
        );
    }
    Ok(access)
}

/// The service, and what records what it does, if a page shows it.
async fn service(args: &Serve) -> Result<(Arc<Service>, Option<Arc<Activity>>), Failure> {
    let url = args.store_url()?;
    let (store, breaker) = open_watched(&url, &args.connections.of(&url)?)?;
    let shown = WatchedStore::new("store", &url, Arc::clone(&store), breaker.clone());
    begin("the store", shown.url(), &store, breaker).await;
    let mut watched = vec![shown];
    let mut decider = Decider::new(store, args.behaviour());
    if let Some(url) = args.per_second_url()? {
        let (store, breaker) = open_watched(&url, &args.connections.of_per_second(&url)?)?;
        let shown =
            WatchedStore::new("limits per second", &url, Arc::clone(&store), breaker.clone());
        begin("the store of limits per second", shown.url(), &store, breaker).await;
        watched.push(shown);
        decider = decider.with_per_second_store(store);
    }
    if let Some(cache) = args.deny_cache(watched.len()) {
        decider = decider.with_deny_cache(&cache);
    }
    let activity = args.page.address().is_some().then(|| {
        let mut settings = ActivitySettings::default();
        settings.shows_subjects = args.page.page_subjects;
        settings.on_store_error = args.on_store_error();
        Arc::new(Activity::new(settings, watched, Instant::now()))
    });
    let service = Service::new(decider)
        .same_domain(args.domains.same_domain())
        .on_store_error(args.on_store_error())
        .starting_without_limits(args.xds.starts_without_limits())
        .activity(activity.clone());
    Ok((Arc::new(service), activity))
}

/// Says which store it is, and that it cannot decide, if so: now and from now on. A store that is down at the start is
/// no reason not to start: requests are answered as when it fails later.
async fn begin(what: &str, url: &str, store: &Arc<dyn Store>, breaker: Option<BreakerWatch>) {
    if url == MEMORY {
        stderr!(
            "{what} is the memory of this process: counts end with it, and no other server has them"
        );
    } else {
        stderr!("{what} is {url}");
    }
    if let Err(error) = store.ready().await {
        stderr!("tidegate-server: {what} is not ready: {error:#}");
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
        stderr!(
            "tidegate-server: {requests} requests of {protocol} were not decided because they cannot be read; the \
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
        stderr!("{} limits in {} domains", config.limits(), config.domains().len());
    }
}

async fn listen(variable: &str, address: (&str, u16)) -> Result<TcpListener, Failure> {
    let (host, port) = address;
    // An address of IPv6 may be written as in a URL.
    let bare = host.strip_prefix('[').and_then(|it| it.strip_suffix(']')).unwrap_or(host);
    TcpListener::bind((bare, port)).await.map_err(|error| {
        let shown = if bare.contains(':') { format!("[{bare}]") } else { bare.to_owned() };
        format!("cannot listen on {shown}:{port} ({variable}): {error}").into()
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
