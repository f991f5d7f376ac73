//! Calls to a store: an operation on one or several charges.

use std::fmt::{self, Write as _};
use std::time::Duration;

use sha1_smol::Sha1;

use crate::hash::stable_hash;
use crate::subject::ShownBytes;
use crate::{Error, ErrorKind, MAX_EXACT, MAX_SPAN, Policy, Timestamp};

/// The maximum number of charges in one call.
pub const MAX_CHARGES: usize = 64;

/// The maximum length of a subject and of a tenant: 1 MiB.
pub const MAX_SUBJECT: usize = 1 << 20;

/// The maximum length of the id of a call, in bytes.
pub const MAX_ID: usize = 256;

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
#[derive(Clone, Copy, PartialEq, Eq)]
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
    /// Whether the charge only has to be admitted, and is not taken: see [`check_only`](Self::check_only).
    pub is_check_only: bool,
}

impl<'a> Charge<'a> {
    /// A charge of cost 1, without a tenant.
    #[must_use]
    #[inline]
    pub fn new(policy: &'a Policy, subject: &'a (impl AsRef<[u8]> + ?Sized)) -> Self {
        Self { policy, tenant: b"", subject: subject.as_ref(), cost: 1, is_check_only: false }
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

    /// The same charge, as a condition: the call is admitted only if this charge would be, and takes nothing of it. A
    /// refusal by its policy counts, and blocks if the policy [blocks](Policy::block_for).
    ///
    /// This holds for [`Operation::Acquire`], [`Operation::AcquireUpTo`] and [`Operation::Reserve`]. A peek reports what an
    /// acquire would decide; a refund, an undo and a [charge](Operation::Charge) leave the state as it is; a reset and a
    /// block treat it as any other charge. A call must not have another charge to the same state that takes.
    ///
    /// ```
    /// use tidegate_core::{Call, Charge, Policy};
    /// use tidegate_memory::MemoryStore;
    ///
    /// let store = MemoryStore::new();
    /// let (requests, tokens): (Policy, Policy) =
    ///     ("requests: fixed-window 10/1m".parse()?, "tokens: fixed-window 1000/1m".parse()?);
    /// // A request is admitted while tokens are left; how many it takes is known afterwards.
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

    /// Returns the index of the share for all charges of this subject. The hash is the same on
    /// every machine. Returns `None` if any share may be charged, or if there are no shards.
    #[must_use]
    pub fn share_of_subject(&self) -> Option<usize> {
        self.policy.share_of(self.tenant, self.subject)
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
        f.write_str(if self.is_check_only { ", check-only)" } else { ")" })
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
    /// Record charges that have already happened, beyond the limits if need be: later decisions pay for them. No policy
    /// refuses this.
    ///
    /// Of each cost, as much is charged as the state can hold, and [`Decision::amounts`](crate::Decision::amounts) returns
    /// how much that was:
    ///
    /// | algorithm | holds at most |
    /// |---|---|
    /// | fixed window | 2^52 in the current window |
    /// | sliding counter | 2^52 in the current window |
    /// | sliding log | 2^52 in the window; once a log has its maximum number of records, a charge moves the newest one to now, so that it counts longer |
    /// | buckets | the debt that is repaid within [`MAX_SPAN`], and at most 2^52 units of it (without fractions, units are tokens); whole tokens only |
    ///
    /// A blocked subject and the state of a shadow policy are charged too; blocks stay as they are. The verdicts are those
    /// of a peek of cost 0 afterwards.
    Charge,
    /// Take as much as there is: one amount from each charge, the maximum that all policies in force admit, at least
    /// `min` and at most the minimum of the costs. [`Decision::amounts`](crate::Decision::amounts) returns it.
    ///
    /// If even `min` is not admitted, this is an acquire of `min` for each charge, which is refused. A shadow does not
    /// bound the amount, and is charged if it admits it. A [check-only](Charge::check_only) charge does not bound it
    /// either, and has to be admitted at its own cost.
    ///
    /// Each state can be charged once in such a call.
    AcquireUpTo {
        /// The minimum, at least 1 and at most the minimum of the costs.
        min: u64,
    },
    /// Acquire an estimate, whose actual costs are [settled](Self::Settle) later under the id of the call: a *hold*.
    ///
    /// The time to live of the [id](CallId), counted from the first call, is how long the hold is expected to be
    /// needed. Until then it can be [extended](Self::Extend). After that it has *lapsed*: what is held stays charged
    /// (unless the policy [gives it back](crate::Policy::refund_lapsed)), and can be settled for as long again. Then it
    /// has *expired*, and the store has forgotten it.
    ///
    /// Each state can be charged once in such a call. A policy's [maximum hold](crate::Policy::max_hold) is checked by a
    /// [`Limiter`](crate::Limiter), before it calls the store.
    ///
    /// A [check-only](Charge::check_only) charge holds nothing, and can be settled at any cost. A shadow that refuses
    /// holds nothing either, and nothing is settled with it.
    Hold,
    /// As [`Hold`](Self::Hold), but of as much as there is: one amount of each charge, as
    /// [`AcquireUpTo`](Self::AcquireUpTo).
    HoldUpTo {
        /// The minimum, at least 1 and at most the minimum of the costs.
        min: u64,
    },
    /// Settle a [hold](Self::Hold): the costs of the call are what was actually used, in total. The call has the id and
    /// the charges of the hold, with other costs; of the id's time to live no use is made.
    ///
    /// If the actual cost of a charge is lower than what is held, the difference is given back, as far as it is still
    /// owed; if it is higher than what is held and than what was [spent so far](Self::SettleSoFar), the difference is
    /// [charged](Self::Charge) now. [`Decision::amounts`](crate::Decision::amounts) returns how much was.
    ///
    /// | algorithm | gives back |
    /// |---|---|
    /// | fixed window | the difference, in the window it was taken in; nothing once that is over |
    /// | sliding counter | the difference, in the window it was taken in, as far as that still counts |
    /// | sliding log | the difference, if the record of the hold is among the newest [`MAX_UNDO`](crate::algorithm::sliding_log::MAX_UNDO); else nothing |
    /// | buckets | the difference, at most the hold less the refill between it and the last take of this state, and at most the debt |
    ///
    /// That is never too much. A [reset](Self::Reset) ends the hold on a state: a settlement then
    /// charges the costs since the last report, and gives nothing back. A [refund](Self::Refund)
    /// since the hold was made may have refunded the hold, so less is given back by its amount.
    ///
    /// The verdicts equal the verdicts of a peek of cost 0 after the call. No policy refuses a
    /// settlement.
    ///
    /// Settled again at the same costs, it is answered as the first time and changes nothing; at other costs it fails with
    /// [`ErrorKind::AlreadySettled`]. Costs of 0 cancel the hold.
    Settle,
    /// As [`Settle`](Self::Settle), with what was used so far, in total, while the work goes on: what exceeds the hold is
    /// charged, nothing is given back, and the hold is settled later. A total that is lower than an earlier one changes
    /// nothing.
    SettleSoFar,
    /// Lets a [hold](Self::Hold) be needed for the id's time to live from now on; never shorter than before. The call
    /// has the id and the charges of the hold, with any costs.
    ///
    /// Fails with [`ErrorKind::HoldLapsed`] once the time of the hold is over, and with [`ErrorKind::AlreadySettled`].
    Extend,
    /// Reserve a place in the future, at most `max_wait` away; buckets only. First come, first served.
    Reserve {
        /// The maximum wait.
        max_wait: Duration,
    },
    /// Forget the subject's state, with its block. Ends the [holds](Self::Hold) on it.
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

impl Operation {
    /// Whether the operation admits or refuses a request, and takes its costs if it admits it. All others but a peek
    /// are never refused.
    #[must_use]
    pub fn is_acquire(self) -> bool {
        match self {
            Self::Acquire | Self::AcquireUpTo { .. } | Self::Reserve { .. } => true,
            Self::Hold | Self::HoldUpTo { .. } => true,
            Self::Peek | Self::Refund | Self::Undo { .. } | Self::Charge => false,
            Self::Settle | Self::SettleSoFar | Self::Extend => false,
            Self::Reset | Self::Block { .. } | Self::BlockAtLeast { .. } => false,
        }
    }

    /// Whether the operation makes, settles or extends a [hold](Self::Hold).
    #[must_use]
    pub fn is_of_hold(self) -> bool {
        use Operation::{Extend, Hold, HoldUpTo, Settle, SettleSoFar};
        matches!(self, Hold | HoldUpTo { .. } | Settle | SettleSoFar | Extend)
    }

    /// The minimum of an operation that takes as much as there is.
    #[must_use]
    pub fn min_amount(self) -> Option<u64> {
        match self {
            Self::AcquireUpTo { min } | Self::HoldUpTo { min } => Some(min),
            _ => None,
        }
    }
}

/// The charges of a call, in order.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Charges<'a>(Repr<'a>);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Repr<'a> {
    Slice(&'a [Charge<'a>]),
    /// The same tenant, subject and cost to each of several policies. The first charge is held by value, so that a call
    /// with one charge needs no slice of charges.
    PerPolicy {
        first: Charge<'a>,
        others: &'a [Policy],
    },
}

impl fmt::Debug for Charges<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
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

