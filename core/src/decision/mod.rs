//! The answer to a call: a [`Decision`] with one [`Verdict`] for each charge.

mod already_settled;
mod degraded;
mod earliest_lapse;
mod held;
mod policy_verdict;
mod verdict;

use std::time::Duration;
use std::{fmt, slice};

use smallvec::SmallVec;

pub use already_settled::AlreadySettled;
pub use degraded::{Degraded, DegradedAnswer};
pub use earliest_lapse::EarliestLapse;
pub(crate) use held::held_of;
pub use policy_verdict::PolicyVerdict;
pub(crate) use verdict::reaches;
pub use verdict::{Outcome, Verdict};

use crate::call::{Charges, MAX_CHARGES};
use crate::policy::Policy;
use crate::time::Wait;

/// The answer of a store to a call. Either all charges of the call were made, or none.
///
/// A decision with one or two verdicts needs no allocation. A decision with up to four verdicts
/// needs one allocation, and a larger decision needs two.
// Each layer moves decisions, and most decisions have one verdict. So a decision stores up to two
// verdicts inline, and all rare parts in a box.
#[must_use = "a decision that is not checked limits nothing"]
#[derive(Clone)]
pub struct Decision(Repr);

#[derive(Clone)]
enum Repr {
    One(Verdict),
    Two([Verdict; 2]),
    /// A decision with more than two verdicts, or with a part that most decisions do not have, such
    /// as amounts.
    More(Box<More>),
}

#[derive(Clone, Default)]
struct More {
    verdicts: SmallVec<[Verdict; 4]>,
    reserved_wait: Duration,
    degraded: Option<Degraded>,
    amounts: SmallVec<[u64; 2]>,
    details: Details,
}

/// The part of a decision that only a settlement, a peek or a hold of slots has. The type is small
/// to save memory, because a store keeps the decision of each call with an id.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Details {
    /// One bit for each charge of a settlement. If the bit is set and the amount is above 0, the
    /// settlement charged the amount instead of refunding it. If the bit is set and the amount is
    /// 0, the hold was [out of reach](Decision::is_out_of_reach). In decisions of other operations,
    /// no bit is set.
    Marked(u64),
    /// The other details are boxed, so that this type stays small.
    Rare(Box<Rare>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Rare {
    /// The unspent amount of each charge of a peek.
    Unspent(Box<[Option<u64>]>),
    /// The fence of each charge of a hold with slots.
    Fences(Box<[Option<u64>]>),
    /// The place of a call that waits for slots.
    Place(Place),
    /// The policies that a limit set has applied, and the other details.
    Adjusted(Box<[Option<Policy>]>, Details),
}

/// The place of a call in the queue for slots: see
/// [`Operation::HoldInTurn`](crate::Operation::HoldInTurn).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Place {
    /// The number of the place. An earlier place has a lower number.
    pub number: u64,
    /// The number of calls that wait before this call. If the call waits for slots of several
    /// subjects, this is the longest queue. Calls that have ended without giving up their places
    /// are possibly counted for a few seconds.
    pub ahead: u32,
}

impl Place {
    /// Creates a place.
    #[must_use]
    pub const fn new(number: u64, ahead: u32) -> Self {
        Self { number, ahead }
    }
}

impl Details {
    const NONE: Self = Self::Marked(0);
}

impl Default for Details {
    fn default() -> Self {
        Self::NONE
    }
}

impl Decision {
    /// Creates a decision with one verdict per charge, in the order of the charges.
    pub fn new(verdicts: impl IntoIterator<Item = Verdict>) -> Self {
        let mut verdicts = verdicts.into_iter().fuse();
        let first = [verdicts.next(), verdicts.next(), verdicts.next()];
        Self(match first {
            [Some(verdict), None, _] => Repr::One(verdict),
            [Some(one), Some(other), None] => Repr::Two([one, other]),
            _ => {
                let verdicts = first.into_iter().flatten().chain(verdicts).collect();
                Repr::More(Box::new(More { verdicts, ..More::default() }))
            }
        })
    }

    /// Creates a decision on a single charge.
    #[inline]
    pub fn one(verdict: Verdict) -> Self {
        Self(Repr::One(verdict))
    }

