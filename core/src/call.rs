//! What is asked of a store: an operation on one or several charges.

use std::time::Duration;

use crate::hash::stable_hash;
use crate::{Error, ErrorKind, Policy, Timestamp};

/// The most charges in one call.
pub const MAX_CHARGES: usize = 64;

/// The longest subject and the longest tenant, in bytes: 1 MiB.
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
pub struct Charge<'a> {
    /// The policy.
    pub policy: &'a Policy,
    /// Whose the subject is: subjects of two tenants are two subjects, and all states of one tenant
    /// lie together (on Redis Cluster, in one hash slot). Empty for none.
    pub tenant: &'a [u8],
    /// Who is limited; any bytes.
    pub subject: &'a [u8],
    /// How much. A cost of 0 asks without taking.
    pub cost: u64,
}

impl<'a> Charge<'a> {
    /// A charge of cost 1, without a tenant.
    #[must_use]
    pub fn new(policy: &'a Policy, subject: &'a (impl AsRef<[u8]> + ?Sized)) -> Self {
        Self { policy, tenant: b"", subject: subject.as_ref(), cost: 1 }
    }

    /// The same charge with another cost.
    #[must_use]
    pub fn cost(self, cost: u64) -> Self {
        Self { cost, ..self }
    }

    /// The same charge for a subject of `tenant`.
    #[must_use]
    pub fn tenant(self, tenant: &'a (impl AsRef<[u8]> + ?Sized)) -> Self {
        Self { tenant: tenant.as_ref(), ..self }
    }

    /// Whose the state is that is charged: the subject's; or nobody's in particular, and so empty, if
    /// the limit is [one of the tenant](Policy::is_per_tenant). A store keeps states under the
    /// policy's [`state_name`](Policy::state_name), the tenant and this.
    #[must_use]
    #[inline]
    pub fn state_subject(&self) -> &'a [u8] {
        if self.policy.is_per_tenant() { b"" } else { self.subject }
    }

    /// What decides where in a cluster the state lies: the tenant, or, without one, the subject.
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

    /// By how much the windows of this subject are shifted under a phased policy: the same on every
    /// machine and in every version, so that all clients of one store agree.
    #[must_use]
    #[inline(always)]
    pub fn phase(&self) -> u64 {
        // 2^51 µs is the longest window there is.
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
    /// Give back, at most what is taken. What is not there stays away.
    Refund,
    /// Give back what an acquire or a reservation of the same charges took at `at`, as if it had not
    /// been taken; but never so that more is admitted than the policy says.
    ///
    /// Followed at once by its undo, a take leaves nothing behind. Later, only what is left of it is
    /// given back. What others took stays taken, which a refund does not promise: that gives back
    /// whatever is there. Blocks stay.
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
    /// To be undone once, with the policies that the take was asked with, and without the charges of
    /// shadows that were not admitted. What was refunded or reset since, or has got lost in the store,
    /// is given back again where it cannot be told from what others took; and between two rates of a
    /// bucket that changed, what came back since is counted by that of the policy given here.
    Undo {
        /// When it was taken, by the store's clock, and exactly: at an earlier time less is given
        /// back, or nothing, and at a later one it may be too much.
        at: Timestamp,
    },
    /// Book a place in the future, at most `max_wait` away; buckets only. First come, first served.
    Reserve {
        /// The longest wait to accept.
        max_wait: Duration,
    },
    /// Forget the subject's state, a block included.
    Reset,
    /// Shut the subject out from now on for `span`, whatever was before; zero lifts a block.
    Block {
        /// How long.
        span: Duration,
    },
}

/// The charges of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Charges<'a> {
    /// One by one.
    Each(&'a [Charge<'a>]),
    /// The same tenant, subject and cost to each of several policies.
    Alike {
        /// To the first of them.
        first: Charge<'a>,
        /// The others.
        others: &'a [Policy],
    },
}

impl<'a> Charges<'a> {
    /// The same tenant, subject and cost to each of these policies.
    #[must_use]
    #[inline]
    pub fn alike(policies: &'a [Policy], tenant: &'a [u8], subject: &'a [u8], cost: u64) -> Self {
        match policies {
            [policy, others @ ..] => {
                Self::Alike { first: Charge { policy, tenant, subject, cost }, others }
            }
            [] => Self::Each(&[]),
        }
    }

