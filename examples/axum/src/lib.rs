//! The API of a small shop: limits by address, by user and for everybody, in one decision.

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

/// The application, with its limits in `store`.
///
/// # Errors
///
/// If the store cannot keep the limits.
pub fn app(
    store: impl Store + 'static,
    client: ClientAddress,
    metrics: PrometheusHandle,
) -> Result<Router, Box<dyn Error>> {
    // Of axum's layers, the last one is outside. CORS is outside of the limits, so that scripts can read
    // a 429, and no preflight request counts. Authentication is too, so that users can be counted by; it lets
    // pass who is not a user, so that these are counted by address.
    let api = shop::routes()
        .layer(limits::layer(store, client)?)
        .layer(middleware::from_fn_with_state(users::Users::new()?, users::identify))
        .layer(CorsLayer::new().allow_origin(Any).expose_headers(EXPOSED));
    // Routes that are added after a layer are outside of it.
    Ok(api.route("/metrics", get(move || ready(metrics.render()))))
}
