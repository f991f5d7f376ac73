//! Whether this server is to be asked, in the protocol of gRPC's health checks.

use std::sync::Arc;
use std::time::Duration;

use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use crate::service::Service;

/// The name of the service for health checks, as envoyproxy/ratelimit has it. That of the whole server is empty.
pub const NAME: &str = "ratelimit";

/// The service, and the whole server.
const NAMES: [&str; 2] = ["", NAME];

/// How often the stores are asked whether they can decide.
pub const INTERVAL: Duration = Duration::from_millis(500);

/// When the health of the service is `NOT_SERVING`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct HealthSettings {
    /// It is also while a store cannot decide (`REDIS_HEALTH_CHECK_ACTIVE_CONNECTION`).
    pub needs_store: bool,
    /// For how long requests are still taken once it is so at shutdown. Clients that check the health ask other servers
    /// by then, and none finds a closed port.
    pub drain: Duration,
}

/// Reports the health until `shutdown` is ready, and returns when the server has been drained. Clients that watch the
/// health have been told by then, and their streams have ended: they would last for as long as the clients do.
pub(crate) async fn report(
    mut reporter: HealthReporter,
    service: Arc<Service>,
    settings: HealthSettings,
    shutdown: impl Future<Output = ()>,
) {
    if settings.needs_store {
        tokio::select! {
            () = shutdown => {}
            () = follow_stores(&reporter, &service) => {}
        }
    } else {
        shutdown.await;
    }
    set(&reporter, ServingStatus::NotServing).await;
    tokio::time::sleep(settings.drain).await;
    for name in NAMES {
        reporter.clear_service_status(name).await;
    }
}

/// Never returns. The health is `NOT_SERVING` before.
async fn follow_stores(reporter: &HealthReporter, service: &Service) {
    let mut was_ready = false;
    loop {
        let is_ready = service.ready().await.is_ok();
        // Clients that watch are told of changes only.
        if is_ready != was_ready {
            let status = if is_ready { ServingStatus::Serving } else { ServingStatus::NotServing };
            set(reporter, status).await;
        }
        was_ready = is_ready;
        tokio::time::sleep(INTERVAL).await;
    }
}

/// Sets the health of the service and of the whole server.
pub(crate) async fn set(reporter: &HealthReporter, status: ServingStatus) {
    for name in NAMES {
        reporter.set_service_status(name, status).await;
    }
}