    /// Adds the wait until a reserved place. The caller may proceed after `wait`.
    pub fn with_wait(self, wait: Duration) -> Self {
        if wait == self.wait() {
            return self;
        }
        let mut more = self.into_more();
        more.reserved_wait = wait;
        Self(Repr::More(more))
    }

    /// Adds the information that the decision was made without the store.
    pub fn degraded_by(self, degraded: Degraded) -> Self {
        let mut more = self.into_more();
        more.degraded = Some(degraded);
        Self(Repr::More(more))
    }

    /// Adds the amount of each charge, in the order of the charges: see [`amounts`](Self::amounts).
    pub fn with_amounts(self, amounts: impl IntoIterator<Item = u64>) -> Self {
        let mut more = self.into_more();
        more.amounts = amounts.into_iter().collect();
        Self(Repr::More(more))
    }

    /// Marks the amounts at `indices` as amounts that the settlement charged: see
    /// [`is_charged`](Self::is_charged).
    pub fn with_charged(self, indices: impl IntoIterator<Item = usize>) -> Self {
        self.with_marked(indices)
    }

    /// Marks the holds of the charges at `indices` as out of reach, which means that the settlement
    /// could not refund them: see [`is_out_of_reach`](Self::is_out_of_reach).
    pub fn with_out_of_reach(self, indices: impl IntoIterator<Item = usize>) -> Self {
        self.with_marked(indices)
    }

    fn with_marked(self, indices: impl IntoIterator<Item = usize>) -> Self {
        let marked = indices.into_iter().fold(0, |marked, index| marked | bit_of(index));
        if marked == 0 {
            return self;
        }
        let mut more = self.into_more();
        more.details = match more.details {
            Details::Marked(before) => Details::Marked(before | marked),
            Details::Rare(_) => Details::Marked(marked),
        };
        Self(Repr::More(more))
    }

    /// Adds the unspent amount of each charge, in the order of the charges: see
    /// [`unspent`](Self::unspent).
    pub fn with_unspent(self, unspent: impl IntoIterator<Item = Option<u64>>) -> Self {
        let mut more = self.into_more();
        more.details = Details::Rare(Box::new(Rare::Unspent(unspent.into_iter().collect())));
        Self(Repr::More(more))
    }

    /// Adds the fence of each charge, in the order of the charges: see [`fences`](Self::fences).
    pub fn with_fences(self, fences: impl IntoIterator<Item = Option<u64>>) -> Self {
        let mut more = self.into_more();
        more.details = Details::Rare(Box::new(Rare::Fences(fences.into_iter().collect())));
        Self(Repr::More(more))
    }

    /// Adds the place of the call in the queue for slots: see [`place`](Self::place).
    pub fn with_place(self, place: Place) -> Self {
        let mut more = self.into_more();
        more.details = Details::Rare(Box::new(Rare::Place(place)));
        Self(Repr::More(more))
    }

    /// Skips the verdicts on the charges of each [list of
    /// alternatives](crate::Charge::in_list) that neither pay nor refuse the call. Each verdict
    /// must have the outcome of its own policy.
    #[doc(hidden)]
    pub fn with_lists_of(mut self, charges: Charges<'_>) -> Self {
        if !charges.has_lists() {
            return self;
        }
        let verdicts = self.verdicts_mut();
        for list in charges.lists() {
            let outcome_at = |index: usize| verdicts.get(index).map(Verdict::outcome);
            let payer = list.clone().find(|&index| outcome_at(index) == Some(Outcome::Allowed));
            // If no charge pays, the call waits for the charge with the shortest wait.
            let wait_at = |&index: &usize| verdicts.get(index).map(|verdict| verdict.retry);
            let kept = payer.or_else(|| list.clone().min_by_key(wait_at));
            for index in list.filter(|&index| Some(index) != kept) {
                if let Some(verdict) = verdicts.get_mut(index) {
                    *verdict = match verdict.outcome() {
                        Outcome::Blocked => verdict.waiting_for_block(),
                        _ => verdict.skipped(),
                    };
                }
            }
        }
        self
    }

