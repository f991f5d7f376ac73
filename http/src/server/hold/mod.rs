//! Limits on costs that are known only after the response, such as tokens, rows and bytes.
//!
//! Before a request reaches its service, a [`HoldLayer`] holds an estimate under each limit, all in
//! one decision. After the response, it settles each hold at the actual cost: the store refunds the
//! difference if the estimate was too high, and charges the difference if it was too low.
//! Therefore, concurrent requests never exceed a limit by more than the amount by which their
//! estimates were too low.
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
//!     usage.add("tokens", 350); // repeatedly, and also while the body streams
//!     "Hello!"
//! }
//! let app: Router = Router::new().route("/", post(complete)).layer(layer);
//!
//! # let request = Request::post("/").body(axum::body::Body::empty())?;
//! let response = app.oneshot(request).await?;
//! assert_eq!(response.headers()["ratelimit"], r#""requests";r=59;t=60, "tokens";r=6000;t=3600"#);
//! drop(response); // the client has received it
//! let peek = limiter.by("tokens", ()).peek().await?;
//! assert_eq!(peek.verdicts()[0].remaining(), 9_650);
//! # Ok(()) }
//! ```
//!
//! # Costs of a request
//!
//! | request | a limit with an [`ActualCost`] | another limit |
//! |---|---|---|
//! | refused | 0 | 0 |
//! | answered | the actual cost, or the estimate if the actual cost is not known | its cost |
//! | its response or its failure is [refunded](super::RateLimitLayer::refund_when) | 0, unless the limit is [excluded](super::Limit::without_refund) | 0, unless the limit is excluded |
//! | cut, because the client disconnects, the handler panics or the body fails | by [`HoldLayer::if_cut`]: the reported usage | its cost |
//! | the client disconnects before the decision | 0; the request does not reach the service | 0 |
//!
//! The fields of the response announce the remaining amounts after the estimate was charged,
//! because the actual cost is not known yet.
//!
//! If the head of a response determines all costs, the hold is settled before the response is
//! returned. Otherwise, the end of the body settles the hold, or the end of an [upgraded
//! connection](Usage#upgraded-connections). While the body streams, usage above the estimate is
//! [charged immediately](HoldLayer::report_every).
//!
//! # Failed settlements
//!
//! If the store fails when a hold is settled, the estimate stays charged. If the policy has
//! [`refund_lapsed`](tidegate_core::Policy::refund_lapsed), the store refunds the unspent part when
//! the hold lapses. The store can settle a hold for twice the time of
//! [`hold_for`](super::RateLimitLayer::hold_for), and a body that streams extends the hold. If a
//! failure policy admitted the request without the store, the settlement charges the store, if the
//! store answers again.
//!
//! # Shutdown
//!
//! A server that shuts down drops its unfinished responses, and their holds are settled like the
//! holds of requests that were cut. If the store does not answer immediately, tasks settle these
//! holds. The program must wait for these tasks before it ends the runtime: it calls
//! [`Limiter::guards_settled`](tidegate_core::Limiter::guards_settled) on a clone of the layer's
//! limiter.
//! [`examples/llm-gateway`](https://github.com/tidegate/tidegate/blob/main/examples/llm-gateway/src/serve.rs)
//! shows such a shutdown.
//!
//! # Cost
//!
//! A body is wrapped in a generic type and is not boxed. A task is spawned only if the server drops
//! the body before its end, and the store does not answer immediately. A request takes two calls to
//! the store, a clone of the service, and about thirty allocations (with three limits, in memory).
//! Therefore, use a layer without holds for routes that need no estimates.
//!
//! The layer needs a Tokio runtime.

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
pub(super) use open_hold::{OpenHold, StoreCall};
pub use service::HoldService;
pub(super) use settings::HoldSettings;
#[doc(no_inline)]
pub use tidegate_core::OnDrop;
pub use usage::Usage;
