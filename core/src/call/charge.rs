//! One charge, borrowed or owned.

use std::borrow::Cow;
use std::fmt;

use crate::algorithm::fair_pool::MemberId;
use crate::hash::stable_hash;
use crate::policy::{Policy, Rule};
use crate::subject::{ShownBytes, Subject};

/// A charge: one policy, one subject and one cost.
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
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Charge<'a> {
    /// The policy that admits or denies the charge.
    pub policy: &'a Policy,
    /// The tenant of the subject. It is empty for a subject without a tenant. Two tenants with the
    /// same subject have separate states. All states of one tenant are stored together (on Redis
    /// Cluster, in one hash slot).
    pub tenant: &'a [u8],
    /// The subject whose usage is limited. Any bytes are valid.
    pub subject: &'a [u8],
    /// The cost of the charge. A cost of 0 charges nothing.
    pub cost: u64,
    /// Whether the charge is [check-only](Self::check_only): the policy must admit the charge, but
    /// the store does not make it.
    pub is_check_only: bool,
    /// The number of the [list of alternatives](Self::in_list) to which the charge belongs, or 0 if
    /// the charge is in no list.
    pub list: u8,
}

impl<'a> Charge<'a> {
    /// Creates a charge of cost 1, without a tenant.
    #[must_use]
    #[inline]
    pub fn new(policy: &'a Policy, subject: &'a (impl AsRef<[u8]> + ?Sized)) -> Self {
        let subject = subject.as_ref();
        Self { policy, tenant: b"", subject, cost: 1, is_check_only: false, list: 0 }
    }

    /// Sets the cost.
    #[must_use]
    #[inline]
    pub fn cost(self, cost: u64) -> Self {
        Self { cost, ..self }
    }

    /// Sets the tenant of the subject.
    #[must_use]
    #[inline]
    pub fn tenant(self, tenant: &'a (impl AsRef<[u8]> + ?Sized)) -> Self {
        Self { tenant: tenant.as_ref(), ..self }
    }

    /// Makes the charge check-only, which turns the charge into a condition of the call. The call
    /// is admitted only if the policy would admit this charge, but nothing is charged for it. If
    /// the policy denies the charge, the call is refused. A policy with
    /// [`block_for`](Policy::block_for) then also blocks the subject.
    ///
    /// A check-only charge has an effect in acquires, reservations and holds. A peek reports what
    /// an acquire would decide. Refunds, undos and [charges](crate::Operation::Charge) ignore a
    /// check-only charge. Resets and blocks treat it like any other charge. If two charges of a
    /// call have the same state, either both are check-only or none is.
    ///
    /// ```
    /// use tidegate_core::{Call, Charge, Policy};
    /// use tidegate_memory::MemoryStore;
    ///
    /// let store = MemoryStore::new();
    /// let (requests, tokens): (Policy, Policy) =
    ///     ("requests: fixed-window 10/1m".parse()?, "tokens: fixed-window 1000/1m".parse()?);
    /// // A request is admitted while any tokens remain. Its own tokens are charged afterwards.
    /// let charges = [Charge::new(&requests, "alice"), Charge::new(&tokens, "alice").check_only()];
    /// let decision = store.decide_now(&Call::acquire(&charges))?;
    /// assert!(decision.is_allowed());
    /// assert_eq!(decision.verdicts()[0].remaining(), 9);
    /// assert_eq!(decision.verdicts()[1].remaining(), 1000);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    #[inline]
    pub fn check_only(self) -> Self {
        Self { is_check_only: true, ..self }
    }

