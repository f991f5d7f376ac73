//! A gateway before a language model: requests, tokens and spend, by key, user and team, in one decision.

pub mod accounts;
pub mod limits;
pub mod meter;
pub mod model;
pub mod prompt;
pub mod proxy;
pub mod serve;

use std::error::Error;
use std::sync::Arc;

use axum::routing::post;
use axum::{Router, middleware};
use tidegate_redis::{Estimator, Limiter, Store};

use crate::proxy::Gateway;

/// The gateway before the model at `url`, with the limits of [`limits::policies`], or others of these names.
///
/// # Errors
///
/// If the limiter lacks a policy.
pub fn app<S: Store + 'static>(
    limiter: Limiter<S>,
    url: String,
    estimator: Estimator,
) -> Result<Router, Box<dyn Error>> {
    let estimator = Arc::new(estimator);
    let gateway = Gateway::new(url, Arc::clone(&estimator));
    // Of axum's layers, the last one is outside: the account is known before the prompt is read, and both before the
    // limits are asked.
    Ok(Router::new()
        .route("/v1/chat/completions", post(proxy::complete))
        .with_state(gateway)
        .layer(limits::layer(limiter)?)
        .layer(middleware::from_fn_with_state(estimator, prompt::read))
        .layer(middleware::from_fn(accounts::identify)))
}