    /// Adds the policies that a [limit set](crate::LimitSet) has applied: see
    /// [`adjusted_policy`](Self::adjusted_policy).
    pub(crate) fn adjusted_by(self, policies: impl IntoIterator<Item = Option<Policy>>) -> Self {
        let details = self.details().clone();
        let mut more = self.into_more();
        let adjusted = Rare::Adjusted(policies.into_iter().collect(), details);
        more.details = Details::Rare(Box::new(adjusted));
        Self(Repr::More(more))
    }

    /// Returns an upper bound on the heap bytes of a decision with `charges` charges. The bound
    /// does not apply to degraded decisions and to decisions on peeks or holds of slots, which can
    /// be larger.
    #[doc(hidden)]
    #[must_use]
    pub const fn max_heap_bytes(charges: usize) -> usize {
        size_of::<More>() + charges * (size_of::<Verdict>() + size_of::<u64>())
    }

    fn into_more(self) -> Box<More> {
        let verdicts = match self.0 {
            Repr::More(more) => return more,
            Repr::One(verdict) => SmallVec::from_slice(&[verdict]),
            Repr::Two(verdicts) => SmallVec::from_slice(&verdicts),
        };
        Box::new(More { verdicts, ..More::default() })
    }

    fn more(&self) -> Option<&More> {
        match &self.0 {
            Repr::More(more) => Some(more),
            _ => None,
        }
    }

    fn details(&self) -> &Details {
        match self.adjusted() {
            Some((_, details)) => details,
            None => self.more().map_or(&Details::NONE, |more| &more.details),
        }
    }

    /// Returns the policies that a limit set has applied, and the other details.
    fn adjusted(&self) -> Option<(&[Option<Policy>], &Details)> {
        match &self.more()?.details {
            Details::Rare(rare) => match &**rare {
                Rare::Adjusted(policies, details) => Some((policies, details)),
                _ => None,
            },
            Details::Marked(_) => None,
        }
    }

    fn rare(&self) -> Option<&Rare> {
        match self.details() {
            Details::Rare(rare) => Some(rare),
            Details::Marked(_) => None,
        }
    }

    /// Replaces the limits of the verdicts. A call to a share returns the limit of the share; this
    /// method sets the limit of the whole policy.
    pub(crate) fn with_limits(mut self, limits: impl Iterator<Item = u64>) -> Self {
        for (verdict, limit) in self.verdicts_mut().iter_mut().zip(limits) {
            *verdict = verdict.with_fixed_warning();
            verdict.limit = limit;
        }
        self
    }

    pub(crate) fn verdicts_mut(&mut self) -> &mut [Verdict] {
        match &mut self.0 {
            Repr::One(verdict) => slice::from_mut(verdict),
            Repr::Two(verdicts) => verdicts,
            Repr::More(more) => &mut more.verdicts,
        }
    }

    /// Returns `true` if the request is admitted: no enforced policy denies its charge.
    #[must_use]
    #[inline]
    pub fn is_allowed(&self) -> bool {
        // This method reads the inline verdicts without a loop. So if a decision was just built,
        // the compiler can drop all fields that the method does not read.
        match &self.0 {
            Repr::One(verdict) => verdict.passes(),
            Repr::Two([one, other]) => one.passes() && other.passes(),
            Repr::More(more) => more.verdicts.iter().all(Verdict::passes),
        }
    }

    /// Returns `true` if the request is refused.
    #[must_use]
    #[inline]
    pub fn is_denied(&self) -> bool {
        !self.is_allowed()
    }

    /// Returns one verdict per charge, in the order of the charges.
    #[must_use]
    #[inline]
    pub fn verdicts(&self) -> &[Verdict] {
        match &self.0 {
            Repr::One(verdict) => slice::from_ref(verdict),
            Repr::Two(verdicts) => verdicts,
            Repr::More(more) => &more.verdicts,
        }
    }

