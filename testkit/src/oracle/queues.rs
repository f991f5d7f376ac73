//! The queues of the calls that wait for slots, by key.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tidegate_core::{Call, Charge, Outcome, Place};

use super::reply::Reply;
use super::{Key, holds, ledger};

/// A call that waits.
#[derive(Debug, Clone, Copy)]
struct Waiter {
    ends_at: u64,
    lacks_slots: bool,
}

/// The waiting calls of each key, by place.
#[derive(Debug, Clone, Default)]
pub(super) struct Queues(BTreeMap<Key, BTreeMap<u64, Waiter>>);

impl Queues {
    fn queue(&self, key: &Key) -> impl Iterator<Item = (u64, Waiter)> {
        let queue = self.0.get(key).into_iter().flatten();
        queue.map(|(place, waiter)| (*place, *waiter))
    }

    /// Returns the keys on which another waiting call goes before `call`, which has the place
    /// `place`, or 0 for none. A call whose place has ended or never existed goes after all others.
    pub(super) fn behind(&self, call: &Call<'_>, place: u64, now: u64) -> BTreeSet<Key> {
        let is_behind = |key: &Key| {
            let waiting: Vec<_> =
                self.queue(key).filter(|(_, waiter)| now < waiter.ends_at).collect();
            let has_place = waiting.iter().any(|(number, _)| *number == place);
            let is_first = |number: u64| number < place || !has_place;
            waiting.iter().any(|(number, waiter)| waiter.lacks_slots && is_first(*number))
        };
        call.charges.iter().map(|charge| ledger::key_of(&charge)).filter(is_behind).collect()
    }

    /// Removes a place from the queue of `key`. Then also removes the first places that have ended.
    fn leave(&mut self, key: &Key, place: u64, now: u64) {
        let Some(queue) = self.0.get_mut(key) else { return };
        queue.remove(&place);
        let ended = queue.iter().take_while(|(_, waiter)| waiter.ends_at <= now);
        let ended: Vec<u64> = ended.map(|(place, _)| *place).collect();
        queue.retain(|number, _| !ended.contains(number));
    }

    pub(super) fn leave_all(&mut self, call: &Call<'_>, place: u64, now: u64) {
        for charge in call.charges.iter() {
            self.leave(&ledger::key_of(&charge), place, now);
        }
    }

    /// Updates the queues after `call`, which had the place `old` and got `reply`. `last_number`
    /// returns the last fence or place of a key. Returns the place of the call if it waits.
    pub(super) fn update(
        &mut self,
        call: &Call<'_>,
        old: u64,
        reply: &Reply,
        last_number: impl Fn(&Key) -> u64,
        now: u64,
    ) -> Option<Place> {
        let Reply::Decision { allowed, verdicts, .. } = reply else { return None };
        let charges: Vec<Charge<'_>> = call.charges.iter().collect();
        let is_enforced = |charge: &Charge<'_>| !charge.policy.is_shadow();
        let mut slots = vec![];
        for (charge, verdict) in charges.iter().zip(verdicts) {
            if is_enforced(charge) && ledger::takes_slots(charge) {
                let lacks_slots = verdict.outcome != Outcome::Allowed;
                slots.push((ledger::key_of(charge), lacks_slots));
            }
        }
        let is_known = |(key, _): &(Key, bool)| {
            self.queue(key).any(|(place, waiter)| place == old && now < waiter.ends_at)
        };
        let is_known = old > 0 && !slots.is_empty() && slots.iter().all(is_known);
        for (key, _) in &slots {
            self.leave(key, old, now);
        }
        let exceeds_limit =
            |charge: &Charge<'_>| is_enforced(charge) && charge.cost > charge.policy.limit();
        let waits = is_known || slots.iter().any(|(_, lacks_slots)| *lacks_slots);
        if *allowed || !waits || charges.iter().any(exceeds_limit) {
            return None;
        }
        let newest = slots.iter().map(|(key, _)| last_number(key)).max().unwrap_or(0);
        let number = if is_known { old } else { now.max(newest + 1) };
        let ttl = call.id.map_or(Duration::ZERO, |id| id.ttl);
        let ends_at = now + holds::life(&charges, ttl).min(5_000_000);
        let mut ahead = 0;
        for (key, lacks_slots) in slots {
            let queue = self.0.entry(key).or_default();
            queue.insert(number, Waiter { ends_at, lacks_slots });
            ahead = ahead.max(queue.keys().filter(|place| **place < number).count());
        }
        Some(Place::new(number, u32::try_from(ahead).ok()?))
    }
}
