//! What to do when the store gives no decision, policy by policy.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use crate::time::{MAX_SPAN, Wait, micros_of_ceil};
use crate::{Clock, ErrorKind, Policy, Share, Store, SystemClock};

/// What to do with the charges of a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Setting {
    Open,
    Closed,
    FallBack(Share),
}

/// What to do when the store gives no decision: a default, and what differs from it by policy.
///
/// ```
/// use tidegate_core::{OnFailure, Share};
/// use tidegate_memory::MemoryStore;
///
/// // One of three nodes. Who asks for one-time passwords is refused rather than let through.
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

/// Marks an [`OnFailure`] that has no other store to ask.
#[derive(Debug, Clone, Copy)]
pub enum NoFallback {}

/// Marks an [`OnFailure`] that has another store to ask.
#[derive(Debug, Clone, Copy)]
pub enum HasFallback {}

#[derive(Clone)]
pub(super) struct Settings {
    default: Setting,
    by_name: Vec<(Box<str>, Setting)>,
    pub(super) fallback: Option<Arc<dyn Store>>,
    pub(super) retry_hint: Wait,
    pub(super) clock: Arc<dyn Clock>,
    /// Whether settings that do not fit the server are a failure like others.
    misconfigured: bool,
}

impl Settings {
    /// Whether an error of this kind stays an error.
    pub(super) fn passes_on(&self, kind: ErrorKind) -> bool {
        match kind {
            ErrorKind::Misconfigured => !self.misconfigured,
            // Nothing is wrong with the store when too many wait for it.
            ErrorKind::TooManyWaiters => true,
            kind => kind.is_invalid_request(),
        }
    }

    /// What to do with the charges of a policy.
    pub(super) fn of(&self, policy: &Policy) -> Setting {
        let named = self.by_name.iter().rev().find(|(name, _)| **name == *policy.name());
        named.map_or(self.default, |(_, setting)| *setting)
    }
}

impl OnFailure {
    /// What the store did not decide is decided as if nothing had been taken yet.
    pub fn open() -> Self {
        Self::by_default(Setting::Open)
    }

    /// What the store did not decide is refused.
    pub fn closed() -> Self {
        Self::by_default(Setting::Closed)
    }

    /// What the store did not decide is decided by `store`, each policy with its share.
    pub fn fall_back_to(store: impl Store + 'static, share: Share) -> OnFailure<HasFallback> {
        Self::by_default(Setting::FallBack(share)).with_fallback(store)
    }

    /// The same, with a store to ask for the policies named by
    /// [`fall_back_for`](OnFailure::fall_back_for).
    pub fn with_fallback(self, store: impl Store + 'static) -> OnFailure<HasFallback> {
        let fallback: Option<Arc<dyn Store>> = Some(Arc::new(store));
        OnFailure { settings: Settings { fallback, ..self.settings }, fallback: PhantomData }
    }

    fn by_default(default: Setting) -> Self {
        let settings = Settings {
            default,
            by_name: Vec::new(),
            fallback: None,
            retry_hint: Wait::until(1_000_000, 0),
            clock: Arc::new(SystemClock::new()),
            misconfigured: false,
        };
        Self { settings, fallback: PhantomData }
    }
}

impl OnFailure<HasFallback> {
    /// Another share for the policy of this name.
    pub fn fall_back_for(self, policy: &str, share: Share) -> Self {
        self.for_policy(policy, Setting::FallBack(share))
    }
}

impl<F> OnFailure<F> {
    /// As [`open`](OnFailure::open), for the policy of this name.
    pub fn open_for(self, policy: &str) -> Self {
        self.for_policy(policy, Setting::Open)
    }

    /// As [`closed`](OnFailure::closed), for the policy of this name.
    pub fn closed_for(self, policy: &str) -> Self {
        self.for_policy(policy, Setting::Closed)
    }

    /// What a refusal without a decision of the store gives as `retry_after`: a hint, at least 1 µs,
    /// and no promise, as nobody knows when the store is back. Default: 1 s.
    pub fn retry_hint(mut self, hint: Duration) -> Self {
        self.settings.retry_hint = Wait::until(micros_of_ceil(hint).clamp(1, MAX_SPAN), 0);
        self
    }

    /// By which clock `reset_after` is told of what passes without a decision of the store. Default:
    /// [`SystemClock`].
    pub fn clock(mut self, clock: impl Clock + 'static) -> Self {
        self.settings.clock = Arc::new(clock);
        self
    }

    /// Decides also where the store fails with this kind, if that is
    /// [`Misconfigured`](ErrorKind::Misconfigured): settings that do not fit the server, such as a wrong
    /// password. Without this, such a call is an error, as failing open would hide the mistake for ever.
    ///
    /// Of other kinds this changes nothing: a caller's mistake and
    /// [`TooManyWaiters`](ErrorKind::TooManyWaiters) stay errors, and all others are decided on anyway.
    ///
    /// ```
    /// use tidegate_core::{ErrorKind, OnFailure};
    ///
    /// let on_failure = OnFailure::open().also_on(ErrorKind::Misconfigured);
    /// # let _ = on_failure;
    /// ```
    pub fn also_on(mut self, kind: ErrorKind) -> Self {
        self.settings.misconfigured |= kind == ErrorKind::Misconfigured;
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