    /// Returns the verdicts together with their policies. The caller passes the policies in the
    /// order of the charges. A [`Limiter`](crate::Limiter::verdicts) and its requests have a method
    /// `verdicts` that needs no policies. If a limit set has replaced a policy, the verdict has the
    /// [policy of the set](Self::adjusted_policy).
    pub fn verdicts_of<'d>(
        &'d self,
        policies: impl IntoIterator<Item = &'d Policy>,
    ) -> impl Iterator<Item = PolicyVerdict<'d>> {
        policies
            .into_iter()
            .zip(self.verdicts())
            .zip(self.unspent().iter().copied().chain(std::iter::repeat(None)))
            .enumerate()
            .map(|(index, ((policy, verdict), unspent))| {
                let policy = self.adjusted_policy(index).unwrap_or(policy);
                PolicyVerdict::new(policy, verdict, unspent)
            })
    }

    /// Returns the policy that a [limit set](crate::LimitSet) has applied to the charge at `index`.
    /// Returns `None` if the policy of the charge itself was applied.
    #[must_use]
    pub fn adjusted_policy(&self, index: usize) -> Option<&Policy> {
        self.policies().get(index)?.as_ref()
    }

    /// Returns the policies that a limit set has applied, or nothing without a limit set.
    pub(crate) fn policies(&self) -> &[Option<Policy>] {
        self.adjusted().map_or(&[], |(policies, _)| policies)
    }

    /// Returns the wait until the charges of the call are admitted, if nothing else is charged. The
    /// wait is zero if the charges are admitted now, and `None` if they are never admitted. It is
    /// also `None` if only [slots](crate::Concurrent) refuse the call, because a slot can become
    /// free at any time. If another policy refuses too, the wait is the wait of that policy. A
    /// retry after exactly this wait succeeds, and a retry one tick earlier does not. If the
    /// decision [failed closed](DegradedAnswer::FailedClosed), the wait is only a hint.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        let is_enforced =
            |verdict: &&Verdict| !verdict.is_shadow() && verdict.outcome() != Outcome::Skipped;
        let enforced = self.verdicts().iter().filter(is_enforced);
        let waits = enforced.map(|verdict| verdict.retry);
        let known = waits.clone().filter(|wait| !wait.is_unknown()).max();
        let known = known.unwrap_or(Wait::ZERO);
        let is_for_slots = known.is_zero() && waits.clone().any(Wait::is_unknown);
        if is_for_slots { None } else { known.as_duration() }
    }

    /// Returns [`retry_after`](Self::retry_after) for the HTTP header `Retry-After`, in whole
    /// seconds, rounded up. The result is 0 only if the request is admitted, and `None` if the
    /// request is never admitted.
    #[must_use]
    pub fn retry_after_secs(&self) -> Option<u64> {
        let wait = self.retry_after()?;
        let secs = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        Some(if self.is_allowed() { 0 } else { secs.max(1) })
    }

    /// Returns the earliest lapse of all slots that refuse the request: see
    /// [`Verdict::earliest_lapse`].
    #[must_use]
    pub fn earliest_lapse(&self) -> Option<EarliestLapse> {
        let refusals = self.verdicts().iter().filter(|verdict| !verdict.passes());
        refusals.filter_map(Verdict::earliest_lapse).min()
    }

    /// Returns the indices of the charges whose policies refuse the request.
    pub fn refused_by(&self) -> impl Iterator<Item = usize> + '_ {
        let verdicts = self.verdicts().iter().enumerate();
        verdicts.filter(|(_, verdict)| !verdict.passes()).map(|(index, _)| index)
    }

    /// Returns the indices of the charges whose policies [warn](Policy::warn_at): the usage of the
    /// subject is at least a percentage of the limit. A shadow warns too. A decision can warn and
    /// be allowed.
    ///
    /// A [degraded](Self::degraded) decision warns if the fallback store warns.
    pub fn warnings(&self) -> impl Iterator<Item = usize> + '_ {
        let verdicts = self.verdicts().iter().enumerate();
        verdicts.filter(|(_, verdict)| verdict.warns()).map(|(index, _)| index)
    }

    /// Returns the wait of the caller. After a [`reserve`](crate::limiter::Request::reserve), this
    /// is the time from the decision until the reserved place. After `acquire_within` and
    /// `until_ready`, it is the time that the caller has waited. After all other calls, it is zero.
    #[must_use]
    pub fn wait(&self) -> Duration {
        self.more().map_or(Duration::ZERO, |more| more.reserved_wait)
    }

    /// Returns one amount per charge, in the order of the charges. The meaning depends on the
    /// operation:
    ///
    /// | operation | amount |
    /// |---|---|
    /// | refund, undo | the cost that was refunded |
    /// | [charge](crate::Operation::Charge) | the cost that was recorded |
    /// | [`AcquireUpTo`](crate::Operation::AcquireUpTo), [`HoldUpTo`](crate::Operation::HoldUpTo) | the cost that was acquired |
    /// | [settle](crate::Operation::Settle), [settle so far](crate::Operation::SettleSoFar) | the cost that was refunded, or [charged](Self::is_charged) |
    /// | all others | none: the slice is empty |
    ///
    /// An amount is in whole units of cost, rounded down.
    ///
    /// ```
    /// use tidegate_core::{Call, Charge, Operation, Policy};
    /// use tidegate_memory::MemoryStore;
    ///
    /// let (store, policy) = (MemoryStore::new(), "fixed-window 10/1h".parse::<Policy>()?);
    /// let charges = [Charge::new(&policy, "alice").cost(7)];
    /// let _ = store.decide_now(&Call::acquire(&charges))?;
    ///
    /// let up_to = Call::new(Operation::AcquireUpTo { min: 1 }, &charges);
    /// assert_eq!(store.decide_now(&up_to)?.amounts(), [3]);
    /// assert_eq!(store.decide_now(&Call::new(Operation::Charge, &charges))?.amounts(), [7]);
    /// let refund = Call::new(Operation::Refund, &charges);
    /// assert_eq!(store.decide_now(&refund)?.amounts(), [7]);
    /// assert_eq!(store.decide_now(&refund)?.amounts(), [7]);
    /// assert_eq!(store.decide_now(&refund)?.amounts(), [3]); // everything is refunded
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn amounts(&self) -> &[u64] {
        self.more().map_or(&[], |more| &more.amounts)
    }

    /// Returns `true` if a settlement charged the [amount](Self::amounts) of the charge at `index`
    /// instead of refunding it. This happens if the actual cost is larger than the hold. It also
    /// happens if the hold lapsed and was [refunded](Policy::refund_lapsed), because the settlement
    /// must then charge the actual cost again.
    #[must_use]
    pub fn is_charged(&self, index: usize) -> bool {
        self.is_marked(index) && self.amounts().get(index).is_some_and(|&amount| amount > 0)
    }

    /// Returns `true` if a settlement refunded nothing for the charge at `index` because its hold
    /// was out of reach. This happens only with a sliding log: a hold is out of reach if the log
    /// has 128 or more newer records. The hold then stays charged in full until its window ends. A
    /// log with a [grain](crate::SlidingLog::grain) of at least 1/126 of its window has at most 128
    /// records, so that no hold is out of reach.
    #[must_use]
    pub fn is_out_of_reach(&self, index: usize) -> bool {
        self.is_marked(index) && self.amounts().get(index) == Some(&0)
    }

    fn is_marked(&self, index: usize) -> bool {
        matches!(self.details(), Details::Marked(marked) if marked & bit_of(index) != 0)
    }

    /// Returns the unspent amount of each charge, in the order of the charges. This is the sum of
    /// the open [holds](crate::Operation::Hold) of the charge's subject, less the costs that were
    /// [settled so far](crate::Operation::SettleSoFar). A hold is open until it is settled or
    /// lapses. An open hold counts in full, even if a part of it was refilled or its window has
    /// ended.
    ///
    /// An unspent amount is `None` for a policy without [`refund_lapsed`](Policy::refund_lapsed),
    /// because the states of such a policy do not contain their holds. If `refund_lapsed` was added
    /// to a policy later, the states contain only the holds that were made after this change.
    ///
    /// Only a [peek](crate::Operation::Peek) returns unspent amounts, and only if at least one of
    /// the policies has `refund_lapsed`. For all other decisions, the slice is empty. The slice is
    /// also empty if the peek did not reach the store: for a denial from a
    /// [cache](crate::DenyCache), and for a [degraded](Self::degraded) decision.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// use std::time::Duration;
    /// use tidegate_memory::{Limiter, MemoryStore};
    ///
    /// let policies = ["requests: gcra 60/1m burst 60", "tokens: token-bucket 1000/1m refund-lapsed"];
    /// let policies = policies.into_iter().map(str::parse).collect::<Result<Vec<_>, _>>()?;
    /// let limiter = Limiter::new(MemoryStore::new(), policies)?;
    /// let alice = limiter.by("requests", "alice").by("tokens", "alice").cost(600);
    /// let hold = alice.hold("completion 4711", Duration::from_secs(60)).await?;
    /// let Ok(ticket) = hold.into_ticket() else { return Ok(()) }; // refused
    /// limiter.settle_so_far(&ticket, [("requests", 1), ("tokens", 250)]).await?;
    /// assert_eq!(alice.peek().await?.unspent(), [None, Some(350)]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn unspent(&self) -> &[Option<u64>] {
        match self.rare() {
            Some(Rare::Unspent(unspent)) => unspent,
            _ => &[],
        }
    }

    /// Returns the fence of each charge, in the order of the charges. A fence is the number of a
    /// grant of [slots](crate::Concurrent). The fences of a subject rise strictly with each grant.
    /// A fence is `None` for a charge that took no slots.
    ///
    /// Only a [hold](crate::Operation::Hold) that took slots returns fences. For all other
    /// decisions, the slice is empty. It is also empty for a [degraded](Self::degraded) decision,
    /// because the fences of a fallback store and of the store have no common order. A repetition
    /// of a hold returns the fences of the first answer.
    ///
    /// A fence is at least the time of the grant, in microseconds since 1970 by the clock of the
    /// store. So fences also rise after the store has lost its data, if its clock has passed the
    /// last fence.
    #[must_use]
    pub fn fences(&self) -> &[Option<u64>] {
        match self.rare() {
            Some(Rare::Fences(fences)) => fences,
            _ => &[],
        }
    }

    /// Returns the place of the call in the queue for slots, if the decision is a refusal of an
    /// [`Operation::HoldInTurn`](crate::Operation::HoldInTurn) that waits. Returns `None` for all
    /// other decisions.
    #[must_use]
    pub fn place(&self) -> Option<Place> {
        match self.rare() {
            Some(Rare::Place(place)) => Some(*place),
            _ => None,
        }
    }

    /// Returns the answer and the reason if the decision was made without the store. Returns `None`
    /// if the store decided.
    #[must_use]
    pub fn degraded(&self) -> Option<&Degraded> {
        self.more()?.degraded.as_ref()
    }
}

