//! A limiter enforces policies on a store, and creates requests.

#[cfg(feature = "tokio")]
pub(crate) mod attempt;
pub(crate) mod ban;
pub(crate) mod estimator;
pub(crate) mod grant;
pub(crate) mod hold;
mod multi;
mod operations;
mod request;
#[cfg(feature = "tokio")]
pub(crate) mod waiting;

use std::sync::Arc;

pub use multi::{MultiRequest, PolicyRef};
pub use request::Request;

use crate::decision::{Decision, PolicyVerdict};
use crate::error::{Error, ErrorKind};
use crate::policy::{MAX_NAME, Policy};
use crate::store::{Answer, Store};
use crate::subject::Subject;
#[cfg(feature = "tokio")]
use hold::guard_count::GuardCount;
#[cfg(feature = "tokio")]
use hold::in_turn::FreedSlots;
#[cfg(feature = "tokio")]
use hold::renewal::Renewals;
#[cfg(feature = "tokio")]
use waiting::{WaitLimits, Waiters};

/// One or several policies that are enforced on a store. A limiter is cheap to clone, because its
/// clones share the store.
///
/// A request for one subject is charged to all policies of the limiter. The methods
/// [`acquire`](Self::acquire) and [`subject`](Self::subject) create such a request. A request for
/// several subjects is charged only to the policies that the request names. The method
/// [`by`](Self::by) creates such a request.
///
/// ```
/// # tokio_test(async {
/// use std::time::Duration;
/// use tidegate_core::{Limiter, Policy};
/// use tidegate_memory::MemoryStore;
///
/// let limiter = Limiter::new(
///     MemoryStore::new(),
///     ["second: fixed-window 2/1s".parse()?, "day: sliding-counter 1000/1d".parse()?],
/// )?;
/// assert!(limiter.acquire("alice").await?.is_allowed());
/// assert!(limiter.subject("bob").cost(3).acquire().await?.is_denied()); // 3 in a second
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # });
/// # fn tokio_test(f: impl std::future::Future<Output = Result<(), Box<dyn std::error::Error>>>) {
/// #     tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(f).unwrap();
/// # }
/// ```
#[derive(Debug)]
pub struct Limiter<S> {
    shared: Arc<Shared<S>>,
    #[cfg(feature = "tokio")]
    wait_limits: WaitLimits,
}

#[derive(Debug)]
struct Shared<S> {
    store: S,
    policies: Box<[Policy]>,
    /// The first policy. A call stores its first charge by value, and its other policies as a
    /// slice, so the limiter stores them separately too.
    first: Policy,
    others: Box<[Policy]>,
    #[cfg(feature = "tokio")]
    waiters: Waiters,
    #[cfg(feature = "tokio")]
    guard_count: GuardCount,
    #[cfg(feature = "tokio")]
    renewals: Renewals,
    #[cfg(feature = "tokio")]
    freed_slots: FreedSlots,
}

// A derived `Clone` would require that the store implements `Clone`.
impl<S> Clone for Limiter<S> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            #[cfg(feature = "tokio")]
            wait_limits: self.wait_limits,
        }
    }
}

impl<S: Store> Limiter<S> {
    /// Creates a limiter. This does not call the store, so it succeeds even while the store is
    /// down.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::InvalidConfig`] if there are no policies, or if two policies have the
    /// same name. Returns [`ErrorKind::Unsupported`] if the store does not support one of the
    /// policies.
    pub fn new(store: S, policies: impl IntoIterator<Item = Policy>) -> Result<Self, Error> {
        let policies: Box<[Policy]> = policies.into_iter().collect();
        let Some((first, others)) = policies.split_first() else {
            return Err(Error::new(
                ErrorKind::InvalidConfig,
                "a limiter needs at least one policy",
            ));
        };
        let (first, others) = (first.clone(), others.into());
        for (index, policy) in policies.iter().enumerate() {
            store.supports(policy)?;
            let mut previous = policies.iter().take(index);
            if previous.any(|other| other.name() == policy.name()) {
                return Err(Error::new(
                    ErrorKind::InvalidConfig,
                    format!(
                        "two policies are named `{}`; give one another name, as in `other: {}`",
                        policy.name(),
                        policy.text_without_name(),
                    ),
                ));
            }
        }
        let shared = Shared {
            store,
            policies,
            first,
            others,
            #[cfg(feature = "tokio")]
            waiters: Waiters::default(),
            #[cfg(feature = "tokio")]
            guard_count: GuardCount::default(),
            #[cfg(feature = "tokio")]
            renewals: Renewals::default(),
            #[cfg(feature = "tokio")]
            freed_slots: FreedSlots::default(),
        };
        Ok(Self {
            shared: Arc::new(shared),
            #[cfg(feature = "tokio")]
            wait_limits: WaitLimits::default(),
        })
    }

