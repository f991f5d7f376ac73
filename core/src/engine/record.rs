//! The record that a store keeps under a key.

use std::borrow::Cow;

use super::block::Block;
use super::dispatch::State;
use super::state_holds::{KnownHold, StateHolds};
use crate::algorithm::rule::Rule;
use crate::algorithm::traits::Take;
use crate::algorithm::{fair_pool, quota, sliding_log};
use crate::call::Charge;
use crate::error::{Error, ErrorKind};
use crate::policy::Policy;
use crate::time::{MAX_EXACT, MAX_SPAN_MICROS, Timestamp};

/// The value that a store keeps for a state name, a tenant and a subject.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The policy that wrote the record. The numbers of the state have a meaning only with this
    /// policy.
    policy: Policy,
    pub(super) state: Option<State>,
    pub(super) block: Block,
    /// The holds on the state, boxed because most records have no holds.
    holds: Option<Box<StateHolds>>,
}

impl Record {
    /// Creates a record without usage, block and holds.
    #[must_use]
    pub fn new(policy: &Policy) -> Self {
        Self { policy: policy.clone(), state: None, block: Block::NONE, holds: None }
    }

    pub(super) fn with_state(policy: &Policy, state: Option<State>) -> Self {
        Self { state, ..Self::new(policy) }
    }

    /// Restores a record from its parts: the values that [`policy`](Self::policy),
    /// [`state`](Self::state) and [`blocked_until_micros`](Self::blocked_until_micros) returned for
    /// the original record. The restored record decides like the original record. If the original
    /// record had [`offenses`](Self::offenses), they are restored by
    /// [`restore_offenses`](Self::restore_offenses).
    ///
    /// `restore` is for stores that keep records outside of their own process. `policy` is the
    /// policy that wrote the record. It can differ from the policy of the current charge, so the
    /// store must keep it, as text. [`State`] describes the numbers of a state.
    ///
    /// A store that restores records cannot keep the holds of a policy with
    /// [`refund_lapsed`](Policy::refund_lapsed), so it does not [support](crate::Store::supports)
    /// such a policy.
    ///
    /// ```
    /// use tidegate_core::algorithm::fixed_window;
    /// use tidegate_core::engine::{Record, State};
    /// use tidegate_core::Timestamp;
    ///
    /// let policy = "login: fixed-window 5/1m anchored".parse()?;
    /// let state = fixed_window::State::new(1_790_000_060_000_000, 3);
    /// let record = Record::restore(&policy, Some(State::FixedWindow(state)), None)?;
    /// assert_eq!(record.recovers_at(), Some(Timestamp::from_micros(1_790_000_060_000_000)));
    ///
    /// let state = fixed_window::State::new(1 << 60, 3);
    /// let error = Record::restore(&policy, Some(State::FixedWindow(state)), None).unwrap_err();
    /// assert!(error.to_string().contains("ends at 1152921504606846976"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error of kind [`ErrorKind::ForeignValue`] if the values cannot be parts of a
    /// record. The message names the wrong value and its bound. Wrong values are:
    ///
    /// * a state of another algorithm
    /// * a time after the latest time that the policy can store
    /// * a count or a debt of 0 or above [`MAX_EXACT`]
    /// * an end of a window at which no window of the policy can end
    /// * a log that is empty, has too many records, or has records that are not sorted by time
    ///
    /// A count above the limit of the policy is valid, because the limit was possibly higher when
    /// the count was written.
    pub fn restore(
        policy: &Policy,
        state: Option<State>,
        blocked_until_micros: Option<u64>,
    ) -> Result<Self, Error> {
        let blocked_until = blocked_until_micros.unwrap_or(0);
        let check_block = || {
            if blocked_until <= MAX_BLOCKED_UNTIL {
                return Ok(());
            }
            Err(format!(
                "it is blocked until {blocked_until}; it must be at most {MAX_BLOCKED_UNTIL}"
            ))
        };
        let check_state = || state.as_ref().map_or(Ok(()), |state| policy.rule().check(state));
        check_block()
            .and_then(|()| check_state())
            .map_err(|problem| impossible(policy, &problem))?;
        let block = Block::ending_at(blocked_until);
        Ok(Self { policy: policy.clone(), state, block, holds: None })
    }

