//! How much of its requests a connection may have sent before they are complete.
//!
//! The windows of HTTP/2 do not bound it: they are about bytes that were not read, and tonic reads a message as it comes.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use axum::body::HttpBody;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use tonic::Status;
use tonic::body::Body;

/// The maximum length of all messages of a connection in bytes that are being received.
pub const MAX_RECEIVED_BYTES: usize = 8 << 20;

/// The length of all messages of a connection that are being received.
#[derive(Debug, Clone, Default)]
pub(crate) struct Receiving {
    peer: Option<SocketAddr>,
    bytes: Arc<AtomicUsize>,
}

impl Receiving {
    pub(crate) fn new(peer: Option<SocketAddr>) -> Self {
        Self { peer, bytes: Arc::default() }
    }

    /// Returns the address of the client.
    pub(super) fn peer(&self) -> Option<SocketAddr> {
        self.peer
    }
}

/// The body of a request, whose bytes count until it is dropped.
pub(super) struct Received {
    body: Body,
    all: Receiving,
    bytes: usize,
}

impl Received {
    pub(super) fn new(body: Body, all: Receiving) -> Self {
        Self { body, all, bytes: 0 }
    }
}

impl HttpBody for Received {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = self.get_mut();
        let frame = ready!(Pin::new(&mut this.body).poll_frame(cx));
        if let Some(data) = frame.as_ref().and_then(|it| it.as_ref().ok()).and_then(Frame::data_ref)
        {
            this.bytes += data.len();
            let before = this.all.bytes.fetch_add(data.len(), Ordering::Relaxed);
            if before + data.len() > MAX_RECEIVED_BYTES {
                let message = format!(
                    "the requests of the connection that are not complete have more than {MAX_RECEIVED_BYTES} bytes"
                );
                return Poll::Ready(Some(Err(Status::resource_exhausted(message))));
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Received {
    fn drop(&mut self) {
        self.all.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
