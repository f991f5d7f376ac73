//! Policies in force on a store.

use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "tokio")]
use crate::waiting::{Bounds, Waiters};
use crate::{Answer, Call, Charge, Charges, Decision, Error, ErrorKind, Operation, Policy, Store};

/// One or several policies in force on a store, all on the same subject. Cheap to clone: clones share
/// one store.
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
    pub(crate) bounds: Bounds,
}

#[derive(Debug)]
struct Shared<S> {
    store: S,
    policies: Box<[Policy]>,
    /// The same, as a call has them.
    first: Policy,
    others: Box<[Policy]>,
    #[cfg(feature = "tokio")]
    waiters: Waiters,
}

// Not derived, as that would ask for a store that can be cloned.
impl<S> Clone for Limiter<S> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            #[cfg(feature = "tokio")]
            bounds: self.bounds,
        }
    }
}

impl<S: Store> Limiter<S> {
    /// A limiter. Never waits: the store may be down.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidCall`] if there are no policies, or two of one name;
    /// [`ErrorKind::Unsupported`] if the store cannot keep states of one of them.
    pub fn new(store: S, policies: impl IntoIterator<Item = Policy>) -> Result<Self, Error> {
        let policies: Box<[Policy]> = policies.into_iter().collect();
        let Some((first, others)) = policies.split_first() else {
            return Err(Error::new(ErrorKind::InvalidCall, "a limiter needs at least one policy"));
        };
        let (first, others) = (first.clone(), others.into());
        for (place, policy) in policies.iter().enumerate() {
            store.supports(policy)?;
            let mut before = policies.iter().take(place);
            if before.any(|other| other.name() == policy.name()) {
                return Err(Error::new(
                    ErrorKind::InvalidCall,
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
        };
        Ok(Self {
            shared: Arc::new(shared),
            #[cfg(feature = "tokio")]
            bounds: Bounds::default(),
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
        Request { limiter: self, tenant: b"", subject: subject.as_ref(), cost: 1 }
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

/// What to do with one subject: finished by naming the operation.
#[must_use = "a request does nothing until its operation is named"]
#[derive(Debug)]
pub struct Request<'a, S> {
    pub(crate) limiter: &'a Limiter<S>,
    pub(crate) tenant: &'a [u8],
    pub(crate) subject: &'a [u8],
    pub(crate) cost: u64,
}

impl<'a, S: Store> Request<'a, S> {
    /// The same request at another cost.
    pub fn cost(self, cost: u64) -> Self {
        Self { cost, ..self }
    }

    /// The same request for a subject of `tenant`.
    pub fn tenant(self, tenant: &'a (impl AsRef<[u8]> + ?Sized)) -> Self {
        Self { tenant: tenant.as_ref(), ..self }
    }

    /// Decides, and takes the cost if all policies admit it.
    #[inline(always)]
    pub fn acquire(self) -> Answer<'a, Result<Decision, Error>> {
        self.send(Operation::Acquire)
    }

    /// Decides as [`acquire`](Self::acquire) would, and writes nothing.
    pub fn peek(self) -> Answer<'a, Result<Decision, Error>> {
        self.send(Operation::Peek)
    }

    /// Gives the cost back, as when the work was not done after all.
    pub fn refund(self) -> Answer<'a, Result<Decision, Error>> {
        self.send(Operation::Refund)
    }

    /// Books a place at most `max_wait` in the future; [`Decision::wait`] says how far. First come,
    /// first served. Buckets only.
    pub fn reserve(self, max_wait: Duration) -> Answer<'a, Result<Decision, Error>> {
        self.send(Operation::Reserve { max_wait })
    }

    /// Forgets all that the subject has taken, and its blocks.
    pub fn reset(self) -> Answer<'a, Result<Decision, Error>> {
        self.send(Operation::Reset)
    }

    /// Shuts the subject out for `span` from now on; zero lets it in again.
    pub fn block(self, span: Duration) -> Answer<'a, Result<Decision, Error>> {
        self.send(Operation::Block { span })
    }

    // As a part of the caller, with the store's part of it: an answer that is handed on takes longer than
    // all the rest of a limiter.
    #[inline(always)]
    pub(crate) fn send(self, operation: Operation) -> Answer<'a, Result<Decision, Error>> {
        let Self { limiter, tenant, subject, cost } = self;
        let Shared { store, first: policy, others, .. } = &*limiter.shared;
        let first = Charge { policy, tenant, subject, cost };
        store.decide(Call { operation, charges: Charges::Alike { first, others } })
    }
}
