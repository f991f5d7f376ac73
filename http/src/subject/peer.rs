//! The address of the peer: the other end of the connection.

use std::net::{IpAddr, SocketAddr};

use http::Extensions;

/// The address of the peer, as a request extension.
///
/// A server on `hyper` inserts it into each request of a connection. With axum it is not needed: with
/// the feature `axum`, [`ClientAddress`](super::ClientAddress) reads what
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

/// The peer's address, where this crate or axum puts it.
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
        // What axum's extractor of the same name does too, for tests without a socket.
        if let Some(MockConnectInfo(address)) = extensions.get::<MockConnectInfo<SocketAddr>>() {
            return Some(address.ip());
        }
    }
    None
}
