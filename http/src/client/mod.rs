//! The layer for clients of other services: keeps within their limits, together with all processes that share a
//! store.
//!
//! [`ThrottleLayer`] is a [`tower::Layer`](tower_layer::Layer) around any client that is a service over
//! [`http::Request`]: the legacy client of hyper-util as it is, and reqwest by one line (`examples/reqwest` in the
//! repository). Before it passes a request on, the request waits for its turn in a
//! [`Limiter`](tidegate_core::Limiter), by the origin that it goes to. What the server announces with a response
//! ([`ServerLimits`](crate::fields::ServerLimits)) is obeyed: the origin's subject is blocked in the store, so that
//! all processes leave the server alone for as long as it asks.
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
//! // Any client. This one is asked to come back in 3 s, once.
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
//! // With a `RedisStore`, all processes that use the same Redis and policy keep to one limit.
//! let store = MemoryStore::new();
//! # let store = MemoryStore::builder().clock(tidegate_core::TokioClock::new()).build();
//! let limiter = Limiter::new(store, ["partner: gcra 10/1s burst 10".parse()?])?;
//! let layer = ThrottleLayer::new(limiter)
//!     .max_wait(Duration::from_secs(20))
//!     .retry(2, copy_if_safe); // GET and other safe methods
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
//! # What is obeyed
//!
//! | the response | the origin is left alone |
//! |---|---|
//! | an error (status 4xx or 5xx) with `Retry-After` | until then |
//! | any, with a limit of which nothing remains, and its reset | until the reset, unless the row above says another time |
//! | 429 without a word on when to come back | for [`ThrottleLayer::default_pause`] |
//!
//! A wait ends up to an eighth and at most a second later than it has to, at random, so that callers that wait
//! for the same time do not all come at once.
//!
//! # What is promised
//!
//! * Once a response with an announcement has been passed on to the caller, no request to that origin whose check
//!   begins later leaves this process before the time that was named, and, if the store could be written, none
//!   leaves any other process that shares the store. Requests that wait for their turn are checked when it comes,
//!   and go on waiting. One that was checked earlier is under way, and cannot be called back.
//! * No announcement shortens another one, in whatever order processes receive and write them: the origin is left
//!   alone until the latest time that any of them was told.
//! * A request waits at most [`ThrottleLayer::max_wait`]. One that would have to wait longer is an
//!   [error](ClientError), immediately.
//! * A request is sent again only if the function given to [`ThrottleLayer::retry`] returns a copy of it, and only
//!   after a 429, or a 503 that says when to come back.
//!
//! # Cancellation
//!
//! If a future is dropped while it waits for its turn, its charge is refunded: see
//! [`Admission`](tidegate_core::Admission#cancellation). If its turn has come and it still waits
//! because the origin announced a wait, its turn counts as used. A task writes a received
//! announcement to the store, even if the future is dropped.
//!
//! # When the store fails
//!
//! An error of the store is returned, and the request is not sent. A store that
//! [fails open](tidegate_core::StoreExt::or_fail_open) lets requests through; what this process was told is obeyed
//! even then. An announcement that cannot be written to the store is obeyed by this process alone.

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