    /// Decides a request of cost 1 for one subject. The request is charged if all policies admit
    /// it.
    #[inline(always)]
    pub fn acquire<'a>(
        &'a self,
        subject: &'a (impl AsRef<[u8]> + ?Sized),
    ) -> Answer<'a, Result<Decision, Error>> {
        self.subject(subject).acquire()
    }

    /// Creates a request for one subject. The request has cost 1 and no tenant.
    #[inline(always)]
    pub fn subject<'a>(&'a self, subject: &'a (impl AsRef<[u8]> + ?Sized)) -> Request<'a, S> {
        Request { limiter: self, tenant: b"", subject: subject.as_ref(), cost: 1, id: None }
    }

    /// Creates a request for several subjects, which the store decides atomically. This method adds
    /// the first policy and its subject. The method [`by`](MultiRequest::by) of the request adds
    /// further policies, each with its own subject and its own [`cost`](MultiRequest::cost).
    ///
    /// `policy` is the name of a policy of the limiter, or another policy for this request only.
    /// Policies of the limiter that the request does not name are not charged. The verdicts have
    /// the order in which the policies were added.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// use std::net::IpAddr;
    /// use tidegate_core::{Limiter, Policy};
    /// use tidegate_memory::MemoryStore;
    ///
    /// let limiter = Limiter::new(
    ///     MemoryStore::new(),
    ///     ["ip: fixed-window 100/1m".parse()?, "all: gcra 1000/s burst 1000".parse()?],
    /// )?;
    /// let ip: IpAddr = "203.0.113.9".parse()?;
    /// let plan: Policy = "user: token-bucket 5/s burst 20".parse()?; // as from a database
    ///
    /// let request = limiter.by("ip", ip).by(&plan, 42).cost(20).by("all", ());
    /// assert!(request.acquire().await?.is_allowed());
    /// let decision = request.acquire().await?;
    /// for verdict in request.verdicts(&decision).filter(|verdict| verdict.refuses()) {
    ///     assert_eq!(verdict.name(), "user");
    ///     assert!(verdict.retry_after() > Some(std::time::Duration::from_millis(3_900)));
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn by<'a>(
        &'a self,
        policy: impl Into<PolicyRef<'a>>,
        subject: impl Into<Subject<'a>>,
    ) -> MultiRequest<'a, S> {
        MultiRequest::new(self).by(policy, subject)
    }

    /// Returns the policy with this name.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::InvalidCall`] if the limiter has no policy with this name.
    pub fn policy(&self, name: &str) -> Result<&Policy, Error> {
        self.find_policy(name).ok_or_else(|| {
            let known: Vec<_> =
                self.policies().iter().map(|policy| format!("`{}`", policy.name())).collect();
            let name = name.escape_debug().take(MAX_NAME).collect::<String>();
            let message = format!("the limiter has no policy `{name}`, but {}", known.join(", "));
            Error::new(ErrorKind::InvalidCall, message)
        })
    }

    fn find_policy(&self, name: &str) -> Option<&Policy> {
        self.policies().iter().find(|policy| policy.name() == name)
    }

    /// Returns the verdicts of `decision` together with their policies. `decision` must be the
    /// answer to [`acquire`](Self::acquire), or to a request from [`subject`](Self::subject).
    pub fn verdicts<'d>(
        &'d self,
        decision: &'d Decision,
    ) -> impl Iterator<Item = PolicyVerdict<'d>> {
        decision.verdicts_of(self.policies())
    }

    /// Returns the policies. A decision on all policies has its verdicts in the same order.
    #[must_use]
    pub fn policies(&self) -> &[Policy] {
        &self.shared.policies
    }

    /// Returns the store.
    #[must_use]
    #[inline]
    pub fn store(&self) -> &S {
        &self.shared.store
    }
}
