use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use metrics::Counter;

use super::answer::{decided, failed, not_done};
use super::read::{NotRead, read};
use crate::calls::{CallStats, Calls, Outcome, Verb};
use crate::net::access::{Access, CHALLENGE, Guard, is_address};
use crate::net::http::Payload;
use crate::observe::unreadable::unreadable_over_http;

/// The description of all routes of the server, in OpenAPI 3.1.
pub const OPENAPI: &str = include_str!("openapi.json");

/// The state that all routes share.
#[derive(Debug)]
struct Shared {
    calls: Arc<Calls>,
    stats: CallStats,
    unreadable: Counter,
}

impl Shared {
    /// Counts and logs a request that cannot be read.
    fn unreadable(&self, reason: &str) {
        self.unreadable.increment(1);
        self.calls.unreadable(reason);
    }
}

/// Returns one route for each [`Verb`], such as `POST /v1/acquire`, and the route
/// `GET /openapi.json`.
///
/// | status | means |
/// |---|---|
/// | 200 | the call was executed, or it is a peek and an acquire would be admitted |
/// | 400 | the request is not valid, or the store does not support the policy |
/// | 401 | the login is missing or wrong |
/// | 403 | calls are not served on this address |
/// | 404 | the hold is unknown |
/// | 409 | the id belongs to another call, the hold was settled at another cost, or the state has too many holds |
/// | 410 | the hold has lapsed |
/// | 408 | the body did not arrive in time |
/// | 413 | the body is too large |
/// | 415 | the body is not `application/json` |
/// | 429 | a policy refused the call |
/// | 503 | the store did not decide |
pub fn routes(calls: Arc<Calls>, access: Access) -> Router {
    let stats = CallStats::new("json", Verb::ALL.into_iter().map(Verb::as_str));
    let shared = Arc::new(Shared { calls, stats, unreadable: unreadable_over_http() });
    let mut routes = Router::new();
    for (index, verb) in Verb::ALL.into_iter().enumerate() {
        let call = move |State(shared): State<Arc<Shared>>, request: Request| async move {
            let (outcome, response) = answer(verb, &shared, request).await;
            shared.stats.count(Some(index), outcome);
            response
        };
        routes = routes.route(&format!("/v1/{}", verb.as_str()), post(call));
    }
    let description = || async { ([(header::CONTENT_TYPE, "application/json")], OPENAPI) };
    routes
        .route_layer(from_fn_with_state(Guard::new(access), guard))
        .with_state(shared)
        .route("/openapi.json", get(description))
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

async fn answer(verb: Verb, shared: &Shared, request: Request) -> (Outcome, Response) {
    let body = match body(request).await {
        Ok(body) => body,
        Err((message, response)) => {
            shared.unreadable(&message);
            return (Outcome::Failed, response);
        }
    };
    let request = match read(verb, &body.0, &shared.calls) {
        Ok(request) => request,
        Err(error) => {
            if let NotRead::Json(why) = &error {
                shared.unreadable(why);
            }
            return (Outcome::Failed, failed(&error.into_error()));
        }
    };
    match shared.calls.decide(&request.call).await {
        Ok(decision) => {
            let is_admitted = request.call.is_admitted(&decision);
            let outcome = if is_admitted { Outcome::Done } else { Outcome::Refused };
            (outcome, decided(&request, &decision))
        }
        Err(error) => (Outcome::Failed, failed(&error)),
    }
}

/// Reads the body. If this fails, returns the reason for the log, and the response for the client.
async fn body(request: Request) -> Result<Payload, (String, Response)> {
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
