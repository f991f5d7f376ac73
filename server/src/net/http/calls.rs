//! The parts that all calls in JSON share: the login, the body, and the responses with errors.

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use serde_json::json;
use tidegate_core::{Error, ErrorKind};

use super::{Payload, with_json};
use crate::net::access::{Access, CHALLENGE, Guard, is_address};
use crate::net::text::without_kind;

/// Returns routes that only clients with access can use.
pub(crate) fn guarded<S: Clone + Send + Sync + 'static>(
    routes: Router<S>,
    access: Access,
) -> Router<S> {
    routes.route_layer(from_fn_with_state(Guard::new(access), guard))
}

/// Passes a request to `next` if its client may send calls. Otherwise returns an error response,
/// and the server does not read the body.
async fn guard(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    match guard.access() {
        // A browser sends `Origin` with each request of a script that is not a GET.
        Access::Open
            if request.headers().contains_key(header::ORIGIN) && !is_address(request.headers()) =>
        {
            let message = "without a password, a web page can only send calls under `localhost` and IP addresses, \
                           because another name may belong to another site";
            not_done(StatusCode::FORBIDDEN, "forbidden", message)
        }
        Access::Open => next.run(request).await,
        Access::Login(_) if guard.admits(request.headers()) => next.run(request).await,
        Access::Login(_) => {
            let message = "the header field Authorization must contain the user and the password (Basic), or the \
                           password of the user `default` (Bearer)";
            let response = not_done(StatusCode::UNAUTHORIZED, "unauthorized", message);
            (CHALLENGE, response).into_response()
        }
        Access::Closed => {
            let message = "other machines can reach this address; set a password (TIDEGATE_HTTP_PASSWORD, or \
                           http.password_file in the settings file), or http.without_password = true";
            not_done(StatusCode::FORBIDDEN, "forbidden", message)
        }
    }
}

/// Reads the body of a call, which must be JSON. If this fails, returns the reason for the log, and
/// the response for the client.
pub(crate) async fn read_json(request: Request) -> Result<Payload, (String, Response)> {
    if !is_json(request.headers()) {
        // Pages of other sites cannot forge requests, because a browser does not let them send this
        // content type without the server's permission.
        let message = "the header field Content-Type must be application/json";
        let response = not_done(StatusCode::UNSUPPORTED_MEDIA_TYPE, "not-json", message);
        return Err((message.to_owned(), response));
    }
    Payload::read(request).await.map_err(|error| {
        let kind = match error.status {
            StatusCode::PAYLOAD_TOO_LARGE => "too-large",
            StatusCode::REQUEST_TIMEOUT => "too-slow",
            _ => "broken-body",
        };
        let response = not_done(error.status, kind, &error.message);
        (error.message, response)
    })
}

fn is_json(headers: &HeaderMap) -> bool {
    let given = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let given = given.and_then(|given| given.split(';').next()).unwrap_or_default();
    given.trim().eq_ignore_ascii_case("application/json")
}

/// Returns the response to a call that the store did not decide.
pub(crate) fn failed(error: &Error) -> Response {
    let status = match error.kind() {
        ErrorKind::InvalidCall | ErrorKind::Unsupported => StatusCode::BAD_REQUEST,
        ErrorKind::UnknownHold => StatusCode::NOT_FOUND,
        ErrorKind::IdReused | ErrorKind::AlreadySettled => StatusCode::CONFLICT,
        ErrorKind::TooManyHolds | ErrorKind::TooManyGrants => StatusCode::CONFLICT,
        ErrorKind::HoldLapsed => StatusCode::GONE,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    };
    not_done(status, error.kind().as_str(), &without_kind(error))
}

/// Creates a response with a status, the name of an error and a message.
pub(crate) fn not_done(status: StatusCode, error: &str, message: &str) -> Response {
    with_json(status, &json!({"error": error, "message": message}))
}
