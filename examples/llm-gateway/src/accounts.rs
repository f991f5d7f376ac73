//! Authentication.

use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::header::AUTHORIZATION;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

/// The account of a key.
#[derive(Debug, Clone, Copy)]
pub struct Account {
    /// The name of the API key. It is not the secret, because the name becomes a part of the keys
    /// in the store.
    pub key: &'static str,
    /// The user who created the API key.
    pub user: &'static str,
    /// The team of the user.
    pub team: &'static str,
    /// The organization of the user, which is the tenant. All limits of one decision have the same
    /// tenant, so that their states are in one slot of a cluster.
    pub organization: &'static str,
}

/// The accounts, indexed by the secrets of their API keys. A real gateway stores them in a
/// database.
const KEYS: [(&str, Account); 4] = [
    ("sk-alice-laptop", account("alice/laptop", "alice", "search")),
    ("sk-alice-ci", account("alice/ci", "alice", "search")),
    ("sk-bob", account("bob/1", "bob", "search")),
    ("sk-carol", account("carol/1", "carol", "ads")),
];

const fn account(key: &'static str, user: &'static str, team: &'static str) -> Account {
    Account { key, user, team, organization: "acme" }
}

/// Puts the account of the API key into the extensions of the request. Refuses a request without a
/// valid API key.
pub async fn identify(mut request: Request, next: Next) -> Response {
    let secret = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let secret = secret.and_then(|value| value.strip_prefix("Bearer "));
    let known = secret.and_then(|secret| KEYS.iter().find(|(key, _)| *key == secret));
    let Some((_, account)) = known else { return StatusCode::UNAUTHORIZED.into_response() };
    request.extensions_mut().insert(*account);
    next.run(request).await
}
