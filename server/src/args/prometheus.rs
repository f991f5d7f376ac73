//! The port for metrics alone.

use clap::Args;

use super::values::switch;

#[derive(Args)]
#[command(next_help_heading = "JSON, health and metrics")]
pub(crate) struct Prometheus {
    /// The metrics have a port of their own, beside that of JSON.
    #[arg(long, env = "USE_PROMETHEUS", value_parser = switch)]
    use_prometheus: bool,
    /// The address of that port, `HOST:PORT`; all addresses without a host.
    #[arg(long, value_name = "ADDRESS", env = "PROMETHEUS_ADDR", default_value = ":9090")]
    prometheus_addr: String,
    /// The path of the metrics there.
    #[arg(long, value_name = "PATH", env = "PROMETHEUS_PATH", default_value = "/metrics")]
    prometheus_path: String,
}

impl Prometheus {
    /// Where the metrics are served alone, if they are.
    ///
    /// # Errors
    ///
    /// If the address is not one, or the path not the path of a URL.
    pub(crate) fn address(&self) -> Result<Option<(&str, u16)>, String> {
        if !self.use_prometheus {
            return Ok(None);
        }
        if !self.prometheus_path.starts_with('/') {
            return Err(format!(
                "PROMETHEUS_PATH is `{}`, which does not begin with `/`",
                self.prometheus_path
            ));
        }
        let address = &self.prometheus_addr;
        let parts = address.rsplit_once(':').and_then(|(host, port)| {
            Some((if host.is_empty() { "0.0.0.0" } else { host }, port.parse().ok()?))
        });
        parts.map(Some).ok_or_else(|| {
            format!("PROMETHEUS_ADDR is `{address}`, which is not written `HOST:PORT`")
        })
    }

    pub(crate) fn path(&self) -> String {
        self.prometheus_path.clone()
    }
}
