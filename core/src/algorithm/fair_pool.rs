//! Fair pool: at most `L` per window for all members together, with a share for each member.
//!
//! The subjects of a fair pool are its *members*. All members of a policy and a tenant have one
//! state. Windows begin at multiples of their length since 1970. The *demand* of a member in a
//! window is the cost of all its calls, admitted or refused by the pool.
//!
//! At the start of a window, each member gets a share: its max-min share of the pool, computed from
//! the demands in the previous window. A member that demanded less than its weighted part of the
//! pool gets what it demanded. The other members divide the rest by their weights:
//!
//! ```text
//! share = min(demand, floor(weight · rest / weights))
//! ```
//!
//! `rest` is what remains of `L` for the members that demanded more, and `weights` is the sum of
//! their weights. If the demands fit into the pool, each share is a demand, and `weights` is 0.
//!
//! A cost `c` is admitted if and only if one of these conditions is met. `total` is the cost that
//! all members were charged in the window, and `reserved` is the unused part of all shares:
//!
//! * `c` fits into the unused part of the member's share, and `total + c ≤ L`.
//! * `total + c` plus the unused shares of all other members is at most `L`. If `weights` is not 0,
//!   the member is also charged at most `floor(weight · rest / weights) + 1`.
//!
//! So the sum never exceeds `L`, and no member can use the unused share of another member. A member
//! without a demand in the previous window has no share. Its demand counts in the next window. If
//! the pool has fewer units than members, each share is 0, and each member is charged at most 1,
//! first come, first served.
//!
//! **Bound.** The unfairness in a window is the largest difference between the cost that a member
//! was charged and its max-min share, computed from the demands in the same window. If all costs
//! are 1, the unfairness is at most `D + 1`. `D` is the sum of the differences between the demands
//! of each member in this window and in the previous window. So it is at most 1 while the demands
//! stay the same. With costs of up to `c`, a member can get `c − 1` less.
//!
//! A state has at most [`MAX_MEMBERS`] members. All further subjects are one member together.
//!
//! Source: max-min fairness, D. Bertsekas, R. Gallager, "Data Networks" (1992), section 6.5.2.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::num::NonZeroU64;

use super::check::{LAST, at_most, multiple};
use super::shape::StateShape;
use super::traits::{Algorithm, Level, Take};
use crate::time::{MAX_EXACT, Wait};

/// The maximum number of members in a state, including the member of all further subjects.
pub const MAX_MEMBERS: usize = 1_000;

/// The maximum limit of a fair pool. The product of a limit and the sum of all weights is below
/// 2^53.
pub(crate) const MAX_LIMIT: u64 = 1 << 32;

pub(crate) const MAX_WEIGHT: u64 = 1_000;

/// The amount by which [`Policy::beyond_limit`](crate::Policy) raises the limit of a fair pool.
pub(crate) const RAISE: u64 = MAX_EXACT - MAX_LIMIT;

/// The identity of a member in a state: two numbers below 2^53.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId([u64; 2]);

impl MemberId {
    /// The member of all subjects that have no own member, because the state is full.
    const OTHERS: Self = Self([(1 << 53) - 1; 2]);

    /// Returns the identity of a subject, which is the same on every machine. It consists of 104
    /// bits of a SHA-1 digest, so that an attacker cannot choose a subject with the identity of
    /// another subject.
    #[must_use]
    pub fn from_subject(subject: &[u8]) -> Self {
        let digest = sha1_smol::Sha1::from(subject).digest().bytes();
        let (first, rest) = digest.split_at(8);
        let number = |bytes: &[u8]| {
            bytes.iter().take(8).fold(0, |number, &byte| (number << 8) | u64::from(byte)) >> 12
        };
        Self([number(first), number(rest)])
    }

    /// Returns the two numbers.
    #[must_use]
    pub const fn numbers(self) -> [u64; 2] {
        self.0
    }
}

/// A fair pool: its limit, its window, and the member whose costs the rule decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FairPoolRule {
    pub(crate) limit: u64,
    /// The limit without a raise. The shares are parts of this limit.
    pub(crate) pool: u64,
    pub(crate) window: NonZeroU64,
    pub(crate) weight: u64,
    pub(crate) member: MemberId,
}