/// Returns the bit of the charge at `index`. 64 bits suffice, because a call has at most 64
/// charges.
const fn bit_of(index: usize) -> u64 {
    const { assert!(MAX_CHARGES <= 64) };
    if index < MAX_CHARGES { 1 << index } else { 0 }
}

impl PartialEq for Decision {
    fn eq(&self, other: &Self) -> bool {
        self.verdicts() == other.verdicts()
            && self.wait() == other.wait()
            && self.degraded() == other.degraded()
            && self.amounts() == other.amounts()
            && self.details() == other.details()
            && self.policies() == other.policies()
    }
}

impl Eq for Decision {}

impl fmt::Debug for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut all = f.debug_struct("Decision");
        all.field("verdicts", &self.verdicts());
        if let Some(more) = self.more() {
            all.field("reserved_wait", &more.reserved_wait)
                .field("degraded", &more.degraded)
                .field("amounts", &more.amounts)
                .field("details", &more.details);
        }
        all.finish()
    }
}

/// The answer to a refund, a charge, a reset or a block. A receipt contains a [`Decision`] that
/// need not be checked, because no policy refuses these operations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt(Decision);

impl Receipt {
    pub(crate) fn new(decision: Decision) -> Self {
        Self(decision)
    }

    /// Returns the decision. It has the verdicts that a [`peek`](crate::limiter::Request::peek) of
    /// the same request would return after the operation.
    pub fn decision(&self) -> &Decision {
        &self.0
    }

    /// Returns the amount that was refunded for each charge after a refund, or the amount that was
    /// recorded for each charge after a charge. The amounts have the order of the verdicts: see
    /// [`Decision::amounts`]. The slice is empty after a reset and after a block.
    #[must_use]
    pub fn amounts(&self) -> &[u64] {
        self.0.amounts()
    }
}
