//! How the actual cost of a request is found.

use std::fmt;
use std::sync::Arc;

use http::response;

/// How the actual cost of a request is found, for one limit of a [`HoldLayer`](super::HoldLayer).
#[derive(Clone)]
pub struct ActualCost(pub(super) Source);

#[derive(Clone)]
pub(super) enum Source {
    Usage(Box<str>),
    BodyBytes,
    Response(Arc<CostOfResponse>),
}

pub(super) type CostOfResponse = dyn Fn(&response::Parts) -> Option<u64> + Send + Sync;

impl ActualCost {
    /// What the handler reports of this measure: see [`Usage`](super::Usage). If it reports nothing, the estimate.
    #[must_use]
    pub fn usage(measure: impl Into<Box<str>>) -> Self {
        Self(Source::Usage(measure.into()))
    }

    /// The bytes of the response's body that were passed on to the server, without trailers.
    #[must_use]
    pub fn body_bytes() -> Self {
        Self(Source::BodyBytes)
    }

    /// What a function says of the head of the response: by its status, or by a number that the handler has left in
    /// the extensions. With `None`, the estimate.
    ///
    /// ```
    /// use http::StatusCode;
    /// use tidegate_http::server::ActualCost;
    ///
    /// #[derive(Clone)]
    /// struct Rows(u64); // put into the response by the handler
    ///
    /// let by_rows = ActualCost::by_response(|response| match response.status {
    ///     StatusCode::NOT_MODIFIED => Some(0),
    ///     _ => response.extensions.get::<Rows>().map(|rows| rows.0),
    /// });
    /// # drop(by_rows);
    /// ```
    pub fn by_response(
        cost: impl Fn(&response::Parts) -> Option<u64> + Send + Sync + 'static,
    ) -> Self {
        Self(Source::Response(Arc::new(cost)))
    }
}

impl fmt::Debug for ActualCost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Source::Usage(measure) => write!(f, "ActualCost::usage({measure:?})"),
            Source::BodyBytes => f.write_str("ActualCost::body_bytes()"),
            Source::Response(_) => f.write_str("ActualCost::by_response(..)"),
        }
    }
}