/// The state of a fair pool: the current window and all members.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct State {
    /// The end of the window, in microseconds since 1970.
    ends: u64,
    /// The part of the limit that the members with large demands divide, and the sum of their
    /// weights. Both are 0 if all demands fit into the limit.
    rest: u64,
    weights: u64,
    members: Vec<Member>,
    /// The cost that all members were charged in the window.
    total: u64,
    /// The unused part of all shares.
    reserved: u64,
}

/// A member of a fair pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Member {
    id: MemberId,
    /// The weight in the last call of the member.
    weight: u64,
    /// The cost of all calls of the member in the window, admitted or refused.
    demand: u64,
    /// The cost that the member was charged in the window.
    used: u64,
    share: u64,
}

impl Member {
    const fn new(id: MemberId) -> Self {
        Self { id, weight: 1, demand: 0, used: 0, share: 0 }
    }

    /// Returns the unused part of the share.
    const fn unused(&self) -> u64 {
        self.share.saturating_sub(self.used)
    }

    /// Adds a cost to the demand.
    fn ask(&mut self, weight: u64, cost: u64) {
        self.weight = weight;
        self.demand = self.demand.saturating_add(cost).min(MAX_EXACT);
    }
}

impl State {
    const fn new(ends: u64) -> Self {
        Self { ends, rest: 0, weights: 0, members: Vec::new(), total: 0, reserved: 0 }
    }

    /// Returns the numbers from which [`from_numbers`](Self::from_numbers) creates this state
    /// again: the end of the window in microseconds since 1970, `rest`, `weights`, and six numbers
    /// for each member: its identity (two numbers), its weight, its demand, the cost that it was
    /// charged, and its share.
    #[must_use]
    pub fn to_numbers(&self) -> Vec<u64> {
        let mut numbers = vec![self.ends, self.rest, self.weights];
        for &Member { id: MemberId([id, more]), weight, demand, used, share } in &self.members {
            numbers.extend([id, more, weight, demand, used, share]);
        }
        numbers
    }

    /// Creates a state from the numbers that [`to_numbers`](Self::to_numbers) returned. Returns
    /// `None` if the number of numbers is wrong.
    #[must_use]
    pub fn from_numbers(numbers: &[u64]) -> Option<Self> {
        let &[ends, rest, weights, ref members @ ..] = numbers else { return None };
        let member = |numbers: &[u64]| {
            let &[id, more, weight, demand, used, share] = numbers else { return None };
            Some(Member { id: MemberId([id, more]), weight, demand, used, share })
        };
        let members: Vec<Member> = members.chunks(6).map(member).collect::<Option<_>>()?;
        let sum = |part: fn(&Member) -> u64| {
            members.iter().map(part).fold(0, |sum: u64, part| sum.saturating_add(part))
        };
        let (total, reserved) = (sum(|member| member.used), sum(Member::unused));
        Some(Self { ends, rest, weights, members, total, reserved })
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.members.capacity() * size_of::<Member>()
    }

    /// Returns the maximum number of bytes by which one more member increases
    /// [`heap_bytes`](Self::heap_bytes).
    pub(crate) fn growth(&self) -> usize {
        let capacity = self.members.capacity();
        if self.members.len() < capacity { 0 } else { capacity.max(4) * size_of::<Member>() }
    }

    /// Returns the index of a member, or the identity of the member to add. If the state is full,
    /// this is the member of all further subjects.
    fn find(&self, id: MemberId) -> Result<usize, MemberId> {
        let find = |id| self.members.iter().position(|member| member.id == id).ok_or(id);
        match find(id) {
            Err(_) if self.members.len() + 1 >= MAX_MEMBERS => find(MemberId::OTHERS),
            found => found,
        }
    }

    fn member(&self, id: MemberId) -> Member {
        let known = self.find(id).map(|at| self.members.get(at).copied());
        known.ok().flatten().unwrap_or(Member::new(id))
    }

    /// Changes a member, after it was added if it is unknown, and updates the sums.
    fn change(&mut self, id: MemberId, change: impl FnOnce(&mut Member)) {
        let at = self.find(id).unwrap_or_else(|id| {
            self.members.push(Member::new(id));
            self.members.len() - 1
        });
        let Some(member) = self.members.get_mut(at) else { return };
        let before = *member;
        change(member);
        self.total = self.total - before.used + member.used;
        self.reserved = self.reserved - before.unused() + member.unused();
        if member.demand == 0 && member.share == 0 {
            self.members.remove(at);
        }
    }

