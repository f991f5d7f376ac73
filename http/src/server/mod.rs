//! A layer for servers. It decides on the limits of a request before the request reaches the
//! service.
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
//! One call to the store decides on all limits of a request. Either all limits are charged, or
//! none.
//!
//! # Responses
//!
//! The table shows the response to a request, whether the request reaches the service, and the
//! fields that the layer adds.
//!
//! | request | response | reaches the service | fields |
//! |---|---|---|---|
//! | admitted by all policies | the response of the service | yes | `RateLimit` and `RateLimit-Policy`, on [all limits or the tightest](crate::fields::FieldScope) |
//! | refused by a policy | 429 | no | `RateLimit`, `RateLimit-Policy`, `Retry-After` |
//! | refused by a [failure policy](tidegate_core::layers) that fails closed | 503 | no | `Retry-After` |
//! | refused by a failure policy that enforces a share of the limit | 503 | no | `RateLimit`, `RateLimit-Policy`, `Retry-After` |
//! | admitted by a failure policy that fails open | the response of the service | yes | none, because nothing is known |
//! | the store fails, and has no failure policy | 503 | no | none |
//! | the store rejects the call, for example because it does not support a policy | 500 | no | none |
//! | has no subject for a limit | set by the [`Limit`]: by default 400 | if the limit allows this | the fields of the other limits, if the request reaches the service |
//! | [exempt](RateLimitLayer::exempt), or without an applicable limit | the response of the service | yes | none |
//!
//! Shadow policies count requests and are reported to metrics, and never change a response. The
//! body of a refusal is a problem of RFC 9457, or [a body of the
//! application](RateLimitLayer::respond_with).
//!
//! # Position among other layers
//!
//! With [`tower::ServiceBuilder`](https://docs.rs/tower), the first layer is the outermost. With
//! axum's `Router::layer`, the layer that is added last is the outermost.
//!
//! | layer | position | reason |
//! |---|---|---|
//! | tracing, metrics | outside | they record refusals too |
//! | CORS | outside | browsers hide a response without CORS fields from scripts, 429 included, and preflight requests are answered before they are counted |
//! | limits by address | outside of authentication | they protect it |
//! | authentication | | |
//! | limits by user, API key or tenant | inside of authentication | [anyone can claim to be a user](crate::subject#count-verified-subjects) |
//! | compression, timeouts, the handler | inside | they work only for admitted requests |
//!
//! Scripts of other origins can read only the fields that CORS exposes: pass
//! [`names::EXPOSED`](crate::fields::names::EXPOSED) to `CorsLayer::expose_headers`. If the service
//! itself answers `OPTIONS`, call [`RateLimitLayer::exempt_options`].
//!
//! Two layers make two decisions. If the inner layer refuses a request, the outer layer has already
//! charged it. Therefore, put all limits with the same position into one layer, and use
//! [`Limit::only`] for limits that apply to some routes. With the default
//! [format](crate::fields::FieldFormat), each layer adds its policies to the fields. In the other
//! formats, the fields have the numbers of the outermost layer.
//!
//! # Costs that are known after the response
//!
//! Some services know the cost of a request (tokens, rows, bytes) only after they have answered it.
//! For these services, a layer holds an estimate and settles it at the actual cost: see [`hold`].
//!
//! # Cost
//!
//! The layer spawns no task and boxes no body. The `RateLimit` field costs one allocation. If the
//! store does not [answer immediately](tidegate_core::Store::answers_immediately), the layer also
//! allocates a future for the decision, and clones the service. A memory store answers immediately,
//! with or without [layers](tidegate_core::layers) around it.
//!
//! # Cancellation
//!
//! If the client disconnects, the server drops the response future. The request stays charged. If
//! the future is dropped before the decision, the request does not reach the service, and the store
//! may or may not have charged it.

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
