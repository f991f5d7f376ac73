use std::sync::LazyLock;
use std::time::Duration;

use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};
use tidegate_core::{Decision, Error, ErrorKind, Verdict};
use tidegate_http::fields::FieldWriter;

use super::read::Request;

/// Writes the fields of policies that come with the requests.
static FIELDS: LazyLock<Option<FieldWriter>> = LazyLock::new(|| FieldWriter::new([]).ok());

/// The response to a call that was decided.
pub(super) fn decided(request: &Request, decision: &Decision) -> Response {
    let Request { call, has_list } = request;
    let is_allowed = call.is_admitted(decision);
    let mut answer = Map::new();
    answer.insert("allowed".to_owned(), json!(is_allowed));
    if let Some(degraded) = decision.degraded() {
        answer.insert("degraded".to_owned(), json!(degraded.answer.as_str()));
    }
    let verdicts = call.policies().zip(decision.verdicts()).zip(call.amounts(decision));
    let mut charges = verdicts.map(|((policy, verdict), amount)| {
        let mut charge = Map::new();
        charge.insert("policy".to_owned(), json!(policy.name()));
        show(verdict, amount, &mut charge);
        charge
    });
    if *has_list {
        let wait = if is_allowed { Some(Duration::ZERO) } else { decision.retry_after() };
        answer.insert("retry_after_ms".to_owned(), milliseconds(wait));
        answer.insert("charges".to_owned(), charges.map(Value::Object).collect());
    } else {
        answer.extend(charges.next().unwrap_or_default());
    }
    let mut headers = HeaderMap::new();
    if let Some(fields) = &*FIELDS
        && call.can_refuse()
    {
        fields.write(decision.verdicts_of(call.policies()), decision, &mut headers);
    }
    let status = if is_allowed { StatusCode::OK } else { StatusCode::TOO_MANY_REQUESTS };
    (headers, with_json(status, &Value::Object(answer))).into_response()
}

fn show(verdict: &Verdict, amount: u64, fields: &mut Map<String, Value>) {
    let mut field = |name: &str, value: Value| fields.insert(name.to_owned(), value);
    field("outcome", json!(verdict.outcome().as_str()));
    field("limit", json!(verdict.limit()));
    field("remaining", json!(verdict.remaining()));
    field("retry_after_ms", milliseconds(verdict.retry_after()));
    field("reset_after_ms", milliseconds(Some(verdict.reset_after())));
    field("amount", json!(amount));
}

/// Rounded up, so that no caller comes too early; `null` for never.
fn milliseconds(span: Option<Duration>) -> Value {
    let rounded_up = |span: Duration| span.as_nanos().div_ceil(1_000_000);
    span.map_or(Value::Null, |span| json!(u64::try_from(rounded_up(span)).unwrap_or(u64::MAX)))
}

/// The response to a call that was not decided.
pub(super) fn failed(error: &Error) -> Response {
    let status = match error.kind() {
        ErrorKind::InvalidCall | ErrorKind::Unsupported => StatusCode::BAD_REQUEST,
        ErrorKind::UnknownHold => StatusCode::NOT_FOUND,
        ErrorKind::IdReused | ErrorKind::AlreadySettled => StatusCode::CONFLICT,
        ErrorKind::HoldLapsed => StatusCode::GONE,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    };
    let shown = format!("{error:#}");
    // The kind stands in a field of its own.
    let message = shown.strip_prefix(error.kind().as_str()).and_then(|it| it.strip_prefix(": "));
    not_done(status, error.kind().as_str(), message.unwrap_or(&shown))
}

/// The response to a request that is not a call.
pub(super) fn not_done(status: StatusCode, error: &str, message: &str) -> Response {
    with_json(status, &json!({"error": error, "message": message}))
}

fn with_json(status: StatusCode, value: &Value) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], value.to_string()).into_response()
}
