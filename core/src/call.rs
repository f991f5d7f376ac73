//! Calls to a store: an operation on one or several charges.

use std::time::Duration;

use crate::hash::stable_hash;
use crate::{Error, ErrorKind, Policy, Timestamp};

/// The maximum number of charges in one call.
pub const MAX_CHARGES: usize = 64;

/// The maximum length of a subject and of a tenant: 1 MiB.
pub const MAX_SUBJECT: usize = 1 << 20;

/// One policy, one subject, one cost.
///
/// ```
/// use std::time::Duration;
/// use tidegate_core::{Charge, FixedWindow, Policy};
///
/// let policy = Policy::new("api", FixedWindow::new(100, Duration::from_secs(60)))?;
/// let charge = Charge::new(&policy, b"alice").cost(5).tenant(b"acme");
/// assert_eq!((charge.subject, charge.cost), (&b"alice"[..], 5));
/// # Ok::<(), tidegate_core::PolicyError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Charge<'a> {
    /// The policy.
    pub policy: &'a Policy,
    /// The tenant of the subject. Subjects of two tenants are two subjects, and all states of one tenant lie together
    /// (on Redis Cluster, in one hash slot). Empty for none.
    pub tenant: &'a [u8],
    /// The subject that is limited; any bytes.
    pub subject: &'a [u8],
    /// The cost. A cost of 0 takes nothing.
    pub cost: u64,
}

impl<'a> Charge<'a> {
    /// A charge of cost 1, without a tenant.
    #[must_use]
    #[inline]
    pub fn new(policy: &'a Policy, subject: &'a (impl AsRef<[u8]> + ?Sized)) -> Self {
        Self { policy, tenant: b"", subject: subject.as_ref(), cost: 1 }
    }

    /// The same charge with another cost.
    #[must_use]
    #[inline]
    pub fn cost(self, cost: u64) -> Self {
        Self { cost, ..self }
    }

    /// The same charge for a subject of `tenant`.
    #[must_use]
    #[inline]
    pub fn tenant(self, tenant: &'a (impl AsRef<[u8]> + ?Sized)) -> Self {
        Self { tenant: tenant.as_ref(), ..self }
    }

    /// The subject part of the state's key: empty if the limit is [per tenant](Policy::is_per_tenant). A store keeps
    /// states under the policy's [`state_name`](Policy::state_name), the tenant and this.
    #[must_use]
    #[inline]
    pub fn state_subject(&self) -> &'a [u8] {
        if self.policy.is_per_tenant() { b"" } else { self.subject }
    }

    /// The bytes that select the slot in a cluster: the tenant or, without one, the subject.
    #[must_use]
    pub fn slot_key(&self) -> &'a [u8] {
        if self.tenant.is_empty() { self.state_subject() } else { self.tenant }
    }

    /// Whether both charges are to one state.
    #[must_use]
    pub fn shares_state_with(&self, other: &Self) -> bool {
        self.policy.shares_state_with(other.policy)
            && self.state_subject() == other.state_subject()
            && self.tenant == other.tenant
    }

    /// The shift of this subject's windows under a phased policy, in microseconds: the same on every machine and in
    /// every version, so that all clients of one store agree.
    #[doc(hidden)]
    #[must_use]
    #[inline(always)]
    pub fn phase(&self) -> u64 {
        // 2^51 µs is the maximum window.
        stable_hash([self.tenant, self.state_subject()]) >> 13
    }
}

