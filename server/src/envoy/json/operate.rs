//! The calls of operators for the limits of a request.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::post;
use serde_json::{Value, json};
use tidegate_core::no_semver::check_ban;
use tidegate_core::{Error, ErrorKind, Operation};

use super::read::{OperatorOptions, OperatorVerb, read_operator_call};
use crate::envoy::decide::{DecideError, Operated};
use crate::envoy::service::Service;
use crate::net::access::Access;
use crate::net::http::{failed, guarded, not_done, read_json, with_json};

/// Returns the routes of operators. The body has the fields of a request to `/json`. The call
/// reaches the state of each limit that applies to the request, also if the limit set has another
/// policy for its subject.
///
/// | route | effect |
/// |---|---|
/// | `POST /json/reset` | deletes the state, including its block |
/// | `POST /json/block` | blocks the subject for `block_ms` |
/// | `POST /json/ban` | bans the subject for `ban_ms`, with a `reason` |
/// | `POST /json/unban` | removes the block, and forgets the offenses |
///
/// The answer has the same statuses as `/v1`, and the status 404 if no limit applies.
pub fn operator_routes(service: Arc<Service>, access: Access) -> Router {
    let routes = Router::new().route("/json/{call}", post(operate));
    guarded(routes, access).with_state(service)
}

async fn operate(
    State(service): State<Arc<Service>>,
    Path(call): Path<String>,
    request: Request,
) -> Response {
    let Some(verb) = OperatorVerb::from_name(&call) else {
        return not_done(StatusCode::NOT_FOUND, "unknown-call", OperatorVerb::NAMES);
    };
    let body = match read_json(request).await {
        Ok(body) => body,
        Err((_, response)) => return response,
    };
    match carry_out(verb, &body.0, &service).await {
        Ok(operated) if operated.is_empty() => {
            let message = "no limit applies to the descriptors";
            not_done(StatusCode::NOT_FOUND, "no-limit", message)
        }
        Ok(operated) => {
            let limits: Vec<Value> = operated.iter().map(shown).collect();
            with_json(StatusCode::OK, &json!({"limits": limits}))
        }
        Err(DecideError::Request(error)) => failed(&invalid(error.to_string())),
        Err(DecideError::Store(error)) => failed(&error),
    }
}

async fn carry_out(
    verb: OperatorVerb,
    body: &[u8],
    service: &Service,
) -> Result<Vec<Operated>, DecideError> {
    let call = read_operator_call(verb, body).map_err(|error| invalid(error.to_string()))?;
    let (request, OperatorOptions { span, reason, is_at_least }) = call;
    let span = |name: &str| span.ok_or_else(|| invalid(format!("{name} is missing")));
    let operation = match verb {
        OperatorVerb::Reset => Operation::Reset,
        OperatorVerb::Unban => Operation::Block { span: Duration::ZERO },
        OperatorVerb::Block if is_at_least => Operation::BlockAtLeast { span: span("block_ms")? },
        OperatorVerb::Block => Operation::Block { span: span("block_ms")? },
        OperatorVerb::Ban => {
            let span = span("ban_ms")?;
            let reason = reason.as_ref().ok_or_else(|| invalid("reason is missing".to_owned()))?;
            check_ban(span, reason)?;
            Operation::BlockAtLeast { span }
        }
    };
    service.operate(operation, reason, &request).await
}

fn shown(operated: &Operated) -> Value {
    let blocked_for = operated.verdict.blocked_for().as_nanos().div_ceil(1_000_000);
    json!({
        "key": operated.limit_key.to_string(),
        "policy": operated.policy.to_string(),
        // The body is UTF-8, and so is the subject.
        "subject": String::from_utf8_lossy(&operated.subject),
        "blocked_for_ms": u64::try_from(blocked_for).unwrap_or(u64::MAX),
    })
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidCall, message)
}
