//! The holds on one state.
//!
//! No background task refunds lapsed holds. Instead, the next call to a state refunds all lapsed
//! holds of the state. The result is the same as with a refund at the time of the lapse, because no
//! call has written the state since the lapse. For a bucket, the order of the refund and the refill
//! does not matter, because both stop when the bucket is full. For a window or a log, the time of
//! the refund does not matter.

use std::collections::BTreeMap;
use std::ops::Bound;

use smallvec::SmallVec;

use super::dispatch::State;
use crate::algorithm::fair_pool::MemberId;
use crate::algorithm::rule::Rule;
use crate::algorithm::traits::Take;
use crate::policy::Policy;
use crate::time::{MAX_EXACT, Wait};

/// The maximum number of future lapses that are used to compute a wait. This bound limits the work
/// for a refusal.
pub const MAX_COUNTED_LAPSES: usize = 32;

/// The maximum sum of the unspent amounts on one state. The Redis scripts have the same maximum,
/// because a double represents every integer up to this number exactly.
const MAX_UNSPENT: u64 = 2 * MAX_EXACT;

/// A digest of the slot key and the id of a hold.
pub(super) type HoldKey = [u8; 20];

/// The key by which the holds of a state are ordered: first the time of the lapse (or of the
/// expiry), and then the number of the hold. An older hold has a lower number.
type Place = (u64, u64);

/// The part of a hold that belongs to one state. A hold with several charges has one part in the
/// state of each charge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StateHold {
    pub(super) key: HoldKey,
    pub(super) take: Take,
    pub(super) spent: u64,
    pub(super) lapses_at: u64,
    pub(super) expires_at: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct StateHolds {
    /// The open holds, in the order of their lapses.
    open: BTreeMap<Place, StateHold>,
    /// The lapsed holds that have not expired, each with the amount that was refunded at its lapse.
    /// They are ordered by their expiry.
    lapsed: BTreeMap<Place, (StateHold, u64)>,
    /// The number of the newest hold, which is also its fence.
    last_number: u64,
    unspent: u64,
    /// The sum of the amounts that were refunded for the lapsed holds. For slots, this is the
    /// number of slots that their former holders can still revive.
    lapsed_amount: u64,
    ends_at: u64,
    refunds: Refunds,
    /// The current epoch of the state. Only holds of policies without `refund-lapsed` belong to the
    /// epoch.
    epoch: Option<Epoch>,
    /// The current epochs of the members of a fair pool.
    member_epochs: MemberEpochs,
    /// The calls that wait for slots, by the numbers of their places.
    waiters: BTreeMap<u64, Waiter>,
    /// Whether the policy of the last hold [counts failures](Policy::count_failures), so that a
    /// lapsed hold is not refunded.
    counts_failures: bool,
}

/// A call that waits for slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Waiter {
    /// The time at which the place ends, unless the call is sent again.
    ends_at: u64,
    /// Whether the call lacked slots of this state when it was last sent.
    lacks_slots: bool,
}

/// The total amount of the refunds of a state with holds, and the time of the last refund. A refund
/// does not name a charge, so it has possibly refunded a hold. Therefore, when a hold lapses or is
/// settled, this amount is deducted from the refund of the hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Refunds {
    amount: u64,
    at: u64,
}

/// The time between two resets of a state with holds. If the policy does not refund lapsed holds,
/// the state does not store its holds. Instead, each hold stores the number of its epoch. If the
/// state has no epoch with this number at the settlement, the state was reset after the hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Epoch {
    number: u64,
    /// The time at which the epoch ends. All holds of the epoch have expired by then.
    ends_at: u64,
    refunds: Refunds,
}

/// The epochs of the members of a fair pool. Each member has its own epoch, so that a refund of one
/// member is not deducted from the refund of a hold of another member.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct MemberEpochs {
    by_member: BTreeMap<MemberId, Epoch>,
    /// The time at which the last epoch ends.
    ends_at: u64,
}

impl Epoch {
    /// Adds a hold: see [`StateHolds::join`].
    fn join(&mut self, number: u64, expires_at: u64, now: u64) -> u64 {
        if self.ends_at <= now {
            *self = Self { number, ..Self::default() };
        }
        if self.ends_at < expires_at {
            self.ends_at = (expires_at + (expires_at - now) / 2).min(2 * MAX_EXACT);
        }
        self.number
    }
}

