//! Refusals, and the responses to them.

use std::time::Duration;

use http::header::{CONTENT_TYPE, HeaderName};
use http::request::Parts;
use http::{HeaderValue, Response, StatusCode};
use tidegate_core::{Error, Outcome, PolicyVerdict};

use super::decide::Decided;
use super::limit::NoSubject;
use crate::fields::{Problem, ProblemKind};

/// The refusal of a request.
#[derive(Debug)]
pub struct Refusal<'a> {
    request: &'a Parts,
    reason: Reason<'a>,
    decided: Option<&'a Decided>,
}

/// The reason for a refusal.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Reason<'a> {
    /// The request is denied by policies, or by a failure policy that replaces the store.
    Denied(Problem<'a>),
    /// The request has no subject for the limit of this policy.
    NoSubject {
        /// The name of the policy.
        policy: &'a str,
        /// The status that [`Limit::or_refuse`](super::Limit::or_refuse) sets.
        status: StatusCode,
        /// A text that names the setting that the server lacks, if the request has no subject for
        /// this reason: see [`ExtractSubject::remedy`](crate::subject::ExtractSubject::remedy).
        remedy: Option<&'static str>,
    },
    /// The store returned an error, and no failure policy replaced the error by a decision.
    StoreFailed(&'a Error),
}

impl<'a> Refusal<'a> {
    pub(super) fn denied(request: &'a Parts, decided: &'a Decided, problem: Problem<'a>) -> Self {
        Self { request, reason: Reason::Denied(problem), decided: Some(decided) }
    }

    pub(super) fn no_subject(request: &'a Parts, policy: &'a str, refused: NoSubject) -> Self {
        let NoSubject { status, remedy } = refused;
        Self { request, reason: Reason::NoSubject { policy, status, remedy }, decided: None }
    }

    pub(super) fn failed(request: &'a Parts, error: &'a Error) -> Self {
        Self { request, reason: Reason::StoreFailed(error), decided: None }
    }

    /// Returns the head of the request. An application can read its `Accept` field to decide
    /// between a page and JSON.
    #[must_use]
    pub fn request(&self) -> &'a Parts {
        self.request
    }

    /// Returns the reason for the refusal.
    #[must_use]
    pub fn reason(&self) -> &Reason<'a> {
        &self.reason
    }

    /// Returns the status of the response: see [the module](super#responses).
    #[must_use]
    pub fn status(&self) -> StatusCode {
        match &self.reason {
            Reason::Denied(problem) => problem.status(),
            Reason::NoSubject { status, .. } => *status,
            Reason::StoreFailed(error) if error.kind().is_invalid_request() => {
                StatusCode::INTERNAL_SERVER_ERROR
            }
            Reason::StoreFailed(_) => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// Returns the verdicts of all policies that apply. There are none if the reason is not
    /// [`Reason::Denied`].
    pub fn verdicts(&self) -> impl Iterator<Item = PolicyVerdict<'a>> {
        self.decided.into_iter().flat_map(Decided::verdicts)
    }

    /// Returns the time after which the request would be admitted, if no other request is charged
    /// in the meantime. Returns `None` if the request is never admitted, or if the time is not
    /// known.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.decided?.decision.retry_after()
    }

    /// Returns `true` if the time until the request is admitted is not known, only because no slots
    /// are free.
    fn waits_for_slots(&self) -> bool {
        let unknown =
            self.verdicts().filter(|verdict| verdict.refuses() && verdict.retry_after().is_none());
        let mut unknown = unknown.peekable();
        unknown.peek().is_some()
            && unknown.all(|verdict| {
                verdict.policy().is_concurrent() && verdict.outcome() == Outcome::Denied
            })
    }

    /// Returns a problem of RFC 9457, which has the media type [`Problem::CONTENT_TYPE`].
    ///
    /// The problem does not contain the error message of the store.
    #[must_use]
    pub fn to_json(&self) -> String {
        let status = self.status();
        let (uri, title) = match &self.reason {
            Reason::Denied(problem) => return problem.to_json(),
            Reason::StoreFailed(_) if status == StatusCode::SERVICE_UNAVAILABLE => {
                let kind = ProblemKind::TemporaryReducedCapacity;
                (kind.type_uri(), kind.title())
            }
            _ => ("about:blank", status.canonical_reason().unwrap_or("Refused")),
        };
        let status = status.as_u16();
        match &self.reason {
            Reason::NoSubject { policy, remedy, .. } => {
                let detail = json_text(&no_subject(policy, *remedy));
                format!(
                    r#"{{"type":"{uri}","title":"{title}","status":{status},"detail":"{detail}"}}"#
                )
            }
            _ => format!(r#"{{"type":"{uri}","title":"{title}","status":{status}}}"#),
        }
    }
}

