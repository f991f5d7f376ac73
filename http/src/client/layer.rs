//! The layer and its settings.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use tidegate_core::{Limiter, Subject};
use tower_layer::Layer;

use super::announcements::Announcements;
use super::retry::NoRetry;
use super::service::Throttle;
use super::settings::Settings;
use super::subject::origin;

/// Keeps requests to other services within their limits. See the [module](crate::client).
///
/// All services made by one layer, and by its clones, share one limiter, and what servers announced.
pub struct ThrottleLayer<S, R = NoRetry> {
    settings: Settings<S, R>,
}

impl<S> ThrottleLayer<S> {
    /// A layer that waits for turns in `limiter`: of all of its policies, by the origin of a request.
    #[must_use]
    pub fn new(limiter: Limiter<S>) -> Self {
        Self {
            settings: Settings {
                limiter,
                announcements: Announcements::default(),
                subject: Arc::new(origin),
                cost: None,
                max_wait: Duration::from_secs(30),
                default_pause: Duration::from_secs(1),
                max_retries: 0,
                retry: NoRetry,
            },
        }
    }
}

impl<S, R> ThrottleLayer<S, R> {
    /// Sets the longest time that a request waits, all of its retries together. Default: 30 s.
    ///
    /// With zero, a request that would have to wait is refused instead.
    #[must_use]
    pub fn max_wait(mut self, wait: Duration) -> Self {
        self.settings.max_wait = wait;
        self
    }

    /// Sets how long an origin is left alone after a 429 that does not say when to come back. Default: 1 s.
    #[must_use]
    pub fn default_pause(mut self, pause: Duration) -> Self {
        self.settings.default_pause = pause;
        self
    }

    /// Sets what requests are counted by. Default: [`origin`].
    ///
    /// As an announcement delays all requests of a subject, it should be what the server counts by: the account
    /// or the API key if there are several, or the route if each has a limit of its own. A request for which
    /// the function returns `None` is not sent, and fails.
    ///
    /// ```
    /// use tidegate_core::{Limiter, Subject};
    /// use tidegate_http::client::{ThrottleLayer, origin};
    /// use tidegate_memory::MemoryStore;
    ///
    /// let limiter = Limiter::new(MemoryStore::new(), ["partner: gcra 10/1s".parse()?])?;
    /// let layer = ThrottleLayer::new(limiter).subject(|request| {
    ///     let key = request.headers.get("x-api-key")?;
    ///     Some(Subject::parts([origin(request)?, Subject::from(key.as_bytes())]))
    /// });
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn subject(
        mut self,
        subject: impl Fn(&Parts) -> Option<Subject<'static>> + Send + Sync + 'static,
    ) -> Self {
        self.settings.subject = Arc::new(subject);
        self
    }

    /// Sets what a request costs. Default: 1.
    #[must_use]
    pub fn cost(mut self, cost: impl Fn(&Parts) -> u64 + Send + Sync + 'static) -> Self {
        self.settings.cost = Some(Arc::new(cost));
        self
    }

    /// Sends a request again that was refused with 429, or with 503 and a time to come back: at most `max_retries`
    /// times, once the server wants it, if `copy` returns a copy of it. Default: nothing is sent again.
    ///
    /// If the wait would be longer than what is left of [`max_wait`](Self::max_wait), the refusal is the
    /// response.
    #[must_use]
    pub fn retry<Q>(self, max_retries: u32, copy: Q) -> ThrottleLayer<S, Q> {
        let Settings { limiter, announcements, subject, cost, max_wait, default_pause, .. } =
            self.settings;
        ThrottleLayer {
            settings: Settings {
                limiter,
                announcements,
                subject,
                cost,
                max_wait,
                default_pause,
                max_retries,
                retry: copy,
            },
        }
    }
}

impl<I, S, R: Clone> Layer<I> for ThrottleLayer<S, R> {
    type Service = Throttle<I, S, R>;

    fn layer(&self, inner: I) -> Self::Service {
        Throttle::new(inner, Arc::new(self.settings.clone()))
    }
}

impl<S, R: Clone> Clone for ThrottleLayer<S, R> {
    fn clone(&self) -> Self {
        Self { settings: self.settings.clone() }
    }
}

impl<S, R> fmt::Debug for ThrottleLayer<S, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThrottleLayer").field("settings", &self.settings).finish()
    }
}
