//! Serves one gRPC connection.
//!
//! One task runs a connection and all its requests. Therefore a connection with many requests is
//! only one task in the queue of the runtime, and one write can send many responses.

use std::convert::Infallible;
use std::future::poll_fn;
use std::mem;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::http::{HeaderMap, Request, Response};
use futures_util::stream::{FuturesUnordered, StreamExt};
use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tonic::Status;
use tonic::body::Body;

use super::memory::Client;
use super::{GrpcSettings, Services};
use crate::net::listener::{Bounded, MayRead, Stream};

/// The length of the first bytes of HTTP/2: the preface (24 bytes) and the header of the first
/// frame (9 bytes).
const BEGINNING_BYTES: usize = 24 + 9;

/// The number of response bytes that HTTP/2 buffers per request while the client does not read.
/// Further bytes count as memory of the request.
const MAX_SEND_BYTES: usize = 4 << 10;

/// The number of bytes that a client may send on a stream, or on the whole connection, before the
/// server reads them.
const STREAM_WINDOW_BYTES: u32 = 64 << 10;
const CONNECTION_WINDOW_BYTES: u32 = 256 << 10;

/// The interval at which the server sends pings. If the client does not reply to a ping, the server
/// closes the connection.
const PING_INTERVAL: Duration = Duration::from_secs(60);

/// Serves a connection until it ends.
pub(super) async fn serve(
    stream: Stream,
    services: Arc<Services>,
    settings: GrpcSettings,
    client: Client,
    mut stopped: watch::Receiver<bool>,
) {
    let may_read = MayRead::default();
    let end = end(settings, stopped.clone());
    let stream = Bounded::new(stream, end, settings.request_timeout, may_read.clone())
        .beginning(BEGINNING_BYTES, settings.begin_timeout);
    let service = service_fn(move |request| {
        answer(request, Arc::clone(&services), client.clone(), settings.request_timeout)
    });
    let requests = Requests::default();
    let mut builder = http2::Builder::new(requests.clone());
    builder
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_INTERVAL)
        .max_concurrent_streams(settings.max_streams)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_send_buf_size(MAX_SEND_BYTES);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let mut running = FuturesUnordered::new();
    let mut run = |cx: &mut Context<'_>, connection: Pin<&mut _>| {
        may_read.set(true);
        poll_connection(cx, connection, &requests, &mut running)
    };
    let leave = async {
        tokio::select! {
            () = sleep(settings.age.max) => {}
            // `wait_for` returns no error, because the sender is dropped only after all connections
            // have ended.
            _ = stopped.wait_for(|stopped| *stopped) => {}
        }
    };
    tokio::select! {
        () = poll_fn(|cx| run(cx, connection.as_mut())) => return,
        () = leave => connection.as_mut().graceful_shutdown(),
    }
    poll_fn(|cx| run(cx, connection.as_mut())).await;
}

/// Completes when the server must close the connection: at the maximum age plus the grace, or
/// `end_timeout` after `stopped` became `true`. The age counts from the first poll of this future.
async fn end(settings: GrpcSettings, mut stopped: watch::Receiver<bool>) {
    let at_end = async {
        // An error would mean that the server has stopped and dropped the sender.
        let _ = stopped.wait_for(|stopped| *stopped).await;
        sleep(settings.end_timeout).await;
    };
    tokio::select! {
        () = sleep(settings.age.max.saturating_add(settings.age.grace)) => {}
        () = at_end => {}
    }
}

/// Polls a connection and its requests. Returns `Ready` when the connection has ended.
fn poll_connection<T>(
    cx: &mut Context<'_>,
    mut connection: Pin<&mut impl Future<Output = T>>,
    requests: &Requests,
    running: &mut FuturesUnordered<Running>,
) -> Poll<()> {
    if connection.as_mut().poll(cx).is_ready() {
        return Poll::Ready(());
    }
    running.extend(requests.take());
    let mut has_answers = false;
    while let Poll::Ready(Some(())) = running.poll_next_unpin(cx) {
        has_answers = true;
    }
    if !has_answers {
        return Poll::Pending;
    }
    // This poll writes all responses. If it also receives new requests, the task wakes itself, so
    // that it runs these requests.
    let polled = connection.poll(cx);
    if !requests.is_empty() {
        cx.waker().wake_by_ref();
    }
    polled.map(drop)
}

type Running = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The requests that a connection has received but not started.
#[derive(Clone, Default)]
struct Requests(Arc<Mutex<Vec<Running>>>);

impl Requests {
    fn take(&self) -> Vec<Running> {
        mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn is_empty(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Requests {
    fn execute(&self, request: F) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Box::pin(request));
    }
}

/// Answers a request within the timeout of the server, or within the client's timeout if that is
/// shorter.
async fn answer(
    request: Request<Incoming>,
    services: Arc<Services>,
    client: Client,
    max: Duration,
) -> Result<Response<Body>, Infallible> {
    let time = client_timeout(request.headers()).map_or(max, |time| time.min(max));
    let response = timeout(time, services.answer(request, client)).await;
    Ok(response.unwrap_or_else(|_| Status::cancelled("Timeout expired").into_http()))
}

/// Returns the client's timeout from the field `grpc-timeout`, which consists of at most eight
/// digits and a unit.
fn client_timeout(fields: &HeaderMap) -> Option<Duration> {
    let text = fields.get("grpc-timeout")?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.len() > 8 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number = digits.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(number * 3_600)),
        "M" => Some(Duration::from_secs(number * 60)),
        "S" => Some(Duration::from_secs(number)),
        "m" => Some(Duration::from_millis(number)),
        "u" => Some(Duration::from_micros(number)),
        "n" => Some(Duration::from_nanos(number)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timeout_of_a_client_is_a_number_and_a_unit() {
        for (text, expected) in [
            ("2H", Some(Duration::from_secs(7_200))),
            ("3M", Some(Duration::from_secs(180))),
            ("99999999S", Some(Duration::from_secs(99_999_999))),
            ("20m", Some(Duration::from_millis(20))),
            ("5u", Some(Duration::from_micros(5))),
            ("0n", Some(Duration::ZERO)),
            ("", None),
            ("m", None),
            ("1", None),
            ("+1m", None),
            ("-1m", None),
            ("1x", None),
            ("100000000m", None),
        ] {
            let fields =
                HeaderMap::from_iter([("grpc-timeout".parse().unwrap(), text.parse().unwrap())]);
            assert_eq!(client_timeout(&fields), expected, "{text:?}");
        }
        assert_eq!(client_timeout(&HeaderMap::new()), None);
    }
}
