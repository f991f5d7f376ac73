//! A gateway for a language model. One decision limits the requests, tokens and spend of an API
//! key, of its user and of the user's team.

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

/// Returns the gateway for the model at `url`. `limiter` has the policies of [`limits::policies`],
/// or other policies with the same names.
///
/// # Errors
///
/// Returns an error if the limiter lacks a policy.
pub fn app<S: Store + 'static>(
    limiter: Limiter<S>,
    url: String,
    estimator: Estimator,
) -> Result<Router, Box<dyn Error>> {
    let estimator = Arc::new(estimator);
    let gateway = Gateway::new(url, Arc::clone(&estimator));
    // In axum, the last `.layer(…)` call adds the outermost layer. So `accounts::identify` first
    // finds the account, then `prompt::read` reads the prompt, and then the layer of the limits
    // decides.
    Ok(Router::new()
        .route("/v1/chat/completions", post(proxy::complete))
        .with_state(gateway)
        .layer(limits::layer(limiter)?)
        .layer(middleware::from_fn_with_state(estimator, prompt::read))
        .layer(middleware::from_fn(accounts::identify)))
}
