//! The debug port of envoyproxy/ratelimit.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use metrics_exporter_prometheus::PrometheusHandle;

use crate::envoy::service::Service;

/// The paths that `GET /` lists.
const PATHS: &str = "/rlconfig: the limits in force, as envoyproxy/ratelimit prints them\n\
                     /stats: the metrics, in the text format of Prometheus\n";

const NO_PPROF: &str = "this server has no pprof profiles, because it is not written in Go; use perf or another profiler \
                        of the system\n";

/// Returns the routes of the debug port.
///
/// | route | answer |
/// |---|---|
/// | `GET /` | the other routes |
/// | `GET /rlconfig` | a line per limit, in the order of their keys |
/// | `GET /stats` | the metrics, in the text format of Prometheus |
/// | `GET /debug/pprof/` and all paths below it | 501, because the server has no Go profiles |
pub fn routes(service: Arc<Service>, metrics: PrometheusHandle) -> Router {
    let no_pprof = || async { (StatusCode::NOT_IMPLEMENTED, NO_PPROF) };
    Router::new()
        .route("/", get(|| async { PATHS }))
        .route("/rlconfig", get(limits))
        .with_state(service)
        .route("/stats", get(move || async move { metrics.render() }))
        .route("/debug/pprof/", get(no_pprof))
        .route("/debug/pprof/{*profile}", get(no_pprof))
}

async fn limits(State(service): State<Arc<Service>>) -> Response {
    let config = service.decider().config();
    config.map(|config| config.dump()).unwrap_or_default().into_response()
}