impl MemberEpochs {
    /// Adds a hold to the epoch of a member. Also removes the epochs of the next two members if
    /// these epochs have ended, so that ended epochs do not accumulate.
    fn join(&mut self, member: MemberId, number: u64, expires_at: u64, now: u64) -> u64 {
        let next = self.by_member.range((Bound::Excluded(member), Bound::Unbounded)).take(2);
        let ended = next.filter(|(_, epoch)| epoch.ends_at <= now).map(|(member, _)| *member);
        for member in ended.collect::<SmallVec<[_; 2]>>() {
            self.by_member.remove(&member);
        }
        let epoch = self.by_member.entry(member).or_default();
        let number = epoch.join(number, expires_at, now);
        self.ends_at = self.ends_at.max(epoch.ends_at);
        number
    }
}

impl Refunds {
    fn add(&mut self, amount: u64, now: u64) {
        if amount > 0 {
            *self = Self { amount: self.amount.saturating_add(amount).min(MAX_UNSPENT), at: now };
        }
    }

    /// Refunds a part of a hold. Deducts the earlier refunds of the state, because they have
    /// possibly refunded the hold. Each refund is deducted only once. Returns the refunded amount,
    /// or `None` if the hold no longer counts.
    fn undo(
        &mut self,
        state: &mut Option<State>,
        rule: &Rule,
        cost: u64,
        take: Take,
        now: u64,
    ) -> Option<u64> {
        if self.amount == 0 || self.at < take.at {
            return rule.undo(state, cost, take, now);
        }
        let possible = rule.undo(&mut state.clone(), cost, take, now)?;
        let refunded = self.amount.min(possible);
        self.amount -= refunded;
        let take = Take::new(take.at, take.cost - refunded);
        (possible > refunded).then(|| rule.undo(state, possible - refunded, take, now)).flatten()
    }
}

impl StateHold {
    fn unspent(&self) -> u64 {
        self.take.cost.saturating_sub(self.spent)
    }
}

impl StateHolds {
    /// An upper bound on the heap bytes of one hold in a `BTreeMap`. A leaf of the tree can be half
    /// empty, and the inner nodes need additional memory.
    const HOLD_BYTES: usize = size_of::<(Place, (StateHold, u64))>() * 5 / 2;
    const WAITER_BYTES: usize = size_of::<(u64, Waiter)>() * 5 / 2;
    const EPOCH_BYTES: usize = size_of::<(MemberId, Epoch)>() * 5 / 2;

    pub(super) fn is_any_due(&self, now: u64) -> bool {
        self.open.first_key_value().is_some_and(|((lapses_at, _), _)| *lapses_at <= now)
    }

    pub(super) fn is_any_over(&self, now: u64) -> bool {
        let first = self.lapsed.first_key_value();
        self.is_any_due(now) || first.is_some_and(|((expires_at, _), _)| *expires_at <= now)
    }

    /// Refunds the unspent part of a lapsed hold, and returns the refunded amount.
    fn lapse(
        &self,
        hold: &StateHold,
        state: &mut Option<State>,
        rule: &Rule,
        refunds: &mut Refunds,
    ) -> u64 {
        let unspent = hold.unspent();
        if unspent == 0 || state.is_none() || self.counts_failures {
            return 0;
        }
        refunds.undo(state, rule, unspent, hold.take, hold.lapses_at).unwrap_or(0)
    }

    pub(super) fn lapse_due(&self, state: &mut Option<State>, rule: &Rule, now: u64) {
        let mut refunds = self.refunds;
        for hold in self.open.range(..=(now, u64::MAX)).map(|(_, hold)| hold) {
            self.lapse(hold, state, rule, &mut refunds);
        }
    }

    pub(super) fn settle_due(&mut self, state: &mut Option<State>, rule: &Rule, now: u64) {
        while self.is_any_due(now)
            && let Some(((_, number), hold)) = self.open.pop_first()
        {
            self.unspent = self.unspent.saturating_sub(hold.unspent());
            let mut refunds = self.refunds;
            let refunded = self.lapse(&hold, state, rule, &mut refunds);
            self.refunds = refunds;
            self.lapsed_amount = self.lapsed_amount.saturating_add(refunded);
            self.lapsed.insert((hold.expires_at, number), (hold, refunded));
        }
        while self.lapsed.first_key_value().is_some_and(|((expires_at, _), _)| *expires_at <= now) {
            self.forget_first_lapsed();
        }
    }

    /// Removes the lapsed hold that expires first. Returns `false` if there is no lapsed hold.
    fn forget_first_lapsed(&mut self) -> bool {
        let Some((_, (_, refunded))) = self.lapsed.pop_first() else { return false };
        self.lapsed_amount = self.lapsed_amount.saturating_sub(refunded);
        true
    }

