use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// A connection that fails when the future `end` completes, when its first bytes do not arrive in
/// time, or when the peer does not read for `write_timeout`. It fails even if requests are in
/// flight.
pub(crate) struct Bounded<S, F> {
    stream: S,
    /// The state of the first bytes, or `None` after all of them have arrived.
    beginning: Option<Beginning>,
    /// The future that ends the connection, or `None` after it has completed.
    end: Option<Pin<Box<F>>>,
    write_timeout: Duration,
    /// The time at which a waiting write fails, or `None` if no write waits.
    write_deadline: Option<Pin<Box<Sleep>>>,
    may_read: MayRead,
}

/// The first bytes of a connection. All of them must arrive before `deadline`. Bytes that arrive do
/// not extend it.
struct Beginning {
    missing: usize,
    deadline: Pin<Box<Sleep>>,
}

/// Whether the task of a connection may read. The task sets this flag each time it runs. The first
/// read that has to wait clears the flag. Without the flag, HTTP/2 would use many turns of the
/// listener in one run of the task, because it reads again for each received request.
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

impl<S: Unpin, F: Future<Output = ()>> Bounded<S, F> {
    pub(crate) fn new(stream: S, end: F, write_timeout: Duration, may_read: MayRead) -> Self {
        let end = Some(Box::pin(end));
        Self { stream, beginning: None, end, write_timeout, write_deadline: None, may_read }
    }

    /// Makes the connection fail if its first `bytes` bytes do not arrive in the time `within`.
    pub(crate) fn beginning(self, bytes: usize, within: Duration) -> Self {
        let beginning = Beginning { missing: bytes, deadline: Box::pin(sleep(within)) };
        Self { beginning: Some(beginning), ..self }
    }

    /// Calls `write`. Fails if writes have had to wait for longer than the write timeout.
    fn timed<T>(
        &mut self,
        cx: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut S>, &mut Context<'_>) -> Poll<io::Result<T>>,
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

    /// Returns the stream, or an error if the future `end` has completed. This function polls
    /// `end`, so that its completion wakes the task even if the connection only waits to write.
    fn stream(&mut self, cx: &mut Context<'_>) -> io::Result<Pin<&mut S>> {
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

impl<S: AsyncRead + Unpin, F: Future<Output = ()>> Bounded<S, F> {
    fn poll_read_stream(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let may_read = self.may_read.get();
        let stream = self.stream(cx)?;
        // An earlier read already waits for data. It wakes the task when data arrives.
        if !may_read {
            return Poll::Pending;
        }
        let read = stream.poll_read(cx, buffer);
        self.may_read.set(read.is_ready());
        read
    }
}

impl<S: AsyncRead + Unpin, F: Future<Output = ()>> AsyncRead for Bounded<S, F> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        let read = this.poll_read_stream(cx, buffer);
        if let Some(beginning) = &mut this.beginning {
            if read.is_pending() && beginning.deadline.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            beginning.missing = beginning.missing.saturating_sub(buffer.filled().len() - before);
            if beginning.missing == 0 {
                this.beginning = None;
            }
        }
        read
    }
}

impl<S: AsyncWrite + Unpin, F: Future<Output = ()>> AsyncWrite for Bounded<S, F> {
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
    use std::future::{Pending, pending, poll_fn};

    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::sync::oneshot;
    use tokio::time::{Instant, timeout};

    use super::*;

    const WRITE_TIMEOUT: Duration = Duration::from_secs(3_600);
    const TIME: Duration = Duration::from_secs(30);

    /// Returns a connection, a sender that ends the connection, and the client's side of the
    /// connection.
    async fn connect()
    -> (Bounded<TcpStream, impl Future<Output = ()>>, oneshot::Sender<()>, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (end, ended) = oneshot::channel();
        let ended = async {
            let _ = ended.await;
        };
        let (stream, _) = listener.accept().await.unwrap();
        let may_read = MayRead::default();
        may_read.set(true);
        (Bounded::new(stream, ended, WRITE_TIMEOUT, may_read), end, client)
    }

    /// Returns a stream whose first `bytes` bytes must arrive within [`TIME`], and the client's
    /// side of the stream.
    fn beginning(bytes: usize) -> (Bounded<DuplexStream, Pending<()>>, DuplexStream) {
        let (client, server) = tokio::io::duplex(64);
        let bounded = Bounded::new(server, pending(), WRITE_TIMEOUT, MayRead::default());
        (bounded.beginning(bytes, TIME), client)
    }

    async fn read(stream: &mut Bounded<DuplexStream, Pending<()>>) -> io::Result<Vec<u8>> {
        let mut bytes = [0; 64];
        let mut buffer = ReadBuf::new(&mut bytes);
        poll_fn(|cx| {
            stream.may_read.set(true);
            Pin::new(&mut *stream).poll_read(cx, &mut buffer)
        })
        .await?;
        Ok(buffer.filled().to_vec())
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_do_not_prolong_the_time_of_a_beginning() {
        let (mut stream, mut client) = beginning(33);
        let start = Instant::now();
        let sending = async {
            for _ in 0..32 {
                client.write_all(b"x").await.unwrap();
                sleep(Duration::from_secs(4)).await;
            }
        };
        let reading = async {
            loop {
                if let Err(error) = read(&mut stream).await {
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
        let (mut stream, mut client) = beginning(2);
        for byte in [b"a", b"b", b"c"] {
            client.write_all(byte).await.unwrap();
            assert_eq!(read(&mut stream).await.unwrap(), byte);
        }
        let sending = async {
            sleep(10 * TIME).await;
            client.write_all(b"d").await.unwrap();
        };
        let (bytes, ()) = tokio::join!(read(&mut stream), sending);
        assert_eq!(bytes.unwrap(), b"d");
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
        // The write waits, because the client reads nothing and the buffers of the operating system
        // cannot hold all bytes.
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
