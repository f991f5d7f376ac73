//! A node of the cluster, and the settings with which the store connects to a node.

use std::fmt;

use redis::cluster::NodeAddress;
use redis::{ConnectionAddr, ConnectionInfo};
use tidegate_core::{Error, ErrorKind};
use tidegate_redis::connection::error::printable;
use tidegate_redis::connection::{ConnectionPool, Settings, Target, Tls};

/// A node of the cluster. Its connections are separate, so no other node can delay the calls to
/// this node.
pub(crate) struct Node {
    pub(crate) address: NodeAddress,
    pub(crate) connections: ConnectionPool,
}

/// The settings with which the store connects to any node. `info` is the first URL of the store,
/// whose address is replaced by the address of the node.
#[derive(Clone)]
pub(crate) struct Access {
    info: ConnectionInfo,
    settings: Settings,
    tls: Option<Tls>,
}

impl Access {
    pub(crate) fn new(info: ConnectionInfo, settings: Settings) -> Result<Self, Error> {
        let tls = settings.tls([&info])?;
        Ok(Self { info, settings, tls })
    }

    pub(crate) fn node(&self, address: NodeAddress) -> Node {
        let (host, port) = (address.host().to_owned(), address.port());
        let addr = match self.info.addr().clone() {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
                ConnectionAddr::TcpTls { host, port, insecure, tls_params }
            }
            _ => ConnectionAddr::Tcp(host, port),
        };
        let target = Target::Server(self.info.clone().set_addr(addr));
        Node { address, connections: self.settings.pool(target, self.tls.clone()) }
    }
}

/// Parses the address in a redirect that the node `redirected_by` has sent. An empty host in the
/// address means the host of `redirected_by`.
pub(crate) fn redirect_address(
    text: &str,
    redirected_by: &NodeAddress,
) -> Result<NodeAddress, Error> {
    let (host, port) = text.rsplit_once(':').unwrap_or((text, ""));
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let port = port.parse().map_err(|_| {
        Error::new(
            ErrorKind::Protocol,
            format!(
                "node {redirected_by} redirected to `{}`, which is not an address",
                printable(&text)
            ),
        )
    })?;
    Ok(NodeAddress::new(if host.is_empty() { redirected_by.host() } else { host }, port))
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.address)
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The output omits the user and the password, because logs can contain the output.
        f.debug_struct("Access").field("settings", &self.settings).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_host_is_the_host_of_the_redirecting_node() {
        let node = NodeAddress::new("10.0.0.1", 7000);
        for (text, host, port) in [
            (":7001", "10.0.0.1", 7001),
            ("10.0.0.2:7002", "10.0.0.2", 7002),
            ("redis-3.example.com:6379", "redis-3.example.com", 6379),
            ("fd00::3:7003", "fd00::3", 7003),
            ("[fd00::3]:7003", "fd00::3", 7003),
        ] {
            assert_eq!(redirect_address(text, &node).unwrap(), NodeAddress::new(host, port));
        }
        for text in ["", "host", "host:", "host:70000", "host:port"] {
            assert_eq!(redirect_address(text, &node).unwrap_err().kind(), ErrorKind::Protocol);
        }
    }
}
