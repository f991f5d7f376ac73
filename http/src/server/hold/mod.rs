//! Costs that are known only when a request was answered: tokens, rows, bytes.
//!
//! A [`HoldLayer`] takes an estimate from each limit before the request reaches its service, all in one decision, and
//! settles it at the actual cost: what was too much is given back, and what was too little is charged. So requests
//! that run at the same time never exceed a limit by more than their estimates were too low.
//!
//! ```
//! use std::time::Duration;
//!
//! use axum::{Router, routing::post};
//! use tidegate_http::server::{ActualCost, Limit, RateLimitLayer, Usage};
//! use tidegate_http::subject::Everybody;
//! use tidegate_memory::{Limiter, ManualClock, MemoryStore};
//! # use http::Request;
//! # use tower::ServiceExt;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let limiter = Limiter::new(
//!     MemoryStore::builder().clock(ManualClock::default()).build(),
//!     ["requests: fixed-window 60/1m".parse()?, "tokens: fixed-window 10000/1h".parse()?],
//! )?;
//! let limits = [
//!     Limit::by("requests", Everybody),
//!     Limit::by("tokens", Everybody).unit("tokens").cost(4_000), // the estimate
//! ];
//! let layer = RateLimitLayer::new(limiter.clone(), limits)?
//!     .refund_server_errors()
//!     // A response takes less than five minutes.
//!     .hold_for(Duration::from_secs(300), [("tokens", ActualCost::usage("tokens"))])?;
//!
//! async fn complete(usage: Usage) -> &'static str {
//!     usage.add("tokens", 350); // as often as it likes, also while the body streams
//!     "Hello!"
//! }
//! let app: Router = Router::new().route("/", post(complete)).layer(layer);
//!
//! # let request = Request::post("/").body(axum::body::Body::empty())?;
//! let response = app.oneshot(request).await?;
//! assert_eq!(response.headers()["ratelimit"], r#""requests";r=59;t=60, "tokens";r=6000;t=3600"#);
//! drop(response); // it was sent
//! let peek = limiter.by("tokens", ()).peek().await?;
//! assert_eq!(peek.verdicts()[0].remaining(), 9_650);
//! # Ok(()) }
//! ```
//!
//! # What a request costs
//!
//! | | a limit with an [`ActualCost`] | a limit without |
//! |---|---|---|
//! | it is refused | nothing | nothing |
//! | it is answered | the actual cost; the estimate, if none is known | its cost |
//! | a rule [refunds](super::RateLimitLayer::refund_when) its response, or its failure | nothing, unless the limit is [excluded](super::Limit::without_refund) | nothing, unless the limit is excluded |
//! | it is cut: the client disconnects, the handler panics, the body fails | by [`HoldLayer::if_cut`]: what was reported so far | its cost |
//! | the client disconnects before it is decided | nothing: it does not reach the service | nothing |
//!
//! The fields of the response say what is left after the estimate was taken, as the rest is not known yet.
//!
//! A response whose costs its head tells is settled before it is returned. Others are settled when the body ends.
//! While it streams, what exceeds the estimate is [charged at once](HoldLayer::report_every).
//!
//! # If it cannot be settled
//!
//! If the store fails, what is held stays charged: never less than the estimate, unless a policy
//! [gives it back](tidegate_core::Policy::refund_lapsed) when its time is over. The store can settle a hold for twice
//! the time of [`hold_for`](super::RateLimitLayer::hold_for), which a body that streams extends. A request that was
//! admitted by a failure policy is charged to the store when it ends, if that answers again.
//!
//! # When the server ends
//!
//! A server that ends drops the responses that it does not finish, and these are settled as
//! requests that were cut. Unless the store answers immediately, tasks settle them. The program
//! waits for the tasks before it ends the runtime:
//! [`Limiter::guards_settled`](tidegate_core::Limiter::guards_settled) of a clone of the layer's
//! limiter.
//! [`examples/llm-gateway`](https://github.com/tidegate/tidegate/blob/main/examples/llm-gateway/src/serve.rs)
//! does both.
//!
//! # Cost
//!
//! Bodies are wrapped in a type that names the inner one, and are not boxed. A task is spawned only where the store does
//! not answer immediately, and a request is cut. A request takes two calls to the store, a clone of the service, and some
//! thirty allocations (three limits, in memory). So leave routes that need no estimate to a layer without one.
//!
//! It needs a Tokio runtime.

mod actual_cost;
mod body;
mod future;
mod layer;
mod open_hold;
mod service;
mod settings;
mod usage;

pub use actual_cost::ActualCost;
pub use body::HoldBody;
pub use future::HoldFuture;
pub use layer::HoldLayer;
pub use service::HoldService;
pub(super) use settings::HoldSettings;
#[doc(no_inline)]
pub use tidegate_core::OnDrop;
pub use usage::Usage;
