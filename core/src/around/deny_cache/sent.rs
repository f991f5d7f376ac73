//! A call on its way to the store.

use super::Cache;
use super::asked::Asked;
use super::generations::Counts;
use super::moment::Moment;
use super::refusal::{Refusal, is_asking};
use crate::{Call, Decision, Error, Operation, Outcome};

/// A call on its way to the store, and how things were before it was sent.
///
/// If it is dropped without an answer, what it may have changed is no longer known.
#[derive(Debug)]
pub(super) struct Sent<'a> {
    cache: &'a Cache,
    asked: Asked<'a>,
    at: Moment,
    counts: Counts,
    is_settled: bool,
}

/// What a call has done to the states behind its keys.
enum Effect {
    /// Nothing.
    None,
    /// It has shut subjects out, just as its answer says.
    Blocked,
    /// Something that its answer does not tell in full, or it has no answer.
    Changed,
}

impl<'a> Sent<'a> {
    /// To be made before the store is asked.
    pub(super) fn new(cache: &'a Cache, asked: Asked<'a>, at: Moment) -> Self {
        cache.moments.sent(at);
        if !is_asking(asked.call.operation) {
            // Now already: nobody knows when the answer comes.
            cache.generations.advance(&asked.keys);
        }
        let counts = cache.generations.of(&asked.keys);
        Self { cache, asked, at, counts, is_settled: false }
    }

    pub(super) fn call(&self) -> Call<'a> {
        self.asked.call
    }

    /// Takes note of the answer.
    pub(super) fn answered(mut self, answer: &Result<Decision, Error>) {
        self.is_settled = true;
        let Self { cache, asked, at, counts, .. } = &mut self;
        match effect(&asked.call, answer) {
            Effect::None => {}
            Effect::Blocked => cache.generations.advance_from(&asked.keys, counts),
            Effect::Changed => return cache.generations.advance(&asked.keys),
        }
        let Ok(decision) = answer else { return };
        if asked.hash.is_none() || !is_asking(asked.call.operation) {
            return;
        }
        let refusal = Refusal::of(&asked.call, decision, *at, counts, cache.only_exact);
        if let Some(refusal) = refusal.filter(|r| r.holds(asked, *at, &cache.generations)) {
            cache.table.keep(asked, refusal, *at);
        }
    }
}

impl Drop for Sent<'_> {
    fn drop(&mut self) {
        if !self.is_settled && self.asked.call.operation != Operation::Peek {
            self.cache.generations.advance(&self.asked.keys);
        }
    }
}

fn effect(call: &Call<'_>, answer: &Result<Decision, Error>) -> Effect {
    match (call.operation, answer) {
        (Operation::Peek, _) => Effect::None,
        (Operation::Refund | Operation::Undo { .. }, _) => Effect::Changed,
        (Operation::Reset | Operation::Block { .. }, _) => Effect::Changed,
        (_, Err(error)) if error.is_surely_not_charged() => Effect::None,
        (_, Err(_)) => Effect::Changed,
        // The store itself may have done anything.
        (_, Ok(decision)) if decision.degraded().is_some() => Effect::Changed,
        (_, Ok(decision)) if decision.is_denied() => {
            let shut_out = decision.verdicts().iter().any(|verdict| {
                verdict.outcome() == Outcome::Denied && !verdict.blocked_for().is_zero()
            });
            if shut_out { Effect::Blocked } else { Effect::None }
        }
        (_, Ok(_)) if call.charges.iter().all(|charge| charge.cost == 0) => Effect::None,
        (_, Ok(_)) => Effect::Changed,
    }
}
