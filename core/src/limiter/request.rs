//! A request for one subject.

use std::fmt;
use std::time::Duration;

use super::{Limiter, Shared};
use crate::call::{Call, CallId, Charge, Charges, Operation};
use crate::decision::Decision;
use crate::error::Error;
use crate::store::{Answer, Store};
use crate::subject::ShownBytes;

/// A request for one subject with one cost. It is charged to all policies of a limiter. A method
/// that is named after an operation, such as [`acquire`](Self::acquire), sends the request.
#[must_use = "a request does nothing until its operation is named"]
pub struct Request<'a, S> {
    pub(super) limiter: &'a Limiter<S>,
    pub(super) tenant: &'a [u8],
    pub(super) subject: &'a [u8],
    pub(super) cost: u64,
    pub(super) id: Option<CallId<'a>>,
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
    /// Sets the cost of the request. The default is 1.
    pub fn cost(self, cost: u64) -> Self {
        Self { cost, ..self }
    }

    /// Sets the tenant of the subject. By default, a subject has no tenant.
    pub fn tenant(self, tenant: &'a (impl AsRef<[u8]> + ?Sized)) -> Self {
        Self { tenant: tenant.as_ref(), ..self }
    }

    /// Sets an id for the call. The operation is executed once under this id, even if the request
    /// is sent again within `ttl`. The id has 1 to 256 bytes, and belongs to one operation on one
    /// request. See [`CallId`].
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
    ///     // It is not known whether the job was charged, so it is sent again.
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

    /// Returns the charges of the request, and never fails. It returns a `Result` because
    /// [`MultiRequest`](super::MultiRequest) has a method of the same name, which can fail.
    pub(super) fn charges(&self) -> Result<Charges<'a>, Error> {
        Ok(self.limiter.charges(self.tenant, self.subject, self.cost))
    }

    // This method is inlined, like the method `decide` of the store. Without inlining, the answer
    // would be moved through one more stack frame, which would take longer than the rest of the
    // limiter.
    #[inline(always)]
    pub(super) fn send(self, operation: Operation) -> Answer<'a, Result<Decision, Error>> {
        let Self { limiter, tenant, subject, cost, id } = self;
        let call = Call::with_charges(operation, limiter.charges(tenant, subject, cost));
        limiter.store().decide(Call { id, ..call })
    }
}

impl<S> Limiter<S> {
    #[inline(always)]
    fn charges<'a>(&'a self, tenant: &'a [u8], subject: &'a [u8], cost: u64) -> Charges<'a> {
        let Shared { first: policy, others, .. } = &*self.shared;
        let charge = Charge { policy, tenant, subject, cost, is_check_only: false, list: 0 };
        Charges::per_policy(charge, others)
    }
}
