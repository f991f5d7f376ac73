//! The limits.

use std::error::Error;

use axum::http::Method;
use tidegate_http::server::{Limit, RateLimitLayer};
use tidegate_http::subject::{Authenticated, ClientAddress, Everybody};
use tidegate_redis::{Limiter, Store, Subject};

use crate::users::User;

/// Returns a layer with limits by address, by user and for all requests together. One decision
/// charges all these limits, or none.
///
/// # Errors
///
/// Returns an error if the store does not support a policy.
pub fn layer<S: Store>(
    store: S,
    client: ClientAddress,
) -> Result<RateLimitLayer<S>, Box<dyn Error>> {
    let limiter = Limiter::new(
        store,
        [
            "ip: token-bucket 10/1s burst 20".parse()?,
            "user: token-bucket 1/1s burst 10".parse()?, // the user's plan replaces this policy
            "everybody: token-bucket 2000/1s".parse()?,
        ],
    )?;
    let limits = [
        Limit::by("ip", client),
        Limit::by("user", Authenticated::new(|user: &User| Subject::from(user.id)))
            .policy_by(|request| Some(&request.extensions.get::<User>()?.plan))
            .cost_by(|request| if request.method == Method::POST { 5 } else { 1 })
            .or_pass(), // a request without a user is counted only by its address
        Limit::by("everybody", Everybody),
    ];
    Ok(RateLimitLayer::new(limiter, limits)?.exempt_path("/health").refund_server_errors())
}