/// What to do with the charges of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// Decide, and take if all admit.
    Acquire,
    /// Decide as [`Operation::Acquire`] would, and write nothing.
    Peek,
    /// Give back, at most what is taken.
    Refund,
    /// Give back what an acquire or a reservation of the same charges took at `at`, as if it had not
    /// been taken; but never so that more is admitted than the policy says.
    ///
    /// A take that is undone immediately leaves nothing behind. Later, only what is left of it is given back. What
    /// others took stays taken, unlike with a refund, which gives back whatever is taken. Blocks stay.
    ///
    /// | algorithm | gives back | exact? |
    /// |---|---|---|
    /// | fixed window | the cost, in the window it was taken in; nothing once that is over | yes |
    /// | sliding counter | the cost, in the window it was taken in, as far as that still counts | yes |
    /// | sliding log | the cost, if the record of `at` is among the newest [`MAX_UNDO`](crate::algorithm::sliding_log::MAX_UNDO) | yes, or nothing |
    /// | buckets | the cost less the refill between `at` and the last take of this state, at most the debt | if nothing was taken since `at`; else up to that refill too little |
    ///
    /// What was taken while the clock had stepped back stays taken for as long as it counts.
    ///
    /// Call it at most once per take, with the original policies, and without charges of shadows that were not
    /// admitted. What was refunded, reset or lost in the store since is given back again if it cannot be distinguished
    /// from what others took. If the rate of a bucket has changed, what came back since is computed by the policy given
    /// here.
    Undo {
        /// The exact time of the take by the store's clock. With an earlier one, less or nothing is given back; with
        /// a later one, it may be too much.
        at: Timestamp,
    },
    /// Reserve a place in the future, at most `max_wait` away; buckets only. First come, first served.
    Reserve {
        /// The maximum wait.
        max_wait: Duration,
    },
    /// Forget the subject's state, with its block.
    Reset,
    /// Block the subject from now on for `span`, in place of an earlier block; zero lifts a block.
    Block {
        /// The duration.
        span: Duration,
    },
    /// Block the subject from now on for at least `span`: a block that ends later stays as it is. Zero changes
    /// nothing.
    ///
    /// The blocks of several callers can arrive in any order: the one that ends last holds.
    BlockAtLeast {
        /// The minimum duration.
        span: Duration,
    },
}

/// The charges of a call, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Charges<'a>(Repr<'a>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Repr<'a> {
    Slice(&'a [Charge<'a>]),
    /// The same tenant, subject and cost to each of several policies. The first charge is held by value, so that a call
    /// with one charge needs no slice of charges.
    PerPolicy {
        first: Charge<'a>,
        others: &'a [Policy],
    },
}

impl<'a> From<&'a [Charge<'a>]> for Charges<'a> {
    #[inline]
    fn from(charges: &'a [Charge<'a>]) -> Self {
        Self(Repr::Slice(charges))
    }
}

impl<'a> Charges<'a> {
    /// This charge, and the same one to each of other policies.
    #[must_use]
    #[inline(always)]
    pub fn per_policy(first: Charge<'a>, others: &'a [Policy]) -> Self {
        Self(Repr::PerPolicy { first, others })
    }

    /// The first charge, if the others differ from it only in the policy: see [`per_policy`](Self::per_policy).
    #[doc(hidden)]
    #[must_use]
    #[inline(always)]
    pub fn as_per_policy(&self) -> Option<(&Charge<'a>, &'a [Policy])> {
        match &self.0 {
            Repr::Slice([charge]) => Some((charge, &[])),
            Repr::PerPolicy { first, others } => Some((first, others)),
            Repr::Slice(_) => None,
        }
    }

    /// The sum of the costs of all charges to the state of this one, which are decided on together.
    pub(crate) fn total_cost_for(&self, charge: &Charge<'_>) -> u64 {
        let same = self.iter().filter(|other| other.shares_state_with(charge));
        same.fold(0, |sum: u64, charge| sum.saturating_add(charge.cost))
    }

    /// Whether any of the policies is one of these.
    pub(crate) fn any_policy(&self, is_one: impl Fn(&Policy) -> bool) -> bool {
        match &self.0 {
            Repr::Slice(charges) => charges.iter().any(|charge| is_one(charge.policy)),
            Repr::PerPolicy { first, others } => is_one(first.policy) || others.iter().any(is_one),
        }
    }

