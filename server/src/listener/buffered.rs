use std::io;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tonic::transport::server::Connected;

/// More than that is written before a flush.
const MAX_BYTES: usize = 32 << 10;

/// An empty buffer of more than that is freed: most connections are idle.
const KEPT_BYTES: usize = 4 << 10;

/// A stream whose bytes are written when it is flushed, and after all tasks that are ready by then.
///
/// A request of HTTP/2 has a task, which at its end wakes that of its connection, and Tokio runs a task that was woken
/// before others. So each of many requests at once would have a write to the socket of its own.
pub(crate) struct Buffered<S> {
    stream: S,
    bytes: Vec<u8>,
    /// How many of the bytes are written.
    written: usize,
    /// Whether the flush has let other tasks run.
    has_yielded: bool,
}

impl<S> Buffered<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self { stream, bytes: Vec::new(), written: 0, has_yielded: false }
    }
}

impl<S: AsyncWrite + Unpin> Buffered<S> {
    fn poll_write_out(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(rest) = self.bytes.get(self.written..).filter(|rest| !rest.is_empty()) {
            match ready!(Pin::new(&mut self.stream).poll_write(cx, rest))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => self.written += written,
            }
        }
        self.written = 0;
        self.bytes.clear();
        if self.bytes.capacity() > KEPT_BYTES {
            drop(mem::take(&mut self.bytes));
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Buffered<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Buffered<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.bytes.len() >= MAX_BYTES {
            ready!(this.poll_write_out(cx))?;
        }
        let (taken, _) = bytes.split_at(bytes.len().min(MAX_BYTES - this.bytes.len()));
        this.bytes.extend_from_slice(taken);
        Poll::Ready(Ok(taken.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.bytes.is_empty() && !mem::replace(&mut this.has_yielded, true) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        ready!(this.poll_write_out(cx))?;
        this.has_yielded = false;
        Pin::new(&mut this.stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_write_out(cx))?;
        Pin::new(&mut this.stream).poll_shutdown(cx)
    }
}

impl<S: Connected> Connected for Buffered<S> {
    type ConnectInfo = S::ConnectInfo;

    fn connect_info(&self) -> S::ConnectInfo {
        self.stream.connect_info()
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use proptest::collection::vec;
    use proptest::prelude::*;
    use tidegate_testkit::generate::Bytes;
    use tokio::io::AsyncWriteExt;

    use super::*;

    /// Counts writes; each takes at most `most` bytes, and every second one has to wait if `waits` is true.
    #[derive(Default)]
    struct Socket {
        bytes: Vec<u8>,
        writes: usize,
        flushes: usize,
        most: usize,
        waits: bool,
        is_waiting: bool,
    }

    impl AsyncWrite for Socket {
        fn poll_write(
            self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            let this = self.get_mut();
            this.is_waiting = this.waits && !this.is_waiting;
            if this.is_waiting {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            let taken = bytes.len().min(this.most);
            this.bytes.extend_from_slice(&bytes[..taken]);
            this.writes += 1;
            Poll::Ready(Ok(taken))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            self.get_mut().flushes += 1;
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[test]
    fn what_other_tasks_write_before_the_flush_goes_along() {
        let cx = &mut Context::from_waker(Waker::noop());
        let mut stream = Buffered::new(Socket { most: usize::MAX, ..Socket::default() });
        for round in 1..=3 {
            let mut stream = Pin::new(&mut stream);
            assert!(stream.as_mut().poll_write(cx, b"one ").is_ready());
            assert!(stream.as_mut().poll_flush(cx).is_pending());
            assert!(stream.as_mut().poll_write(cx, b"two ").is_ready());
            assert_eq!(stream.stream.writes, round - 1);
            assert!(stream.as_mut().poll_flush(cx).is_ready());
            assert_eq!((stream.stream.writes, stream.stream.flushes), (round, round));
        }
        assert_eq!(stream.stream.bytes, b"one two ".repeat(3));
    }

    #[tokio::test]
    async fn a_stream_that_takes_nothing_is_an_error() {
        let mut stream = Buffered::new(Socket::default());
        stream.write_all(b"bytes").await.unwrap();
        let error = stream.flush().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WriteZero);
    }

    proptest! {
        /// Whatever a socket takes at once, it gets all bytes in order, and no more than the bound are kept.
        #[test]
        fn all_bytes_come_in_order(
            parts in vec((vec(any::<u8>(), 0..40_000).prop_map(Bytes::from), any::<bool>()), 1..8),
            most in prop_oneof![1_usize..10, 1_000_usize..100_000],
            waits: bool,
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let mut stream = Buffered::new(Socket { most, waits, ..Socket::default() });
            runtime.block_on(async {
                for (part, flushes) in &parts {
                    stream.write_all(part).await.unwrap();
                    prop_assert!(stream.bytes.len() <= MAX_BYTES);
                    if *flushes {
                        stream.flush().await.unwrap();
                        prop_assert!(stream.bytes.is_empty());
                        prop_assert!(stream.bytes.capacity() <= KEPT_BYTES);
                    }
                }
                stream.shutdown().await.unwrap();
                Ok(())
            })?;
            let all = parts.iter().map(|(part, _)| &part[..]).collect::<Vec<_>>().concat();
            prop_assert!(stream.stream.bytes == all, "{} of {} bytes", stream.stream.bytes.len(), all.len());
        }
    }
}
