//! Reads a request and estimates its usage.

use std::sync::Arc;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use tidegate_redis::Estimator;

/// The maximum size of a request's body.
const MAX_BODY: usize = 1 << 20;

/// The data that the handler needs from a request.
#[derive(Debug, Clone)]
pub struct Prompt {
    /// The model.
    pub model: String,
    /// The number of tokens in the prompt, counted by the gateway.
    pub tokens: u64,
    /// The body of the request, unchanged.
    pub body: Bytes,
}

/// The estimated usage of a request.
#[derive(Debug, Clone, Copy, Default)]
pub struct Estimate {
    /// The tokens of the prompt and of the answer.
    pub tokens: u64,
    /// The price of the tokens, in millionths of a dollar.
    pub microdollars: u64,
}

impl Estimate {
    /// Returns the estimate that [`read`] has put into the extensions of the request.
    #[must_use]
    pub fn from_request(request: &Parts) -> Self {
        request.extensions.get().copied().unwrap_or_default()
    }
}

/// Returns the price of these tokens, in millionths of a dollar. A token of an answer costs four
/// times as much as a token of a prompt.
#[must_use]
pub fn price(prompt_tokens: u64, answer_tokens: u64) -> u64 {
    prompt_tokens.saturating_add(answer_tokens.saturating_mul(4))
}

/// Counts the tokens of a text. Each word counts as one token, because this example has no
/// tokenizer.
#[must_use]
pub fn count(text: &str) -> u64 {
    u64::try_from(text.split_whitespace().count()).unwrap_or(u64::MAX)
}

/// Reads the body of a request, and puts a [`Prompt`] and an [`Estimate`] into the extensions of
/// the request.
pub async fn read(
    State(estimator): State<Arc<Estimator>>,
    request: Request,
    next: Next,
) -> Response {
    let (mut head, body) = request.into_parts();
    let Ok(body) = to_bytes(body, MAX_BODY).await else {
        return StatusCode::PAYLOAD_TOO_LARGE.into_response();
    };
    let Some((prompt, max_tokens)) = parse(body) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    // The estimator returns the usual maximum length of this model's answers, and at most the
    // `max_tokens` of the request.
    let answer = estimator.estimate(&prompt.model, max_tokens.unwrap_or(u64::MAX));
    head.extensions.insert(Estimate {
        tokens: prompt.tokens.saturating_add(answer),
        microdollars: price(prompt.tokens, answer),
    });
    head.extensions.insert(prompt);
    next.run(Request::from_parts(head, Body::empty())).await
}

fn parse(body: Bytes) -> Option<(Prompt, Option<u64>)> {
    let request: Value = serde_json::from_slice(&body).ok()?;
    let model = request["model"].as_str()?.to_owned();
    let messages = request["messages"].as_array()?;
    let tokens = messages.iter().filter_map(|message| message["content"].as_str()).map(count).sum();
    Some((Prompt { model, tokens, body }, request["max_tokens"].as_u64()))
}
