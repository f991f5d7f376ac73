//! What a handler reports of its work.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::Extensions;
use smallvec::SmallVec;
use tidegate_core::MAX_EXACT;

/// Where a handler reports what a request has used so far, by measures of the application's choice: tokens, rows,
/// thousandths of a cent.
///
/// A [`HoldLayer`](super::HoldLayer) puts one into the extensions of each request that it holds something for. Clones
/// report to the same request, also from a body that streams, or from another task. With the feature `axum`, a handler
/// takes it as an argument:
///
/// ```
/// use tidegate_http::server::Usage;
///
/// async fn complete(usage: Usage, prompt: String) -> String {
///     let answer = prompt.to_uppercase();
///     usage.add("tokens", (prompt.len() + answer.len()) as u64 / 4);
///     answer
/// }
/// # drop(complete);
/// ```
///
/// A measure that no limit is settled by is ignored, so that a handler need not know the limits.
#[derive(Debug, Clone, Default)]
pub struct Usage(Option<Arc<Totals>>);

#[derive(Debug)]
struct Totals {
    measures: Arc<[Box<str>]>,
    /// In the order of the measures. Each is a number by itself, of which the newest is as good as any, so that
    /// relaxed operations are enough.
    totals: SmallVec<[AtomicU64; 2]>,
}

/// Nothing was reported. All that can be reported is less.
const UNREPORTED: u64 = u64::MAX;

impl Usage {
    pub(super) fn new(measures: &Arc<[Box<str>]>) -> Self {
        let totals = measures.iter().map(|_| AtomicU64::new(UNREPORTED)).collect();
        Self(Some(Arc::new(Totals { measures: Arc::clone(measures), totals })))
    }

    /// That of a request, by its extensions; one that ignores all reports, if nothing is held for the request.
    #[must_use]
    pub fn of(extensions: &Extensions) -> Self {
        extensions.get::<Self>().cloned().unwrap_or_default()
    }

    /// Adds to what was used. An amount of 0 is a report too.
    pub fn add(&self, measure: &str, amount: u64) {
        let Some(total) = self.total_of(measure) else { return };
        let add = |total: u64| {
            let total = if total == UNREPORTED { 0 } else { total };
            Some(total.saturating_add(amount).min(MAX_EXACT))
        };
        // The function always returns a new value, so this cannot fail.
        let _ = total.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }

    /// Sets what was used in total, in place of what was reported before: as when a count of one's own is followed by
    /// an exact one.
    pub fn set(&self, measure: &str, total: u64) {
        if let Some(it) = self.total_of(measure) {
            it.store(total.min(MAX_EXACT), Ordering::Relaxed);
        }
    }

    /// What was reported in total; `None` if nothing was.
    #[must_use]
    pub fn total(&self, measure: &str) -> Option<u64> {
        reported(self.total_of(measure)?)
    }

    /// The same, by the place of the measure.
    pub(super) fn total_at(&self, measure: usize) -> Option<u64> {
        reported(self.0.as_ref()?.totals.get(measure)?)
    }

    fn total_of(&self, measure: &str) -> Option<&AtomicU64> {
        let totals = self.0.as_ref()?;
        let index = totals.measures.iter().position(|it| **it == *measure)?;
        totals.totals.get(index)
    }
}

fn reported(total: &AtomicU64) -> Option<u64> {
    Some(total.load(Ordering::Relaxed)).filter(|&total| total != UNREPORTED)
}

#[cfg(feature = "axum")]
impl<S: Sync> axum::extract::FromRequestParts<S> for Usage {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(
        request: &mut http::request::Parts,
        _: &S,
    ) -> Result<Self, Self::Rejection> {
        Ok(Self::of(&request.extensions))
    }
}
