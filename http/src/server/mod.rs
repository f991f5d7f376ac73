//! The layer for servers: limits that are decided before a request reaches its service.
//!
//! ```
//! use axum::Router;
//! use axum::routing::get;
//! use std::net::SocketAddr;
//! use tidegate_http::server::{Limit, RateLimitLayer};
//! use tidegate_http::subject::{ClientAddress, Everybody};
//! use tidegate_memory::{Limiter, MemoryStore};
//!
//! # async fn serve() -> Result<(), Box<dyn std::error::Error>> {
//! let policies = ["ip: gcra 10/s burst 20".parse()?, "everybody: gcra 5000/s burst 500".parse()?];
//! let limits = RateLimitLayer::new(
//!     Limiter::new(MemoryStore::new(), policies)?,
//!     [Limit::by("ip", ClientAddress::peer()), Limit::by("everybody", Everybody)],
//! )?;
//!
//! let app = Router::new().route("/", get(|| async { "Hello!" })).layer(limits);
//! let listener = tokio::net::TcpListener::bind("[::]:3000").await?;
//! axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
//! # Ok(()) }
//! ```
//!
//! One call to the store decides on all limits of a request: all are charged, or none.
//!
//! # What a request gets
//!
//! | | response | reaches the service | fields |
//! |---|---|---|---|
//! | all policies admit it | the response of the service | yes | `RateLimit`, `RateLimit-Policy`, on [all limits or the tightest](crate::fields::FieldScope) |
//! | a policy refuses it | 429 | no | these and `Retry-After` |
//! | a [failure policy](tidegate_core::layers) refuses it, closed or by a share of the limit | 503 | no | `Retry-After`; by a share, all |
//! | a failure policy admits it, open | that of the service | yes | none: nothing is known |
//! | the store fails, and has no failure policy | 503 | no | none |
//! | the store rejects the call, as one with a policy that it cannot keep | 500 | no | none |
//! | it has no subject for a limit | what the [`Limit`] says: by default 400 | if the limit says so | those of the other limits |
//! | it is [exempt](RateLimitLayer::exempt), or no limit applies | that of the service | yes | none |
//!
//! Shadow policies count and report to metrics, and change no response. The body of a refusal is a problem of
//! RFC 9457, or [what the application makes of it](RateLimitLayer::respond_with).
//!
//! # Where the layer stands
//!
//! With [`tower::ServiceBuilder`](https://docs.rs/tower), layers that are named first are outside. (With
//! axum's `Router::layer`, those that are added last.)
//!
//! | layer | stands | because |
//! |---|---|---|
//! | tracing, metrics | outside | refusals are to be seen |
//! | CORS | outside | browsers hide a response without CORS fields from scripts, 429 included, and preflight requests are answered before they count |
//! | limits by address | outside of authentication | they protect it |
//! | authentication | | |
//! | limits by user, API key or tenant | inside of authentication | [anyone can claim to be a user](crate::subject#count-by-what-was-verified) |
//! | compression, timeouts, the handler | inside | they work for admitted requests only |
//!
//! Scripts of other origins may read only the fields that CORS exposes: pass
//! [`names::EXPOSED`](crate::fields::names::EXPOSED) to `CorsLayer::expose_headers`. A server that answers
//! `OPTIONS` by itself uses [`RateLimitLayer::exempt_options`].
//!
//! Two layers make two decisions: if the inner one refuses, the outer one has charged. Put all limits that
//! can stand at one place into one layer, with [`Limit::only`] for those of some routes. Each layer adds its
//! policies to the fields.
//!
//! # Costs that are known afterwards
//!
//! A service that knows what a request costs only when it has answered (tokens, rows, bytes) gets a layer that takes an
//! estimate, and settles it: [`hold`].
//!
//! # Cost
//!
//! No task is spawned and no body is boxed. The `RateLimit` field is one allocation. Unless the store
//! [answers immediately](tidegate_core::Store::answers_immediately), as one in memory does, with or without
//! [layers](tidegate_core::layers) around it, the decision is one more, and the service is cloned.
//!
//! # Cancellation
//!
//! If the client disconnects, the server drops the response future. The request stays charged. If that happens
//! before the decision is made, it may or may not be charged, and does not reach the service.

mod decide;
mod future;
pub mod hold;
mod layer;
mod limit;
mod refusal;
mod service;
mod shared;

pub use future::ResponseFuture;
pub use hold::{ActualCost, HoldLayer, Usage};
pub use layer::RateLimitLayer;
pub use limit::Limit;
pub use refusal::{GrpcStatus, ProblemJson, Reason, Refusal, Respond};
pub use service::RateLimit;