    /// Whether any of the charges is check-only.
    pub(crate) fn any_check_only(&self) -> bool {
        match &self.0 {
            Repr::Slice(charges) => charges.iter().any(|charge| charge.is_check_only),
            Repr::PerPolicy { first, .. } => first.is_check_only,
        }
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
    /// The id of the call, which happens once under it: see [`CallId`].
    pub id: Option<CallId<'a>>,
}

/// An id under which a call is carried out once, however often it is made.
///
/// Within the id's time to live, the same call under the same id is answered as the first time, and changes nothing:
/// after an answer that was lost, a reconnect, or from another process. So after a timeout a caller asks again, and
/// knows.
///
/// ```
/// use std::time::Duration;
/// use tidegate_core::{Call, CallId, Charge, ErrorKind, Policy};
/// use tidegate_memory::MemoryStore;
///
/// let (store, policy) = (MemoryStore::new(), "fixed-window 10/1h".parse::<Policy>()?);
/// let charges = [Charge::new(&policy, "alice").cost(4)];
/// let id = CallId::new("job 7", Duration::from_secs(3600));
/// let first = store.decide_now(&Call::acquire(&charges).with_id(id))?;
/// let again = store.decide_now(&Call::acquire(&charges).with_id(id))?;
/// assert_eq!(first, again);
/// assert_eq!(again.verdicts()[0].remaining(), 6); // charged once
///
/// let other = [charges[0].cost(5)];
/// let error = store.decide_now(&Call::acquire(&other).with_id(id)).unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::IdReused);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # What is remembered
///
/// * Two calls are the same if they have the same operation, with its arguments, and the same charges in the same
///   order: policy, tenant, subject, cost, and whether it is [check-only](Charge::check_only). Another call under an id
///   that is remembered fails with [`ErrorKind::IdReused`].
/// * Only what was carried out is remembered. A refused acquire and a call that failed leave nothing, and are decided
///   anew.
/// * The id is remembered until the time to live has passed since the first call, by the store's clock. Repeated calls
///   do not prolong it. If the clock steps back, it is remembered longer. A reset of a subject forgets no ids.
/// * An id belongs to the [slot key](Charge::slot_key) of the first charge, its tenant or, without one, its subject: the
///   same id for two tenants is two ids.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallId<'a> {
    /// Any bytes, 1 to [`MAX_ID`].
    pub id: &'a [u8],
    /// How long the call is remembered, counted from the first one; at most [`MAX_SPAN`]. Rounded up
    /// to microseconds.
    pub ttl: Duration,
}

