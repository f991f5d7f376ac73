//! Calls in flight to the store, and the effects of the answers on the cache.

use std::collections::HashSet;

use super::cache::Cache;
use super::entry::{CachedDenial, CallKey, is_cacheable};
use super::staleness::ClockReading;
use crate::layers::generations::KeyGenerations;
use crate::{Call, Clock, Decision, Error, Operation, Outcome};

/// A call in flight to the store. It contains the time and the generations of the call's keys,
/// which were read before the call was sent.
///
/// If an `InFlight` is dropped without an answer, the call has possibly changed its states. So the
/// keys of the call get new generations, which makes their cached denials invalid.
#[derive(Debug)]
pub(super) struct InFlight<'a> {
    cache: &'a Cache,
    key: CallKey<'a>,
    at: ClockReading,
    counts: KeyGenerations,
    is_settled: bool,
}

enum Effect {
    /// The call has changed nothing.
    None,
    /// A policy denied the call and blocked its subject. The answer contains the duration of the
    /// block.
    Blocked,
    /// The call has possibly made changes that the answer does not fully describe.
    Changed,
}

impl<'a> InFlight<'a> {
    /// Creates the record of a call in flight. The caller must create this record before it sends
    /// the call.
    pub(super) fn new(cache: &'a Cache, key: CallKey<'a>, at: ClockReading) -> Self {
        cache.clock_guard.record_send(at);
        if !is_cacheable(&key.call) {
            // A call that cannot be cached, such as a refund, can end a denial as soon as the store
            // executes it. So the denials of its keys become invalid before the call is sent.
            cache.generations.advance(&key.keys);
        }
        let counts = cache.generations.current(&key.keys);
        Self { cache, key, at, counts, is_settled: false }
    }

    fn call(&self) -> Call<'a> {
        self.key.call
    }

    pub(super) fn answered(mut self, answer: &Result<Decision, Error>) {
        self.is_settled = true;
        let Self { cache, key, at, counts, .. } = &mut self;
        match effect(&key.call, answer) {
            Effect::None => {}
            Effect::Blocked => cache.generations.advance_from(&key.keys, counts),
            Effect::Changed => return cache.generations.advance(&key.keys),
        }
        let Ok(decision) = answer else { return };
        if key.hash.is_none() || !is_cacheable(&key.call) {
            return;
        }
        let (only_exact, max_age) = (cache.only_exact, cache.max_age);
        let denial = CachedDenial::new(&key.call, decision, *at, counts, only_exact, max_age);
        let is_valid = |denial: &CachedDenial| denial.is_valid(key, *at, &cache.generations);
        if let Some(denial) = denial.filter(is_valid) {
            cache.table.insert(key, denial, *at);
        }
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        if !self.is_settled && self.key.call.operation != Operation::Peek {
            self.cache.generations.advance(&self.key.keys);
        }
    }
}

fn effect(call: &Call<'_>, answer: &Result<Decision, Error>) -> Effect {
    match (call.operation, answer) {
        (Operation::Peek, _) => Effect::None,
        (Operation::Refund | Operation::Undo { .. } | Operation::Charge, _) => Effect::Changed,
        (Operation::Reset | Operation::Block { .. }, _) => Effect::Changed,
        (Operation::Grant { .. }, _) => Effect::Changed,
        (Operation::BlockAtLeast { .. }, _) => Effect::Changed,
        (Operation::Settle | Operation::SettleSoFar, _) => Effect::Changed,
        (Operation::Extend | Operation::Leave { .. }, _) => Effect::None,
        (_, Err(error)) if error.is_definitely_not_charged() => Effect::None,
        (_, Err(_)) => Effect::Changed,
        // If a decision is degraded, it is unknown whether the store has charged the call.
        (_, Ok(decision)) if decision.degraded().is_some() => Effect::Changed,
        (_, Ok(decision)) if decision.is_denied() => {
            let mut verdicts = call.charges.iter().zip(decision.verdicts());
            let has_blocked = verdicts.any(|(charge, verdict)| match verdict.outcome() {
                Outcome::Denied => !verdict.blocked_for().is_zero(),
                Outcome::Blocked => charge.policy.restarts_block(),
                _ => false,
            });
            if has_blocked { Effect::Blocked } else { Effect::None }
        }
        (_, Ok(_)) if call.charges.iter().all(|charge| charge.cost == 0) => Effect::None,
        (_, Ok(_)) => Effect::Changed,
    }
}

pub(super) type Answers = Vec<Result<Decision, Error>>;

/// A batch of calls. The cache answers some of the calls, and the others are sent to the store.
pub(super) struct Batch<'a> {
    /// For each call of the batch, in order: its cached denial, or `None` if the call is sent to
    /// the store.
    known: Vec<Option<Decision>>,
    sent: Vec<InFlight<'a>>,
}

impl<'a> Batch<'a> {
    /// Finds the cached denials of the calls. If a call shares a key with an earlier call that is
    /// sent to the store, it is sent to the store too, because the earlier call can change its
    /// answer. If `answers` is `false`, all calls are sent to the store.
    pub(super) fn look_up(
        cache: &'a Cache,
        clock: &impl Clock,
        calls: &'a [Call<'a>],
        answers: bool,
    ) -> Self {
        let at = cache.clock_guard.now(clock);
        let mut in_flight = HashSet::with_hasher(cache.hasher.clone());
        let mut batch = Self { known: Vec::with_capacity(calls.len()), sent: vec![] };
        for call in calls {
            let key = CallKey::new(*call, &cache.hasher);
            let may_be_cached = answers
                && is_cacheable(call)
                && !key.keys.iter().any(|key| in_flight.contains(key));
            let known = if may_be_cached { cache.find(&key, at) } else { None };
            if known.is_none() {
                in_flight.extend(key.keys.iter().copied());
                batch.sent.push(InFlight::new(cache, key, at));
            }
            batch.known.push(known);
        }
        batch
    }

    pub(super) fn in_flight(&self) -> usize {
        self.sent.len()
    }

    pub(super) fn calls(&self) -> Vec<Call<'a>> {
        self.sent.iter().map(InFlight::call).collect()
    }

    /// Returns the answers to all calls of the batch, in the order of the calls. `answers` are the
    /// store's answers to the calls that were sent.
    pub(super) fn merge(self, answers: Answers) -> Answers {
        let mut answers = answers.into_iter();
        let mut sent = self.sent.into_iter();
        let mut next = || {
            // If the store returned too few answers, `sent` is dropped without an answer, like a
            // call that was cancelled.
            let (sent, answer) = (sent.next(), answers.next());
            let answer = answer.ok_or_else(Error::no_answer)?;
            if let Some(sent) = sent {
                sent.answered(&answer);
            }
            answer
        };
        self.known.into_iter().map(|known| known.map_or_else(&mut next, Ok)).collect()
    }
}
