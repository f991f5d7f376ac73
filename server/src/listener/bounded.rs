use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tonic::transport::server::Connected;

use super::Stream;
use crate::rls::Receiving;

/// A connection that fails from the moment on that a future is ready, whatever is under way on it.
pub(crate) struct Bounded<F> {
    stream: Stream,
    /// `None` once it was ready.
    end: Option<Pin<Box<F>>>,
    /// What all requests of the connection have in common.
    receiving: Receiving,
}

impl<F: Future<Output = ()>> Bounded<F> {
    pub(crate) fn new(stream: Stream, end: F) -> Self {
        let receiving = Receiving::new(stream.peer_addr());
        Self { stream, end: Some(Box::pin(end)), receiving }
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
    type ConnectInfo = Receiving;

    fn connect_info(&self) -> Receiving {
        self.receiving.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::sync::oneshot;
    use tokio::time::timeout;

    use super::*;

    /// A connection that ends on demand, and its client.
    async fn connect() -> (Bounded<impl Future<Output = ()>>, oneshot::Sender<()>, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (end, ended) = oneshot::channel();
        let ended = async {
            let _ = ended.await;
        };
        let (stream, _) = listener.accept().await.unwrap();
        (Bounded::new(Stream::plain(stream), ended), end, client)
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
