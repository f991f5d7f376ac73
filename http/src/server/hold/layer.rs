//! The layer that holds.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use tidegate_core::OnDrop;
use tower_layer::Layer;

use super::super::refusal::ProblemJson;
use super::super::shared::Shared;
use super::service::HoldService;
use super::settings::HoldSettings;

/// Puts limits before a service whose costs are known only when it has answered. Made by
/// [`RateLimitLayer::hold_for`](super::super::RateLimitLayer::hold_for); see [the module](super) for an example.
#[must_use = "a layer does nothing until a service is wrapped by it"]
pub struct HoldLayer<S, R = ProblemJson> {
    shared: Arc<Shared<S, R>>,
    settings: Arc<HoldSettings>,
}

impl<S, R> HoldLayer<S, R> {
    pub(in super::super) fn new(shared: Shared<S, R>, settings: HoldSettings) -> Self {
        Self { shared: Arc::new(shared), settings: Arc::new(settings) }
    }

    /// Sets what a request costs that was cut: whose handler was dropped, panicked or failed before there was a
    /// response, or whose body was dropped or failed before its end. This concerns the limits of
    /// [`hold_for`](super::super::RateLimitLayer::hold_for) whose actual cost is not known then; others keep theirs.
    ///
    /// | | by usage | by the bytes of the body | by the response |
    /// |---|---|---|---|
    /// | [`OnDrop::Settle`], the default | what was reported; if nothing was, the estimate | the bytes so far | the cost by the response; if there was none, the estimate |
    /// | [`OnDrop::Cancel`] | what was reported; if nothing was, nothing | the bytes so far | the cost by the response; if there was none, nothing |
    /// | [`OnDrop::Keep`] | the estimate | the estimate | the estimate |
    pub fn if_cut(self, rule: OnDrop) -> Self {
        self.with(|settings| settings.if_cut = rule)
    }

    /// Sets how often a response that streams reports to the store. Default: at most once a second.
    ///
    /// It reports only what exceeds an estimate, which is charged at once: later requests see it before the response
    /// has ended. And it [extends](tidegate_core::Limiter::extend) the hold once half of its time is over.
    pub fn report_every(self, interval: Duration) -> Self {
        self.with(|settings| settings.interval = interval)
    }

    /// Chooses the ids of holds: an idempotency key, say. A request with the id of an earlier one is admitted and
    /// charged with that one, for as long as the store remembers it. For an empty id and with `None`, it is 128 random
    /// bits, as without this setting. Of an id above 256 bytes, a digest is used.
    ///
    /// A client that chooses the id pays for all requests with it once. So use this only before a handler that does the
    /// work once for them, and put what tells the clients apart into the id.
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

// Not derived, as that would ask for `S: Clone` and `R: Clone`.
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
