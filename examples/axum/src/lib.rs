//! The API of a small shop. One decision applies three limits: by address, by user, and for all
//! requests together.

pub mod limits;
pub mod shop;
pub mod users;

use std::error::Error;
use std::future::ready;

use axum::Router;
use axum::middleware;
use axum::routing::get;
use metrics_exporter_prometheus::PrometheusHandle;
use tidegate_http::fields::names::EXPOSED;
use tidegate_http::subject::ClientAddress;
use tidegate_redis::Store;
use tower_http::cors::{Any, CorsLayer};

/// Returns the application. The states of its limits are in `store`.
///
/// # Errors
///
/// Returns an error if the store does not support a policy.
pub fn app(
    store: impl Store + 'static,
    client: ClientAddress,
    metrics: PrometheusHandle,
) -> Result<Router, Box<dyn Error>> {
    // In axum, the last `.layer(…)` call adds the outermost layer. The CORS layer is outside of the
    // limits, so that scripts can read a response with status 429, and preflight requests are not
    // counted. The authentication layer is also outside, because the limits count by user. It
    // admits requests without a user, and the limits count these requests by address.
    let api = shop::routes()
        .layer(limits::layer(store, client)?)
        .layer(middleware::from_fn_with_state(users::Users::new()?, users::identify))
        .layer(CorsLayer::new().allow_origin(Any).expose_headers(EXPOSED));
    // The layers do not apply to `/metrics`, because this route is added after them.
    Ok(api.route("/metrics", get(move || ready(metrics.render()))))
}
