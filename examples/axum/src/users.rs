//! Authentication.

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::{FromRequestParts, Request, State};
use axum::http::StatusCode;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::Response;
use tidegate_redis::{Policy, PolicyError};

/// A user of the shop.
#[derive(Debug, Clone)]
pub struct User {
    /// The id of the user, which is never reused for another user.
    pub id: u64,
    /// The limit of the user. The policies of all plans have the same name, so that the usage of a
    /// user is kept when the plan changes.
    pub plan: Policy,
}

/// The users, indexed by their tokens. A real shop stores them in a database.
#[derive(Debug, Clone)]
pub struct Users(Arc<HashMap<&'static str, User>>);

impl Users {
    /// Creates two users: Alice with the plan *pro*, and Bob with the plan *free*.
    ///
    /// # Errors
    ///
    /// Returns an error if a plan is invalid.
    pub fn new() -> Result<Self, PolicyError> {
        let free: Policy = "user: token-bucket 1/1s burst 10".parse()?;
        let pro: Policy = "user: token-bucket 20/1s burst 100".parse()?;
        let users = [("alice", User { id: 1, plan: pro }), ("bob", User { id: 2, plan: free })];
        Ok(Self(Arc::new(users.into())))
    }
}

/// Puts the user into the extensions of the request, if the request has a valid token.
pub async fn identify(State(users): State<Users>, mut request: Request, next: Next) -> Response {
    let token = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let user = token.and_then(|token| users.0.get(token.strip_prefix("Bearer ")?)).cloned();
    if let Some(user) = user {
        request.extensions_mut().insert(user);
    }
    next.run(request).await
}

/// If a handler takes a [`User`] as an argument, a request without a user is refused with status
/// 401.
impl<S: Sync> FromRequestParts<S> for User {
    type Rejection = StatusCode;

    async fn from_request_parts(request: &mut Parts, _: &S) -> Result<Self, StatusCode> {
        request.extensions.get::<Self>().cloned().ok_or(StatusCode::UNAUTHORIZED)
    }
}
