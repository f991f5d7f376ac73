//! The source of the actual cost of a request.

use std::fmt;
use std::sync::Arc;

use http::response;

/// The source of the actual cost of a request, for one limit of a [`HoldLayer`](super::HoldLayer).
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
    /// Creates a source that takes the cost from the usage that the handler reports in this
    /// measure: see [`Usage`](super::Usage). If the handler reports nothing, the cost is the
    /// estimate.
    #[must_use]
    pub fn usage(measure: impl Into<Box<str>>) -> Self {
        Self(Source::Usage(measure.into()))
    }

    /// Creates a source whose cost is the number of bytes of the response body that the server has
    /// read, without trailers.
    #[must_use]
    pub fn body_bytes() -> Self {
        Self(Source::BodyBytes)
    }

    /// Creates a source that takes the cost from a function of the head of the response. The
    /// function can read the status, or a number that the handler put into the extensions of the
    /// response. If the function returns `None`, the cost is the estimate.
    ///
    /// ```
    /// use http::StatusCode;
    /// use tidegate_http::server::ActualCost;
    ///
    /// #[derive(Clone)]
    /// struct Rows(u64); // the handler puts this into the response
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
