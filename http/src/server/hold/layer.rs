//! The layer of a service whose costs are estimates.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use tidegate_core::OnDrop;
use tower_layer::Layer;

use super::super::refusal::ProblemJson;
use super::super::shared::Shared;
#[cfg(doc)]
use super::ActualCost;
use super::service::HoldService;
use super::settings::HoldSettings;

/// A layer that applies limits to a service whose costs are known only after the response.
/// [`RateLimitLayer::hold_for`](super::super::RateLimitLayer::hold_for) creates it. [The
/// module](super) has an example.
#[must_use = "a layer does nothing until a service is wrapped by it"]
pub struct HoldLayer<S, R = ProblemJson> {
    shared: Arc<Shared<S, R>>,
    settings: Arc<HoldSettings>,
}

impl<S, R> HoldLayer<S, R> {
    pub(in super::super) fn new(shared: Shared<S, R>, settings: HoldSettings) -> Self {
        Self { shared: Arc::new(shared), settings: Arc::new(settings) }
    }

    /// Sets the rule for the cost of a request that was cut. A request is cut in two cases:
    ///
    /// * The handler is dropped, panics or fails before it returns a response.
    /// * The body of the response is dropped or fails before its end.
    ///
    /// The rule applies to the limits that are named in
    /// [`hold_for`](super::super::RateLimitLayer::hold_for). The other limits keep their costs. The
    /// columns of this table are the [sources of the actual cost](ActualCost):
    ///
    /// | rule | [`usage`](ActualCost::usage) | [`body_bytes`](ActualCost::body_bytes) | [`by_response`](ActualCost::by_response) |
    /// |---|---|---|---|
    /// | [`OnDrop::Settle`], the default | the reported usage, or the estimate if nothing was reported | the bytes so far | the cost by the response, or the estimate if there was no response |
    /// | [`OnDrop::Cancel`] | the reported usage, or 0 if nothing was reported | the bytes so far | the cost by the response, or 0 if there was no response |
    /// | [`OnDrop::Keep`] | the estimate | the estimate | the estimate |
    pub fn if_cut(self, rule: OnDrop) -> Self {
        self.with(|settings| settings.if_cut = rule)
    }

    /// Sets the minimum time between two reports of a streaming response to the store. The default
    /// is one second.
    ///
    /// A report charges the usage above the estimate immediately, so that the store counts this
    /// usage for later requests before the response ends. After half of the time of the hold, a
    /// report also [extends](tidegate_core::Limiter::extend) the hold.
    pub fn report_every(self, interval: Duration) -> Self {
        self.with(|settings| settings.interval = interval)
    }

    /// Sets a function that returns the id of a hold, such as an idempotency key. If an earlier
    /// request had the same id, and the store still remembers this id, both requests are admitted
    /// and charged as one request, at the higher of their costs. If several later requests cost
    /// more, only the first of them is charged the difference. A request that disconnects before
    /// its decision then keeps its estimate until the hold lapses. If the layer has a limit of
    /// [slots](tidegate_core::Concurrent), a request whose id belongs to a request that has ended
    /// fails with [`ErrorKind::AlreadySettled`](tidegate_core::ErrorKind::AlreadySettled). If the
    /// function returns `None` or an empty id, the id consists of 128 random bits, which is also
    /// the default. An id longer than 256 bytes is replaced by its digest.
    ///
    /// A client that chooses the id pays only once for all requests with this id. Therefore, use
    /// this setting only if the handler does its work once per id, and make the identity of the
    /// client a part of the id.
    pub fn id_by(self, id: impl Fn(&Parts) -> Option<Vec<u8>> + Send + Sync + 'static) -> Self {
        self.with(|settings| settings.id = Some(Arc::new(id)))
    }

    fn with(mut self, change: impl FnOnce(&mut HoldSettings)) -> Self {
        change(Arc::make_mut(&mut self.settings));
        self
    }
}

impl<Svc, S, R> Layer<Svc> for HoldLayer<S, R> {
    type Service = HoldService<Svc, S, R>;

    fn layer(&self, inner: Svc) -> Self::Service {
        HoldService::new(inner, Arc::clone(&self.shared), Arc::clone(&self.settings))
    }
}

// `#[derive(Clone)]` would require `S: Clone` and `R: Clone`.
impl<S, R> Clone for HoldLayer<S, R> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), settings: Arc::clone(&self.settings) }
    }
}

impl<S: fmt::Debug, R> fmt::Debug for HoldLayer<S, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HoldLayer")
            .field("limits", &self.shared)
            .field("settings", &self.settings)
            .finish()
    }
}