    /// Adds the offenses of the original record: the level and the time that
    /// [`offenses`](Self::offenses) returned.
    ///
    /// ```
    /// use tidegate_core::engine::Record;
    ///
    /// let policy = "login: sliding-log 5/15m block 1m x4 up to 1d forget 7d".parse()?;
    /// let record = Record::restore(&policy, None, Some(1_790_000_000_000_000))?;
    /// let record = record.restore_offenses(3, 1_790_604_800_000_000)?;
    /// assert_eq!(record.offenses(), Some((3, 1_790_604_800_000_000)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error of kind [`ErrorKind::ForeignValue`] if the level is not from 1 to
    /// [`Block::MAX_LEVEL`](crate::Block::MAX_LEVEL), or if no offenses of a subject can be
    /// forgotten at this time. This is the case before the end of the block.
    pub fn restore_offenses(self, level: u8, forgotten_at_micros: u64) -> Result<Self, Error> {
        let block = Block::restore(self.block.until, level, forgotten_at_micros)
            .filter(|_| forgotten_at_micros <= MAX_BLOCKED_UNTIL + MAX_SPAN_MICROS);
        let block = block.ok_or_else(|| {
            let (until, max) = (self.block.until, MAX_BLOCKED_UNTIL + MAX_SPAN_MICROS);
            let problem = format!(
                "its level {level} is forgotten at {forgotten_at_micros}; the level must be from 1 \
                 to {}, and the time from {until} to {max}",
                crate::Block::MAX_LEVEL
            );
            impossible(&self.policy, &problem)
        })?;
        Ok(Self { block, ..self })
    }

    /// Returns the policy that wrote the record.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Returns the state, or `None` if there is no usage.
    #[must_use]
    pub fn state(&self) -> Option<&State> {
        self.state.as_ref()
    }

    /// Returns the end of the subject's block in microseconds since 1970. Returns `None` if the
    /// subject was not blocked. The end can be in the past, or after [`Timestamp::MAX`].
    #[must_use]
    pub fn blocked_until_micros(&self) -> Option<u64> {
        (self.block.until > 0).then_some(self.block.until)
    }

    /// Returns the [level](crate::Verdict::block_level) of the subject, which is the number of its
    /// offenses, and the time at which they are forgotten, in microseconds since 1970. Returns
    /// `None` if the subject has no offenses. The time can be in the past, or after
    /// [`Timestamp::MAX`].
    #[must_use]
    pub fn offenses(&self) -> Option<(u8, u64)> {
        self.block.offenses()
    }

    /// Returns the time at which the record recovers. From this time, decisions with the record are
    /// the same as decisions without it, so a store may drop the record. Returns `None` if this
    /// time is after [`Timestamp::MAX`], because no clock reaches it.
    #[must_use]
    pub fn recovers_at(&self) -> Option<Timestamp> {
        let micros = self.recovers_at_micros();
        (micros < MAX_EXACT).then(|| Timestamp::from_micros(micros))
    }

    /// Returns the time of [`recovers_at`](Self::recovers_at) in microseconds since 1970, even if
    /// it is after [`Timestamp::MAX`].
    #[doc(hidden)]
    #[must_use]
    pub fn recovers_at_micros(&self) -> u64 {
        let state = match &self.state {
            // Each slot belongs to a hold, so the last hold on the state decides.
            None | Some(State::Concurrent(_)) => 0,
            Some(state) => self.policy.rule().recovers_at(state),
        };
        let holds = self.holds.as_ref().map_or(0, |holds| holds.expire_at());
        state.max(self.block.recovers_at()).max(holds)
    }

