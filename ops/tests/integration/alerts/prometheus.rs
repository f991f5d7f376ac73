//! A Prometheus that scrapes one program and evaluates the alert rules of this project.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use tidegate_test_servers::{Program, eventually, free_port};

use super::http;

pub(crate) struct Prometheus {
    port: u16,
    program: Program,
}

impl Prometheus {
    /// Starts a Prometheus that scrapes the port `target`, and waits until it answers.
    pub(crate) async fn start(target: u16) -> Self {
        // The start is retried, because another program can take the free port before Prometheus
        // does.
        for _ in 0..5 {
            let port = free_port().unwrap();
            let program = Program::start(|dir| prepare(dir, port, target)).unwrap();
            let prometheus = Self { port, program };
            if prometheus.is_ready().await {
                return prometheus;
            }
        }
        panic!("found no port for Prometheus");
    }

    /// Returns `true` if Prometheus answers, and `false` if another program has taken its port.
    async fn is_ready(&self) -> bool {
        let ready = eventually(Duration::from_secs(15), "Prometheus", async || {
            if self.program.has_ended() {
                return Some(false);
            }
            http::get(self.port, "/-/ready").await.map(|_| true)
        });
        let ready = ready.await.unwrap_or(false);
        let log = self.program.log();
        assert!(
            ready || log.contains("address already in use"),
            "`prometheus` does not run (install it by .ci/install-prometheus, or set \
             TIDEGATE_PROMETHEUS to the path of one):\n{log}"
        );
        ready
    }

    pub(crate) async fn alerts(&self) -> Vec<(String, String)> {
        let alerts = self.ask("/api/v1/alerts").await["alerts"].take();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let alerts = alerts.as_array().unwrap().iter();
        alerts.map(|a| (text(&a["labels"]["alertname"]), text(&a["state"]))).collect()
    }

    /// Waits until the state of an alert is `state`, which is `firing` or `inactive`.
    pub(crate) async fn wait_for_alert(&self, within: Duration, alert: &str, state: &str) {
        let what = format!("{alert} to be {state}");
        let is_so = async || {
            let alerts = self.alerts().await;
            let now = alerts.iter().find(|(name, _)| name == alert);
            (now.map_or("inactive", |(_, state)| state) == state).then_some(())
        };
        eventually(within, &what, is_so).await.unwrap();
    }

    pub(crate) async fn wait_until(&self, within: Duration, expression: &str) {
        let query = format!("/api/v1/query?query={}", in_a_url(expression));
        let has_value = async || {
            let result = self.ask(&query).await["result"].take();
            (!result.as_array().unwrap().is_empty()).then_some(())
        };
        eventually(within, expression, has_value).await.unwrap();
    }

    async fn ask(&self, path: &str) -> Value {
        let body = http::get(self.port, path).await;
        let body = body.unwrap_or_else(|| panic!("{path}: no answer:\n{}", self.program.log()));
        serde_json::from_str::<Value>(&body).unwrap()["data"].take()
    }
}

/// Writes the settings of Prometheus, and returns the command line that starts it.
fn prepare(dir: &Path, port: u16, target: u16) -> std::io::Result<Vec<PathBuf>> {
    let settings = dir.join("prometheus.yml");
    let rules = concat!(env!("CARGO_MANIFEST_DIR"), "/prometheus/alerts.yml");
    fs::write(
        &settings,
        format!(
            "global: {{scrape_interval: 250ms, scrape_timeout: 250ms, evaluation_interval: 250ms}}\n\
             rule_files: ['{rules}']\n\
             scrape_configs: [{{job_name: api, static_configs: [{{targets: ['127.0.0.1:{target}']}}]}}]\n"
        ),
    )?;
    let named = std::env::var_os("TIDEGATE_PROMETHEUS").filter(|name| !name.is_empty());
    let arguments = [
        format!("--config.file={}", settings.display()),
        format!("--storage.tsdb.path={}", dir.join("data").display()),
        format!("--web.listen-address=127.0.0.1:{port}"),
        "--log.level=warn".to_owned(),
    ];
    let program = named.map_or_else(|| PathBuf::from("prometheus"), PathBuf::from);
    Ok([program].into_iter().chain(arguments.into_iter().map(PathBuf::from)).collect())
}

fn in_a_url(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' => char::from(byte).to_string(),
            _ => format!("%{byte:02X}"),
        })
        .collect()
}
