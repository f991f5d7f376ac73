//! A request on one subject.

use std::fmt;
use std::time::Duration;

use super::{Limiter, Shared};
use crate::decision::Receipt;
use crate::subject::ShownBytes;
use crate::{Answer, Call, CallId, Charge, Charges, Decision, Error, Operation, Store};

/// A request of one subject and one cost, on all policies of a limiter: finished by naming the operation.
#[must_use = "a request does nothing until its operation is named"]
pub struct Request<'a, S> {
    pub(crate) limiter: &'a Limiter<S>,
    pub(crate) tenant: &'a [u8],
    pub(crate) subject: &'a [u8],
    pub(crate) cost: u64,
    pub(crate) id: Option<CallId<'a>>,
}

impl<S: fmt::Debug> fmt::Debug for Request<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("limiter", &self.limiter)
            .field("tenant", &ShownBytes(self.tenant))
            .field("subject", &ShownBytes(self.subject))
            .field("cost", &self.cost)
            .field("id", &self.id)
            .finish()
    }
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

    /// Carries out the operation once under this id, however often it is asked for within `ttl`: 1 to 256 bytes, of one
    /// operation on one request. See [`CallId`].
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// use std::time::Duration;
    /// use tidegate_core::{ErrorKind, Limiter};
    /// use tidegate_memory::MemoryStore;
    ///
    /// const TEN_MINUTES: Duration = Duration::from_secs(600);
    ///
    /// let limiter = Limiter::new(MemoryStore::new(), ["fixed-window 5/1h".parse()?])?;
    /// let job = || limiter.subject("alice").cost(2).id("job 17", TEN_MINUTES).acquire();
    /// let decision = match job().await {
    ///     // Charged or not? Ask again, and know.
    ///     Err(error) if error.kind() == ErrorKind::Timeout => job().await?,
    ///     answer => answer?,
    /// };
    /// assert!(decision.is_allowed());
    /// assert_eq!(job().await?, decision); // charged once
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn id(self, id: &'a (impl AsRef<[u8]> + ?Sized), ttl: Duration) -> Self {
        Self { id: Some(CallId::new(id, ttl)), ..self }
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

    /// Takes as much as there is, at most the cost: the maximum that all policies admit. If that is less than `min`, the
    /// request is refused. [`Decision::amounts`] has what was taken, the same from each policy.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// use tidegate_core::Limiter;
    /// use tidegate_memory::MemoryStore;
    ///
    /// let limiter = Limiter::new(MemoryStore::new(), ["fixed-window 1000/1h".parse()?])?;
    /// let jobs = limiter.subject("alice").cost(600).acquire_up_to(100).await?;
    /// assert_eq!(jobs.amounts(), [600]);
    /// let jobs = limiter.subject("alice").cost(600).acquire_up_to(100).await?;
    /// assert_eq!(jobs.amounts(), [400]); // all that was left
    /// let jobs = limiter.subject("alice").cost(600).acquire_up_to(100).await?;
    /// assert!(jobs.is_denied());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn acquire_up_to(self, min: u64) -> Answer<'a, Result<Decision, Error>> {
        self.send(Operation::AcquireUpTo { min })
    }

    /// Records a cost that was known only afterwards, beyond the limits if need be: later requests pay for it. No policy
    /// refuses this; [`Receipt::amounts`] has how much was recorded, which is less only at the bounds of
    /// [`Operation::Charge`].
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// use std::time::Duration;
    /// use tidegate_core::Limiter;
    /// use tidegate_memory::MemoryStore;
    ///
    /// let limiter = Limiter::new(MemoryStore::new(), ["token-bucket 100/1s".parse()?])?;
    /// assert!(limiter.acquire("alice").await?.is_allowed());
    /// // The answer had 600 tokens: five seconds of debt.
    /// limiter.subject("alice").cost(600).charge().await?;
    /// let decision = limiter.acquire("alice").await?;
    /// assert!(decision.retry_after() > Some(Duration::from_secs(4)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn charge(self) -> Answer<'a, Result<Receipt, Error>> {
        self.change(Operation::Charge)
    }

    /// Gives the cost back, as when the work was not done after all. [`Receipt::amounts`] has how much of it was still
    /// taken, and so given back.
    pub fn refund(self) -> Answer<'a, Result<Receipt, Error>> {
        self.change(Operation::Refund)
    }

    /// Reserves a place at most `max_wait` in the future; [`Decision::wait`] is how far. First come, first served.
    /// Buckets only.
    pub fn reserve(self, max_wait: Duration) -> Answer<'a, Result<Decision, Error>> {
        self.send(Operation::Reserve { max_wait })
    }

    /// Forgets all that the subject has taken, and its blocks.
    pub fn reset(self) -> Answer<'a, Result<Receipt, Error>> {
        self.change(Operation::Reset)
    }

    /// Blocks the subject for `span` from now on; zero lifts a block.
    pub fn block(self, span: Duration) -> Answer<'a, Result<Receipt, Error>> {
        self.change(Operation::Block { span })
    }

    /// Blocks the subject for at least `span` from now on: a block that ends later stays as it is. Zero changes
    /// nothing.
    pub fn block_at_least(self, span: Duration) -> Answer<'a, Result<Receipt, Error>> {
        self.change(Operation::BlockAtLeast { span })
    }

    pub(crate) fn charges(&self) -> impl Iterator<Item = Charge<'_>> {
        let Self { limiter, tenant, subject, cost, .. } = *self;
        let policies = limiter.policies().iter();
        policies.map(move |policy| Charge::new(policy, subject).tenant(tenant).cost(cost))
    }

    fn change(self, operation: Operation) -> Answer<'a, Result<Receipt, Error>> {
        self.send(operation).map(|answer| answer.map(Receipt::new))
    }

    // Inlined with the store's part: moving the answer through one more frame takes longer than the rest of the
    // limiter.
    #[inline(always)]
    pub(crate) fn send(self, operation: Operation) -> Answer<'a, Result<Decision, Error>> {
        let Self { limiter, tenant, subject, cost, id } = self;
        let Shared { store, first: policy, others, .. } = &*limiter.shared;
        let first = Charge { policy, tenant, subject, cost, is_check_only: false };
        let call = Call::with_charges(operation, Charges::per_policy(first, others));
        store.decide(Call { id, ..call })
    }
}
