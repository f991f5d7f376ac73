use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::{Error, ServerConfig};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};
use tokio_rustls::server::TlsStream;
use tokio_rustls::{Accept, TlsAcceptor};

use super::Tls;
use super::stats::Outcome;

/// A TLS handshake with a deadline.
pub struct Handshake {
    accept: Accept<TcpStream>,
    deadline: Pin<Box<Sleep>>,
    peer: Option<SocketAddr>,
    tls: Tls,
}

impl Handshake {
    pub(super) fn new(stream: TcpStream, config: Arc<ServerConfig>, tls: Tls) -> Self {
        let peer = stream.peer_addr().ok();
        let accept = TlsAcceptor::from(config).accept(stream);
        Self { accept, deadline: Box::pin(sleep(tls.0.settings.handshake_timeout)), peer, tls }
    }

    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        self.peer
    }

    /// Polls the handshake. The caller must not poll it again after it is ready.
    pub(crate) fn poll_done(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<TlsStream<TcpStream>>> {
        let done = match Pin::new(&mut self.accept).poll(cx) {
            Poll::Ready(done) => done,
            Poll::Pending if self.deadline.as_mut().poll(cx).is_pending() => return Poll::Pending,
            Poll::Pending => Err(io::ErrorKind::TimedOut.into()),
        };
        self.tls.0.stats.handshake(done.as_ref().map_or_else(outcome_of_error, |_| Outcome::Done));
        Poll::Ready(done)
    }
}

fn outcome_of_error(error: &io::Error) -> Outcome {
    if error.kind() == io::ErrorKind::TimedOut {
        return Outcome::Timeout;
    }
    match error.get_ref().and_then(|inner| inner.downcast_ref()) {
        Some(Error::NoCertificatesPresented) => Outcome::NoClientCertificate,
        Some(Error::InvalidCertificate(_)) => Outcome::BadClientCertificate,
        Some(Error::AlertReceived(_)) => Outcome::RefusedByClient,
        Some(Error::InvalidMessage(_)) => Outcome::NotTls,
        Some(_) => Outcome::NoAgreement,
        None => Outcome::Disconnected,
    }
}

impl fmt::Debug for Handshake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handshake").field("peer", &self.peer).finish_non_exhaustive()
    }
}
