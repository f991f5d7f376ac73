//! The settings of JSON over HTTP.

use std::net::SocketAddr;
use std::time::Duration;

use clap::Args;
use tidegate_core::parse_duration;
use tidegate_server::http::HttpSettings;
use tidegate_server::v1::{Access, Login};

use super::values::{given, maximum, switch};
use crate::descriptors::MaxConnections;

#[derive(Args)]
#[command(next_help_heading = "JSON, health and metrics")]
pub(crate) struct Http {
    /// The address of JSON, health and metrics.
    #[arg(long = "http-host", value_name = "ADDRESS", env = "HOST", default_value = "127.0.0.1")]
    host: String,
    /// The port of JSON, health and metrics; 0 for any.
    #[arg(long = "http-port", value_name = "PORT", env = "PORT", default_value = "8080")]
    port: u16,
    /// The user that callers of /v1 log in as.
    #[arg(
        long = "http-user",
        value_name = "USER",
        env = "TIDEGATE_HTTP_USER",
        default_value = "default"
    )]
    user: String,
    /// The password of callers of /v1; set it by the variable, as others see the arguments of a process.
    #[arg(
        long = "http-password",
        value_name = "PASSWORD",
        env = "TIDEGATE_HTTP_PASSWORD",
        hide_env_values = true
    )]
    password: Option<String>,
    /// /v1 needs no password on addresses of other machines either.
    #[arg(
        long = "http-without-password",
        env = "TIDEGATE_HTTP_WITHOUT_PASSWORD",
        value_parser = switch
    )]
    without_password: bool,
    /// Maximum number of connections of HTTP. Default: 10000, or fewer if the process may not open
    /// as many files
    #[arg(
        long = "http-max-connections",
        value_name = "NUMBER",
        env = "TIDEGATE_HTTP_MAX_CONNECTIONS",
        value_parser = maximum
    )]
    max_connections: Option<usize>,
    /// After which time between two requests a connection of HTTP ends.
    #[arg(
        long = "http-idle-timeout",
        value_name = "SPAN",
        env = "TIDEGATE_HTTP_IDLE_TIMEOUT",
        default_value = "2m",
        value_parser = parse_duration
    )]
    idle_timeout: Duration,
    /// How long the head of a request may take, then its body, and then the client to accept the response.
    #[arg(
        long = "http-request-timeout",
        value_name = "SPAN",
        env = "TIDEGATE_HTTP_REQUEST_TIMEOUT",
        default_value = "30s",
        value_parser = parse_duration
    )]
    request_timeout: Duration,
    /// The maximum size of the head of a request.
    #[arg(
        long = "http-max-head-bytes",
        value_name = "BYTES",
        env = "TIDEGATE_HTTP_MAX_HEAD_BYTES",
        default_value = "16384",
        value_parser = maximum
    )]
    max_head_bytes: usize,
    /// The maximum number of header fields of a request.
    #[arg(
        long = "http-max-headers",
        value_name = "NUMBER",
        env = "TIDEGATE_HTTP_MAX_HEADERS",
        default_value = "100",
        value_parser = clap::value_parser!(u16).range(1..)
    )]
    max_headers: u16,
    /// The maximum size of the body of a request.
    #[arg(
        long = "http-max-body-bytes",
        value_name = "BYTES",
        env = "TIDEGATE_HTTP_MAX_BODY_BYTES",
        default_value = "1048576",
        value_parser = maximum
    )]
    max_body_bytes: usize,
}

impl Http {
    pub(crate) fn address(&self) -> (&str, u16) {
        (&self.host, self.port)
    }

    pub(super) fn max_connections(&mut self) -> MaxConnections<'_> {
        ("TIDEGATE_HTTP_MAX_CONNECTIONS", &mut self.max_connections)
    }

    pub(crate) fn settings(&self) -> HttpSettings {
        let mut settings = HttpSettings::default();
        settings.max_connections = self.max_connections.unwrap_or(settings.max_connections);
        settings.idle_timeout = self.idle_timeout;
        settings.request_timeout = self.request_timeout;
        settings.max_head_bytes = self.max_head_bytes;
        settings.max_headers = self.max_headers.into();
        settings.max_body_bytes = self.max_body_bytes;
        settings
    }

    /// The callers of `/v1` on an address.
    pub(crate) fn access(&self, address: SocketAddr) -> Access {
        access(address, &self.user, &self.password, self.without_password)
    }
}

/// The clients on an address, by the settings of their login.
pub(super) fn access(
    address: SocketAddr,
    user: &str,
    password: &Option<String>,
    without_password: bool,
) -> Access {
    match given(password) {
        Some(password) => {
            Access::Login(Login { user: user.to_owned(), password: password.clone() })
        }
        None if without_password || address.ip().is_loopback() => Access::Open,
        None => Access::Closed,
    }
}

/// The bounds of a port that few clients read, which send little.
pub(crate) fn read_only_settings() -> HttpSettings {
    let mut settings = HttpSettings::default();
    settings.max_connections = 100;
    settings.max_body_bytes = 1 << 10;
    settings
}
