use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio_rustls::server::TlsStream;

use super::turns::{Round, Turns};
use crate::net::tls::Handshake;

/// A connection, which can be encrypted.
///
/// The first reads or writes complete the TLS handshake. Therefore, the handshake runs in the task
/// of the connection, and a slow client does not delay other clients. A connection in its handshake
/// counts as a connection. All reads and writes must be in the same task.
pub struct Stream {
    state: State,
    peer: Option<SocketAddr>,
    /// The turns in which the stream reads; `None` for a stream without a listener.
    turns: Option<Turns>,
    /// The permit that counts this connection toward the maximum number of connections. The permit
    /// is released when the stream is dropped.
    _place: Option<OwnedSemaphorePermit>,
}

enum State {
    Plain(TcpStream),
    Handshake(Box<Handshake>),
    Encrypted(Box<TlsStream<TcpStream>>),
    /// The handshake failed, or the server closed the stream before the end of the handshake.
    Ended,
}

impl Stream {
    pub(crate) fn plain(stream: TcpStream) -> Self {
        let (peer, state) = (stream.peer_addr().ok(), State::Plain(stream));
        Self { peer, state, turns: None, _place: None }
    }

    pub(super) fn encrypted(handshake: Handshake) -> Self {
        let peer = handshake.peer();
        Self { peer, state: State::Handshake(Box::new(handshake)), turns: None, _place: None }
    }

    /// Makes the stream read in turns with the other connections of its listener.
    pub(super) fn in_turns(self, round: Round) -> Self {
        Self { turns: Some(Turns::new(round)), ..self }
    }

    /// Makes the stream keep the permit `place` until the stream is dropped.
    pub(crate) fn with_place(self, place: OwnedSemaphorePermit) -> Self {
        Self { _place: Some(place), ..self }
    }

    /// Returns the address of the client.
    #[must_use]
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.peer
    }

    /// Completes the handshake if it is not complete yet.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.state {
            State::Handshake(handshake) => match ready!(handshake.poll_done(cx)) {
                Ok(stream) => self.state = State::Encrypted(Box::new(stream)),
                Err(error) => {
                    self.state = State::Ended;
                    return Poll::Ready(Err(error));
                }
            },
            State::Ended => return Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
            State::Plain(_) | State::Encrypted(_) => {}
        }
        Poll::Ready(Ok(()))
    }
}

/// Completes the handshake, and then evaluates `$call` with the inner stream.
macro_rules! within {
    ($self:ident, $cx:ident, $stream:ident => $call:expr) => {{
        let this = $self.get_mut();
        ready!(this.poll_ready($cx))?;
        match &mut this.state {
            State::Plain(stream) => {
                let $stream = Pin::new(stream);
                $call
            }
            State::Encrypted(stream) => {
                let $stream = Pin::new(&mut **stream);
                $call
            }
            State::Handshake(_) | State::Ended => {
                Poll::Ready(Err(io::ErrorKind::NotConnected.into()))
            }
        }
    }};
}

impl Stream {
    fn poll_read_now(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        within!(self, cx, stream => stream.poll_read(cx, buffer))
    }
}

impl Stream {
    fn poll_write_with<T>(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut Self>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let written = write(self.as_mut(), cx);
        if written.is_pending()
            && let Some(turns) = &mut self.turns
        {
            turns.give_up();
        }
        written
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Some(mut turns) = self.turns.take() else { return self.poll_read_now(cx, buffer) };
        let read =
            turns.poll_read(cx, buffer, |cx, buffer| self.as_mut().poll_read_now(cx, buffer));
        self.turns = Some(turns);
        read
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_with(
            cx,
            |stream, cx| within!(stream, cx, stream => stream.poll_write(cx, bytes)),
        )
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_with(
            cx,
            |stream, cx| within!(stream, cx, stream => stream.poll_write_vectored(cx, parts)),
        )
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_write_with(cx, |stream, cx| within!(stream, cx, stream => stream.poll_flush(cx)))
    }

    /// Closes the stream. If the handshake is not complete, this function does not complete it,
    /// because no data has been sent that could be lost.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let State::Handshake(_) | State::Ended = self.state {
            self.get_mut().state = State::Ended;
            return Poll::Ready(Ok(()));
        }
        within!(self, cx, stream => stream.poll_shutdown(cx))
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").field("peer", &self.peer_addr()).finish_non_exhaustive()
    }
}
