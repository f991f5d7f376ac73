//! The API of a small shop, with limits by address, by user and for all requests together, in one
//! decision.

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

/// Returns the application, with its limits in `store`.
///
/// # Errors
///
/// Returns an error if the store does not support a policy.
pub fn app(
    store: impl Store + 'static,
    client: ClientAddress,
    metrics: PrometheusHandle,
) -> Result<Router, Box<dyn Error>> {
    // In axum, the last `.layer(…)` call adds the outermost layer. CORS is outside of the limits,
    // so that scripts can read a response with status 429, and preflight requests are not counted.
    // Authentication is outside too, so that users can be counted. It admits requests without a
    // user, which are counted by address.
    let api = shop::routes()
        .layer(limits::layer(store, client)?)
        .layer(middleware::from_fn_with_state(users::Users::new()?, users::identify))
        .layer(CorsLayer::new().allow_origin(Any).expose_headers(EXPOSED));
    // Routes that are added after a layer are outside of the layer.
    Ok(api.route("/metrics", get(move || ready(metrics.render()))))
}
