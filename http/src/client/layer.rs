//! The client layer and its settings.

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

/// A layer that keeps requests to other services within the limits of these services. [The
/// module](crate::client) has an example.
///
/// All services of a layer and of its clones share one limiter and the announcements of the
/// servers.
pub struct ThrottleLayer<S, R = NoRetry> {
    settings: Settings<S, R>,
}

impl<S> ThrottleLayer<S> {
    /// Creates a layer in which each request waits until all policies of `limiter` admit it. The
    /// subject is the origin of the request.
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
    /// Sets the maximum time that a request waits, including all of its retries. The default is 30
    /// s.
    ///
    /// If `wait` is zero, a request that would have to wait fails immediately.
    #[must_use]
    pub fn max_wait(mut self, wait: Duration) -> Self {
        self.settings.max_wait = wait;
        self
    }

    /// Sets the pause of an origin after a response with status 429 that announces no time. During
    /// the pause, no request is sent to the origin. The default is 1 s.
    #[must_use]
    pub fn default_pause(mut self, pause: Duration) -> Self {
        self.settings.default_pause = pause;
        self
    }

    /// Sets a function that returns the subject of a request. The default is [`origin`].
    ///
    /// An announcement delays all requests of a subject. Therefore, use the same subject as the
    /// server. For example, use the account or the API key if the client has several, or the route
    /// if the server limits each route separately. If the function returns `None`, the request is
    /// not sent and fails.
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

    /// Sets a function that returns the cost of a request. The default cost is 1.
    #[must_use]
    pub fn cost(mut self, cost: impl Fn(&Parts) -> u64 + Send + Sync + 'static) -> Self {
        self.settings.cost = Some(Arc::new(cost));
        self
    }

    /// Sends a request again after a response with status 429, or with status 503 and an announced
    /// time. The layer sends at most `max_retries` retries, and waits until the announced time
    /// before each of them. It retries a request only if `copy` returns a copy of it. By default,
    /// the layer retries no request.
    ///
    /// If the wait before a retry would exceed the rest of [`max_wait`](Self::max_wait), the caller
    /// receives the refusal as the response.
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
