//! Policies in force on a store.

pub(crate) mod estimator;
pub(crate) mod hold;
mod multi;
mod request;
#[cfg(feature = "tokio")]
pub mod waiting;

use std::sync::Arc;

pub use multi::{MultiRequest, PolicyRef};
pub use request::Request;

use crate::decision::PolicyVerdict;
use crate::{Answer, Decision, Error, ErrorKind, Policy, Store, Subject, policy};
#[cfg(feature = "tokio")]
use hold::guard_count::GuardCount;
#[cfg(feature = "tokio")]
use waiting::{WaitLimits, Waiters};

/// One or several policies in force on a store. Cheap to clone: clones share one store.
///
/// A request on one subject is charged to all policies ([`acquire`](Self::acquire),
/// [`subject`](Self::subject)); one on several subjects to those that it names ([`by`](Self::by)).
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
    /// The same, in the form of a call.
    first: Policy,
    others: Box<[Policy]>,
    #[cfg(feature = "tokio")]
    waiters: Waiters,
    #[cfg(feature = "tokio")]
    guard_count: GuardCount,
}

// Not derived, as that would ask for a store that can be cloned.
impl<S> Clone for Limiter<S> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            #[cfg(feature = "tokio")]
            wait_limits: self.wait_limits,
        }
    }
}

impl<S> Limiter<S> {
    #[cfg(feature = "tokio")]
    pub(crate) fn guard_count(&self) -> &GuardCount {
        &self.shared.guard_count
    }
}

impl<S: Store> Limiter<S> {
    /// A limiter. Does not call the store, which may be down.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`] if there are no policies, or two of one name;
    /// [`ErrorKind::Unsupported`] if the store cannot keep states of one of them.
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
            let mut before = policies.iter().take(index);
            if before.any(|other| other.name() == policy.name()) {
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
        };
        Ok(Self {
            shared: Arc::new(shared),
            #[cfg(feature = "tokio")]
            wait_limits: WaitLimits::default(),
        })
    }

    /// Decides on a request of cost 1, and takes it if it is admitted.
    #[inline(always)]
    pub fn acquire<'a>(
        &'a self,
        subject: &'a (impl AsRef<[u8]> + ?Sized),
    ) -> Answer<'a, Result<Decision, Error>> {
        self.subject(subject).acquire()
    }

    /// The subject of an operation; cost 1 and no tenant unless said otherwise.
    #[inline(always)]
    pub fn subject<'a>(&'a self, subject: &'a (impl AsRef<[u8]> + ?Sized)) -> Request<'a, S> {
        Request { limiter: self, tenant: b"", subject: subject.as_ref(), cost: 1, id: None }
    }

    /// A request on several subjects, in one atomic decision: the first policy and its subject. Further
    /// ones follow by [`by`](MultiRequest::by), each with its own [`cost`](MultiRequest::cost).
    ///
    /// The policy is the name of one of the limiter's, or another policy for this request alone. The
    /// limiter's policies that are not named are not charged. The verdicts are in the order named.
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

    /// The policy of this name.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidCall`] if there is none.
    pub fn policy(&self, name: &str) -> Result<&Policy, Error> {
        let found = self.policies().iter().find(|policy| policy.name() == name);
        found.ok_or_else(|| {
            let names: Vec<_> =
                self.policies().iter().map(|it| format!("`{}`", it.name())).collect();
            let name = name.escape_debug().take(policy::MAX_NAME).collect::<String>();
            let message = format!("the limiter has no policy `{name}`, but {}", names.join(", "));
            Error::new(ErrorKind::InvalidCall, message)
        })
    }

    /// The verdicts of a decision by [`acquire`](Self::acquire) or [`subject`](Self::subject), with
    /// their policies.
    pub fn verdicts<'d>(
        &'d self,
        decision: &'d Decision,
    ) -> impl Iterator<Item = PolicyVerdict<'d>> {
        decision.verdicts_of(self.policies())
    }

    /// The policies, in the order of a decision's verdicts.
    #[must_use]
    pub fn policies(&self) -> &[Policy] {
        &self.shared.policies
    }

    /// The store.
    #[must_use]
    pub fn store(&self) -> &S {
        &self.shared.store
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn waiting(&self) -> &Waiters {
        &self.shared.waiters
    }
}
