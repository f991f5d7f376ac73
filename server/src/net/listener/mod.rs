//! Listeners of all protocols: connections as they are, or encrypted.

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

/// How long to wait after a connection could not be accepted, as when there are no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A listener, whose connections are encrypted if it has certificates.
#[derive(Debug)]
pub struct Listener {
    tcp: TcpListener,
    round: Round,
    #[cfg(feature = "tls")]
    tls: Option<Tls>,
}

impl From<TcpListener> for Listener {
    /// A listener whose connections are not encrypted.
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
    /// A listener whose connections are encrypted.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn encrypted(tcp: TcpListener, tls: Tls) -> Self {
        Self { tcp, round: Round::new(TurnBytes::REQUESTS), tls: Some(tls) }
    }

    /// Sets the number of bytes that a connection may read at a time. Default:
    /// [`TurnBytes::REQUESTS`].
    pub(crate) fn with_turn_bytes(self, bytes: TurnBytes) -> Self {
        Self { round: Round::new(bytes), ..self }
    }

    /// Whether its connections are encrypted.
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        #[cfg(feature = "tls")]
        return self.tls.is_some();
        #[cfg(not(feature = "tls"))]
        return false;
    }

    /// The address.
    ///
    /// # Errors
    ///
    /// If the system does not know it.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.tcp.local_addr()
    }

    /// Waits for a connection. It does not wait for its handshake: that takes place when the stream is first used.
    ///
    /// # Errors
    ///
    /// If no connection can be accepted now.
    pub async fn accept(&self) -> io::Result<(Stream, SocketAddr)> {
        let (stream, peer) = self.tcp.accept().await?;
        // Answers are small, and are not held back. A connection that is gone already fails when it is read.
        let _ = stream.set_nodelay(true);
        Ok((self.wrap(stream).in_turns(self.round.clone()), peer))
    }

    /// Waits for a connection, over errors too.
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
