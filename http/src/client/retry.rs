//! Copies of requests that can be sent again.

use http::{Method, Request};
use http_body::Body;

/// Copies requests that can be sent again. Every function from `&Request<B>` to
/// `Option<Request<B>>` implements this trait.
///
/// The layer copies a request before it sends the request, and sends the copy if the server refuses
/// the request with status 429 or 503. The result is `None` if the request must not be repeated, or
/// if its body cannot be copied.
pub trait CopyRequest<B> {
    /// Returns a copy of the request, if the request can be sent again.
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

/// A [`CopyRequest`] that copies no request, so that the layer retries nothing. This is the
/// default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NoRetry;

impl<B> CopyRequest<B> for NoRetry {
    fn copy(&self, _: &Request<B>) -> Option<Request<B>> {
        None
    }
}

/// Copies a request without a body whose method is safe by RFC 9110: GET, HEAD, OPTIONS and TRACE.
/// Pass this function to [`ThrottleLayer::retry`](super::ThrottleLayer::retry).
///
/// The body of the copy is the default value of `B`, so that `B` need not implement `Clone`. For
/// example, `reqwest::Body` and boxed bodies do not implement `Clone`. A request with a body is not
/// copied.
///
/// ```
/// use http::Request;
/// use tidegate_http::client::copy_if_safe;
///
/// let url = "https://example.com";
/// assert!(copy_if_safe(&Request::get(url).body(String::new())?).is_some());
/// assert!(copy_if_safe(&Request::post(url).body(String::new())?).is_none());
/// assert!(copy_if_safe(&Request::get(url).body("a body".to_owned())?).is_none());
/// # Ok::<(), http::Error>(())
/// ```
#[must_use]
pub fn copy_if_safe<B: Body + Default>(request: &Request<B>) -> Option<Request<B>> {
    let is_safe = [Method::GET, Method::HEAD, Method::OPTIONS, Method::TRACE];
    if !is_safe.contains(request.method()) || !request.body().is_end_stream() {
        return None;
    }
    let mut copy = Request::new(B::default());
    copy.method_mut().clone_from(request.method());
    copy.uri_mut().clone_from(request.uri());
    *copy.version_mut() = request.version();
    copy.headers_mut().clone_from(request.headers());
    copy.extensions_mut().clone_from(request.extensions());
    Some(copy)
}
