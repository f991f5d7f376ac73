//! A call to policies with shards, whose charges are routed to shares.

use std::time::Duration;

use smallvec::SmallVec;

use super::round_robin::RoundRobin;
use super::shard_pick::{ShardPick, ShardWeights};
use crate::{
    Call, Charge, Decision, Error, ErrorKind, Operation, Outcome, Policy, Shards, Verdict,
};

type List<T> = SmallVec<[T; 4]>;

/// A call to policies with shards, and the shards that are picked for the call.
#[derive(Debug)]
pub(super) struct RoutedCall<'a> {
    call: Call<'a>,
    /// The picked shards, for each number of shards. Policies with the same number of shards use
    /// the same pick, so that their states are in one slot of the cluster.
    picks: List<(u32, ShardPick)>,
}

impl<'a> RoutedCall<'a> {
    /// Picks the shards for a call. Returns an error if the call is not valid, or if a reset or a
    /// block of several shards has an id.
    pub(super) fn new(call: Call<'a>, turns: &RoundRobin) -> Result<Self, Error> {
        call.check()?;
        let changes_all = matches!(
            call.operation,
            Operation::Reset | Operation::Block { .. } | Operation::BlockAtLeast { .. }
        );
        if let Some(split) = call.charges.iter().find(|charge| is_split(charge.policy))
            && changes_all
            && call.id.is_some()
        {
            let message = format!(
                "a reset or a block of `{}` is one call for each shard; it must not have an id",
                split.policy
            );
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        let anywhere = || call.charges.iter().filter(|charge| charge.policy.can_use_any_shard());
        let Some(_) = anywhere().next() else {
            return Ok(Self { call, picks: List::new() });
        };
        let key = turns.key(anywhere());
        let turn = match call.operation {
            Operation::Acquire | Operation::Charge => turns.next_turn(key),
            // A refund uses the turn of the last charge, so that it is sent to the shard of this
            // charge.
            Operation::Refund | Operation::Undo { .. } => turns.peek_turn(key).wrapping_sub(1),
            _ => turns.peek_turn(key),
        };
        let mut weights: List<(u32, ShardWeights)> = List::new();
        for charge in anywhere() {
            let count = shard_count(charge.policy);
            let charge_weights = weights_with_room(&call, &charge);
            match weights.iter_mut().find(|(other, _)| *other == count) {
                Some((_, all)) => *all = all.and(charge_weights),
                None => weights.push((count, charge_weights)),
            }
        }
        let pick = |(count, weights)| (count, ShardPick::new(turn, weights));
        Ok(Self { call, picks: weights.into_iter().map(pick).collect() })
    }

    /// Returns the sub-calls to send first. A reset or a block has one sub-call for each shard, and
    /// any other operation has one sub-call.
    pub(super) fn first(&self) -> Vec<SubCall<'a>> {
        match self.call.operation {
            Operation::Reset | Operation::Block { .. } | Operation::BlockAtLeast { .. } => {
                self.everywhere()
            }
            _ => vec![self.sub_call(|pick| pick.first)],
        }
    }

