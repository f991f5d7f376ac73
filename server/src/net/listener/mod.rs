//! The listeners of all protocols. Their connections can be encrypted.

mod bounded;
mod connections;
mod stream;
mod turns;

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket, TcpStream, lookup_host};

pub(crate) use bounded::{Bounded, MayRead};
pub(crate) use connections::Connections;
pub use stream::Stream;
use turns::Round;
pub(crate) use turns::TurnBytes;

use crate::net::tls::Tls;

/// The pause after a connection could not be accepted, for example because no file descriptor is
/// free.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The maximum number of connections that wait until the server accepts them. The operating system
/// lowers it to its own maximum (`net.core.somaxconn`). It drops further connections, whose clients
/// try again only after a second or more. The default of tokio is 128, which is too low if all
/// clients connect again at the same time, for example after a restart.
const MAX_WAITING: u32 = 4_096;

/// Makes the operating system close the connection of a client whose machine is gone, after about
/// 90 s. The holds that are bound to the connection then end.
#[cfg(unix)]
fn keep_alive(stream: &TcpStream) -> io::Result<()> {
    use rustix::net::sockopt;
    sockopt::set_tcp_keepidle(stream, Duration::from_secs(60))?;
    sockopt::set_tcp_keepintvl(stream, Duration::from_secs(10))?;
    sockopt::set_tcp_keepcnt(stream, 3)?;
    sockopt::set_socket_keepalive(stream, true)?;
    Ok(())
}

/// Listens on a port of the first possible address of a host.
///
/// # Errors
///
/// Returns the error for the last address, or an error if the host has no address.
pub async fn listen(host: &str, port: u16) -> io::Result<TcpListener> {
    let mut last = io::Error::new(io::ErrorKind::InvalidInput, "the host has no address");
    for address in lookup_host((host, port)).await? {
        match listen_on(address) {
            Ok(listener) => return Ok(listener),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn listen_on(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // As in `TcpListener::bind`: a program can listen on the port immediately after another one has
    // ended. On Windows, this option would let two programs listen on one port.
    #[cfg(not(windows))]
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(MAX_WAITING)
}

/// A listener. If it has certificates, its connections are encrypted.
#[derive(Debug)]
pub struct Listener {
    tcp: TcpListener,
    round: Round,
    tls: Option<Tls>,
}

impl From<TcpListener> for Listener {
    /// Creates a listener whose connections are not encrypted.
    fn from(tcp: TcpListener) -> Self {
        Self { tcp, round: Round::new(TurnBytes::REQUESTS), tls: None }
    }
}

impl Listener {
    /// Creates a listener whose connections are encrypted.
    #[must_use]
    pub fn encrypted(tcp: TcpListener, tls: Tls) -> Self {
        Self { tcp, round: Round::new(TurnBytes::REQUESTS), tls: Some(tls) }
    }

    /// Sets the number of bytes that a connection may read at a time. The default is
    /// [`TurnBytes::REQUESTS`].
    pub(crate) fn with_turn_bytes(self, bytes: TurnBytes) -> Self {
        Self { round: Round::new(bytes), ..self }
    }

    /// Returns `true` if connections are encrypted.
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        self.tls.is_some()
    }

    /// Returns the address of the listener.
    ///
    /// # Errors
    ///
    /// Returns an error if the operating system does not know the address.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.tcp.local_addr()
    }

    /// Waits for a connection. The TLS handshake takes place later, when the stream is first used.
    ///
    /// # Errors
    ///
    /// Returns an error if no connection can be accepted now.
    pub async fn accept(&self) -> io::Result<(Stream, SocketAddr)> {
        let (stream, peer) = self.tcp.accept().await?;
        // Answers are small and must be sent without delay. If the connection has already failed,
        // this call fails too, and the first read reports the error.
        let _ = stream.set_nodelay(true);
        #[cfg(unix)]
        let _ = keep_alive(&stream);
        Ok((self.wrap(stream).in_turns(self.round.clone()), peer))
    }

    /// Waits for a connection, and retries after errors.
    pub(crate) async fn next(&self) -> (Stream, SocketAddr) {
        loop {
            match self.accept().await {
                Ok(accepted) => return accepted,
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            }
        }
    }

    fn wrap(&self, stream: TcpStream) -> Stream {
        match &self.tls {
            Some(tls) => Stream::encrypted(tls.handshake(stream)),
            None => Stream::plain(stream),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn more_connections_can_wait_than_by_default() {
        let maximum = std::fs::read_to_string("/proc/sys/net/core/somaxconn").ok();
        let maximum = maximum.and_then(|text| text.trim().parse().ok()).unwrap_or(128);
        let listener = listen("localhost", 0).await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut waiting = vec![];
        for number in 1..=maximum.min(300) {
            let connected = timeout(Duration::from_secs(60), TcpStream::connect(address)).await;
            waiting.push(connected.unwrap_or_else(|_| panic!("connection {number} was dropped")));
        }
        for connected in waiting {
            let (accepted, _) = listener.accept().await.unwrap();
            assert_eq!(accepted.peer_addr().unwrap(), connected.unwrap().local_addr().unwrap());
        }
    }

    /// A connection that the server has closed first occupies its address for some time.
    #[tokio::test]
    async fn a_server_can_listen_again_immediately_after_it_has_closed_a_connection() {
        use tokio::io::AsyncReadExt;

        let listener = listen("127.0.0.1", 0).await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut client = TcpStream::connect(address).await.unwrap();
        drop(listener.accept().await.unwrap());
        assert_eq!(client.read(&mut [0]).await.unwrap(), 0);
        drop((client, listener));
        listen("127.0.0.1", address.port()).await.unwrap();
    }

    #[tokio::test]
    async fn the_error_for_an_address_that_is_in_use_is_returned() {
        let used = listen("127.0.0.1", 0).await.unwrap();
        let error = listen("127.0.0.1", used.local_addr().unwrap().port()).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }
}
