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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_host_or_none_and_a_port() {
        let of = |use_prometheus: bool, address: &str, path: &str| {
            let prometheus = Prometheus {
                use_prometheus,
                prometheus_addr: address.into(),
                prometheus_path: path.into(),
            };
            prometheus.address().map(|it| it.map(|(host, port)| (host.to_owned(), port)))
        };
        for (address, host, port) in [
            (":9090", "0.0.0.0", 9090),
            ("127.0.0.1:0", "127.0.0.1", 0),
            ("[::1]:65535", "[::1]", 65535),
            ("localhost:80", "localhost", 80),
        ] {
            assert_eq!(of(true, address, "/m"), Ok(Some((host.to_owned(), port))));
            assert_eq!(of(false, address, "m"), Ok(None));
        }
        for address in ["", "9090", "a:", ":65536", ":-1", "a:b"] {
            assert!(of(true, address, "/m").unwrap_err().contains(&format!("`{address}`")));
        }
        assert_eq!(of(false, "9090", "/m"), Ok(None));
        assert!(of(true, ":9090", "m").unwrap_err().contains("`m`"));
    }
}
