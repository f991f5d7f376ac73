//! A request on one subject.

use std::time::Duration;

use super::{Limiter, Shared};
use crate::decision::Receipt;
use crate::{Answer, Call, Charge, Charges, Decision, Error, Operation, Store};

/// A request of one subject and one cost, on all policies of a limiter: finished by naming the operation.
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

    fn change(self, operation: Operation) -> Answer<'a, Result<Receipt, Error>> {
        self.send(operation).map(|answer| answer.map(Receipt::new))
    }

    // Inlined with the store's part: moving the answer through one more frame takes longer than the rest of the
    // limiter.
    #[inline(always)]
    pub(crate) fn send(self, operation: Operation) -> Answer<'a, Result<Decision, Error>> {
        let Self { limiter, tenant, subject, cost } = self;
        let Shared { store, first: policy, others, .. } = &*limiter.shared;
        let first = Charge { policy, tenant, subject, cost };
        store.decide(Call::with_charges(operation, Charges::per_policy(first, others)))
    }
}
