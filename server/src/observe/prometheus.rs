//! Metrics in the text format of Prometheus.

use std::time::Duration;

use axum::Router;
use axum::http::{StatusCode, Uri};
use axum::response::IntoResponse;
use metrics::gauge;
use metrics_exporter_prometheus::{
    BuildError, Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder,
};
#[cfg(target_os = "linux")]
use metrics_process::Collector;
use tidegate_core::telemetry::names::SECONDS_BUCKETS;
use tokio::time::{MissedTickBehavior, interval};

/// The interval at which recorded times are added to their histograms. The crate
/// `metrics-exporter-prometheus` uses the same interval in its own server.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(5);

/// Creates a recorder of metrics and a task that adds recorded times to their histograms. Without
/// the task, each recorded time would take memory until the metrics are fetched, which may never
/// happen.
///
/// Times are recorded in histograms, as in envoyproxy/ratelimit, because the quantiles of several
/// servers cannot be combined.
///
/// # Errors
///
/// Returns an error if the exporter does not accept the buckets of the histograms.
///
/// # Panics
///
/// Panics if it is called outside of a Tokio runtime.
pub fn recorder() -> Result<PrometheusRecorder, BuildError> {
    let times = Matcher::Suffix("_seconds".to_owned());
    let builder = PrometheusBuilder::new().set_buckets_for_metric(times, &SECONDS_BUCKETS)?;
    let recorder = builder.build_recorder();
    tokio::spawn(run_upkeep(recorder.handle()));
    Ok(recorder)
}

/// Registers the version of the program and the metrics of its process with the installed recorder.
pub fn register() {
    gauge!("tidegate_build_info", "version" => env!("CARGO_PKG_VERSION")).set(1);
    #[cfg(target_os = "linux")]
    Collector::default().describe();
}

/// Updates the metrics of the process in the global recorder, and returns all metrics as text.
///
/// # Errors
///
/// Returns an error if the runtime shuts down during the call.
pub(crate) async fn render(metrics: PrometheusHandle) -> Result<String, StatusCode> {
    let render = move || {
        #[cfg(target_os = "linux")]
        Collector::default().collect();
        metrics.render()
    };
    // The metrics of the process include the number of open files, which takes long to count. The
    // collection runs on a blocking thread, so that it does not delay decisions.
    let text = tokio::task::spawn_blocking(render).await;
    text.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)
}

/// Adds recorded times to their histograms at regular intervals. This function never returns.
async fn run_upkeep(metrics: PrometheusHandle) {
    let mut interval = interval(UPKEEP_INTERVAL);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        metrics.run_upkeep();
    }
}

/// Returns a router that serves the metrics at `path`, and answers 404 for all other paths.
pub fn routes(metrics: PrometheusHandle, path: String) -> Router {
    Router::new().fallback(move |uri: Uri| async move {
        if uri.path() == path {
            render(metrics).await.into_response()
        } else {
            StatusCode::NOT_FOUND.into_response()
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_times_take_memory_for_some_seconds_only() {
        const TIMES: u32 = 10_000;

        let memory = allocation_counter::measure(|| {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime.enable_time().start_paused(true).build().unwrap();
            runtime.block_on(async {
                let recorder = recorder().unwrap();
                let time =
                    metrics::with_local_recorder(&recorder, || metrics::histogram!("time_seconds"));
                for _ in 0..30 {
                    for _ in 0..TIMES {
                        time.record(0.001);
                    }
                    tokio::time::sleep(UPKEEP_INTERVAL).await;
                }
            });
        });
        // Without upkeep, the 300,000 recorded times would take 16 bytes each (4.8 MB).
        assert!(memory.bytes_max < 2 << 20, "{}", memory.bytes_max);
    }
}
