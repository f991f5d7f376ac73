//! What may be sent again.

use http::{Method, Request};

/// Copies requests that may be sent again: any function from `&Request<B>` to `Option<Request<B>>`.
///
/// A copy is made before the request is sent, and used if the server refuses it with 429 or 503. `None` for a
/// request that must not be repeated, or whose body cannot be copied.
pub trait CopyRequest<B> {
    /// A copy, if the request may be sent again.
    fn copy(&self, request: &Request<B>) -> Option<Request<B>>;
}

impl<B, F> CopyRequest<B> for F
where
    F: Fn(&Request<B>) -> Option<Request<B>>,
{
    fn copy(&self, request: &Request<B>) -> Option<Request<B>> {
        self(request)
    }
}

/// Sends nothing again: the default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NoRetry;

impl<B> CopyRequest<B> for NoRetry {
    fn copy(&self, _: &Request<B>) -> Option<Request<B>> {
        None
    }
}

/// A copy of a request with a method that is safe by RFC 9110: GET, HEAD, OPTIONS and TRACE. For
/// [`ThrottleLayer::retry`](super::ThrottleLayer::retry).
///
/// ```
/// use http::Request;
/// use tidegate_http::client::copy_if_safe;
///
/// assert!(copy_if_safe(&Request::get("https://example.com").body("")?).is_some());
/// assert!(copy_if_safe(&Request::post("https://example.com").body("")?).is_none());
/// # Ok::<(), http::Error>(())
/// ```
#[must_use]
pub fn copy_if_safe<B: Clone>(request: &Request<B>) -> Option<Request<B>> {
    let is_safe = [Method::GET, Method::HEAD, Method::OPTIONS, Method::TRACE];
    is_safe.contains(request.method()).then(|| request.clone())
}
