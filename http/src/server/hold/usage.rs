//! The usage of a request, as its handler reports it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use http::Extensions;
use smallvec::SmallVec;
use tidegate_core::MAX_EXACT;
use tokio::sync::Notify;

/// The usage of a request so far. A handler reports it in measures of the application's choice,
/// such as tokens, rows, or thousandths of a cent.
///
/// A [`HoldLayer`](super::HoldLayer) puts a `Usage` into the extensions of each request that has a
/// hold. All clones report the usage of the same request, and can do so from a body that streams or
/// from another task. With the feature `axum`, a handler takes a `Usage` as an argument:
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
/// If no limit of the layer uses a measure, reports of this measure are ignored. So a handler can
/// report all its measures without knowing the limits. If several layers have holds for a request,
/// a report reaches all of them.
///
/// # Upgraded connections
///
/// If a handler upgrades the connection, for example to a WebSocket, it moves a `Usage` to the task
/// of the connection. The hold of the request is open until the last `Usage` is dropped, so that
/// the slots of the request are in use until the connection closes:
///
/// ```
/// use tidegate_http::server::Usage;
///
/// async fn talk(usage: Usage, mut messages: tokio::sync::mpsc::Receiver<String>) {
///     while let Some(message) = messages.recv().await {
///         usage.add("tokens", message.len() as u64 / 4);
///     }
///     // The connection is closed, and `usage` is dropped.
/// }
/// # drop(talk);
/// ```
#[derive(Debug, Default)]
pub struct Usage {
    totals: Option<Arc<Totals>>,
    /// The usage for the hold of an outer layer.
    outer: Option<Box<Self>>,
}

/// The totals of a request. The hold of the request has them too.
#[derive(Debug)]
pub(super) struct Totals {
    /// The number of clones of the `Usage`.
    users: AtomicUsize,
    /// Notifies the hold that the last clone was dropped.
    unused: Notify,
    measures: Arc<[Box<str>]>,
    /// The totals, in the order of the measures. Relaxed atomic operations are sufficient, because
    /// the totals are independent of each other.
    totals: SmallVec<[AtomicU64; 2]>,
}

/// The value of a total before the first report. Every reported total is lower.
const UNREPORTED: u64 = u64::MAX;

impl Usage {
    /// Creates a usage, and returns it with its totals.
    pub(super) fn new(measures: &Arc<[Box<str>]>) -> (Self, Arc<Totals>) {
        let totals = Arc::new(Totals {
            users: AtomicUsize::new(1),
            unused: Notify::new(),
            measures: Arc::clone(measures),
            totals: measures.iter().map(|_| AtomicU64::new(UNREPORTED)).collect(),
        });
        (Self { totals: Some(Arc::clone(&totals)), outer: None }, totals)
    }

    /// Returns a usage that also reports to the hold of an outer layer.
    pub(super) fn inside(mut self, outer: Option<Self>) -> Self {
        self.outer = outer.map(Box::new);
        self
    }

    /// Returns the usage of a request from its extensions. If the request has no hold, returns a
    /// `Usage` that ignores all reports.
    #[must_use]
    pub fn from_extensions(extensions: &Extensions) -> Self {
        extensions.get::<Self>().cloned().unwrap_or_default()
    }

    /// Adds an amount to the usage. A report of 0 also counts as a report.
    pub fn add(&self, measure: &str, amount: u64) {
        if let Some(outer) = &self.outer {
            outer.add(measure, amount);
        }
        let Some(total) = self.total_of(measure) else { return };
        let add = |total: u64| {
            let total = if total == UNREPORTED { 0 } else { total };
            Some(total.saturating_add(amount).min(MAX_EXACT))
        };
        // `fetch_update` cannot fail, because the function always returns a new value.
        let _ = total.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }

    /// Sets the total usage, and replaces all previous reports. Use this method if the exact usage
    /// becomes known at the end, after the handler has reported its own count.
    ///
    /// Usage above the estimate that the layer has already
    /// [charged](super::HoldLayer::report_every) stays charged, even if the total is lower. So a
    /// count during the response must not be too high.
    pub fn set(&self, measure: &str, total: u64) {
        if let Some(outer) = &self.outer {
            outer.set(measure, total);
        }
        if let Some(known) = self.total_of(measure) {
            known.store(total.min(MAX_EXACT), Ordering::Relaxed);
        }
    }

    /// Returns the reported total, or `None` if nothing was reported.
    #[must_use]
    pub fn total(&self, measure: &str) -> Option<u64> {
        match self.total_of(measure) {
            Some(total) => reported(total),
            None => self.outer.as_ref()?.total(measure),
        }
    }

    fn total_of(&self, measure: &str) -> Option<&AtomicU64> {
        let totals = self.totals.as_ref()?;
        let index = totals.measures.iter().position(|known| **known == *measure)?;
        totals.totals.get(index)
    }
}

impl Clone for Usage {
    fn clone(&self) -> Self {
        if let Some(totals) = &self.totals {
            totals.users.fetch_add(1, Ordering::Relaxed);
        }
        Self { totals: self.totals.clone(), outer: self.outer.clone() }
    }
}

impl Drop for Usage {
    fn drop(&mut self) {
        if let Some(totals) = &self.totals
            && totals.users.fetch_sub(1, Ordering::AcqRel) == 1
        {
            totals.unused.notify_one();
        }
    }
}

impl Totals {
    /// Waits until all clones of the `Usage` are dropped.
    pub(super) async fn until_unused(&self) {
        self.unused.notified().await;
    }

    /// Returns the reported total of the measure at an index, or `None` if nothing was reported.
    pub(super) fn get(&self, measure: usize) -> Option<u64> {
        reported(self.totals.get(measure)?)
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
        Ok(Self::from_extensions(&request.extensions))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_reports_reach_the_hold_of_an_outer_layer() {
        let (outer, outer_totals) = Usage::new(&["a".into(), "b".into()].into());
        let (inner, inner_totals) = Usage::new(&["b".into()].into());
        let usage = inner.inside(Some(outer));
        usage.set("a", 5);
        usage.set("b", 7);
        usage.clone().add("b", 1);
        let outer = [outer_totals.get(0), outer_totals.get(1)];
        assert_eq!((outer, inner_totals.get(0)), ([Some(5), Some(8)], Some(8)));
        assert_eq!(
            (usage.total("a"), usage.total("b"), usage.total("c")),
            (Some(5), Some(8), None)
        );
    }
}
