//! Accounts for the memory of gRPC requests in flight. A request is in flight from its first header
//! field until HTTP/2 has taken the whole response.
//!
//! The maximum memory applies to all connections together. One half is for large requests: a
//! connection can use half of the memory that is still free for large requests. The other half is
//! reserved for connections that use at most 64 KiB each, so that large requests do not cause
//! refusals for other clients.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use axum::body::HttpBody;
use axum::http::HeaderMap;
use bytes::Bytes;
use hyper::body::{Frame, Incoming, SizeHint};
use tonic::Status;

/// The memory in bytes that each connection can use, even if the half for large requests is full.
const LITTLE_BYTES: usize = 64 << 10;

/// The divisor for large requests: a connection can use 1/`SHARE` of the memory that is still free
/// for them. If only one connection is open, it can use a sixth of the maximum, because then a
/// third is still free for large requests.
const SHARE: usize = 2;

/// The bytes that are counted for each request in addition to its header fields and its message.
/// They cover the stream, the task and the response.
const REQUEST_BYTES: usize = 4 << 10;

/// The bytes that are counted for each header field in addition to its name and its value.
const FIELD_BYTES: usize = 64;

/// The memory of the requests on all connections.
#[derive(Debug)]
pub(super) struct Memory {
    max: usize,
    used: AtomicUsize,
}

impl Memory {
    pub(super) fn new(max: usize) -> Self {
        Self { max, used: AtomicUsize::new(0) }
    }
}

/// A connection and the memory of its requests.
#[derive(Debug, Clone)]
pub(super) struct Client {
    peer: Option<SocketAddr>,
    used: Arc<AtomicUsize>,
    all: Arc<Memory>,
}

impl Client {
    pub(super) fn new(peer: Option<SocketAddr>, all: &Arc<Memory>) -> Self {
        Self { peer, used: Arc::default(), all: Arc::clone(all) }
    }

    pub(super) fn peer(&self) -> Option<SocketAddr> {
        self.peer
    }

    fn add(&self, bytes: usize) -> Result<(), Status> {
        let used = self.used.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        let all = self.all.used.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        let is_little = used <= LITTLE_BYTES && all <= self.all.max;
        let max = (self.all.max / 2).saturating_sub(all) / SHARE;
        if is_little || used <= max {
            return Ok(());
        }
        self.remove(bytes);
        let max = max.max(LITTLE_BYTES);
        Err(Status::resource_exhausted(format!(
            "the memory of the requests of the connection is {used} bytes; it must be at most {max}"
        )))
    }

    fn remove(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
        self.all.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// The memory of one request.
#[derive(Debug)]
pub(super) struct Usage {
    client: Client,
    bytes: AtomicUsize,
}

impl Usage {
    /// Counts a request and its header fields.
    ///
    /// # Errors
    ///
    /// Returns an error if the connection would exceed its maximum memory.
    pub(super) fn new(client: Client, fields: &HeaderMap) -> Result<Arc<Self>, Status> {
        let usage = Arc::new(Self { client, bytes: AtomicUsize::new(0) });
        let fields = fields.iter().map(|(name, value)| name.as_str().len() + value.len());
        usage.add(fields.map(|bytes| bytes + FIELD_BYTES).sum::<usize>() + REQUEST_BYTES)?;
        Ok(usage)
    }

    /// Counts further bytes of the request.
    ///
    /// # Errors
    ///
    /// Returns an error if the connection would exceed its maximum memory. In this case, nothing is
    /// counted.
    pub(super) fn add(&self, bytes: usize) -> Result<(), Status> {
        self.client.add(bytes)?;
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }
}

impl Drop for Usage {
    fn drop(&mut self) {
        self.client.remove(*self.bytes.get_mut());
    }
}

/// The body of a request. Its bytes are counted as memory of the request.
pub(super) struct Received {
    body: Incoming,
    usage: Arc<Usage>,
}

impl Received {
    pub(super) fn new(body: Incoming, usage: Arc<Usage>) -> Self {
        Self { body, usage }
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
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
            && let Err(status) = this.usage.add(data.len())
        {
            return Poll::Ready(Some(Err(status)));
        }
        Poll::Ready(frame.map(|frame| frame.map_err(|error| Status::from_error(error.into()))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = 64 << 20;

    fn usage(client: &Client) -> Arc<Usage> {
        Usage::new(client.clone(), &HeaderMap::new()).unwrap()
    }

    /// Adds memory to a request until its connection reaches its bound. Returns the memory of the
    /// connection.
    fn fill(client: &Client, usage: &Usage) -> usize {
        while usage.add(1 << 10).is_ok() {}
        client.used.load(Ordering::Relaxed)
    }

    #[test]
    fn a_connection_that_is_alone_uses_a_sixth() {
        let client = Client::new(None, &Arc::new(Memory::new(MAX)));
        let used = fill(&client, &usage(&client));
        assert!((MAX / 6 - (2 << 10)..=MAX / 6).contains(&used), "{used}");
        let message = usage(&client).add(MAX).unwrap_err();
        let expected = "is 67112960 bytes; it must be at most 65536";
        assert!(message.message().ends_with(expected), "{message}");
    }

    #[test]
    fn a_connection_has_its_share_beside_a_hundred_that_use_theirs() {
        let memory = Arc::new(Memory::new(MAX));
        let greedy: Vec<_> = (0..100).map(|_| Client::new(None, &memory)).collect();
        let usages: Vec<_> = greedy.iter().map(usage).collect();
        for (client, usage) in greedy.iter().zip(&usages) {
            fill(client, usage);
        }
        let all = memory.used.load(Ordering::Relaxed);
        assert!((MAX / 2 - (1 << 20)..MAX / 2 + 100 * LITTLE_BYTES).contains(&all), "{all}");
        let client = Client::new(None, &memory);
        let requests: Vec<_> = (0..LITTLE_BYTES / REQUEST_BYTES).map(|_| usage(&client)).collect();
        drop((requests, usages));
        assert_eq!(memory.used.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn all_connections_use_no_more_than_the_maximum() {
        let memory = Arc::new(Memory::new(MAX));
        let clients: Vec<_> = (0..3_000).map(|_| Client::new(None, &memory)).collect();
        for client in &clients {
            while client.add(1 << 10).is_ok() {}
        }
        let all = memory.used.load(Ordering::Relaxed);
        assert!((MAX - (64 << 10)..=MAX).contains(&all), "{all}");
    }

    #[test]
    fn all_memory_of_a_request_is_free_after_it() {
        let memory = Arc::new(Memory::new(MAX));
        let client = Client::new(None, &memory);
        let usage = usage(&client);
        usage.add(1_000).unwrap();
        usage.add(MAX).unwrap_err();
        assert_eq!(memory.used.load(Ordering::Relaxed), REQUEST_BYTES + 1_000);
        drop(usage);
        let used = [&memory.used, &client.used].map(|used| used.load(Ordering::Relaxed));
        assert_eq!(used, [0; 2]);
    }
}