    /// Adds the charge to the list of alternatives with this number. All charges of a call with the
    /// same number, which is not 0, are one list. A call makes at most one charge of a list: the
    /// first charge that its policy admits. That charge *pays*. If no policy of the list admits its
    /// charge, the call is refused.
    ///
    /// The store decides the lists in the same atomic step as all other charges. The charges that
    /// are in no list decide first. A policy of a list cannot refuse a call if another charge of
    /// the list pays. The verdict on a charge that does not pay has the outcome
    /// [`Outcome::Skipped`](crate::Outcome::Skipped).
    ///
    /// | the charges of a list | effect |
    /// |---|---|
    /// | one of them is admitted | It pays. The verdicts on the others are skipped. |
    /// | all are denied | The call is refused. The verdict with the shortest wait is denied, and the verdicts on the others are skipped. So [`Decision::retry_after`](crate::Decision::retry_after) is the time at which the call would pass. |
    /// | the subject of one of them is [blocked](crate::Outcome::Blocked) or [deny-listed](crate::Outcome::DenyListed) | The call is refused. |
    ///
    /// In a list, a policy must neither [block](Policy::block_for) nor be a
    /// [shadow](Policy::shadow). Each charge of a list needs its own state, and all states of a
    /// list must be in one slot of a Redis Cluster. Acquires, reservations, holds and peeks accept
    /// lists. To refund or undo an acquire, name only the charge that paid.
    ///
    /// ```
    /// use tidegate_core::{Call, Charge, Outcome, Policy};
    /// use tidegate_memory::MemoryStore;
    ///
    /// let store = MemoryStore::new();
    /// let own: Policy = "own: fixed-window 1/1m".parse()?;
    /// let pool: Policy = "pool: fixed-window 10/1m".parse()?;
    /// // Alice's own minute pays first, and then the pool.
    /// let charges =
    ///     [Charge::new(&own, "alice").in_list(1), Charge::new(&pool, "all").in_list(1)];
    /// let mut paid = vec![];
    /// for _ in 0..2 {
    ///     let decision = store.decide_now(&Call::acquire(&charges))?;
    ///     let outcomes = decision.verdicts().iter().map(|verdict| verdict.outcome());
    ///     paid.extend(outcomes);
    /// }
    /// use Outcome::{Allowed, Skipped};
    /// assert_eq!(paid, [Allowed, Skipped, Skipped, Allowed]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    #[inline]
    pub fn in_list(self, list: u8) -> Self {
        Self { list, ..self }
    }

    /// Returns `true` if the charge takes slots when a hold makes it: see
    /// [`Concurrent`](crate::Concurrent).
    #[inline]
    pub(crate) fn takes_slots(&self) -> bool {
        self.policy.is_concurrent() && !self.is_check_only && self.cost > 0
    }

    /// Returns the rule of the policy. The rule of a fair pool decides for the subject of the
    /// charge.
    #[inline]
    pub(crate) fn rule(&self) -> Cow<'a, Rule> {
        match self.policy.rule() {
            Rule::FairPool(rule) => {
                Cow::Owned(Rule::FairPool(rule.for_member(MemberId::from_subject(self.subject))))
            }
            rule => Cow::Borrowed(rule),
        }
    }

    /// Returns the subject in the key of the state. It is empty if the limit is [per
    /// tenant](Policy::is_per_tenant). The key of a state contains the policy's
    /// [`state_name`](Policy::state_name), the tenant and this subject.
    #[must_use]
    #[inline]
    pub fn state_subject(&self) -> &'a [u8] {
        if self.policy.is_per_tenant() { b"" } else { self.subject }
    }

    /// Returns the bytes that select the slot in a cluster: the tenant, or the subject if the
    /// charge has no tenant.
    #[must_use]
    pub fn slot_key(&self) -> &'a [u8] {
        if self.tenant.is_empty() { self.state_subject() } else { self.tenant }
    }

    /// Returns `true` if both charges have the same state.
    #[must_use]
    pub fn shares_state_with(&self, other: &Self) -> bool {
        self.policy.shares_state_with(other.policy)
            && self.state_subject() == other.state_subject()
            && self.tenant == other.tenant
    }

    /// Returns the index of the [share](Policy::shares) that all requests of this subject charge. A
    /// hash of the tenant and the subject selects the share, and is the same on every machine.
    /// Returns `None` if a request can charge any share, or if the policy has no shards.
    #[must_use]
    pub fn share_of_subject(&self) -> Option<usize> {
        self.policy.share_of(self.tenant, self.subject)
    }

    /// Returns the offset of this subject's windows if the policy is `phased`, in microseconds.
    /// Under a phased policy, each subject has its own offset. The offset is the same on every
    /// machine and in every version, so that all clients of one store agree.
    #[doc(hidden)]
    #[must_use]
    #[inline(always)]
    pub fn phase(&self) -> u64 {
        // The offset has 51 bits, because the maximum window is 2^51 µs.
        stable_hash([self.tenant, self.state_subject()]) >> 13
    }
}

