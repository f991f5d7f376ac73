//! The listeners of all protocols. Their connections can be encrypted.

mod bounded;
mod connections;
mod stream;
mod turns;

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};

pub(crate) use bounded::{Bounded, MayRead};
pub(crate) use connections::Connections;
pub use stream::Stream;
use turns::Round;
pub(crate) use turns::TurnBytes;

#[cfg(feature = "tls")]
use crate::net::tls::Tls;

/// The pause after a connection could not be accepted, for example because no file descriptor is
/// free.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A listener. If it has certificates, its connections are encrypted.
#[derive(Debug)]
pub struct Listener {
    tcp: TcpListener,
    round: Round,
    #[cfg(feature = "tls")]
    tls: Option<Tls>,
}

impl From<TcpListener> for Listener {
    /// Creates a listener whose connections are not encrypted.
    fn from(tcp: TcpListener) -> Self {
        Self {
            tcp,
            round: Round::new(TurnBytes::REQUESTS),
            #[cfg(feature = "tls")]
            tls: None,
        }
    }
}

impl Listener {
    /// Creates a listener whose connections are encrypted.
    #[cfg(feature = "tls")]
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
        #[cfg(feature = "tls")]
        return self.tls.is_some();
        #[cfg(not(feature = "tls"))]
        return false;
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

    #[cfg(feature = "tls")]
    fn wrap(&self, stream: TcpStream) -> Stream {
        match &self.tls {
            Some(tls) => Stream::encrypted(tls.handshake(stream)),
            None => Stream::plain(stream),
        }
    }

    #[cfg(not(feature = "tls"))]
    #[allow(clippy::unused_self, reason = "with TLS it is used")]
    fn wrap(&self, stream: TcpStream) -> Stream {
        Stream::plain(stream)
    }
}
