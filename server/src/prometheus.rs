//! Metrics in the text format of Prometheus.

use std::time::Duration;

use axum::Router;
use axum::http::{StatusCode, Uri};
use axum::response::IntoResponse;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::time::{MissedTickBehavior, interval};

/// How often recorded times are put into their summaries, as the exporter does where it listens by itself.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(5);

/// Puts recorded times into their summaries, again and again: each takes memory until then, and nobody may ever fetch
/// the metrics. Never returns.
pub async fn run_upkeep(metrics: PrometheusHandle) {
    let mut interval = interval(UPKEEP_INTERVAL);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        metrics.run_upkeep();
    }
}

/// The metrics at one path, and 404 at all others.
pub fn routes(metrics: PrometheusHandle, path: String) -> Router {
    Router::new().fallback(move |uri: Uri| async move {
        if uri.path() == path {
            metrics.render().into_response()
        } else {
            StatusCode::NOT_FOUND.into_response()
        }
    })
}