    /// Returns the number of heap bytes that the record uses.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        let state = match &self.state {
            Some(State::SlidingLog(log)) => size_of::<sliding_log::State>() + log.heap_bytes(),
            Some(State::Quota(quota)) => size_of::<quota::State>() + quota.heap_bytes(),
            Some(State::FairPool(pool)) => size_of::<fair_pool::State>() + pool.heap_bytes(),
            _ => 0,
        };
        let holds = self.holds.as_ref();
        state + holds.map_or(0, |holds| size_of::<StateHolds>() + holds.heap_bytes())
    }

    /// Returns the maximum number of bytes by which one more charge can increase
    /// [`heap_bytes`](Self::heap_bytes).
    #[must_use]
    pub fn growth(record: Option<&Self>, policy: &Policy) -> usize {
        let state = match record.map(Self::state) {
            Some(Some(State::SlidingLog(log))) => log.growth(),
            Some(Some(State::Quota(quota))) => quota.growth(policy.rule()),
            Some(Some(State::FairPool(pool))) => pool.growth(),
            _ if policy.is_fair_pool() => {
                size_of::<fair_pool::State>() + fair_pool::State::default().growth()
            }
            _ if matches!(policy.rule(), Rule::Quota(_)) => {
                size_of::<quota::State>() + quota::State::new(0, 0, 0).growth(policy.rule())
            }
            _ if policy.rule().max_records() > 0 => {
                size_of::<sliding_log::State>() + sliding_log::State::default().growth()
            }
            _ => 0,
        };
        match record.and_then(Self::holds) {
            Some(_) => state + StateHolds::growth(),
            None if policy.stores_holds() => state + size_of::<StateHolds>() + StateHolds::growth(),
            None => state,
        }
    }

    /// Returns the maximum number of bytes by which a hold can increase
    /// [`heap_bytes`](Self::heap_bytes), in addition to the growth by its charge.
    #[doc(hidden)]
    #[must_use]
    pub fn hold_growth() -> usize {
        size_of::<StateHolds>() + StateHolds::growth()
    }

    /// Returns the maximum number of bytes by which a grant can increase
    /// [`heap_bytes`](Self::heap_bytes), in addition to the growth by a charge.
    #[doc(hidden)]
    #[must_use]
    pub fn grant_growth() -> usize {
        size_of::<quota::TopUps>() + quota::MAX_GRANTS * size_of::<quota::Grant>()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.state.is_none() && !self.has_block() && self.holds.is_none()
    }

    pub(super) fn holds(&self) -> Option<&StateHolds> {
        self.holds.as_deref()
    }

    pub(super) fn change_holds<T>(
        &mut self,
        now: u64,
        change: impl FnOnce(&mut StateHolds) -> T,
    ) -> T {
        let holds = self.holds.get_or_insert_default();
        holds.settle_due(&mut self.state, self.policy.rule(), now);
        let result = change(holds);
        holds.tidy(self.policy.rule(), now);
        if holds.is_empty() {
            self.holds = None;
        }
        result
    }

    /// Makes room for the slots that `policy` has just granted: see [`StateHolds::claim_slots`].
    pub(super) fn claim_slots(&mut self, policy: &Policy) {
        if let (Some(holds), Some(State::Concurrent(slots))) = (&mut self.holds, &self.state) {
            holds.claim_slots(slots.count, policy.limit());
        }
    }

    /// Returns `true` if the slots of a lapsed hold can be taken again. The state contains the
    /// hold, has room for its slots, and no call waits for them.
    pub(super) fn can_revive(
        &self,
        charge: &Charge<'_>,
        known: &KnownHold,
        cost: u64,
        now: u64,
    ) -> bool {
        let state = self.state_under(charge.policy, now);
        let is_next =
            |holds: &StateHolds| holds.refunded(known).is_some() && !holds.is_anyone_ahead(0, now);
        self.holds().is_some_and(is_next)
            && charge.rule().wait(state.as_deref(), cost, now).is_zero()
    }

    /// Takes the slots of a lapsed hold again, and makes the hold open.
    pub(super) fn revive(&mut self, charge: &Charge<'_>, known: &KnownHold, now: u64) {
        let cost = self.change_holds(now, |holds| holds.revive(known));
        if cost > 0 {
            self.take(charge, cost, now);
        }
    }

    /// Removes the state, the block, the offenses and the holds. The fences of slots continue to
    /// rise.
    pub(super) fn reset(&mut self, now: u64) {
        (self.state, self.block) = (None, Block::NONE);
        if let Some(holds) = &mut self.holds {
            holds.reset(self.policy.rule(), now);
        }
        self.holds = self.holds.take().filter(|holds| !holds.is_empty());
    }

    pub(super) fn is_any_hold_over(&self, now: u64) -> bool {
        self.holds.as_ref().is_some_and(|holds| holds.is_any_over(now))
    }

    pub(super) fn settle_lapsed(&mut self, now: u64) {
        if self.is_any_hold_over(now) {
            self.change_holds(now, |_| ());
        }
    }

    pub(super) fn is_blocked(&self, now: u64) -> bool {
        !self.block.is_over(now)
    }

    /// Returns `true` if the record has a block or offenses, which can be over.
    pub(super) fn has_block(&self) -> bool {
        self.block != Block::NONE
    }

    pub(super) fn is_of(&self, policy: &Policy) -> bool {
        self.policy.is_same_object(policy)
    }

    /// Returns the state at `now`, for a decision of `policy`. Returns `None` if there is no state,
    /// or if its shape differs from the shape of `policy`.
    ///
    /// Also returns `None` if another policy wrote the state, and the state has recovered under
    /// that policy. A store is allowed to drop such a state, and decisions must not depend on
    /// whether it was dropped.
    pub(super) fn state_under(&self, policy: &Policy, now: u64) -> Option<Cow<'_, State>> {
        let state = self.state_after_lapses(now)?;
        if self.is_of(policy) {
            return Some(state);
        }
        let (older, newer) = (self.policy.rule(), policy.rule());
        match (&*state, older, newer) {
            _ if older.shape() != newer.shape() || older.recovers_at(&state) <= now => None,
            (State::TokenBucket(state), Rule::TokenBucket(older), Rule::TokenBucket(newer)) => {
                Some(Cow::Owned(State::TokenBucket(newer.adopt(*state, older.unit()))))
            }
            _ => Some(state),
        }
    }

    fn state_after_lapses(&self, now: u64) -> Option<Cow<'_, State>> {
        match &self.holds {
            Some(holds) if holds.is_any_due(now) => {
                let mut state = self.state.clone();
                holds.lapse_due(&mut state, self.policy.rule(), now);
                state.map(Cow::Owned)
            }
            _ => self.state.as_ref().map(Cow::Borrowed),
        }
    }

    /// Returns the time at which the state recovers under the policy that wrote it. From this time,
    /// [`state_under`](Self::state_under) ignores the state. Returns `None` if `policy` itself
    /// computes its waits exactly: it has written the state, or it is a quota. Also returns `None`
    /// if the state of a bucket that is refilled by intervals recovers after 2^53 microseconds (in
    /// the year 2255), because a store on Redis cannot keep such a time.
    pub(super) fn ends_at(&self, policy: &Policy, now: u64) -> Option<u64> {
        if self.is_of(policy) || policy.is_quota() {
            return None;
        }
        let state = self.state_after_lapses(now)?;
        let rule = self.policy.rule();
        let end = rule.recovers_at(&state);
        (end < 2 * MAX_EXACT || !matches!(rule, Rule::IntervalBucket(_))).then_some(end)
    }

    pub(super) fn take(&mut self, charge: &Charge<'_>, cost: u64, now: u64) {
        self.adopt(charge.policy, now);
        let rule = charge.rule();
        self.state = Some(rule.take(self.state.take(), cost, now, || charge.phase()));
        self.block.forget_past(now);
    }

    /// Adds the cost of a refused call to the demand of a member, if the policy is a fair pool.
    pub(super) fn refuse(&mut self, charge: &Charge<'_>, cost: u64, now: u64) {
        self.adopt(charge.policy, now);
        if let Rule::FairPool(rule) = &*charge.rule() {
            let state = match self.state.take() {
                Some(State::FairPool(state)) => Some(state),
                _ => None,
            };
            self.state = Some(State::FairPool(rule.refuse(state, cost, now)));
        }
    }

    pub(super) fn charge(&mut self, charge: &Charge<'_>, cost: u64, now: u64) {
        self.adopt(charge.policy, now);
        let rule = charge.rule();
        self.state = Some(rule.charge(self.state.take(), cost, now, || charge.phase()));
        self.block.forget_past(now);
    }

    /// Adds a grant. Returns `false` and adds nothing if the state has too many open grants.
    pub(super) fn grant(&mut self, charge: &Charge<'_>, grant: quota::Grant, now: u64) -> bool {
        self.adopt(charge.policy, now);
        let Rule::Quota(rule) = charge.policy.rule() else { return true };
        let state = match self.state.take() {
            Some(State::Quota(state)) => Some(state),
            _ => None,
        };
        let granted = rule.grant(state, grant, now);
        let is_granted = granted.is_ok();
        self.state = granted.unwrap_or_else(|unchanged| unchanged).map(State::Quota);
        self.block.forget_past(now);
        is_granted
    }

    pub(super) fn refund(&mut self, charge: &Charge<'_>, now: u64) -> u64 {
        self.adopt(charge.policy, now);
        let rule = charge.rule();
        let (left, amount) = rule.refund(self.state.take(), charge.cost, now);
        self.state = left;
        if let Some(holds) = &mut self.holds {
            holds.note_refund(rule.member(), rule.max_refund(charge.cost, amount), now);
        }
        self.block.forget_past(now);
        amount
    }

    /// Reverts a part of an earlier charge, and returns the reverted amount. Returns 0 and changes
    /// nothing if the earlier charge no longer counts.
    pub(super) fn undo(&mut self, charge: &Charge<'_>, cost: u64, take: Take, now: u64) -> u64 {
        self.undo_by(charge, now, |rule, state, _| rule.undo(state, cost, take, now))
    }

    /// Refunds a part of a hold like [`undo`](Self::undo). Deducts earlier refunds of the state,
    /// because a refund does not name its charge and has possibly refunded the hold.
    pub(super) fn refund_hold(
        &mut self,
        charge: &Charge<'_>,
        cost: u64,
        take: Take,
        now: u64,
    ) -> u64 {
        let is_of_epoch = !charge.policy.stores_holds();
        self.undo_by(charge, now, |rule, state, holds| match holds {
            Some(holds) => holds.undo(is_of_epoch, state, rule, cost, take, now),
            None => rule.undo(state, cost, take, now),
        })
    }

    fn undo_by(
        &mut self,
        charge: &Charge<'_>,
        now: u64,
        undo: impl FnOnce(&Rule, &mut Option<State>, Option<&mut StateHolds>) -> Option<u64>,
    ) -> u64 {
        self.settle_lapsed(now);
        let mut adopted = match self.state_under(charge.policy, now) {
            None => return 0,
            Some(Cow::Borrowed(_)) => None,
            Some(Cow::Owned(state)) => Some(state),
        };
        let is_adopted = adopted.is_some();
        let state = if is_adopted { &mut adopted } else { &mut self.state };
        let amount = undo(&charge.rule(), state, self.holds.as_deref_mut());
        let Some(amount) = amount else { return 0 };
        if is_adopted {
            self.state = adopted;
        }
        self.policy = charge.policy.clone();
        self.block.forget_past(now);
        amount
    }

    /// Makes `policy` the policy of the record. Keeps the usage if `policy` can use the state of
    /// the old policy.
    fn adopt(&mut self, policy: &Policy, now: u64) {
        self.settle_lapsed(now);
        if !self.is_of(policy) {
            self.state = self.state_under(policy, now).map(Cow::into_owned);
            self.policy = policy.clone();
        }
    }

    pub(super) fn change_block(&mut self, now: u64, change: impl FnOnce(&mut Block)) {
        if self.holds.is_some() {
            self.change_holds(now, |_| ());
        }
        change(&mut self.block);
    }
}

/// The latest time at which a block can end.
const MAX_BLOCKED_UNTIL: u64 = Timestamp::MAX.as_micros() + MAX_SPAN_MICROS;

fn impossible(policy: &Policy, problem: &str) -> Error {
    let message = format!("no record of `{policy}` has these parts: {problem}");
    Error::new(ErrorKind::ForeignValue, message)
}
