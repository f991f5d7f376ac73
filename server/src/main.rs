//! The program `tidegate-server`: see the README.
//!
//! Exit codes: 0 ended by a signal, or a directory that is valid; 1 a configuration, an address or a store that is
//! not; 2 bad usage.

mod args;
mod descriptors;
mod limits;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use clap::Parser;
use tidegate_core::Store;
use tidegate_server::activity::{Activity, ActivitySettings, Source, WatchedStore};
use tidegate_server::calls::Calls;
use tidegate_server::config::{Config, SameDomain};
use tidegate_server::decide::Decider;
use tidegate_server::listener::Listener;
use tidegate_server::service::Service;
use tidegate_server::store::open_watched;
use tidegate_server::v1::{self, Access};
use tidegate_server::{http, json, page, prometheus, resp, rls};
use tokio::net::TcpListener;
use tokio::sync::watch;

use args::{Cli, Command, Serve, read_only_settings};
use limits::Limits;

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match &cli.command {
        Some(Command::Check { directory, domains }) => check(directory, domains.same_domain()),
        #[cfg(feature = "top")]
        Some(Command::Top(args)) => args.run().map_err(Into::into),
        None => serve(&cli.serve),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tidegate-server: {error}");
            ExitCode::FAILURE
        }
    }
}

fn check(directory: &Path, same_domain: SameDomain) -> Result<(), Failure> {
    let config = Config::from_directory(directory, same_domain)?;
    warn(&config);
    println!("{} limits in {} domains", config.limits(), config.domains().len());
    Ok(())
}

fn warn(config: &Config) {
    for warning in config.warnings() {
        eprintln!("warning: {warning}");
    }
}

#[tokio::main]
async fn serve(args: &Serve) -> Result<(), Failure> {
    args.check()?;
    descriptors::raise(args.max_connections());
    // Before anything that counts is made.
    let recorder = prometheus::recorder();
    let metrics = recorder.handle();
    metrics::set_global_recorder(recorder)?;
    let xds = args.xds_settings()?;
    let (service, activity) = service(args).await?;
    let limits = match xds {
        Some(settings) => Limits::Xds(settings),
        None => Limits::from_directory(args.directory(), &service)?,
    };

    let grpc = args.tls.grpc().listener(listen("GRPC_PORT", args.grpc_address()).await?)?;
    let http = args.tls.http().listener(listen("PORT", args.http.address()).await?)?;
    let resp = match args.resp_address() {
        Some(address) => {
            let listener = listen("TIDEGATE_RESP_PORT", address).await?;
            let address = listener.local_addr()?;
            let settings = args.resp_settings(address)?;
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
    let metrics_alone = match args.prometheus.address()? {
        Some(address) => Some(listen("PROMETHEUS_ADDR", address).await?),
        None => None,
    };
    let http_address = http.local_addr()?;
    let scheme = if http.is_encrypted() { "https" } else { "http" };
    println!("gRPC on {}, JSON on {scheme}://{http_address}", grpc.local_addr()?);
    let access = args.http.access(http_address);
    if access == Access::Closed {
        eprintln!(
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
    let store = args.on_store_error().around(Arc::clone(service.decider().store()));
    let calls =
        |source| Arc::new(Calls::new(Arc::clone(&store)).activity(source, activity.clone()));
    let resp = resp.map(|(listener, address, settings)| {
        println!("RESP on {address}");
        let stopped = until_stopped(stopped.clone());
        tokio::spawn(resp::serve(listener, calls(Source::Resp), settings, stopped))
    });
    let routes = json::routes(Arc::clone(&service), Some(metrics.clone()));
    let routes = routes.merge(v1::routes(calls(Source::V1), access));
    let metrics_alone = match metrics_alone {
        Some(listener) => {
            println!("metrics on http://{}", listener.local_addr()?);
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
        tokio::spawn(rls::serve(grpc, service, args.grpc_settings(), until_stopped(grpc_stopped)));

    signal().await?;
    stop_grpc.send_replace(true);
    // It takes requests for a while, and these are counted as all are.
    grpc.await??;
    stop.send_replace(true);
    limits.abort();
    http.await?;
    for served in [resp, metrics_alone, page].into_iter().flatten() {
        served.await?;
    }
    Ok(())
}

/// The readers of the page, whose address is told.
fn page_access(args: &Serve, listener: &Listener) -> Result<Access, Failure> {
    let address = listener.local_addr()?;
    let scheme = if listener.is_encrypted() { "https" } else { "http" };
    println!("page on {scheme}://{address}");
    let access = args.page.access(address);
    if access == Access::Closed {
        eprintln!(
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
    let mut watched = vec![WatchedStore::new("store", &url, Arc::clone(&store), breaker)];
    ready("the store", &*store).await;
    let mut decider = Decider::new(store, args.behaviour());
    if let Some(url) = args.per_second_url()? {
        let (store, breaker) = open_watched(&url, &args.connections.of_per_second(&url)?)?;
        watched.push(WatchedStore::new("limits per second", &url, Arc::clone(&store), breaker));
        ready("the store of limits per second", &*store).await;
        decider = decider.with_per_second_store(store);
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

/// A store that is down at the start is no reason not to start: requests are answered as when it fails later.
async fn ready(what: &str, store: &dyn Store) {
    if let Err(error) = store.ready().await {
        eprintln!("tidegate-server: {what} is not ready: {error:#}");
    }
}

fn report(service: &Service) {
    if let Some(config) = service.decider().config() {
        warn(&config);
        eprintln!("{} limits in {} domains", config.limits(), config.domains().len());
    }
}

async fn listen(variable: &str, address: (&str, u16)) -> Result<TcpListener, Failure> {
    TcpListener::bind(address).await.map_err(|error| {
        let (host, port) = address;
        format!("cannot listen on {host}:{port} ({variable}): {error}").into()
    })
}

/// Waits for the signal to end.
#[cfg(unix)]
async fn signal() -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut terminate, mut interrupt) =
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}

#[cfg(not(unix))]
async fn signal() -> std::io::Result<()> {
    tokio::signal::ctrl_c().await
}