    /// Returns the state in the next window, or `None` if no member has a demand.
    fn next_window(&self, pool: u64, window: u64) -> Option<Self> {
        let mut next = Self::new(self.ends.saturating_add(window));
        let with_demand = self.members.iter().filter(|member| member.demand > 0);
        // The next state has room for as many members as this state, so that one more member needs
        // at most the memory of `growth`. If few members are left, it has less room.
        let (count, room) = (with_demand.clone().count(), self.members.capacity());
        next.members.reserve_exact(if count < room / 4 { 2 * count } else { room });
        next.members.extend(with_demand);
        let mut by_demand: Vec<_> = next
            .members
            .iter()
            .map(|member| (member.demand.min(pool + 1), member.weight))
            .collect();
        by_demand.sort_unstable_by_key(|&(demand, weight)| Fraction(demand, weight));
        (next.rest, next.weights) = (pool, by_demand.iter().map(|(_, weight)| weight).sum());
        for (demand, weight) in by_demand {
            if demand * next.weights > weight * next.rest {
                break;
            }
            next.rest -= demand;
            next.weights -= weight;
        }
        if next.weights == 0 {
            next.rest = 0;
        }
        let (rest, weights) = (next.rest, next.weights);
        for member in &mut next.members {
            let part = (member.weight * rest).checked_div(weights).unwrap_or(u64::MAX);
            let share = member.demand.min(part);
            *member = Member { demand: 0, used: 0, share, ..*member };
        }
        next.reserved = next.members.iter().map(Member::unused).sum();
        (!next.members.is_empty()).then_some(next)
    }
}

/// A demand and a weight, ordered by their quotient.
#[derive(PartialEq, Eq)]
struct Fraction(u64, u64);

impl Ord for Fraction {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.0 * other.1).cmp(&(other.0 * self.1))
    }
}

impl PartialOrd for Fraction {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl FairPoolRule {
    /// Returns the maximum cost in a window.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns the length of the window in microseconds.
    #[must_use]
    pub const fn window_micros(&self) -> u64 {
        self.window.get()
    }

    /// Returns the weight of the member.
    #[must_use]
    pub const fn weight(&self) -> u64 {
        self.weight
    }

    /// Returns the rule for the costs of the member with this identity.
    #[must_use]
    pub const fn for_member(self, member: MemberId) -> Self {
        Self { member, ..self }
    }

    /// Adds the cost of a refused call to the demand of the member.
    pub(crate) fn refuse(&self, state: Option<Box<State>>, cost: u64, now: u64) -> Box<State> {
        let mut state = self.advance(state, now);
        state.change(self.member, |member| member.ask(self.weight, cost));
        state
    }

    /// Returns the state in the window of `now`. If the clock steps back to an earlier window, the
    /// window of the state stays the current window.
    fn current<'s>(&self, state: Option<&'s State>, now: u64) -> Option<Cow<'s, State>> {
        let (state, window) = (state?, self.window.get());
        match now.checked_sub(state.ends) {
            None => Some(Cow::Borrowed(state)),
            Some(late) if late < window => state.next_window(self.pool, window).map(Cow::Owned),
            Some(_) => None,
        }
    }

    /// Returns the state in the window of `now`, for a change of this window.
    fn advance(&self, state: Option<Box<State>>, now: u64) -> Box<State> {
        let next = match self.current(state.as_deref(), now) {
            Some(Cow::Borrowed(_)) => None,
            Some(Cow::Owned(next)) => Some(next),
            None => Some(State::new(now - now % self.window + self.window.get())),
        };
        match (next, state) {
            (None, Some(state)) => state,
            (next, _) => Box::new(next.unwrap_or_default()),
        }
    }

    /// Returns the maximum cost that the member is admitted in this window.
    fn available(&self, state: Option<&State>) -> u64 {
        let Some(state) = state else { return self.limit };
        let member = state.member(self.member);
        let free = self.limit.saturating_sub(state.total);
        let reserved_for_others = state.reserved - member.unused();
        let part = (self.weight * state.rest).checked_div(state.weights);
        let is_raised = self.limit > self.pool;
        let most = part.filter(|_| !is_raised).map_or(u64::MAX, |part| part + 1);
        let beyond = free.saturating_sub(reserved_for_others).min(most.saturating_sub(member.used));
        beyond.max(member.unused().min(free))
    }
}

