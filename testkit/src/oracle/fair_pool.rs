//! The rules of a fair pool: a share for each member, computed from the demands in the last window.

use std::collections::BTreeMap;

use tidegate_core::{Charge, FairPool};

use super::rules::{self, MAX_COUNT, Rules, Take, micros};

/// A window, with the shares that its members got at its start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Past {
    ends: u64,
    /// The shares above 0.
    shares: BTreeMap<Vec<u8>, u64>,
    /// The part of a member of weight 1 as a fraction, if the demands exceeded the limit.
    part: Option<(u128, u128)>,
    /// The members that have called in the window.
    callers: BTreeMap<Vec<u8>, Caller>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Caller {
    weight: u64,
    /// The costs of all calls, charged or refused.
    demand: u64,
    charged: u64,
}

#[derive(Debug)]
pub(super) struct Pool {
    limit: u64,
    /// The limit of the charge. It is above `limit` if the charge is counted beyond the limit.
    raised_limit: u64,
    window: u64,
    weight: u64,
    member: Vec<u8>,
}

impl Pool {
    pub(super) fn new(spec: &FairPool, charge: &Charge<'_>) -> Self {
        let raised_limit = charge.policy.limit();
        let (limit, window, weight) = (spec.limit(), micros(spec.window()), spec.member_weight());
        Self { limit, raised_limit, window, weight, member: charge.subject.to_vec() }
    }

    /// Returns the window of `now`, or `None` if nothing from the past counts in it.
    fn current(&self, past: &rules::Past, now: u64) -> Option<Past> {
        let rules::Past::FairPool(past) = past else { return None };
        if now < past.ends {
            return Some(past.clone());
        }
        let has_demand = |(_, caller): &(&Vec<u8>, &Caller)| caller.demand > 0;
        let callers: Vec<_> = past.callers.iter().filter(has_demand).collect();
        if now >= past.ends + self.window || callers.is_empty() {
            return None;
        }
        // All members want more than their part at first. A member that wants at most its part
        // gets what it wants, which makes the parts of the others larger.
        let mut hungry = callers.clone();
        let mut rest = u128::from(self.limit);
        loop {
            let weights: u128 = hungry.iter().map(|(_, caller)| u128::from(caller.weight)).sum();
            let is_content = |(_, caller): &(&Vec<u8>, &Caller)| {
                u128::from(caller.demand) * weights <= u128::from(caller.weight) * rest
            };
            let Some(content) = hungry.iter().position(is_content) else {
                let part = (!hungry.is_empty()).then_some((rest, weights));
                let share = |caller: &Caller| match part {
                    Some((rest, weights)) => {
                        let part = u128::from(caller.weight) * rest / weights;
                        caller.demand.min(u64::try_from(part).unwrap_or(u64::MAX))
                    }
                    None => caller.demand,
                };
                let shares =
                    callers.iter().map(|(member, caller)| ((*member).clone(), share(caller)));
                let shares = shares.filter(|(_, share)| *share > 0).collect();
                let ends = past.ends + self.window;
                return Some(Past { ends, shares, part, callers: BTreeMap::new() });
            };
            rest -= u128::from(hungry[content].1.demand);
            hungry.remove(content);
        }
    }

    fn change(&self, past: &rules::Past, now: u64, change: impl FnOnce(&mut Caller)) -> Past {
        let ends = (now / self.window + 1) * self.window;
        let mut past = self.current(past, now).unwrap_or(Past { ends, ..Past::default() });
        let caller = past.callers.entry(self.member.clone()).or_default();
        change(caller);
        past
    }

    fn ask(&self, caller: &mut Caller, cost: u64) {
        caller.weight = self.weight;
        caller.demand = caller.demand.saturating_add(cost).min(MAX_COUNT);
    }

    fn charged(&self, past: &Past) -> u64 {
        past.callers.get(&self.member).map_or(0, |caller| caller.charged)
    }
}

/// Returns the unused part of the share of a member.
fn unused(past: &Past, member: &[u8]) -> u64 {
    let charged = past.callers.get(member).map_or(0, |caller| caller.charged);
    past.shares.get(member).map_or(0, |share| share.saturating_sub(charged))
}

fn total(past: &Past) -> u64 {
    past.callers.values().map(|caller| caller.charged).sum()
}

impl Rules for Pool {
    fn fits(&self, past: &rules::Past, cost: u64, now: u64) -> bool {
        let past = self.current(past, now).unwrap_or_default();
        let Some(total) = total(&past).checked_add(cost) else { return false };
        if total > self.raised_limit {
            return false;
        }
        let others = past.shares.keys().filter(|member| **member != self.member);
        let reserved: u64 = others.map(|member| unused(&past, member)).sum();
        let charged = u128::from(self.charged(&past) + cost);
        let is_within_part = past
            .part
            .is_none_or(|(rest, weights)| charged <= u128::from(self.weight) * rest / weights + 1);
        let is_raised = self.raised_limit > self.limit;
        let is_free = total.saturating_add(reserved) <= self.raised_limit;
        cost <= unused(&past, &self.member) || is_free && (is_within_part || is_raised)
    }

    fn take(&self, past: &rules::Past, cost: u64, now: u64) -> rules::Past {
        rules::Past::FairPool(self.change(past, now, |caller| {
            self.ask(caller, cost);
            caller.charged += cost;
        }))
    }

    fn refuse(&self, past: &rules::Past, cost: u64, now: u64) -> rules::Past {
        rules::Past::FairPool(self.change(past, now, |caller| self.ask(caller, cost)))
    }

    fn room(&self, past: &rules::Past, now: u64) -> u64 {
        MAX_COUNT.saturating_sub(self.current(past, now).map_or(0, |past| total(&past)))
    }

    fn refund(&self, past: &rules::Past, cost: u64, now: u64) -> (rules::Past, u64) {
        let current = match past {
            rules::Past::FairPool(current) if now < current.ends => current,
            _ => return (past.clone(), 0),
        };
        let amount = cost.min(self.charged(current));
        if amount == 0 {
            return (past.clone(), 0);
        }
        let mut current = self.change(past, now, |caller| {
            caller.demand -= amount;
            caller.charged -= amount;
        });
        current.callers.retain(|_, caller| caller.demand > 0);
        let is_nothing =
            current.callers.is_empty() && current.shares.is_empty() && current.part.is_none();
        let past = if is_nothing { rules::Past::Nothing } else { rules::Past::FairPool(current) };
        (past, amount)
    }

    fn undo(
        &self,
        past: &rules::Past,
        cost: u64,
        take: Take,
        now: u64,
    ) -> Option<(rules::Past, u64)> {
        let rules::Past::FairPool(current) = past else { return None };
        let window = current.ends.saturating_sub(self.window)..current.ends;
        (now < current.ends && window.contains(&take.at)).then(|| self.refund(past, cost, now))
    }

    /// Returns the time until the next window if the cost does not fit now.
    fn wait(&self, past: &rules::Past, limit: u64, cost: u64, now: u64) -> Option<u64> {
        if cost > limit {
            return None;
        }
        let ends = self.current(past, now).map_or(now, |past| past.ends);
        Some(if self.fits(past, cost, now) { 0 } else { ends - now })
    }

    fn recovers_at(&self, past: &rules::Past) -> u64 {
        match past {
            rules::Past::FairPool(past) => past.ends + self.window,
            _ => 0,
        }
    }
}
