use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// A stream that fails if its first bytes do not come in time. Bytes do not prolong the time.
pub(crate) struct Beginning<S> {
    stream: S,
    missing: usize,
    /// `None` once all have come.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl<S> Beginning<S> {
    pub(crate) fn new(stream: S, bytes: usize, within: Duration) -> Self {
        Self { stream, missing: bytes, deadline: Some(Box::pin(sleep(within))) }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Beginning<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        let read = Pin::new(&mut this.stream).poll_read(cx, buffer);
        if let Some(deadline) = &mut this.deadline {
            if read.is_pending() && deadline.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            this.missing = this.missing.saturating_sub(buffer.filled().len() - before);
            if this.missing == 0 {
                this.deadline = None;
            }
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Beginning<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::time::Instant;

    use super::*;

    const TIME: Duration = Duration::from_secs(30);

    #[tokio::test(start_paused = true)]
    async fn bytes_do_not_prolong_the_time_of_a_beginning() {
        let (mut client, server) = tokio::io::duplex(64);
        let mut stream = Beginning::new(server, 33, TIME);
        let start = Instant::now();
        let sending = async {
            for _ in 0..32 {
                client.write_all(b"x").await.unwrap();
                sleep(Duration::from_secs(4)).await;
            }
        };
        let reading = async {
            loop {
                if let Err(error) = stream.read(&mut [0; 64]).await {
                    return error;
                }
            }
        };
        let error = tokio::select! {
            () = sending => panic!("it is still read after {:?}", start.elapsed()),
            error = reading => error,
        };
        assert_eq!((error.kind(), start.elapsed()), (io::ErrorKind::TimedOut, TIME));
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_has_begun_has_no_deadline() {
        let (mut client, server) = tokio::io::duplex(64);
        let mut stream = Beginning::new(server, 2, TIME);
        for byte in [b"a", b"b", b"c"] {
            client.write_all(byte).await.unwrap();
            assert_eq!(stream.read_u8().await.unwrap(), byte[0]);
        }
        let sending = async {
            sleep(10 * TIME).await;
            client.write_all(b"d").await.unwrap();
        };
        let (read, ()) = tokio::join!(stream.read_u8(), sending);
        assert_eq!(read.unwrap(), b'd');
    }
}
