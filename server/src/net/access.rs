//! Decides which clients can send requests over HTTP.

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use metrics::{Counter, counter};
use subtle::ConstantTimeEq;

use super::login::{DEFAULT_USER, Login};

/// The header fields of the response to a client without the right login. They also close the
/// connection, so that each guess of the password costs a connection.
pub(crate) const CHALLENGE: [(HeaderName, &str); 2] = [
    (header::WWW_AUTHENTICATE, "Basic realm=\"tidegate\", charset=\"UTF-8\""),
    (header::CONNECTION, "close"),
];

/// The clients that may send calls.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Access {
    /// All clients.
    Open,
    /// Clients with this login.
    Login(Login),
    /// No client, because no login is configured and other machines can reach the address.
    Closed,
}

/// A check of the header field `Authorization`, which contains a scheme and credentials. `basic`
/// and `bearer` are the expected credentials for the schemes of these names.
#[derive(Clone)]
pub(crate) struct Guard {
    access: Access,
    basic: String,
    /// The expected token, which is the password. `None` if the login has another user than the
    /// default user, because a token contains no user.
    bearer: Option<String>,
    refused: Counter,
}

impl Guard {
    pub(crate) fn new(access: Access) -> Self {
        let (mut basic, mut bearer) = (String::new(), None);
        if let Access::Login(Login { user, password }) = &access {
            basic = STANDARD.encode(format!("{user}:{password}"));
            bearer = (user == DEFAULT_USER).then(|| password.clone());
        }
        let refused = counter!("tidegate_server_http_refused_logins_total");
        Self { access, basic, bearer, refused }
    }

    pub(crate) fn access(&self) -> &Access {
        &self.access
    }

    /// Returns `true` if the header fields contain the login. Counts a missing or wrong login.
    pub(crate) fn admits(&self, headers: &HeaderMap) -> bool {
        let is_admitted = self.is_login(headers);
        if !is_admitted {
            self.count_refusal();
        }
        is_admitted
    }

    /// Counts a missing or wrong login.
    pub(crate) fn count_refusal(&self) {
        self.refused.increment(1);
    }

    /// Returns `true` if the header fields contain the login. The comparison takes constant time.
    pub(crate) fn is_login(&self, headers: &HeaderMap) -> bool {
        let given = headers.get(header::AUTHORIZATION).map(HeaderValue::as_bytes);
        let given = given.unwrap_or_default();
        let Some(end) = given.iter().position(|byte| *byte == b' ') else { return false };
        let (scheme, credentials) = given.split_at(end);
        let credentials = credentials.trim_ascii();
        if scheme.eq_ignore_ascii_case(b"basic") {
            return credentials.ct_eq(self.basic.as_bytes()).into();
        }
        let is_bearer = scheme.eq_ignore_ascii_case(b"bearer");
        let is = |token: &String| bool::from(credentials.ct_eq(token.as_bytes()));
        is_bearer && self.bearer.as_ref().is_some_and(is)
    }
}
