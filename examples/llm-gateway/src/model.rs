//! A stub of a model with OpenAI's API. The last number in the prompt is the number of words in the
//! stub's answer: the answer to "write 12" has 12 words.
//!
//! The field `model` of a request selects the behavior of the stub:
//!
//! * `stub` answers immediately.
//! * `stub-slow` sends a word every 50 ms.
//! * `stub-fails` answers with status 500.
//! * `stub-breaks` closes the connection after the last word.
//! * `stub-stalls` never ends its answer.

use std::io;
use std::time::Duration;

use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::http::{Response, StatusCode};
use axum::response::{IntoResponse, Json};
use axum::routing::post;
use axum::{Router, response};
use futures_util::stream::{self, Stream, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::prompt::count;

/// The number of tokens that the chat format adds to a prompt. The gateway does not know this
/// number.
pub const FORMAT_TOKENS: u64 = 3;

/// Starts the stub on a free port. Returns the URL of its endpoint for completions.
///
/// # Errors
///
/// Returns an error if there is no free port.
pub async fn start() -> io::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/v1/chat/completions", listener.local_addr()?);
    let model = Router::new().route("/v1/chat/completions", post(complete));
    tokio::spawn(async move { axum::serve(listener, model).await });
    Ok(url)
}

async fn complete(Json(request): Json<Value>) -> response::Response {
    let text: Vec<&str> = (request["messages"].as_array().into_iter().flatten())
        .filter_map(|message| message["content"].as_str())
        .collect();
    let text = text.join(" ");
    let asked = text.split_whitespace().rev().find_map(|word| word.parse().ok()).unwrap_or(64);
    let words: u64 = asked.min(request["max_tokens"].as_u64().unwrap_or(u64::MAX));
    let usage = json!({
        "prompt_tokens": count(&text) + FORMAT_TOKENS,
        "completion_tokens": words,
        "total_tokens": count(&text) + FORMAT_TOKENS + words,
    });
    let model = request["model"].as_str().unwrap_or("stub").to_owned();
    if model == "stub-fails" {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    }
    if request["stream"] != true {
        let words = "word ".repeat(usize::try_from(words).unwrap_or(0));
        let choice = json!({ "message": { "role": "assistant", "content": words } });
        return Json(json!({ "choices": [choice], "usage": usage })).into_response();
    }
    let pause = Duration::from_millis(if model == "stub-slow" { 50 } else { 0 });
    let words = stream::iter(0..words).then(move |_| async move {
        match pause.is_zero() {
            true => tokio::task::yield_now().await,
            false => tokio::time::sleep(pause).await,
        }
        Ok(event(&json!({ "choices": [{ "delta": { "content": "word " } }] })))
    });
    let last = [event(&json!({ "choices": [], "usage": usage })), "data: [DONE]\n\n".to_owned()];
    let last = stream::iter(last.map(Ok));
    match &*model {
        "stub-breaks" => sent(words.chain(stream::once(async {
            // The pause gives the client time to receive most of the words before the error.
            tokio::time::sleep(Duration::from_millis(100)).await;
            Err(io::Error::other("broken"))
        }))),
        "stub-stalls" => sent(words.chain(stream::pending())),
        _ => sent(words.chain(last)),
    }
}

fn sent(events: impl Stream<Item = io::Result<String>> + Send + 'static) -> response::Response {
    let response = Response::builder().header(CONTENT_TYPE, "text/event-stream; charset=utf-8");
    match response.body(Body::from_stream(events)) {
        Ok(response) => response,
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

fn event(data: &Value) -> String {
    format!("data: {data}\n\n")
}
