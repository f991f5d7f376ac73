use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::Poll;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use bytes::Bytes;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use metrics::{counter, gauge};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;

use super::HttpSettings;
use super::body::BodyBounds;
use super::phase::Phase;
use super::timed::Timed;
use crate::net::listener::{Connections, Listener};

/// The size of the smallest buffer that hyper accepts.
const MIN_BUFFER_BYTES: usize = 8 << 10;

const REFUSAL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\n\
    content-length: 37\r\ncontent-type: text/plain\r\n\r\nmax number of connections is reached\n";

/// Serves connections until `shutdown` completes. Then each connection ends after the requests that
/// have arrived are answered.
pub async fn serve(
    listener: impl Into<Listener>,
    routes: Router,
    settings: HttpSettings,
    shutdown: impl Future<Output = ()>,
) {
    let connections = Connections {
        max: settings.max_connections,
        open: gauge!("tidegate_server_http_connections"),
        refused: counter!("tidegate_server_http_refused_connections_total"),
        refusal: Bytes::from_static(REFUSAL),
    };
    let settings = Arc::new(settings);
    let serve = |stream, stopped| {
        let (routes, settings) = (routes.clone(), Arc::clone(&settings));
        async move { serve_until(stream, routes, &settings, stopped).await }
    };
    connections.serve(listener.into(), serve, shutdown).await;
}

/// Serves a single connection over any stream, for example a stream in memory.
///
/// # Errors
///
/// Returns an error if the connection fails.
pub async fn serve_stream(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    routes: Router,
    settings: &HttpSettings,
) -> io::Result<()> {
    let (_running, stopped) = watch::channel(false);
    serve_until(stream, routes, settings, stopped).await
}

/// Answers the requests of a client until the client closes the connection, exceeds a bound, or
/// sends data that is not HTTP. If `stopped` becomes true, the connection ends after the requests
/// that have arrived are answered.
async fn serve_until(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    routes: Router,
    settings: &HttpSettings,
    mut stopped: watch::Receiver<bool>,
) -> io::Result<()> {
    let phase = Phase::default();
    let stream = TokioIo::new(Timed::new(stream, phase.clone(), settings));
    let routes = TowerToHyperService::new(routes);
    let service = service_fn(|request: Request<Incoming>| {
        phase.next();
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(BodyBounds::new(settings));
        let response = routes.call(request);
        let phase = phase.clone();
        async move {
            let response = response.await;
            phase.next();
            // While the service answers a request, hyper may find no data in the stream. hyper
            // reads again only after a wake-up, and only a read starts the timer for the next
            // request. Therefore the task wakes itself.
            poll_fn(|cx| {
                cx.waker().wake_by_ref();
                Poll::Ready(())
            })
            .await;
            response
        }
    });
    let mut builder = http1::Builder::new();
    // `Timed` has timeouts, so hyper needs none. A maximum number of headers costs an allocation
    // per request, so it is set only if it differs from the default.
    builder.header_read_timeout(None).max_header_size(settings.max_head_bytes);
    // The connection copies head and body into one buffer. Most responses are so small that a copy
    // takes less time than a system call with two buffers.
    builder.writev(false);
    // The buffer is larger than the maximum head, so that a slightly larger head is still read and
    // the client receives the answer 431.
    builder.max_buf_size(settings.max_head_bytes.saturating_add(MIN_BUFFER_BYTES));
    if settings.max_headers != HttpSettings::default().max_headers {
        builder.max_headers(settings.max_headers);
    }
    let connection = builder.serve_connection(stream, service);
    tokio::pin!(connection);
    let served = tokio::select! {
        served = &mut connection => Some(served),
        _ = stopped.wait_for(|stopped| *stopped) => None,
    };
    let served = match served {
        Some(served) => served,
        None => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    served.map_err(io::Error::other)
}
