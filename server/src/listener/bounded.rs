use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tonic::transport::server::{Connected, TcpConnectInfo};

use super::Stream;

/// A connection that fails from the moment on that a future is ready, whatever is under way on it.
pub(crate) struct Bounded<F> {
    stream: Stream,
    /// `None` once it was ready.
    end: Option<Pin<Box<F>>>,
}

impl<F: Future<Output = ()>> Bounded<F> {
    pub(crate) fn new(stream: Stream, end: F) -> Self {
        Self { stream, end: Some(Box::pin(end)) }
    }

    /// The stream, unless it has ended. Registers the task for the end too: a connection that only waits to be written
    /// to ends as well.
    fn stream(&mut self, cx: &mut Context<'_>) -> io::Result<Pin<&mut Stream>> {
        let is_over = match &mut self.end {
            Some(end) => end.as_mut().poll(cx).is_ready(),
            None => true,
        };
        if is_over {
            self.end = None;
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(Pin::new(&mut self.stream))
    }
}

impl<F: Future<Output = ()>> AsyncRead for Bounded<F> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.get_mut().stream(cx)?.poll_read(cx, buffer)
    }
}

impl<F: Future<Output = ()>> AsyncWrite for Bounded<F> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().stream(cx)?.poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().stream(cx)?.poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().stream(cx)?.poll_shutdown(cx)
    }
}

impl<F> Connected for Bounded<F> {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        self.stream.connect_info()
    }
}