    /// Removes lapsed holds, the first to expire first, until their slots and the `count` slots in
    /// use are at most `limit`. The holders of the removed holds can no longer revive their slots.
    pub(super) fn claim_slots(&mut self, count: u64, limit: u64) {
        while count.saturating_add(self.lapsed_amount) > limit && self.forget_first_lapsed() {}
    }

    /// Makes a lapsed hold open again. Returns its cost, or 0 if the state has no such lapsed hold.
    pub(super) fn revive(&mut self, known: &KnownHold) -> u64 {
        if self.refunded(known).is_none() {
            return 0;
        }
        let lapsed = self.lapsed.remove(&(known.expires_at, known.number));
        let Some((hold, refunded)) = lapsed else { return 0 };
        self.lapsed_amount = self.lapsed_amount.saturating_sub(refunded);
        let cost = hold.take.cost;
        self.put(known.number, hold);
        cost
    }

    pub(super) fn open_count(&self) -> usize {
        self.open.len()
    }

    pub(super) fn unspent(&self, now: u64) -> u64 {
        let due = self.open.range(..=(now, u64::MAX));
        due.fold(self.unspent, |unspent, (_, hold)| unspent.saturating_sub(hold.unspent()))
    }

    /// Returns the time until a cost is admitted, if no open hold is settled or extended before it
    /// lapses. `wait` is the time until then if no hold lapsed. `state` is the state at `now`.
    ///
    /// Only the first [`MAX_COUNTED_LAPSES`] lapses are used. Further lapses could only shorten the
    /// wait.
    pub(super) fn wait(
        &self,
        mut state: Option<State>,
        rule: &Rule,
        cost: u64,
        now: u64,
        mut wait: Wait,
    ) -> Wait {
        let open = self.open.range((now + 1, 0)..).map(|(_, hold)| hold);
        if rule.is_concurrent() {
            // A slot is possibly free earlier, because its holder frees it, or never, because its
            // holder renews it.
            let earliest = open.clone().next().filter(|_| wait.is_unknown());
            return earliest.map_or(wait, |hold| Wait::unknown_until(hold.lapses_at - now));
        }
        if self.counts_failures {
            return wait;
        }
        let mut refunds = self.refunds;
        for hold in open.take(MAX_COUNTED_LAPSES) {
            let lapses_after = Wait::between(now, hold.lapses_at);
            if lapses_after >= wait {
                break;
            }
            self.lapse(hold, &mut state, rule, &mut refunds);
            let then = rule.wait(state.as_ref(), cost, hold.lapses_at);
            wait = wait.min(lapses_after.plus(then));
        }
        wait
    }

    /// Returns `true` if the cost would be admitted without the open attempts. A denial is then not
    /// an offense. `state` is the state at `now`.
    pub(super) fn excuses_denial(
        &self,
        state: Option<&State>,
        rule: &Rule,
        cost: u64,
        now: u64,
    ) -> bool {
        let unspent = self.unspent(now);
        if !self.counts_failures || unspent == 0 {
            return false;
        }
        let rest = state.and_then(|state| rule.refund(Some(state.clone()), unspent, now).0);
        rule.wait(rest.as_ref(), cost, now).is_zero()
    }

    pub(super) fn expire_at(&self) -> u64 {
        let epoch_ends_at = self.epoch.map_or(self.member_epochs.ends_at, |epoch| epoch.ends_at);
        self.ends_at.max(epoch_ends_at).max(self.last_number + 1)
    }

    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Adds a hold to the epoch of the state or of the member, and returns the number of the epoch.
    /// If there is no epoch, a new epoch with the number `number` begins.
    ///
    /// If the epoch ends before `expires_at`, it is prolonged. It then lasts one and a half times
    /// as long as the hold: if the hold expires in 10 minutes, the epoch ends in 15 minutes. So a
    /// store need not write the epoch for each hold.
    pub(super) fn join(
        &mut self,
        member: Option<MemberId>,
        number: u64,
        expires_at: u64,
        now: u64,
    ) -> u64 {
        match member {
            Some(member) => self.member_epochs.join(member, number, expires_at, now),
            None => self.epoch.get_or_insert_default().join(number, expires_at, now),
        }
    }

    /// Forgets the refunds and the last number if the state has no open and no lapsed holds. For
    /// slots, the last number is a fence or a place, and is kept until the clock has passed it.
    pub(super) fn tidy(&mut self, rule: &Rule, now: u64) {
        if self.open.is_empty() && self.lapsed.is_empty() {
            self.refunds = Refunds::default();
            if self.waiters.is_empty() {
                let is_kept = rule.is_concurrent() && self.last_number >= now;
                let last_number = if is_kept { self.last_number } else { 0 };
                let (epoch, member_epochs) = (self.epoch, std::mem::take(&mut self.member_epochs));
                *self = Self { epoch, member_epochs, last_number, ..Self::default() };
            }
        }
    }

