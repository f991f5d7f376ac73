//! Reports through gRPC's health check protocol whether clients should send requests to this
//! server.

use std::sync::Arc;
use std::time::Duration;

use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use crate::envoy::service::Service;

/// The name of the service in health checks, as in envoyproxy/ratelimit. The empty name stands for
/// the whole server.
pub const NAME: &str = "ratelimit";

/// The names in health checks: the empty name for the whole server, and the name of the service.
const NAMES: [&str; 2] = ["", NAME];

/// The interval at which the server checks whether the stores can decide and whether limits are
/// loaded.
pub const INTERVAL: Duration = Duration::from_millis(500);

/// The conditions under which the health of the service is `NOT_SERVING`. The health is also
/// `NOT_SERVING` before any [limits](Service::has_limits) are loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct HealthSettings {
    /// Whether the health is `NOT_SERVING` while a store cannot decide.
    pub needs_store: bool,
    /// The time for which requests are still accepted after the service becomes `NOT_SERVING` at
    /// shutdown. During this time, clients that check the health switch to other servers, so that
    /// no client finds a closed port.
    pub drain: Duration,
}

/// Returns `true` if the health is `SERVING` from the start, because limits are loaded and the
/// health does not depend on the stores.
pub(crate) fn is_ready_at_start(service: &Service, settings: HealthSettings) -> bool {
    !settings.needs_store && service.has_limits()
}

/// Reports the health until `shutdown` completes, and returns after [`HealthSettings::drain`].
/// `is_ready` is the health that was reported before the call. At the end, the function closes the
/// streams of clients that watch the health, because these clients would keep the streams open.
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
    // `drain` makes `GET /healthcheck` fail too.
    service.drain();
    set(&reporter, false).await;
    tokio::time::sleep(settings.drain).await;
    for name in NAMES {
        reporter.clear_service_status(name).await;
    }
}

/// Reports changes of the health. This function never returns.
async fn follow(
    reporter: &HealthReporter,
    service: &Service,
    settings: HealthSettings,
    mut was_ready: bool,
) {
    loop {
        // Limits are never unloaded. If the health depends only on whether there are limits, it
        // stays `SERVING` once they are loaded.
        if was_ready && !settings.needs_store && !service.needs_domain() {
            return std::future::pending().await;
        }
        let is_ready = match settings.needs_store {
            true => service.ready().await.is_ok(),
            false => service.has_limits(),
        };
        // A client that watches the health is notified only of changes.
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