/// Returns a message for a request without a subject, with the remedy if there is one.
fn no_subject(policy: &str, remedy: Option<&str>) -> String {
    let mut message = format!("the request has no subject for the limit '{policy}'");
    if let Some(remedy) = remedy {
        message += ": ";
        message += remedy;
    }
    message
}

/// Escapes a text for a JSON string.
fn json_text(text: &str) -> String {
    let mut escaped = String::new();
    for char in text.chars() {
        match char {
            '"' | '\\' => escaped.extend(['\\', char]),
            '\0'..='\x1f' => escaped += &format!("\\u{:04x}", u32::from(char)),
            _ => escaped.push(char),
        }
    }
    escaped
}

/// Encodes a text for `grpc-message`: printable ASCII stays as it is, and every other byte is
/// percent-encoded.
fn grpc_text(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        match byte {
            b' '..=b'~' if byte != b'%' => encoded.push(char::from(byte)),
            _ => encoded += &format!("%{byte:02X}"),
        }
    }
    encoded
}

/// Creates the response of a refusal, with a body of type `B`.
///
/// Every function `Fn(&Refusal) -> Response<B>` implements this trait. The layer adds its fields to
/// the response.
///
/// ```
/// use http::Response;
/// use tidegate_http::server::{Refusal, Respond};
///
/// /// An empty body, for every body type that can be empty.
/// struct StatusOnly;
///
/// impl<B: Default> Respond<B> for StatusOnly {
///     fn respond(&self, refusal: &Refusal<'_>) -> Response<B> {
///         let mut response = Response::new(B::default());
///         *response.status_mut() = refusal.status();
///         response
///     }
/// }
/// ```
pub trait Respond<B> {
    /// Returns the response of a refusal.
    fn respond(&self, refusal: &Refusal<'_>) -> Response<B>;
}

impl<F, B> Respond<B> for F
where
    F: Fn(&Refusal<'_>) -> Response<B>,
{
    fn respond(&self, refusal: &Refusal<'_>) -> Response<B> {
        self(refusal)
    }
}

/// Answers with [a problem](Refusal::to_json) of RFC 9457. This is the default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProblemJson;

impl<B: From<String>> Respond<B> for ProblemJson {
    fn respond(&self, refusal: &Refusal<'_>) -> Response<B> {
        let mut response = Response::new(B::from(refusal.to_json()));
        *response.status_mut() = refusal.status();
        response.headers_mut().insert(CONTENT_TYPE, Problem::CONTENT_TYPE);
        response
    }
}

/// Answers like a gRPC server: with status 200, a code in `grpc-status`, and no body. This type is
/// made for tonic.
///
/// | refusal | code |
/// |---|---|
/// | 429 | 8, `RESOURCE_EXHAUSTED` |
/// | 503 | 14, `UNAVAILABLE` |
/// | 401, 403 | 16, `UNAUTHENTICATED`; 7, `PERMISSION_DENIED` |
/// | another status of a client error | 3, `INVALID_ARGUMENT` |
/// | 500 | 13, `INTERNAL` |
///
/// For clients that retry automatically, `grpc-retry-pushback-ms` contains the time in milliseconds
/// after which a client may retry. The value is −1 if no wait is long enough. The field is absent
/// if only slots refuse the request: they are free when another call ends, and this time is not
/// known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GrpcStatus;

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const GRPC_PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

impl<B: Default> Respond<B> for GrpcStatus {
    fn respond(&self, refusal: &Refusal<'_>) -> Response<B> {
        let (code, message) = match refusal.status() {
            StatusCode::TOO_MANY_REQUESTS => ("8", "rate limit exceeded"),
            StatusCode::SERVICE_UNAVAILABLE => ("14", "rate limits cannot be decided now"),
            StatusCode::UNAUTHORIZED => ("16", "not authenticated"),
            StatusCode::FORBIDDEN => ("7", "permission denied"),
            status if status.is_client_error() => ("3", "the request has no subject"),
            _ => ("13", "rate limits are misconfigured"),
        };
        let detail = match refusal.reason {
            Reason::NoSubject { policy, remedy, .. } => {
                HeaderValue::try_from(grpc_text(&no_subject(policy, remedy))).ok()
            }
            _ => None,
        };
        let mut response = Response::new(B::default());
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        headers.insert(GRPC_STATUS, HeaderValue::from_static(code));
        headers.insert(GRPC_MESSAGE, detail.unwrap_or(HeaderValue::from_static(message)));
        if refusal.decided.is_some() && !refusal.waits_for_slots() {
            let millis = refusal.retry_after().map(|wait| wait.as_micros().div_ceil(1_000));
            let pushback = millis.and_then(|millis| i64::try_from(millis).ok()).unwrap_or(-1);
            headers.insert(GRPC_PUSHBACK, HeaderValue::from(pushback));
        }
        response
    }
}
