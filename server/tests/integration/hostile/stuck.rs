//! Tests connections that accept bytes from the server but do not deliver them, like an encrypted
//! connection whose client does not read.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use tidegate_memory::MemoryStore;
use tidegate_server::calls::Calls;
use tidegate_server::calls::resp::{self, RespSettings};
use tidegate_server::net::http::{self, HttpSettings};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf};
use tokio::time::{Instant, timeout};

#[derive(Debug, Clone, Copy, PartialEq)]
enum Never {
    Flushes,
    ShutsDown,
}

struct Stuck {
    stream: DuplexStream,
    never: Never,
}

impl AsyncRead for Stuck {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Stuck {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.never {
            Never::Flushes => Poll::Pending,
            Never::ShutsDown => Pin::new(&mut self.get_mut().stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Pending
    }
}

/// Sends bytes to a server. Returns the number of seconds until the server closes the connection.
async fn end<S: Future<Output = io::Result<()>>>(
    bytes: &str,
    never: Never,
    serve: impl FnOnce(Stuck) -> S,
) -> u64 {
    let (mut client, stream) = tokio::io::duplex(8 << 10);
    client.write_all(bytes.as_bytes()).await.unwrap();
    let start = Instant::now();
    let served = timeout(Duration::from_secs(10_000), serve(Stuck { stream, never })).await;
    assert!(served.unwrap().is_err(), "{never:?}");
    start.elapsed().as_secs()
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_does_not_send_its_last_bytes_ends() {
    let routes = Router::new().route("/", get(async || "text"));
    let settings = HttpSettings::default();
    for never in [Never::Flushes, Never::ShutsDown] {
        let get = "GET / HTTP/1.1\r\nConnection: close\r\n\r\n";
        let serve = |stream| http::serve_stream(stream, routes.clone(), &settings);
        assert_eq!(end(get, never, serve).await, 30, "{never:?}");

        let calls = Arc::new(Calls::new(Arc::new(MemoryStore::new())));
        let serve = |stream| resp::serve_stream(stream, calls, RespSettings::default());
        assert_eq!(end("PING\r\nQUIT\r\n", never, serve).await, 30, "{never:?}");
    }
}
