use std::time::Duration;

use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::google::protobuf::value::Kind;
use envoy_types::pb::google::protobuf::{Struct, Value};
use tonic::metadata::{Ascii, MetadataKey, MetadataValue};
use tonic::transport::Endpoint;

use super::BackoffSettings;
use super::XdsTls;
use crate::net::text::shown;

/// The timeout of a connection attempt, including its TLS handshake.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);

/// The interval of pings. By default, gRPC servers in Go close a connection with more than one ping
/// in five minutes.
const PING_INTERVAL: Duration = Duration::from_secs(330);

/// The settings of the connection to a management server.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct XdsSettings {
    /// The management server, `host:port`.
    pub server: String,
    /// The id by which the management server identifies this server.
    pub node_id: String,
    /// Further metadata of this server.
    pub node_metadata: Vec<(String, String)>,
    /// Additional header fields of requests.
    pub headers: Vec<Header>,
    /// The time within which the first response of a stream must arrive. After this time, the
    /// client reconnects. If it is zero, the client waits forever.
    pub response_timeout: Duration,
    /// The maximum size of a response in bytes.
    pub max_message_bytes: usize,
    /// The waits between two connection attempts.
    pub backoff: BackoffSettings,
    /// The encryption of connections; `None` for unencrypted connections.
    pub tls: Option<XdsTls>,
}

/// A header field of requests. `Debug` does not show its value, which may be a password.
#[derive(Clone)]
pub struct Header {
    pub(super) name: MetadataKey<Ascii>,
    pub(super) value: MetadataValue<Ascii>,
}

impl Header {
    /// Creates a field. Returns `None` if the name or the value is not valid.
    #[must_use]
    pub fn new(name: &str, value: &str) -> Option<Self> {
        let name = MetadataKey::from_bytes(name.to_ascii_lowercase().as_bytes()).ok()?;
        let mut value: MetadataValue<Ascii> = value.parse().ok()?;
        value.set_sensitive(true);
        Some(Self { name, value })
    }
}

impl std::fmt::Debug for Header {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Header").field("name", &self.name).finish_non_exhaustive()
    }
}

impl XdsSettings {
    /// Creates the settings for a management server at `host:port`, with the defaults of
    /// envoyproxy/ratelimit.
    #[must_use]
    pub fn new(server: impl Into<String>) -> Self {
        Self {
            server: server.into(),
            node_id: "default".to_owned(),
            node_metadata: Vec::new(),
            headers: Vec::new(),
            response_timeout: Duration::from_secs(60),
            max_message_bytes: 4 << 20,
            backoff: BackoffSettings::default(),
            tls: None,
        }
    }

    /// Checks the address and reads the certificates.
    ///
    /// # Errors
    ///
    /// Returns an error that describes the invalid setting.
    pub fn check(&self) -> Result<(), String> {
        self.endpoint().map(drop)
    }

    /// Returns the endpoint to connect to. This function reads the certificates from disk.
    pub(super) fn endpoint(&self) -> Result<Endpoint, String> {
        let endpoint = Endpoint::from_shared(self.uri()?).map_err(|_| self.not_an_address())?;
        let endpoint = endpoint.http2_keep_alive_interval(PING_INTERVAL);
        match &self.tls {
            Some(tls) => tls.on(endpoint),
            None => Ok(endpoint),
        }
    }

    fn uri(&self) -> Result<String, String> {
        // gRPC clients in Go allow the prefix `dns:///` too.
        let address = self.server.strip_prefix("dns:///").unwrap_or(&self.server);
        let (host, port) = address.rsplit_once(':').ok_or_else(|| self.not_an_address())?;
        let is_host = !host.is_empty() && !host.contains(['/', '@', '?', '#', ' ']);
        // An IPv6 address must be in brackets.
        let is_host = is_host && (!host.contains(':') || host.starts_with('['));
        if !is_host || !port.parse::<u16>().is_ok_and(|port| port != 0) {
            return Err(self.not_an_address());
        }
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        Ok(format!("{scheme}://{host}:{port}"))
    }

    fn not_an_address(&self) -> String {
        format!(
            "`{}` is not the address of a management server: it must be `host:port`, such as `localhost:18000`",
            shown(&self.server)
        )
    }

    pub(super) fn node(&self) -> Node {
        let field = |(name, value): &(String, String)| {
            (name.clone(), Value { kind: Some(Kind::StringValue(value.clone())) })
        };
        let metadata = Struct { fields: self.node_metadata.iter().map(field).collect() };
        Node { id: self.node_id.clone(), metadata: Some(metadata), ..Node::default() }
    }
}
