//! Whether this server is to be asked, in the protocol of gRPC's health checks.

use std::sync::Arc;
use std::time::Duration;

use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use crate::envoy::service::Service;

/// The name of the service for health checks, as envoyproxy/ratelimit has it. That of the whole server is empty.
pub const NAME: &str = "ratelimit";

/// The service, and the whole server.
const NAMES: [&str; 2] = ["", NAME];

/// How often the stores are asked whether they can decide, and whether limits are in force at last.
pub const INTERVAL: Duration = Duration::from_millis(500);

/// When the health of the service is `NOT_SERVING`, beside the time before any [limits](Service::has_limits).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct HealthSettings {
    /// It is also while a store cannot decide.
    pub needs_store: bool,
    /// For how long requests are still taken once it is so at shutdown. Clients that check the health ask other servers
    /// by then, and none finds a closed port.
    pub drain: Duration,
}

/// Whether requests can be decided, before any store was asked.
pub(crate) fn is_ready_at_start(service: &Service, settings: HealthSettings) -> bool {
    !settings.needs_store && service.has_limits()
}

/// Reports the health until `shutdown` is ready, and returns when the server has been drained. `is_ready` is what was
/// reported already. Clients that watch the health have been told by then, and their streams have ended: they would
/// last for as long as the clients do.
pub(crate) async fn report(
    mut reporter: HealthReporter,
    service: Arc<Service>,
    settings: HealthSettings,
    is_ready: bool,
    shutdown: impl Future<Output = ()>,
) {
    tokio::select! {
        () = shutdown => {}
        () = follow(&reporter, &service, settings, is_ready) => {}
    }
    // `GET /healthcheck` fails from now on, too.
    service.drain();
    set(&reporter, false).await;
    tokio::time::sleep(settings.drain).await;
    for name in NAMES {
        reporter.clear_service_status(name).await;
    }
}

/// Never returns.
async fn follow(
    reporter: &HealthReporter,
    service: &Service,
    settings: HealthSettings,
    mut was_ready: bool,
) {
    loop {
        // Limits that are in force stay so; a store may fail at any time.
        if was_ready && !settings.needs_store {
            return std::future::pending().await;
        }
        let is_ready = match settings.needs_store {
            true => service.ready().await.is_ok(),
            false => service.has_limits(),
        };
        // Clients that watch are told of changes only.
        if is_ready != was_ready {
            set(reporter, is_ready).await;
        }
        was_ready = is_ready;
        tokio::time::sleep(INTERVAL).await;
    }
}

/// Sets the health of the service and of the whole server.
pub(crate) async fn set(reporter: &HealthReporter, is_ready: bool) {
    let status = if is_ready { ServingStatus::Serving } else { ServingStatus::NotServing };
    for name in NAMES {
        reporter.set_service_status(name, status).await;
    }
}
