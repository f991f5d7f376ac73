//! Configuration of the fallback for each policy.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use crate::{Clock, ErrorKind, MAX_SPAN, Policy, Share, Store, SystemClock};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Setting {
    Open,
    Closed,
    FallBack(Share),
}

/// Configures decisions on calls for which the store returns an error. The configuration has a
/// default for all policies, and exceptions for some policies: see
/// [`StoreExt::on_failure`](crate::StoreExt::on_failure).
///
/// ```
/// use tidegate_core::{OnFailure, Share};
/// use tidegate_memory::MemoryStore;
///
/// // One of three nodes. Requests for one-time passwords are refused.
/// let on_failure = OnFailure::fall_back_to(MemoryStore::new(), Share::new(1, 3)?)
///     .fall_back_for("uploads", Share::new(1, 10)?)
///     .closed_for("otp")
///     .open_for("pages");
/// # let _ = on_failure;
/// # Ok::<(), tidegate_core::PolicyError>(())
/// ```
#[derive(Clone)]
#[must_use]
pub struct OnFailure<F = NoFallback> {
    pub(super) settings: Settings,
    fallback: PhantomData<F>,
}

/// The type parameter of an [`OnFailure`] without a fallback store.
#[derive(Debug, Clone, Copy)]
pub enum NoFallback {}

/// The type parameter of an [`OnFailure`] with a fallback store.
#[derive(Debug, Clone, Copy)]
pub enum HasFallback {}

#[derive(Clone)]
pub(super) struct Settings {
    default: Setting,
    by_name: Vec<(Box<str>, Setting)>,
    pub(super) fallback: Option<Arc<dyn Store>>,
    pub(super) retry_hint: Duration,
    pub(super) clock: Arc<dyn Clock>,
    hides_misconfigured: bool,
    pub(super) accepts_no_share: bool,
}

impl Settings {
    /// Returns `true` if the layer returns an error of this kind to the caller, and uses no
    /// fallback.
    pub(super) fn is_returned(&self, kind: ErrorKind) -> bool {
        match kind {
            ErrorKind::Misconfigured => !self.hides_misconfigured,
            // `TooManyWaiters` shows that the store works, and that the callers send too many
            // calls.
            ErrorKind::TooManyWaiters => true,
            kind => kind.is_invalid_request(),
        }
    }

    pub(super) fn setting(&self, policy: &Policy) -> Setting {
        let named = self.by_name.iter().rev().find(|(name, _)| **name == *policy.name());
        named.map_or(self.default, |(_, setting)| *setting)
    }
}

impl OnFailure {
    /// Creates a configuration that by default decides failed calls as if the subject had no usage.
    pub fn open() -> Self {
        Self::by_default(Setting::Open)
    }

    /// By default, refuses failed calls.
    pub fn closed() -> Self {
        Self::by_default(Setting::Closed)
    }

    /// Creates a configuration that by default lets the fallback `store` decide failed calls, with
    /// this share of each limit. Single policies can have another setting.
    pub fn fall_back_to(store: impl Store + 'static, share: Share) -> OnFailure<HasFallback> {
        Self::by_default(Setting::FallBack(share)).with_fallback(store)
    }

    /// Sets the fallback store. Only policies that [`fall_back_for`](OnFailure::fall_back_for)
    /// names use this store.
    pub fn with_fallback(self, store: impl Store + 'static) -> OnFailure<HasFallback> {
        let fallback: Option<Arc<dyn Store>> = Some(Arc::new(store));
        OnFailure { settings: Settings { fallback, ..self.settings }, fallback: PhantomData }
    }

    fn by_default(default: Setting) -> Self {
        let settings = Settings {
            default,
            by_name: Vec::new(),
            fallback: None,
            retry_hint: Duration::from_secs(1),
            clock: Arc::new(SystemClock::new()),
            hides_misconfigured: false,
            accepts_no_share: false,
        };
        Self { settings, fallback: PhantomData }
    }
}

impl OnFailure<HasFallback> {
    /// Lets the fallback store decide failed calls for the policy with this name, with this share
    /// of the limit.
    pub fn fall_back_for(self, policy: &str, share: Share) -> Self {
        self.for_policy(policy, Setting::FallBack(share))
    }

    /// Accepts policies whose share rounds down to 0, and refuses their failed calls. By default,
    /// such policies are rejected when a [`Limiter`](crate::Limiter) is built.
    pub fn accept_no_share(mut self) -> Self {
        self.settings.accepts_no_share = true;
        self
    }
}

impl<F> OnFailure<F> {
    /// Like [`open`](OnFailure::open), but only for the policy with this name.
    pub fn open_for(self, policy: &str) -> Self {
        self.for_policy(policy, Setting::Open)
    }

    /// Like [`closed`](OnFailure::closed), but only for the policy with this name.
    pub fn closed_for(self, policy: &str) -> Self {
        self.for_policy(policy, Setting::Closed)
    }

    /// Sets the `retry_after` of calls that are refused because their policy fails closed. The
    /// minimum is 1 µs, and the default is 1 s. This `retry_after` is only a hint, because the end
    /// of the outage is unknown.
    pub fn retry_hint(mut self, hint: Duration) -> Self {
        self.settings.retry_hint = hint.clamp(Duration::from_micros(1), MAX_SPAN);
        self
    }

    /// Sets the clock from which the layer computes the `reset_after` of requests that failed open,
    /// and the time until which the fallback store can know a hold. The default is [`SystemClock`].
    pub fn clock(mut self, clock: impl Clock + 'static) -> Self {
        self.settings.clock = Arc::new(clock);
        self
    }

    /// Also uses the fallback for errors of the kind [`Misconfigured`](ErrorKind::Misconfigured),
    /// such as a wrong password. By default, the caller gets such an error, because a fallback
    /// would hide the mistake forever.
    ///
    /// All kinds except `Misconfigured` have no effect. Invalid requests and
    /// [`TooManyWaiters`](ErrorKind::TooManyWaiters) always remain errors. For all other errors,
    /// the layer always uses the fallback.
    ///
    /// ```
    /// use tidegate_core::{ErrorKind, OnFailure};
    ///
    /// let on_failure = OnFailure::open().also_on(ErrorKind::Misconfigured);
    /// # let _ = on_failure;
    /// ```
    pub fn also_on(mut self, kind: ErrorKind) -> Self {
        self.settings.hides_misconfigured |= kind == ErrorKind::Misconfigured;
        self
    }

    fn for_policy(mut self, policy: &str, setting: Setting) -> Self {
        self.settings.by_name.push((policy.into(), setting));
        self
    }
}

impl<F> fmt::Debug for OnFailure<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OnFailure").field(&self.settings).finish()
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut map = f.debug_map();
        map.entry(&"default", &self.default);
        map.entries(self.by_name.iter().map(|(name, setting)| (name, setting)));
        map.finish()
    }
}
