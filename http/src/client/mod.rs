//! A layer for clients of other services. It keeps the requests of all processes that share a store
//! within the limits of these services.
//!
//! [`ThrottleLayer`] is a [`tower::Layer`](tower_layer::Layer) around any client that is a service
//! over [`http::Request`]. The legacy client of hyper-util is such a service. The client of reqwest
//! becomes a service with one line (see `examples/reqwest` in the repository). Each request first
//! waits for its turn in a [`Limiter`](tidegate_core::Limiter), with its origin as the subject. The
//! layer also obeys the limits that a server announces in a response
//! ([`ServerLimits`](crate::fields::ServerLimits)): it blocks the origin in the store, so that no
//! process sends requests to the server before the announced time.
//!
//! ```
//! use std::convert::Infallible;
//! use std::time::Duration;
//! use http::{Request, Response};
//! use tidegate_core::Limiter;
//! use tidegate_http::client::{ThrottleLayer, copy_if_safe};
//! use tidegate_memory::MemoryStore;
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build()?.block_on(async {
//! // This client can be any client. It is asked once to wait for 3 s.
//! let mut answers = vec![
//!     Response::builder().status(200).body("hello")?,
//!     Response::builder().status(429).header("retry-after", "3").body("")?,
//! ];
//! # let answers = std::sync::Arc::new(std::sync::Mutex::new(answers));
//! let client = service_fn(move |_: Request<String>| {
//!     let answer = answers.lock().unwrap().pop().unwrap();
//!     async { Ok::<_, Infallible>(answer) }
//! });
//!
//! // With a `RedisStore`, all processes that use the same Redis and policy share one limit.
//! let store = MemoryStore::new();
//! # let store = MemoryStore::builder().clock(tidegate_core::TokioClock::new()).build();
//! let limiter = Limiter::new(store, ["partner: gcra 10/1s burst 10".parse()?])?;
//! let layer = ThrottleLayer::new(limiter)
//!     .max_wait(Duration::from_secs(20))
//!     // `copy_if_safe` copies GET and other safe requests.
//!     .retry(2, copy_if_safe);
//! let client = ServiceBuilder::new().layer(layer).service(client);
//!
//! let start = tokio::time::Instant::now();
//! let request = Request::get("https://api.example.com/items").body(String::new())?;
//! let response = client.oneshot(request).await?;
//! assert_eq!(*response.body(), "hello");
//! assert!(start.elapsed() >= Duration::from_secs(3));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Announcements
//!
//! | response | pause of the origin |
//! |---|---|
//! | an error (status 4xx or 5xx) with `Retry-After` | until the time in `Retry-After` |
//! | any response with a limit that has no remaining amount, and with the reset of this limit | until the reset, unless `Retry-After` of an error has another time |
//! | status 429 without a time | [`ThrottleLayer::default_pause`] |
//!
//! Each wait is extended at random, by at most an eighth and at most one second, so that callers
//! with the same wait do not send their requests simultaneously.
//!
//! # Guarantees
//!
//! * The layer checks for a pause directly before it sends a request. After the layer has returned
//!   a response with an announcement to its caller, each later check in this process finds the
//!   pause. The request is then not sent to the origin before the announced time. If the write to
//!   the store succeeded, the checks of all other processes that share the store find the pause
//!   too. A request that was checked before the announcement may already be in flight.
//! * A shorter pause never replaces a longer pause, regardless of the order in which processes
//!   receive and write the announcements. The pause of the origin lasts until the latest announced
//!   time.
//! * A request waits for at most [`ThrottleLayer::max_wait`]. If it would have to wait longer, it
//!   fails immediately with an [error](ClientError).
//! * A request is sent again only after a response with status 429, or with status 503 and an
//!   announced time, and only if the function that was given to [`ThrottleLayer::retry`] returns a
//!   copy of the request.
//!
//! # Cancellation
//!
//! If the response future is dropped while the request waits for its turn, the charge is refunded:
//! see [`Admission`](tidegate_core::Admission#cancellation). If the turn has come, and the request
//! still waits for the end of a pause, the request stays charged. A task writes each received
//! announcement to the store, even if the future is dropped.
//!
//! # Store failures
//!
//! If the store returns an error, the request is not sent, and the caller receives the error. A
//! store that [fails open](tidegate_core::StoreExt::or_fail_open) admits requests, but the layer
//! still obeys the announcements that this process received. If an announcement cannot be written
//! to the store, only this process obeys it.

mod announcements;
mod error;
mod layer;
mod retry;
mod service;
mod settings;
mod subject;
mod turn;

pub use error::{ClientError, ClientErrorKind};
pub use layer::ThrottleLayer;
pub use retry::{CopyRequest, NoRetry, copy_if_safe};
pub use service::{Throttle, ThrottleFuture};
pub use subject::origin;