    /// The costs of all charges to the key of this one, which are decided on together.
    pub(crate) fn total_cost_for(&self, charge: &Charge<'_>) -> u64 {
        let twins = self.iter().filter(|other| other.shares_state_with(charge));
        twins.fold(0, |sum: u64, twin| sum.saturating_add(twin.cost))
    }

    /// How many there are.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        match self {
            Self::Each(charges) => charges.len(),
            Self::Alike { others, .. } => 1 + others.len(),
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The charge at `place`.
    #[must_use]
    #[inline]
    pub fn get(&self, place: usize) -> Option<Charge<'a>> {
        match *self {
            Self::Each(charges) => charges.get(place).copied(),
            Self::Alike { first, others } => match place.checked_sub(1) {
                None => Some(first),
                Some(place) => others.get(place).map(|policy| Charge { policy, ..first }),
            },
        }
    }

    /// The charges, in the order asked.
    pub fn iter(&self) -> impl Iterator<Item = Charge<'a>> + use<'a> {
        let charges = *self;
        (0..charges.len()).filter_map(move |place| charges.get(place))
    }
}

/// A whole operation: what a store takes in, and answers with one decision.
///
/// A call borrows everything, and is cheap to copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call<'a> {
    /// What to do.
    pub operation: Operation,
    /// With which charges: all or none, atomically.
    pub charges: Charges<'a>,
}

impl<'a> Call<'a> {
    /// An operation on charges.
    #[must_use]
    pub fn new(operation: Operation, charges: &'a [Charge<'a>]) -> Self {
        Self { operation, charges: Charges::Each(charges) }
    }

    /// Decide and take.
    #[must_use]
    pub fn acquire(charges: &'a [Charge<'a>]) -> Self {
        Self::new(Operation::Acquire, charges)
    }

    /// Whether the call can be carried out at all. Every store checks this first.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidCall`] for no charges or more than [`MAX_CHARGES`], a subject or a tenant
    /// above [`MAX_SUBJECT`], and two policies that [share states](Policy::shares_state_with) and
    /// differ, for one subject;
    /// [`ErrorKind::Unsupported`] for reserving with a policy that is no bucket, or that has
    /// [shards](crate::Shards::any) of which a request may go to any.
    pub fn check(&self) -> Result<(), Error> {
        let charges = self.charges;
        if charges.is_empty() || charges.len() > MAX_CHARGES {
            return Err(invalid(format!(
                "a call has 1 to {MAX_CHARGES} charges; this one has {}",
                charges.len()
            )));
        }
        for (place, charge) in charges.iter().enumerate() {
            for (what, bytes) in [("subject", charge.subject), ("tenant", charge.tenant)] {
                if bytes.len() > MAX_SUBJECT {
                    return Err(invalid(format!(
                        "the {what} of charge {place} has {} bytes; at most {MAX_SUBJECT} are taken",
                        bytes.len()
                    )));
                }
            }
            if matches!(self.operation, Operation::Reserve { .. })
                && !charge.policy.rule().can_reserve()
            {
                return Err(Error::new(
                    ErrorKind::Unsupported,
                    format!("`{}` is no bucket: only buckets can be reserved", charge.policy),
                ));
            }
            if matches!(self.operation, Operation::Reserve { .. })
                && charge.policy.can_use_any_shard()
            {
                return Err(Error::new(
                    ErrorKind::Unsupported,
                    format!(
                        "`{}` cannot be reserved: no shard knows of the waiters of the others; those of \
                         `by-subject` and `whole` can be",
                        charge.policy
                    ),
                ));
            }
            self.check_duplicates(place, &charge)?;
        }
        Ok(())
    }

    fn check_duplicates(&self, place: usize, charge: &Charge<'_>) -> Result<(), Error> {
        let mut before = self.charges.iter().take(place);
        match before.find(|other| other.shares_state_with(charge) && other.policy != charge.policy)
        {
            None => Ok(()),
            Some(other) => Err(invalid(format!(
                "`{}` and `{}` share the states of one name, and differ: one call can only ask one of them",
                other.policy, charge.policy
            ))),
        }
    }
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidCall, message)
}
