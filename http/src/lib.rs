//! Rate limits over HTTP. This crate contains tower layers for servers and for clients, around any
//! [`Limiter`](tidegate_core::Limiter) in memory, on Redis or on a Redis Cluster.
//!
//! | task | item |
//! |---|---|
//! | limit a service of axum, tonic or hyper | [`server`]: [`RateLimitLayer`](server::RateLimitLayer), [`Limit`](server::Limit) |
//! | count by address (also behind proxies), by user or by API key | [`subject`] |
//! | charge the actual usage of a response: tokens, rows, bytes | [`server::hold`] |
//! | change the response of a refusal | [`RateLimitLayer::respond_with`](server::RateLimitLayer::respond_with), [`GrpcStatus`](server::GrpcStatus) |
//! | stay within the limits of another service | [`client`] |
//! | write or read the fields without a layer | [`fields`] |
//! | migrate from tower_governor, or read more | the guide: [limits in HTTP servers][guide] |
//!
//! [guide]: https://github.com/tidegate/tidegate/blob/main/docs/guide/http-servers.md
//!
//! ```
//! use http::{Request, Response};
//! use tidegate_http::server::{Limit, RateLimitLayer};
//! use tidegate_http::subject::{ClientAddress, Everybody, PeerAddr};
//! use tidegate_memory::{Limiter, MemoryStore};
//! use tower::{ServiceBuilder, ServiceExt};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let policies = ["ip: token-bucket 1/1m burst 2".parse()?, "everybody: gcra 5000/s burst 500".parse()?];
//! let limits = RateLimitLayer::new(
//!     Limiter::new(MemoryStore::new(), policies)?,
//!     [Limit::by("ip", ClientAddress::peer()), Limit::by("everybody", Everybody)],
//! )?;
//! // With axum: `Router::new().route("/", get(hello)).layer(limits)`.
//! let service = ServiceBuilder::new()
//!     .layer(limits)
//!     .service_fn(|_: Request<()>| async { Ok::<_, std::io::Error>(Response::new("Hello!".to_string())) });
//!
//! let mut statuses = vec![];
//! for _ in 0..3 {
//!     let mut request = Request::new(());
//!     request.extensions_mut().insert(PeerAddr("203.0.113.9:4711".parse()?)); // as the server does
//!     statuses.push(service.clone().oneshot(request).await?.status().as_u16());
//! }
//! assert_eq!(statuses, [200, 200, 429]);
//! # Ok(()) }
//! ```
//!
//! # Crate features
//!
//! | feature | default | content |
//! |---|---|---|
//! | `server` | yes | [`server`] and [`subject`] |
//! | `client` | yes | [`client`], which uses Tokio's timers |
//! | `axum` | no | [`ClientAddress`](subject::ClientAddress) reads the peer from axum's `ConnectInfo`; this adds no dependency to an application that uses axum |
//!
//! The module [`fields`] is available without features. No input makes this crate panic.
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "client")]
pub mod client;
pub mod fields;
#[cfg(feature = "server")]
pub mod server;
#[cfg(feature = "server")]
pub mod subject;

/// Only for the tests.
#[cfg(all(doctest, feature = "server"))]
#[doc = include_str!("../README.md")]
mod readme {}
