use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::header;
use axum::response::Response;
use axum::routing::{get, post};
use metrics::Counter;

use super::answer::decided;
use super::read::{NotRead, read};
use crate::calls::{CallStats, Calls, Outcome, Verb};
use crate::net::access::Access;
use crate::net::http::{failed, guarded, read_json};
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
    guarded(routes, access).with_state(shared).route("/openapi.json", get(description))
}

async fn answer(verb: Verb, shared: &Shared, request: Request) -> (Outcome, Response) {
    let body = match read_json(request).await {
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
