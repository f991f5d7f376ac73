use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use metrics::{Counter, counter};
use subtle::ConstantTimeEq;

use super::answer::not_done;
use crate::login::{DEFAULT_USER, Login};

/// The clients that may send calls.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Access {
    /// All.
    Open,
    /// Those with this login.
    Login(Login),
    /// None, as there is no login on an address that other machines reach.
    Closed,
}

/// What the field `Authorization` has to be, after the name of the scheme.
#[derive(Clone)]
pub(crate) struct Guard {
    access: Access,
    basic: String,
    /// A token has no user, and is of the default one.
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

    /// Returns `true` if the fields have the login, which is compared byte by byte. A wrong login
    /// is counted.
    pub(crate) fn admits(&self, headers: &HeaderMap) -> bool {
        let is_admitted = self.has_login(headers);
        self.refused.increment(u64::from(!is_admitted));
        is_admitted
    }

    fn has_login(&self, headers: &HeaderMap) -> bool {
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

/// Passes on the requests of clients that may send calls; their bodies are not read before.
pub(super) async fn guard(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    match &guard.access {
        Access::Open => next.run(request).await,
        Access::Login(_) if guard.admits(request.headers()) => next.run(request).await,
        Access::Login(_) => {
            let message = "the field Authorization must have the user and the password (Basic), or the password of the \
                           user `default` (Bearer)";
            let mut response = not_done(StatusCode::UNAUTHORIZED, "unauthorized", message);
            let headers = response.headers_mut();
            let challenge = HeaderValue::from_static("Basic realm=\"tidegate\", charset=\"UTF-8\"");
            headers.insert(header::WWW_AUTHENTICATE, challenge);
            // Each further guess costs a connection.
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
            response
        }
        Access::Closed => {
            let message = "other machines reach this address, so that /v1 needs a password (TIDEGATE_HTTP_PASSWORD, or \
                           http.password_file in the settings file), or http.without_password = true";
            not_done(StatusCode::FORBIDDEN, "forbidden", message)
        }
    }
}