impl fmt::Debug for CallId<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CallId({:?}, ttl {:?})", ShownBytes(self.id), self.ttl)
    }
}

impl<'a> CallId<'a> {
    /// An id with its time to live.
    #[must_use]
    pub fn new(id: &'a (impl AsRef<[u8]> + ?Sized), ttl: Duration) -> Self {
        Self { id: id.as_ref(), ttl }
    }

    fn check(&self, operation: Operation) -> Result<(), Error> {
        let (len, ttl) = (self.id.len(), self.ttl);
        let problem = match len {
            0 => "the id of the call is empty".to_owned(),
            _ if len > MAX_ID => {
                format!(
                    "the id of the call has {len} bytes; at most {MAX_ID} are possible: use a hash of it"
                )
            }
            _ if ttl.is_zero() => "the id of the call has a time to live of 0".to_owned(),
            _ if ttl > MAX_SPAN => {
                format!(
                    "the id of the call has a time to live of {ttl:?}; at most {MAX_SPAN:?} is possible"
                )
            }
            _ if operation == Operation::Peek => {
                "a peek has an id; it changes nothing, so there is nothing to do once".to_owned()
            }
            _ => return Ok(()),
        };
        Err(invalid(problem))
    }
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
        Self { operation, charges, id: None }
    }

    /// An acquire.
    #[must_use]
    #[inline]
    pub fn acquire(charges: &'a [Charge<'a>]) -> Self {
        Self::new(Operation::Acquire, charges)
    }

    /// The same call, which is carried out once under this id.
    #[must_use]
    pub fn with_id(self, id: CallId<'a>) -> Self {
        Self { id: Some(id), ..self }
    }

    /// A digest of all that makes two calls the same one, without the id: the same on every machine.
    ///
    /// For stores, which keep it with the answer under the call's [id](Self::id). All calls of one
    /// [hold](Operation::Hold) have the same one, as it contains no costs and no operation then.
    #[must_use]
    pub fn fingerprint(&self) -> [u8; 20] {
        let mut digest = Digest(Sha1::new());
        let span = |span: Duration| span.as_nanos().min(u128::from(u64::MAX));
        let (operation, argument) = match self.operation {
            Operation::Acquire => (1, 0),
            Operation::Peek => (2, 0),
            Operation::Refund => (3, 0),
            Operation::Undo { at } => (4, u128::from(at.as_micros())),
            Operation::Reserve { max_wait } => (5, span(max_wait)),
            Operation::Reset => (6, 0),
            Operation::Block { span: length } => (7, span(length)),
            Operation::Charge => (8, 0),
            Operation::AcquireUpTo { min } => (9, u128::from(min)),
            Operation::BlockAtLeast { span: length } => (10, span(length)),
            Operation::Hold | Operation::HoldUpTo { .. } => (11, 0),
            Operation::Settle | Operation::SettleSoFar | Operation::Extend => (11, 0),
        };
        let has_costs = !self.operation.is_of_hold();
        digest.number(operation);
        digest.number(argument);
        for charge in self.charges.iter() {
            // The text has the name and all numbers of the policy. A digest has no bound, so writing cannot fail.
            let _ = write!(digest, "{}\0", charge.policy);
            for bytes in [charge.tenant, charge.subject] {
                digest.number(bytes.len() as u128);
                digest.0.update(bytes);
            }
            digest.number(u128::from(if has_costs { charge.cost } else { 0 }));
            digest.number(u128::from(charge.is_check_only));
        }
        digest.0.digest().bytes()
    }

    /// Checks whether the call is valid. Every store checks this first.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidCall`] for no charges or more than [`MAX_CHARGES`], a subject or a tenant
    /// above [`MAX_SUBJECT`], and two policies that [share states](Policy::shares_state_with) and
    /// differ, for one subject; for two charges to one state of which one is [check-only](Charge::check_only); for
    /// [`Operation::AcquireUpTo`] with a minimum of 0 or above a cost, with two charges to one state, or if all charges are
    /// check-only; for a [hold](Operation::Hold) and what is done with it without an id, with two charges to one state, or
    /// with a cost above [`MAX_EXACT`]; for an [id](CallId) that is empty, longer than [`MAX_ID`], of a peek, or without a time to live of at
    /// most [`MAX_SPAN`];
    /// [`ErrorKind::Unsupported`] for a reservation with a policy that is not a bucket, and for a reservation,
    /// [`Operation::AcquireUpTo`] or an id with a policy whose requests may go to [any shard](crate::Shards::any).
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
            if charge.policy.can_use_any_shard() {
                self.check_any_shard(charge.policy)?;
            }
            self.check_duplicates(index, &charge)?;
        }
        match self.id {
            Some(id) => id.check(self.operation)?,
            None if self.operation.is_of_hold() => return Err(hold_without_id()),
            None => {}
        }
        if self.operation.is_of_hold() {
            self.check_costs()?;
        }
        self.operation.min_amount().map_or(Ok(()), |min| self.check_min(min))
    }

    fn check_costs(&self) -> Result<(), Error> {
        match self.charges.iter().enumerate().find(|(_, charge)| charge.cost > MAX_EXACT) {
            None => Ok(()),
            Some((index, charge)) => Err(invalid(format!(
                "charge {index} of a hold costs {}; at most 2^52 = {MAX_EXACT} is possible",
                charge.cost
            ))),
        }
    }

    fn check_any_shard(&self, policy: &Policy) -> Result<(), Error> {
        let problem = match self.operation {
            Operation::Reserve { .. } => "reserve: a shard does not know the waiters of the others",
            Operation::AcquireUpTo { .. } => {
                "take as much as there is: a shard does not know what the others have"
            }
            _ if self.operation.is_of_hold() => {
                "be held and settled: the calls for one hold may go to several shards"
            }
            _ if self.id.is_some() => {
                "be charged once under an id: a call that is repeated may go to another shard"
            }
            _ => return Ok(()),
        };
        let message = format!("`{policy}` cannot {problem}; with `by-subject` or `whole` it can");
        Err(Error::new(ErrorKind::Unsupported, message))
    }

    fn check_min(&self, min: u64) -> Result<(), Error> {
        let costs = self.charges.iter().filter(|charge| !charge.is_check_only);
        let Some(max) = costs.map(|charge| charge.cost).min() else {
            return Err(invalid(
                "all charges are check-only, so there is nothing to take".to_owned(),
            ));
        };
        if (1..=max).contains(&min) {
            return Ok(());
        }
        Err(invalid(format!(
            "the minimum to take is {min}; it must be at least 1 and at most {max}, the minimum of the costs"
        )))
    }

    fn check_duplicates(&self, index: usize, charge: &Charge<'_>) -> Result<(), Error> {
        let same = |other: &Charge<'_>| other.shares_state_with(charge);
        for other in self.charges.iter().take(index).filter(same) {
            let problem = if other.policy != charge.policy {
                format!(
                    "`{}` and `{}` have the same states, and differ: a call can only contain one of them",
                    other.policy, charge.policy
                )
            } else if other.is_check_only != charge.is_check_only {
                format!(
                    "of two charges to one state of `{}`, one is check-only: both must be, or none",
                    charge.policy
                )
            } else if self.operation.is_of_hold() || self.operation.min_amount().is_some() {
                format!(
                    "two charges are to one state of `{}`: to hold, or to take as much as there is, a call can \
                     only contain one of them",
                    charge.policy
                )
            } else {
                continue;
            };
            return Err(invalid(problem));
        }
        Ok(())
    }
}

pub(crate) fn hold_without_id() -> Error {
    invalid("a hold has no id, under which it could be settled".to_owned())
}

struct Digest(Sha1);

impl Digest {
    fn number(&mut self, number: u128) {
        self.0.update(&number.to_le_bytes());
    }
}

impl fmt::Write for Digest {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.update(text.as_bytes());
        Ok(())
    }
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidCall, message)
}
