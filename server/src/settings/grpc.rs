//! The settings of gRPC.

use std::time::Duration;

use clap::Args;
use tidegate_core::parse_duration;
use tidegate_server::health::HealthSettings;
use tidegate_server::rls::{ConnectionAge, GrpcSettings};

use super::values::{maximum, switch};
use crate::descriptors::MaxConnections;

#[derive(Args)]
#[command(next_help_heading = "gRPC")]
pub(crate) struct Grpc {
    #[arg(long, hide = true, env = "GRPC_UDS")]
    grpc_uds: Option<String>,
    /// The address of the gRPC service.
    #[arg(long, value_name = "ADDRESS", env = "GRPC_HOST", default_value = "0.0.0.0")]
    grpc_host: String,
    /// The port of the gRPC service; 0 for any.
    #[arg(long, value_name = "PORT", env = "GRPC_PORT", default_value = "8081")]
    grpc_port: u16,
    /// After which time a client is told to connect anew.
    #[arg(long, value_name = "SPAN", env = "GRPC_MAX_CONNECTION_AGE", default_value = "24h",
          value_parser = parse_duration)]
    grpc_max_connection_age: Duration,
    /// For how long its requests are served then; the connection is cut off afterwards.
    #[arg(long, value_name = "SPAN", env = "GRPC_MAX_CONNECTION_AGE_GRACE", default_value = "1h",
          value_parser = parse_duration)]
    grpc_max_connection_age_grace: Duration,
    /// Maximum number of connections of gRPC. Default: 10000, or fewer if the process may not open
    /// as many files
    #[arg(long, value_name = "NUMBER", env = "TIDEGATE_GRPC_MAX_CONNECTIONS", value_parser = maximum)]
    grpc_max_connections: Option<usize>,
    /// Maximum number of requests in flight on one connection of gRPC.
    #[arg(long, value_name = "NUMBER", env = "TIDEGATE_GRPC_MAX_STREAMS", default_value = "100",
          value_parser = clap::value_parser!(u32).range(1..))]
    grpc_max_streams: u32,
    /// Maximum memory of the requests in flight on all connections of gRPC, in bytes. One
    /// connection may use a sixth, and one half is reserved for connections that use at most 64
    /// KiB. A message of 4 MiB needs 49 MiB. Buffers of HTTP/2 take up to 1 MiB more for a
    /// connection whose client does not read.
    #[arg(long, value_name = "BYTES", env = "TIDEGATE_GRPC_MAX_BYTES", default_value = "67108864",
          value_parser = maximum)]
    grpc_max_bytes: usize,
    /// How long a client of gRPC may take to begin with HTTP/2.
    #[arg(long, value_name = "SPAN", env = "TIDEGATE_GRPC_BEGIN_TIMEOUT", default_value = "30s",
          value_parser = parse_duration)]
    grpc_begin_timeout: Duration,
    /// Maximum time of a request of gRPC, with its message. Other requests get the status
    /// CANCELLED. A client that reads nothing for this time is disconnected.
    #[arg(long, value_name = "SPAN", env = "TIDEGATE_GRPC_REQUEST_TIMEOUT", default_value = "30s",
          value_parser = parse_duration)]
    grpc_request_timeout: Duration,
    /// How long requests of gRPC that are under way are still served when the server ends, after the drain.
    #[arg(long, value_name = "SPAN", env = "TIDEGATE_GRPC_END_TIMEOUT", default_value = "10s",
          value_parser = parse_duration)]
    grpc_end_timeout: Duration,
    /// The health of gRPC is NOT_SERVING while a store cannot decide.
    #[arg(long, env = "REDIS_HEALTH_CHECK_ACTIVE_CONNECTION", value_parser = switch)]
    health_needs_store: bool,
    /// For how long requests are still taken after SIGTERM, while the health of gRPC is NOT_SERVING: longer than the
    /// interval of Envoy's health checks, so that it asks other servers by then. Default: not at all
    #[arg(long, value_name = "SPAN", env = "TIDEGATE_DRAIN", value_parser = parse_duration)]
    drain: Option<Duration>,
}

impl Grpc {
    /// Rejects what would have no effect.
    pub(super) fn check(&self) -> Result<(), String> {
        match &self.grpc_uds {
            Some(path) => Err(format!(
                "GRPC_UDS is `{path}`; gRPC listens on GRPC_HOST and GRPC_PORT, and on no socket of a path"
            )),
            None => Ok(()),
        }
    }

    pub(crate) fn address(&self) -> (&str, u16) {
        (&self.grpc_host, self.grpc_port)
    }

    pub(super) fn max_connections(&mut self) -> MaxConnections<'_> {
        ("TIDEGATE_GRPC_MAX_CONNECTIONS", &mut self.grpc_max_connections)
    }

    pub(crate) fn settings(&self) -> GrpcSettings {
        let (max, grace) = (self.grpc_max_connection_age, self.grpc_max_connection_age_grace);
        let mut settings = GrpcSettings::default();
        settings.age = ConnectionAge::new(max, grace);
        settings.max_connections = self.grpc_max_connections.unwrap_or(settings.max_connections);
        settings.max_streams = self.grpc_max_streams;
        settings.max_bytes = self.grpc_max_bytes;
        settings.begin_timeout = self.grpc_begin_timeout;
        settings.request_timeout = self.grpc_request_timeout;
        settings.end_timeout = self.grpc_end_timeout;
        settings.health = self.health();
        settings
    }

    fn health(&self) -> HealthSettings {
        let mut settings = HealthSettings::default();
        settings.needs_store = self.health_needs_store;
        settings.drain = self.drain.unwrap_or_default();
        settings
    }
}
