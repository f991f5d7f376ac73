use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::HttpSettings;
use super::phase::{Phase, is_answering};
use crate::net::timer::{Timer, after};

/// A stream that ends if a request does not arrive in time, or if a response is not accepted in
/// time.
///
/// hyper has no timeout for responses. Its timeout for a head includes the wait before the head,
/// which needs a different timeout.
#[derive(Debug)]
pub(super) struct Timed<S> {
    stream: S,
    phase: Phase,
    /// The number of the phase in which the timers were last reset.
    seen: usize,
    idle_timeout: Duration,
    request_timeout: Duration,
    /// Whether bytes of a request's head have arrived.
    has_bytes: bool,
    reading: Timer,
    writing: Timer,
}

impl<S> Timed<S> {
    pub(super) fn new(stream: S, phase: Phase, settings: &HttpSettings) -> Self {
        Self {
            stream,
            seen: phase.number(),
            phase,
            idle_timeout: settings.idle_timeout,
            request_timeout: settings.request_timeout,
            has_bytes: false,
            reading: Timer::default(),
            writing: Timer::default(),
        }
    }

    /// Resets the timers if the connection has entered another phase.
    fn follow_phase(&mut self) {
        let number = self.phase.number();
        if number != self.seen {
            self.seen = number;
            self.has_bytes = false;
            self.reading.stop();
            self.writing.stop();
        }
    }

    /// Writes, and fails if the client has not accepted the response within the timeout. A client
    /// that accepts a few bytes now and then does not extend the timeout.
    fn timed_write<T>(
        &mut self,
        cx: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut S>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>>
    where
        S: Unpin,
    {
        self.follow_phase();
        let written = write(Pin::new(&mut self.stream), cx);
        if written.is_pending() && self.writing.is_over(cx, self.request_timeout) {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        written
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Timed<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.follow_phase();
        let before = buffer.filled().len();
        let read = Pin::new(&mut this.stream).poll_read(cx, buffer);
        // While a request is answered, other timeouts apply: the body has its own timeout, and so
        // do calls to the store.
        if is_answering(this.seen) {
            return read;
        }
        if read.is_ready() {
            if !this.has_bytes && buffer.filled().len() > before {
                this.has_bytes = true;
                this.reading.set(after(this.request_timeout));
            }
            return read;
        }
        let span = if this.has_bytes { this.request_timeout } else { this.idle_timeout };
        match (this.reading.is_over(cx, span), this.has_bytes) {
            (false, _) => Poll::Pending,
            // When the idle time is over, the stream reports its end. hyper then behaves in the
            // same way as after a close by the client.
            (true, false) => Poll::Ready(Ok(())),
            (true, true) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Timed<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().timed_write(cx, |stream, cx| stream.poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().timed_write(cx, |stream, cx| stream.poll_write_vectored(cx, slices))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().timed_write(cx, |stream, cx| stream.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().timed_write(cx, |stream, cx| stream.poll_shutdown(cx))
    }
}