    /// The number of charges.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        match &self.0 {
            Repr::Slice(charges) => charges.len(),
            Repr::PerPolicy { others, .. } => 1 + others.len(),
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The charge at `index`.
    #[must_use]
    #[inline]
    pub fn get(&self, index: usize) -> Option<Charge<'a>> {
        match self.0 {
            Repr::Slice(charges) => charges.get(index).copied(),
            Repr::PerPolicy { first, others } => match index.checked_sub(1) {
                None => Some(first),
                Some(index) => others.get(index).map(|policy| Charge { policy, ..first }),
            },
        }
    }

    /// The charges, in order.
    pub fn iter(&self) -> impl Iterator<Item = Charge<'a>> + use<'a> {
        let charges = *self;
        (0..charges.len()).filter_map(move |index| charges.get(index))
    }
}

/// An operation on charges, which a store carries out atomically and answers with one decision.
///
/// A call borrows everything, and is cheap to copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Call<'a> {
    /// The operation.
    pub operation: Operation,
    /// The charges: all or none.
    pub charges: Charges<'a>,
}

impl<'a> Call<'a> {
    /// An operation on charges.
    #[must_use]
    #[inline]
    pub fn new(operation: Operation, charges: &'a [Charge<'a>]) -> Self {
        Self::with_charges(operation, charges.into())
    }

    /// An operation on charges of any form.
    #[must_use]
    #[inline(always)]
    pub fn with_charges(operation: Operation, charges: Charges<'a>) -> Self {
        Self { operation, charges }
    }

    /// An acquire.
    #[must_use]
    #[inline]
    pub fn acquire(charges: &'a [Charge<'a>]) -> Self {
        Self::new(Operation::Acquire, charges)
    }

    /// Checks whether the call is valid. Every store checks this first.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidCall`] for no charges or more than [`MAX_CHARGES`], a subject or a tenant
    /// above [`MAX_SUBJECT`], and two policies that [share states](Policy::shares_state_with) and
    /// differ, for one subject;
    /// [`ErrorKind::Unsupported`] for a reservation with a policy that is not a bucket, or whose requests may go to
    /// [any shard](crate::Shards::any).
    pub fn check(&self) -> Result<(), Error> {
        let charges = self.charges;
        if charges.is_empty() || charges.len() > MAX_CHARGES {
            return Err(invalid(format!(
                "a call has 1 to {MAX_CHARGES} charges; this one has {}",
                charges.len()
            )));
        }
        for (index, charge) in charges.iter().enumerate() {
            for (what, bytes) in [("subject", charge.subject), ("tenant", charge.tenant)] {
                if bytes.len() > MAX_SUBJECT {
                    return Err(invalid(format!(
                        "the {what} of charge {index} has {} bytes; at most {MAX_SUBJECT} are possible",
                        bytes.len()
                    )));
                }
            }
            if matches!(self.operation, Operation::Reserve { .. })
                && !charge.policy.rule().can_reserve()
            {
                return Err(Error::new(
                    ErrorKind::Unsupported,
                    format!("`{}` is not a bucket: only buckets can reserve", charge.policy),
                ));
            }
            if matches!(self.operation, Operation::Reserve { .. })
                && charge.policy.can_use_any_shard()
            {
                return Err(Error::new(
                    ErrorKind::Unsupported,
                    format!(
                        "`{}` cannot reserve: a shard does not know the waiters of the others; with \
                         `by-subject` or `whole` it can",
                        charge.policy
                    ),
                ));
            }
            self.check_duplicates(index, &charge)?;
        }
        Ok(())
    }

    fn check_duplicates(&self, index: usize, charge: &Charge<'_>) -> Result<(), Error> {
        let mut before = self.charges.iter().take(index);
        match before.find(|other| other.shares_state_with(charge) && other.policy != charge.policy)
        {
            None => Ok(()),
            Some(other) => Err(invalid(format!(
                "`{}` and `{}` have the same states, and differ: a call can only contain one of them",
                other.policy, charge.policy
            ))),
        }
    }
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidCall, message)
}