    /// Returns the sub-call to send after the answer `first` of the first shard. Returns `None` if
    /// a second shard cannot help.
    pub(super) fn second(&self, first: &Decision) -> Option<SubCall<'a>> {
        let can_retry = matches!(self.call.operation, Operation::Acquire | Operation::Peek);
        let counts =
            |verdict: &Verdict| is_denial(verdict) && (first.is_allowed() || !verdict.is_shadow());
        let charges = self.call.charges.iter().zip(first.verdicts());
        let mut denied = charges.filter(|(_, verdict)| counts(verdict));
        let would_help = denied.all(|(charge, _)| self.can_use_second(&charge));
        (can_retry && has_no_charge(first) && would_help)
            .then(|| self.sub_call(|pick| pick.second.unwrap_or(pick.first)))
    }

    /// Merges the decisions on the sub-calls. The verdicts of the result have the limits of the
    /// whole policies instead of the limits of the shares. Returns an error if the store has
    /// returned too few answers.
    pub(super) fn answer(
        &self,
        parts: &[SubCall<'_>],
        mut decisions: Vec<Decision>,
    ) -> Result<Decision, Error> {
        if parts.len() != decisions.len() {
            return Err(Error::no_answer());
        }
        let limits = self.call.charges.iter().map(|charge| charge.policy.limit());
        if let ([_], Some(decision)) = (parts, decisions.pop_if(|_| parts.len() == 1)) {
            return Ok(decision.with_limits(limits));
        }
        let verdict = |index: usize| {
            let verdicts = parts.iter().zip(&decisions).filter_map(|(part, decision)| {
                let at = part.indices.iter().position(|&other| other == index)?;
                decision.verdicts().get(at).copied()
            });
            verdicts.reduce(Verdict::merge)
        };
        let verdicts = (0..self.call.charges.len()).filter_map(verdict);
        Ok(Decision::new(verdicts).with_limits(limits))
    }

    pub(super) fn call(&self) -> &Call<'a> {
        &self.call
    }

    /// Returns the charge to a share of its policy. Returns the charge unchanged if its policy has
    /// no shards.
    fn to_share(&self, charge: Charge<'a>, pick: impl Fn(&ShardPick) -> usize) -> Charge<'a> {
        let index = charge.share_of_subject().or_else(|| self.pick(&charge).map(pick));
        let share = index.and_then(|index| charge.policy.shares().get(index));
        share.map_or(charge, |share| to(share, charge))
    }

    fn pick(&self, charge: &Charge<'_>) -> Option<&ShardPick> {
        if !charge.policy.can_use_any_shard() {
            return None;
        }
        let count = shard_count(charge.policy);
        self.picks.iter().find(|(other, _)| *other == count).map(|(_, pick)| pick)
    }

    fn can_use_second(&self, charge: &Charge<'_>) -> bool {
        let limit = charge.policy.shares().first().map_or(0, Policy::limit);
        self.pick(charge).is_some_and(|pick| pick.second.is_some())
            && self.call.charges.total_cost_for(charge) <= limit
    }

    fn sub_call(&self, pick: impl Fn(&ShardPick) -> usize) -> SubCall<'a> {
        let charges = self.call.charges.iter().map(|charge| self.to_share(charge, &pick));
        SubCall { charges: charges.collect(), indices: (0..self.call.charges.len()).collect() }
    }

    /// Returns a sub-call for each shard, for a reset or a block. The first sub-call also contains
    /// the charges to policies without split limits.
    fn everywhere(&self) -> Vec<SubCall<'a>> {
        let mut parts = vec![];
        for (index, charge) in self.call.charges.iter().enumerate() {
            let shares = if is_split(charge.policy) { charge.policy.shares() } else { &[] };
            let everywhere = shares.iter().map(|share| to(share, charge));
            let here = shares.is_empty().then(|| self.to_share(charge, |pick| pick.first));
            for (shard, charge) in everywhere.chain(here).enumerate() {
                if shard == parts.len() {
                    parts.push(SubCall::default());
                }
                parts[shard].charges.push(charge);
                parts[shard].indices.push(index);
            }
        }
        parts
    }
}

/// One of the calls to the store into which a call to policies with shards is split.
#[derive(Debug, Default)]
pub(super) struct SubCall<'a> {
    charges: List<Charge<'a>>,
    indices: List<usize>,
}

impl SubCall<'_> {
    /// Returns the call with the charges of this sub-call, and the operation and id of the whole
    /// call.
    pub(super) fn call<'c>(&'c self, whole: &Call<'c>) -> Call<'c> {
        Call { id: whole.id, ..Call::new(whole.operation, &self.charges) }
    }
}

/// Returns the better of the answers of two shards. If the second shard has charged something,
/// returns the second answer. If not, returns the refusal that ends earlier.
pub(super) fn better(first: Decision, second: Decision) -> Decision {
    let ends = |refusal: &Decision| refusal.retry_after().unwrap_or(Duration::MAX);
    if has_no_charge(&second) && ends(&first) <= ends(&second) { first } else { second }
}

/// Returns `true` if the call has charged nothing. If all policies of a call are shadows, the call
/// is admitted even if all of them deny, and then nothing is charged.
fn has_no_charge(decision: &Decision) -> bool {
    decision.is_denied() || decision.verdicts().iter().all(is_denial)
}

fn is_denial(verdict: &Verdict) -> bool {
    verdict.outcome() != Outcome::Allowed
}

pub(super) fn has_shards(call: &Call<'_>) -> bool {
    let has_shards = |policy: &Policy| !policy.shares().is_empty();
    call.charges.any_policy(has_shards)
}

fn to<'a>(share: &'a Policy, charge: Charge<'a>) -> Charge<'a> {
    Charge { policy: share, subject: charge.state_subject(), ..charge }
}

fn is_split(policy: &Policy) -> bool {
    policy.shards().is_some_and(Shards::split)
}

fn shard_count(policy: &Policy) -> u32 {
    policy.shards().map_or(1, |shards| shards.count())
}

fn weights_with_room(call: &Call<'_>, charge: &Charge<'_>) -> ShardWeights {
    let cost = match call.operation {
        // `Operation::Charge` charges beyond the limit, so no share refuses it.
        Operation::Charge => 0,
        _ => call.charges.total_cost_for(charge),
    };
    let shares = charge.policy.shares();
    ShardWeights::new(shares.partition_point(|share| share.limit() >= cost), charge.policy.limit())
}
