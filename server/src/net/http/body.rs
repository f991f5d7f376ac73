use std::error::Error;
use std::time::Duration;

use axum::body::{Bytes, HttpBody};
use axum::extract::{FromRequest, Request};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::Serialize;
use tokio::time::Instant;

use super::HttpSettings;
use crate::net::timer::{after, timeout_at};

/// The bounds of a request's body. The server stores them as an extension of the request.
#[derive(Debug, Clone, Copy)]
pub(super) struct BodyBounds {
    max_bytes: usize,
    timeout: Duration,
    /// The end of the timeout.
    deadline: Instant,
}

impl BodyBounds {
    /// Returns the bounds for the body of a request whose head has just been read.
    pub(super) fn new(settings: &HttpSettings) -> Self {
        let timeout = settings.request_timeout;
        Self { max_bytes: settings.max_body_bytes, timeout, deadline: after(timeout) }
    }
}

/// The body of a request. Its size and the time to read it were within the bounds.
#[derive(Debug)]
pub(crate) struct Payload(pub(crate) Bytes);

/// The reason why the body of a request was not read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BodyError {
    pub(crate) status: StatusCode,
    pub(crate) message: String,
}

impl Payload {
    /// Reads the body of a request within the bounds that the server has stored in the request. If
    /// the request has no bounds, the default bounds apply.
    pub(crate) async fn read(request: Request) -> Result<Self, BodyError> {
        let bounds = request.extensions().get::<BodyBounds>().copied();
        let bounds = bounds.unwrap_or_else(|| BodyBounds::new(&HttpSettings::default()));
        // A body whose announced length is too large is refused immediately.
        if request.body().size_hint().lower() > bounds.max_bytes as u64 {
            return Err(BodyError::too_large(bounds.max_bytes));
        }
        let collect = Limited::new(request.into_body(), bounds.max_bytes).collect();
        match timeout_at(bounds.deadline, collect).await {
            Ok(Ok(collected)) => Ok(Self(collected.to_bytes())),
            Ok(Err(error)) => Err(BodyError::from_cause(&*error, bounds.max_bytes)),
            Err(_) => Err(BodyError {
                status: StatusCode::REQUEST_TIMEOUT,
                message: format!("the body did not arrive within {:?}", bounds.timeout),
            }),
        }
    }
}

impl<S: Sync> FromRequest<S> for Payload {
    type Rejection = BodyError;

    async fn from_request(request: Request, _: &S) -> Result<Self, BodyError> {
        Self::read(request).await
    }
}

impl BodyError {
    fn from_cause(error: &(dyn Error + 'static), max: usize) -> Self {
        if error.is::<LengthLimitError>() {
            return Self::too_large(max);
        }
        let message = format!("the body cannot be read: {error}");
        Self { status: StatusCode::BAD_REQUEST, message }
    }

    fn too_large(max: usize) -> Self {
        let message = format!("the body has more than {max} bytes");
        Self { status: StatusCode::PAYLOAD_TOO_LARGE, message }
    }
}

/// Returns a response whose body is `value` as JSON. `value` must consist of maps with text keys,
/// texts and numbers, so that serialization cannot fail.
pub(crate) fn with_json(status: StatusCode, value: &impl Serialize) -> Response {
    // `Value::to_string` would execute 1,500 instructions more.
    let text = serde_json::to_vec(value).unwrap_or_default();
    (status, [(header::CONTENT_TYPE, "application/json")], text).into_response()
}

impl IntoResponse for BodyError {
    fn into_response(self) -> Response {
        (self.status, self.message + "\n").into_response()
    }
}
