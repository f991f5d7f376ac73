//! The address of the peer: the other end of the connection.

use std::net::{IpAddr, SocketAddr};

use http::Extensions;

/// The address of the peer, as an extension of the request.
///
/// A server based on `hyper` must insert a `PeerAddr` into each request of a connection. A server
/// based on axum need not insert it: with the feature `axum`,
/// [`ClientAddress`](super::ClientAddress) reads the address that
/// `into_make_service_with_connect_info::<SocketAddr>()` inserts.
///
/// ```
/// use tidegate_http::subject::PeerAddr;
///
/// # fn serve(mut request: http::Request<()>, listener: &std::net::TcpListener) -> std::io::Result<()> {
/// let (connection, peer) = listener.accept()?;
/// // For each request that is read from the connection:
/// request.extensions_mut().insert(PeerAddr(peer));
/// # drop(connection); Ok(()) }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PeerAddr(pub SocketAddr);

/// Returns the address of the peer from the extension of this crate or of axum.
pub(super) fn default_peer(extensions: &Extensions) -> Option<IpAddr> {
    if let Some(PeerAddr(address)) = extensions.get() {
        return Some(address.ip());
    }
    #[cfg(feature = "axum")]
    {
        use axum::extract::connect_info::{ConnectInfo, MockConnectInfo};

        if let Some(ConnectInfo(address)) = extensions.get::<ConnectInfo<SocketAddr>>() {
            return Some(address.ip());
        }
        // A test of an axum application without a socket inserts `MockConnectInfo`. The extractor
        // of axum reads this extension too.
        if let Some(MockConnectInfo(address)) = extensions.get::<MockConnectInfo<SocketAddr>>() {
            return Some(address.ip());
        }
    }
    None
}