    /// Forgets all holds. Keeps the last number, like [`tidy`](Self::tidy), and the queue.
    pub(super) fn reset(&mut self, rule: &Rule, now: u64) {
        let waiters = std::mem::take(&mut self.waiters);
        let ends_at = waiters.values().map(|waiter| waiter.ends_at).max().unwrap_or(0);
        *self = Self { last_number: self.last_number, ends_at, waiters, ..Self::default() };
        self.tidy(rule, now);
    }

    /// Returns `true` if a call with a lower place lacks slots of this state. All places are before
    /// a call without a place, and before a call whose place has ended or never existed.
    pub(super) fn is_anyone_ahead(&self, place: u64, now: u64) -> bool {
        let place = if self.has_place(place, now) { place } else { u64::MAX };
        let mut ahead = self.waiters.range(..place);
        ahead.any(|(_, waiter)| waiter.lacks_slots && waiter.ends_at > now)
    }

    pub(super) fn has_waiters(&self) -> bool {
        !self.waiters.is_empty()
    }

    pub(super) fn has_place(&self, place: u64, now: u64) -> bool {
        self.waiters.get(&place).is_some_and(|waiter| waiter.ends_at > now)
    }

    pub(super) fn last_number(&self) -> u64 {
        self.last_number
    }

    /// Removes a place, and then the places at the start of the queue that have ended.
    pub(super) fn leave(&mut self, place: u64, now: u64) {
        self.waiters.remove(&place);
        while let Some(first) = self.waiters.first_entry()
            && first.get().ends_at <= now
        {
            first.remove();
        }
    }

    /// Adds a place to the queue, or prolongs it. Returns the number of places before it.
    pub(super) fn wait_in_turn(&mut self, place: u64, lacks_slots: bool, ends_at: u64) -> usize {
        self.waiters.insert(place, Waiter { ends_at, lacks_slots });
        self.last_number = self.last_number.max(place);
        self.ends_at = self.ends_at.max(ends_at);
        self.waiters.range(..place).count()
    }

    pub(super) fn is_in_epoch(&self, member: Option<MemberId>, number: u64) -> bool {
        let epoch = match member {
            Some(member) => self.member_epochs.by_member.get(&member),
            None => self.epoch.as_ref(),
        };
        epoch.is_some_and(|epoch| epoch.number == number)
    }

    fn epoch_mut(&mut self, member: Option<MemberId>) -> Option<&mut Epoch> {
        match member {
            Some(member) => self.member_epochs.by_member.get_mut(&member),
            None => self.epoch.as_mut(),
        }
    }

    /// Records a refund of the state or of the member, because a refund does not name a charge and
    /// has possibly refunded a hold.
    pub(super) fn note_refund(&mut self, member: Option<MemberId>, amount: u64, now: u64) {
        if !self.open.is_empty() {
            self.refunds.add(amount, now);
        }
        if let Some(epoch) = self.epoch_mut(member) {
            epoch.refunds.add(amount, now);
        }
    }

    pub(super) fn undo(
        &mut self,
        is_of_epoch: bool,
        state: &mut Option<State>,
        rule: &Rule,
        cost: u64,
        take: Take,
        now: u64,
    ) -> Option<u64> {
        if is_of_epoch && let Some(epoch) = self.epoch_mut(rule.member()) {
            return epoch.refunds.undo(state, rule, cost, take, now);
        }
        self.refunds.undo(state, rule, cost, take, now)
    }

    /// Adds a hold and returns its number. The numbers of a state rise, also after all holds were
    /// forgotten, because a number is at least the time in microseconds.
    ///
    /// `policy` is the policy of the hold.
    pub(super) fn add(&mut self, hold: StateHold, policy: &Policy, now: u64) -> u64 {
        self.counts_failures = policy.counts_failures();
        self.last_number = now.max(self.last_number + 1);
        self.put(self.last_number, hold);
        self.last_number
    }

    fn put(&mut self, number: u64, hold: StateHold) {
        self.unspent = self.unspent.saturating_add(hold.unspent()).min(MAX_UNSPENT);
        self.ends_at = self.ends_at.max(hold.expires_at);
        self.open.insert((hold.lapses_at, number), hold);
    }

