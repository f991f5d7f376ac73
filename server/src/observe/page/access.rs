use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::net::access::{Access, CHALLENGE, Guard, is_address};

/// The header fields of each response. They forbid a browser to load content from other servers, to
/// show the page in a frame, and to cache it.
const FIELDS: [(HeaderName, &str); 7] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
];

/// Passes requests of clients that may see the page to `next`, and refuses all other requests.
pub(super) async fn guard(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    let mut response = match refusal(&guard, request.headers()) {
        Some(response) => response,
        None => next.run(request).await,
    };
    let headers = response.headers_mut();
    for (name, value) in FIELDS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

fn refusal(guard: &Guard, headers: &HeaderMap) -> Option<Response> {
    let refused = |status, message: &'static str| Some((status, message).into_response());
    match guard.access() {
        Access::Open if is_address(headers) => None,
        Access::Open => refused(
            StatusCode::MISDIRECTED_REQUEST,
            "without a password, the page is served only under `localhost` and IP addresses, because another name may \
             belong to another site\n",
        ),
        Access::Login(_) if guard.admits(headers) => None,
        Access::Login(_) => Some(
            (StatusCode::UNAUTHORIZED, CHALLENGE, "a user and a password are needed\n")
                .into_response(),
        ),
        Access::Closed => refused(
            StatusCode::FORBIDDEN,
            "other machines can reach this address; set a password (TIDEGATE_PAGE_PASSWORD, or \
             page.password_file in the settings file), or page.without_password = true\n",
        ),
    }
}
