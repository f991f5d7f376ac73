use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use super::Stream;

/// A connection that fails when a future is ready, or when the peer does not read for some time. It
/// fails regardless of the requests in flight.
pub(crate) struct Bounded<F> {
    stream: Stream,
    /// `None` once it was ready.
    end: Option<Pin<Box<F>>>,
    write_timeout: Duration,
    /// The time at which a write that waits fails. `None` if no write waits.
    write_deadline: Option<Pin<Box<Sleep>>>,
    may_read: MayRead,
}

/// Whether the task of a connection may read. Reading ends with the first read that waits, until
/// the task runs again. HTTP/2 polls the connection once more for each request that it has
/// received, and would otherwise use many turns at a time.
#[derive(Debug, Clone, Default)]
pub(crate) struct MayRead(Arc<AtomicBool>);

impl MayRead {
    pub(crate) fn set(&self, may_read: bool) {
        self.0.store(may_read, Ordering::Relaxed);
    }

    fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl<F: Future<Output = ()>> Bounded<F> {
    pub(crate) fn new(stream: Stream, end: F, write_timeout: Duration, may_read: MayRead) -> Self {
        let end = Some(Box::pin(end));
        Self { stream, end, write_timeout, write_deadline: None, may_read }
    }

    /// Fails a write that has waited for too long.
    fn timed<T>(
        &mut self,
        cx: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut Stream>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let written = write(self.stream(cx)?, cx);
        if written.is_ready() {
            self.write_deadline = None;
            return written;
        }
        let timeout = self.write_timeout;
        let deadline = self.write_deadline.get_or_insert_with(|| Box::pin(sleep(timeout)));
        match deadline.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
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
        let this = self.get_mut();
        let may_read = this.may_read.get();
        let stream = this.stream(cx)?;
        // The read that waited wakes the task.
        if !may_read {
            return Poll::Pending;
        }
        let read = stream.poll_read(cx, buffer);
        this.may_read.set(read.is_ready());
        read
    }
}

impl<F: Future<Output = ()>> AsyncWrite for Bounded<F> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().timed(cx, |stream, cx| stream.poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().timed(cx, |stream, cx| stream.poll_write_vectored(cx, parts))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().timed(cx, |stream, cx| stream.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().stream(cx)?.poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::sync::oneshot;
    use tokio::time::{Instant, timeout};

    use super::*;

    const WRITE_TIMEOUT: Duration = Duration::from_secs(3_600);

    /// A connection that ends on demand, and its client.
    async fn connect() -> (Bounded<impl Future<Output = ()>>, oneshot::Sender<()>, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (end, ended) = oneshot::channel();
        let ended = async {
            let _ = ended.await;
        };
        let (stream, _) = listener.accept().await.unwrap();
        let may_read = MayRead::default();
        may_read.set(true);
        (Bounded::new(Stream::plain(stream), ended, WRITE_TIMEOUT, may_read), end, client)
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_whose_client_does_not_read_ends() {
        let (mut stream, _end, _client) = connect().await;
        let start = Instant::now();
        let error = stream.write_all(&vec![0; 64 << 20]).await.unwrap_err();
        assert_eq!((error.kind(), start.elapsed()), (io::ErrorKind::TimedOut, WRITE_TIMEOUT));
    }

    #[tokio::test]
    async fn a_read_and_a_write_that_wait_fail_at_the_end() {
        let (mut stream, end, _client) = connect().await;
        let reading = tokio::spawn(async move { stream.read_u8().await });
        // The client takes nothing, and the system not all of it.
        let (mut stream, other_end, _other_client) = connect().await;
        let writing = tokio::spawn(async move { stream.write_all(&vec![0; 64 << 20]).await });
        tokio::task::yield_now().await;
        end.send(()).unwrap();
        other_end.send(()).unwrap();
        let wait = Duration::from_secs(60);
        let read = timeout(wait, reading).await.unwrap().unwrap();
        assert_eq!(read.unwrap_err().kind(), io::ErrorKind::TimedOut);
        let written = timeout(wait, writing).await.unwrap().unwrap();
        assert_eq!(written.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