    /// Returns the amount of a hold that was refunded when the hold lapsed. Returns 0 if the hold
    /// is still open, and `None` if the state does not contain the hold.
    pub(super) fn refunded(&self, known: &KnownHold) -> Option<u64> {
        if self.open.get(&(known.lapses_at, known.number)).is_some_and(|hold| hold.key == known.key)
        {
            return Some(0);
        }
        let lapsed = self.lapsed.get(&(known.expires_at, known.number));
        lapsed.filter(|(hold, _)| hold.key == known.key).map(|(_, refunded)| *refunded)
    }

    pub(super) fn change(
        &mut self,
        known: &KnownHold,
        change: impl FnOnce(StateHold) -> Option<StateHold>,
    ) {
        match self.refunded(known) {
            None => {}
            Some(0) if self.open.contains_key(&(known.lapses_at, known.number)) => {
                let Some(hold) = self.open.remove(&(known.lapses_at, known.number)) else { return };
                self.unspent = self.unspent.saturating_sub(hold.unspent());
                if let Some(hold) = change(hold) {
                    self.put(known.number, hold);
                }
            }
            Some(_) => {
                let lapsed = self.lapsed.remove(&(known.expires_at, known.number));
                let Some((hold, refunded)) = lapsed else { return };
                self.lapsed_amount = self.lapsed_amount.saturating_sub(refunded);
                if let Some(hold) = change(hold) {
                    self.lapsed_amount = self.lapsed_amount.saturating_add(refunded);
                    self.ends_at = self.ends_at.max(hold.expires_at);
                    self.lapsed.insert((hold.expires_at, known.number), (hold, refunded));
                }
            }
        }
    }

    pub(super) fn heap_bytes(&self) -> usize {
        (self.open.len() + self.lapsed.len()) * Self::HOLD_BYTES
            + self.waiters.len() * Self::WAITER_BYTES
            + self.member_epochs.by_member.len() * Self::EPOCH_BYTES
    }

    pub(super) fn growth() -> usize {
        Self::HOLD_BYTES
    }
}

/// The data with which a settlement finds a hold on its state. The remembered call of the hold
/// contains this data.
pub(super) struct KnownHold {
    pub(super) key: HoldKey,
    pub(super) number: u64,
    pub(super) lapses_at: u64,
    pub(super) expires_at: u64,
}

/// A state, and the next holds on the state that will lapse, in the order of their lapses. A store
/// that keeps its states outside of its own process uses this value to compute the wait of a
/// refusal.
#[derive(Debug, Clone, Default)]
pub struct OpenHolds {
    state: Option<State>,
    holds: StateHolds,
}

impl OpenHolds {
    /// Creates an `OpenHolds` with this state and without holds. If the state is a bucket, its debt
    /// is in the units of the call's policy.
    #[must_use]
    pub fn new(state: Option<State>) -> Self {
        Self { state, holds: StateHolds::default() }
    }

    /// Sets the sum of the earlier refunds that have possibly refunded the holds, and the time of
    /// the last of these refunds.
    #[must_use]
    pub fn refunded(mut self, amount: u64, at: u64) -> Self {
        self.holds.refunds = Refunds { amount, at };
        self
    }

    /// Adds a hold. Holds must be added in the order in which they lapse.
    pub fn push(&mut self, take: Take, spent: u64, lapses_at: u64) {
        let key = HoldKey::default();
        let number = self.holds.last_number + 1;
        self.holds.last_number = number;
        self.holds.put(number, StateHold { key, take, spent, lapses_at, expires_at: lapses_at });
    }

    /// Returns the time until `policy` admits a cost, if no hold is settled or extended before it
    /// lapses. `wait` is the time until then if no hold lapsed.
    #[must_use]
    pub fn wait(&self, policy: &Policy, cost: u64, now: u64, wait: Wait) -> Wait {
        self.holds.wait(self.state.clone(), policy.rule(), cost, now, wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The end belongs to the next epoch, as in the script `lib/epoch.lua`.
    #[test]
    fn an_epoch_lasts_one_and_a_half_times_as_long_as_a_hold() {
        let mut first = Epoch::default();
        assert_eq!(first.join(1, 100, 0), 1);
        for (now, joined) in [(149, 1), (150, 2)] {
            let mut epoch = first;
            assert_eq!(epoch.join(2, now + 100, now), joined, "{now}");
        }
    }

    #[test]
    fn epochs_of_members_that_have_ended_do_not_accumulate() {
        let mut epochs = MemberEpochs::default();
        for now in 0..10_000_u64 {
            let member = MemberId::from_subject(&now.to_le_bytes());
            epochs.join(member, now, now + 10, now);
        }
        // 15 epochs have not ended, because an epoch lasts one and a half times as long as a hold.
        assert!(epochs.by_member.len() < 100, "{}", epochs.by_member.len());
    }
}