/// Prints one line, which shows at most 100 bytes of the subject and of the tenant.
impl fmt::Debug for Charge<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Charge({}", self.policy)?;
        if !self.tenant.is_empty() {
            write!(f, ", tenant {:?}", ShownBytes(self.tenant))?;
        }
        write!(f, ", subject {:?}, cost {}", ShownBytes(self.subject), self.cost)?;
        if self.list > 0 {
            write!(f, ", list {}", self.list)?;
        }
        f.write_str(if self.is_check_only { ", check-only)" } else { ")" })
    }
}

/// A charge that borrows or owns each of its parts.
///
/// `ChargeBuf<'static>` owns its parts, so it can outlive the request that made the charge. For
/// example, a task or a guard keeps the charge until the response to the request is known.
///
/// ```
/// use tidegate_core::{Charge, ChargeBuf, Policy};
///
/// let kept: ChargeBuf<'static> = {
///     let policy: Policy = "api: gcra 10/1s".parse()?;
///     ChargeBuf::from(Charge::new(&policy, "alice").cost(2)).into_owned()
/// };
/// assert_eq!(kept.as_charge().subject, b"alice");
/// assert_eq!(kept.as_charge().cost, 2);
/// # Ok::<(), tidegate_core::PolicyError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct ChargeBuf<'a> {
    pub(crate) policy: Cow<'a, Policy>,
    pub(crate) tenant: Cow<'a, [u8]>,
    pub(crate) subject: Subject<'a>,
    pub(crate) cost: u64,
    pub(crate) is_check_only: bool,
    pub(crate) list: u8,
}

impl<'a> ChargeBuf<'a> {
    /// Creates a charge of cost 1 without a tenant. The charge borrows its policy.
    #[must_use]
    pub fn new(policy: &'a Policy, subject: impl Into<Subject<'a>>) -> Self {
        Self {
            policy: Cow::Borrowed(policy),
            tenant: Cow::Borrowed(b""),
            subject: subject.into(),
            cost: 1,
            is_check_only: false,
            list: 0,
        }
    }

    /// Returns the policy.
    #[must_use]
    #[inline]
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Sets the cost.
    #[must_use]
    pub fn cost(self, cost: u64) -> Self {
        Self { cost, ..self }
    }

    /// Returns the charge as a [`Charge`], which borrows from this value.
    #[must_use]
    #[inline]
    pub fn as_charge(&self) -> Charge<'_> {
        Charge {
            policy: &self.policy,
            tenant: &self.tenant,
            subject: self.subject.as_bytes(),
            cost: self.cost,
            is_check_only: self.is_check_only,
            list: self.list,
        }
    }

    /// Copies all borrowed parts. An empty tenant and a subject of up to 40 bytes need no
    /// allocation.
    #[must_use]
    pub fn into_owned(self) -> ChargeBuf<'static> {
        ChargeBuf {
            policy: Cow::Owned(self.policy.into_owned()),
            tenant: Cow::Owned(self.tenant.into_owned()),
            subject: self.subject.into_owned(),
            cost: self.cost,
            is_check_only: self.is_check_only,
            list: self.list,
        }
    }
}

impl<'a> From<Charge<'a>> for ChargeBuf<'a> {
    fn from(charge: Charge<'a>) -> Self {
        let Charge { policy, tenant, subject, cost, is_check_only, list } = charge;
        Self {
            policy: Cow::Borrowed(policy),
            tenant: Cow::Borrowed(tenant),
            subject: subject.into(),
            cost,
            is_check_only,
            list,
        }
    }
}

impl fmt::Debug for ChargeBuf<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_charge().fmt(f)
    }
}
