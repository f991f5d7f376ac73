//! Passes requests to the model, and its answers to the clients.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Extension, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, Response, StatusCode};
use http_body_util::BodyExt;
use tidegate_http::server::Usage;
use tidegate_redis::Estimator;

use crate::meter::Meter;
use crate::prompt::Prompt;

/// The connection to the model.
#[derive(Debug, Clone)]
pub struct Gateway {
    client: reqwest::Client,
    url: String,
    estimator: Arc<Estimator>,
}

impl Gateway {
    /// Creates a gateway for the model at this URL.
    #[must_use]
    pub fn new(url: String, estimator: Arc<Estimator>) -> Self {
        Self { client: reqwest::Client::new(), url, estimator }
    }
}

/// Passes a request to the model. Reports the usage to the layer of the limits, which charges it.
/// If the client disconnects, the server drops the body of the answer, and the layer charges the
/// usage so far.
///
/// # Errors
///
/// Returns status 502 if the model does not answer, or answers with a server error. In this case,
/// the layer refunds the whole estimate.
pub async fn complete(
    State(gateway): State<Gateway>,
    usage: Usage,
    Extension(prompt): Extension<Prompt>,
) -> Result<Response<Body>, StatusCode> {
    let request = gateway.client.post(&gateway.url).header(CONTENT_TYPE, "application/json");
    let answer = request.body(prompt.body.clone()).send().await;
    let answer = answer.map_err(|_| StatusCode::BAD_GATEWAY)?;
    if answer.status().is_server_error() {
        return Err(StatusCode::BAD_GATEWAY);
    }
    let (head, body) = Response::from(answer).into_parts();
    // Only `Content-Type` is passed on. The other header fields are about the connection to the
    // model.
    let pass_on = |body| {
        let mut response = Response::new(body);
        *response.status_mut() = head.status;
        if let Some(kind) = head.headers.get(CONTENT_TYPE) {
            response.headers_mut().insert(CONTENT_TYPE, kind.clone());
        }
        response
    };
    if !head.status.is_success() {
        // The model refused the request, so nothing was used.
        usage.set("tokens", 0);
        usage.set("microdollars", 0);
        return Ok(pass_on(Body::new(body)));
    }
    let mut meter = Meter::new(usage, gateway.estimator, &prompt);
    if is_event_stream(&head.headers) {
        let body = body.map_frame(move |frame| {
            if let Some(data) = frame.data_ref() {
                meter.read(data);
            }
            frame
        });
        return Ok(pass_on(Body::new(body)));
    }
    let body = body.collect().await.map_err(|_| StatusCode::BAD_GATEWAY)?.to_bytes();
    if let Ok(answer) = serde_json::from_slice(&body) {
        meter.read_event(&answer);
    }
    Ok(pass_on(Body::from(body)))
}

/// Returns `true` for `text/event-stream`, also with parameters such as `charset=utf-8`.
fn is_event_stream(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default();
    kind.trim().eq_ignore_ascii_case("text/event-stream")
}