// The state is boxed, because an unboxed state would enlarge every record of a store.
#[doc(hidden)]
impl Algorithm for FairPoolRule {
    type State = Box<State>;

    const NAME: &'static str = "a fair pool";

    fn limit(&self) -> u64 {
        self.limit
    }

    fn shape(&self) -> StateShape {
        StateShape::FairPool(self.window.get())
    }

    fn window(&self) -> u64 {
        self.window.get()
    }

    fn max_retention(&self) -> u64 {
        2 * self.window.get()
    }

    /// Returns the time until the next window if the cost is not admitted now. The shares are then
    /// computed again. A cost of 1 that was refused is admitted then. A larger cost is possibly
    /// admitted later.
    fn wait(&self, state: Option<&Box<State>>, cost: u64, now: u64) -> Wait {
        let current = self.current(state.map(|state| &**state), now);
        match &current {
            _ if cost > self.limit => Wait::NEVER,
            Some(state) if state.total > self.limit || cost > self.available(Some(state)) => {
                Wait::between(now, state.ends)
            }
            _ => Wait::ZERO,
        }
    }

    fn take(
        &self,
        state: Option<Box<State>>,
        cost: u64,
        now: u64,
        _phase: impl FnOnce() -> u64,
    ) -> Box<State> {
        let mut state = self.advance(state, now);
        state.change(self.member, |member| {
            member.ask(self.weight, cost);
            member.used += cost;
        });
        state
    }

    fn chargeable(&self, state: Option<&Box<State>>, cost: u64, now: u64) -> u64 {
        let current = self.current(state.map(|state| &**state), now);
        cost.min(MAX_EXACT.saturating_sub(current.map_or(0, |state| state.total)))
    }

    /// Refunds a cost that was charged in the current window. Earlier charges count no longer, so a
    /// refund changes nothing after the end of the window.
    fn refund(&self, mut state: Box<State>, cost: u64, now: u64) -> (Option<Box<State>>, u64) {
        if now >= state.ends {
            let still_counts = now < self.recovers_at(&state);
            return (still_counts.then_some(state), 0);
        }
        let amount = cost.min(state.member(self.member).used);
        if amount > 0 {
            state.change(self.member, |member| {
                member.used -= amount;
                member.demand -= amount;
            });
        }
        let is_used = !state.members.is_empty() || state.weights > 0;
        (is_used.then_some(state), amount)
    }

    /// Refunds the cost if the charge was made in the current window.
    fn undo(
        &self,
        state: &mut Option<Box<State>>,
        cost: u64,
        Take { at, .. }: Take,
        now: u64,
    ) -> Option<u64> {
        let window = self.window.get();
        let has_charge =
            |state: &State| now < state.ends && at < state.ends && state.ends - at <= window;
        if !state.as_deref().is_some_and(has_charge) {
            return None;
        }
        let (rest, amount) = self.refund(state.take()?, cost, now);
        *state = rest;
        Some(amount)
    }

    fn level(&self, state: Option<&Box<State>>, now: u64) -> Level {
        let current = self.current(state.map(|state| &**state), now);
        let recovers_at = state.map_or(now, |state| self.recovers_at(state));
        Level::new(self.available(current.as_deref()), recovers_at)
    }

    fn recovers_at(&self, state: &Box<State>) -> u64 {
        state.ends.saturating_add(self.window.get())
    }

    fn check(&self, state: &Box<State>) -> Result<(), String> {
        let window = self.window.get();
        at_most("its window ends at", state.ends, LAST + window)?;
        multiple("its window ends at", state.ends, window, "the window")?;
        at_most("the number of its members is", state.members.len() as u64, MAX_MEMBERS as u64)?;
        at_most("its total is", state.total, MAX_EXACT)?;
        at_most("its rest is", state.rest, MAX_LIMIT)?;
        at_most("the sum of its weights is", state.weights, MAX_WEIGHT * MAX_MEMBERS as u64)?;
        for member in &state.members {
            at_most("the weight of a member is", member.weight, MAX_WEIGHT)?;
            at_most("the share of a member is", member.share, MAX_LIMIT)?;
            at_most("the demand of a member is", member.demand, MAX_EXACT)?;
            at_most("the usage of a member is", member.used, member.demand)?;
        }
        Ok(())
    }
}
