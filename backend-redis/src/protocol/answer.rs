use std::time::Duration;

use smallvec::SmallVec;
use tidegate_core::algorithm::{
    concurrent, fixed_window, interval_bucket, quota, sliding_counter, token_bucket,
};
use tidegate_core::engine::{Rule, StateShape};
use tidegate_core::no_semver::{
    Algorithm, Level, VerdictInput, Wait, lapsed_hold, too_many_grants, too_many_holds,
    unknown_hold,
};
use tidegate_core::{
    AlreadySettled, Charge, Decision, Error, ErrorKind, Operation, Outcome, Place, Timestamp,
    Verdict,
};

use super::bytes::{MAX_NUMBER, Reader};
use super::layout;
use super::normalized::NormalizedCall;
use super::open_holds::{self, HoldsReply};
use super::quota_value;
use crate::values::Value;

#[derive(Debug)]
pub struct ScriptReply {
    pub decision: Decision,
    /// The time of each charge that was made, which is the argument of [`Operation::Undo`].
    /// Although the clock of the server can step back, this time is never before the last write of
    /// the state.
    pub taken_at: SmallVec<[Timestamp; 4]>,
    /// Whether the call repeated an earlier hold, and the script has only returned the reply to the
    /// earlier hold.
    pub is_repetition: bool,
}

/// Returns the time of the server if the script has done nothing because the time is in another
/// window of a quota.
pub(super) fn other_window(answer: &[u8]) -> Option<Timestamp> {
    let (&layout::OTHER_WINDOW, rest) = answer.split_first()? else { return None };
    let mut reader = Reader(rest);
    let now = reader.number()?;
    reader.0.is_empty().then(|| Timestamp::from_micros(now))
}

/// Returns the error that a script has reported for a call with an id. Returns `None` if the reply
/// is not such an error.
pub(super) fn id_error(id: &[u8], calls: &[NormalizedCall<'_>], answer: &[u8]) -> Option<Error> {
    let shown = id.escape_ascii();
    let (kind, message) = match answer {
        [layout::ID_REUSED] => {
            (ErrorKind::IdReused, format!("the id \"{shown}\" was used for another call"))
        }
        [layout::ID_FOREIGN] => (
            ErrorKind::ForeignValue,
            format!(
                "the key of the id \"{shown}\" has a value that Tidegate did not write; it was not \
                 changed"
            ),
        ),
        [layout::HOLD_UNKNOWN] => return Some(unknown_hold(id)),
        [layout::HOLD_LAPSED, rest @ ..] => return Some(lapsed_hold(id, Reader(rest).number()?)),
        [layout::HOLD_SETTLED, rest @ ..] => return already_settled(id, calls, rest),
        [layout::TOO_MANY_HOLDS, place, open @ ..] => {
            let (charge, _) = calls.first()?.charges.get(usize::from(*place).checked_sub(1)?)?;
            let open = usize::try_from(u32::from_le_bytes(open.try_into().ok()?)).ok()?;
            return Some(too_many_holds(charge.policy, open));
        }
        [layout::TOO_MANY_GRANTS, place] => {
            let (charge, _) = calls.first()?.charges.get(usize::from(*place).checked_sub(1)?)?;
            return Some(too_many_grants(charge.policy));
        }
        _ => return None,
    };
    Some(Error::new(kind, message))
}

/// Returns the error of an operation on a hold that is already settled. `reply` contains the costs
/// of the earlier settlement, and the reply to the earlier settlement.
fn already_settled(id: &[u8], calls: &[NormalizedCall<'_>], reply: &[u8]) -> Option<Error> {
    let [call] = calls else { return None };
    let mut reader = Reader(reply);
    let costs = call.charges.iter().map(|_| reader.number()).collect::<Option<Vec<_>>>()?;
    let settlement = read(&[call.as_settlement()], reader.0)?.pop()?.ok()?;
    Some(AlreadySettled::new(costs, settlement.decision).into_error(id))
}

/// Parses the reply to calls. Returns `None` if the reply is not valid.
pub(super) fn read(
    calls: &[NormalizedCall<'_>],
    answer: &[u8],
) -> Option<Vec<Result<ScriptReply, Error>>> {
    let mut reader = Reader(answer);
    let replies = if answer.first()? == &layout::VERDICTS {
        reader.byte()?;
        let now = reader.number()?;
        let replies = calls.iter().map(|call| read_call(call, now, &mut reader));
        replies.collect::<Option<_>>()?
    } else {
        // The reply is only the value of a bucket, which the script has just written.
        let [normalized] = calls else { return None };
        let reply = ChargeReply::read_value(&mut reader)?;
        let now = reply.numbers[0];
        vec![Ok(decide(normalized, &[reply], now)?)]
    };
    reader.0.is_empty().then_some(replies)
}

fn read_call(
    normalized: &NormalizedCall<'_>,
    now: u64,
    reader: &mut Reader<'_>,
) -> Option<Result<ScriptReply, Error>> {
    // The reply to a call begins with the kind of a value, WITH_HOLDS, 0, or the place of a charge
    // with a foreign value. A place is at most 64, because a call has at most 64 charges, so it is
    // less than `NONE`, the lowest kind.
    if *reader.0.first()? >= layout::NONE {
        let reply = ChargeReply::read_value(reader)?;
        return Some(Ok(decide(normalized, &[reply], now)?));
    }
    let first = reader.byte()?;
    let has_holds = first == layout::WITH_HOLDS;
    let foreign = usize::from(first);
    if foreign > 0 && !has_holds {
        let (charge, _) = normalized.charges.get(foreign - 1)?;
        return Some(Err(foreign_value(charge)));
    }
    if let Some(min) = normalized.operation.min_amount() {
        return Some(Ok(read_up_to(normalized, min, now, has_holds, reader)?));
    }
    let mut amounts: SmallVec<[u64; 4]> = SmallVec::new();
    let mut charged: SmallVec<[usize; 4]> = SmallVec::new();
    let mut out_of_reach: SmallVec<[usize; 4]> = SmallVec::new();
    let mut replies: SmallVec<[ChargeReply; 1]> = SmallVec::new();
    for _ in &normalized.charges {
        replies.push(ChargeReply::read(reader)?);
        if normalized.has_amounts() {
            let amount = reader.number()?;
            if normalized.is_on_a_hold() && reader.byte()? != 0 {
                let marked = if amount > 0 { &mut charged } else { &mut out_of_reach };
                marked.push(amounts.len());
            }
            amounts.push(amount);
        }
    }
    if has_holds {
        read_holds(normalized, now, &mut replies, reader)?;
    }
    let mut reply = decide(normalized, &replies, now)?;
    if has_holds {
        reply = read_hold(normalized, reply, reader)?;
    }
    if normalized.has_amounts() {
        let amounts = normalized.split(&amounts);
        reply.decision = reply
            .decision
            .with_amounts(amounts)
            .with_charged(charged)
            .with_out_of_reach(out_of_reach);
    }
    Some(Ok(reply))
}

/// Reads the reply to an acquire of up to the costs, in which each charge has its own state. The
/// verdicts of an allowed call are the verdicts of an acquire of the charged amount. The verdicts
/// of a refused call are the verdicts of an acquire of the minimum.
fn read_up_to(
    normalized: &NormalizedCall<'_>,
    min: u64,
    now: u64,
    has_holds: bool,
    reader: &mut Reader<'_>,
) -> Option<ScriptReply> {
    let amount = reader.number()?;
    let mut taken = normalized.clone();
    for (charge, cost) in &mut taken.charges {
        if !charge.is_check_only {
            *cost = amount.max(min);
        }
    }
    let replies = taken.charges.iter().map(|_| ChargeReply::read(reader));
    let mut replies: SmallVec<[ChargeReply; 1]> = replies.collect::<Option<_>>()?;
    if has_holds {
        read_holds(&taken, now, &mut replies, reader)?;
    }
    let mut reply = decide(&taken, &replies, now)?;
    if has_holds {
        reply = read_hold(&taken, reply, reader)?;
    }
    let amounts =
        taken.charges.iter().zip(reply.decision.verdicts()).map(|((charge, _), verdict)| {
            let is_taken = verdict.outcome() == Outcome::Allowed && !charge.is_check_only;
            if is_taken { amount } else { 0 }
        });
    let amounts: SmallVec<[u64; 4]> = amounts.collect();
    Some(ScriptReply { decision: reply.decision.with_amounts(amounts), ..reply })
}

/// Reads the part of the reply that describes the holds on the state of each charge.
fn read_holds(
    normalized: &NormalizedCall<'_>,
    now: u64,
    replies: &mut [ChargeReply],
    reader: &mut Reader<'_>,
) -> Option<()> {
    for ((charge, _), reply) in normalized.charges.iter().zip(replies) {
        reply.holds = open_holds::read(reader, charge.policy.rule(), now)?;
    }
    Some(())
}

/// Reads the part of the reply that only a call for a hold has. If the call was admitted, this is
/// the number of each hold that it made, and the fences are added to the decision. If the call
/// waits in a queue, this is its place.
fn read_hold(
    normalized: &NormalizedCall<'_>,
    reply: ScriptReply,
    reader: &mut Reader<'_>,
) -> Option<ScriptReply> {
    let is_hold = normalized.operation.is_of_hold() && !normalized.is_on_a_hold();
    if !is_hold {
        return Some(reply);
    }
    if reply.decision.is_denied() {
        if !matches!(normalized.operation, Operation::HoldInTurn { .. }) {
            return Some(reply);
        }
        let (number, ahead) = (reader.number()?, u32::try_from(reader.number()?).ok()?);
        if number == 0 {
            return Some(reply);
        }
        let decision = reply.decision.with_place(Place::new(number, ahead));
        return Some(ScriptReply { decision, ..reply });
    }
    let fence = |(charge, _): &(Charge<'_>, u64)| {
        let number = reader.number()?;
        Some((number > 0 && charge.policy.is_concurrent()).then_some(number))
    };
    let fences = normalized.charges.iter().map(fence).collect::<Option<SmallVec<[_; 4]>>>()?;
    if !normalized.charges.iter().any(|(charge, _)| charge.policy.is_concurrent()) {
        return Some(reply);
    }
    Some(ScriptReply { decision: reply.decision.with_fences(fences), ..reply })
}

pub(super) fn decide(
    normalized: &NormalizedCall<'_>,
    replies: &[ChargeReply],
    now: u64,
) -> Option<ScriptReply> {
    if replies.len() != normalized.charges.len() {
        return None;
    }
    let mut booked: SmallVec<[u64; 4]> = SmallVec::new();
    let mut verdicts: SmallVec<[Verdict; 4]> = SmallVec::new();
    let mut taken_at: SmallVec<[Timestamp; 4]> = SmallVec::new();
    for ((charge, cost), reply) in normalized.charges.iter().zip(replies) {
        // The verdicts of a refund and similar operations have the numbers of a peek with a cost of
        // 0.
        let cost = if normalized.answers_as_a_peek() { 0 } else { *cost };
        booked.push(reply.numbers[2]);
        verdicts.push(reply.verdict(charge, cost, now)?);
        taken_at.push(Timestamp::from_micros(reply.clock_of_the_state(charge, now)));
    }
    let decision = normalized.answer(&verdicts);
    let decision = with_unspent(decision, normalized, replies);
    let taken_at = normalized.each(&taken_at).collect();
    let is_booked =
        matches!(normalized.operation, Operation::Reserve { .. }) && decision.is_allowed();
    let booked = || {
        let replies = normalized.each(&booked).zip(decision.verdicts());
        let enforced = replies
            .filter(|(_, verdict)| !verdict.is_shadow() && verdict.outcome() != Outcome::Skipped);
        enforced.map(|(wait, _)| wait).max().unwrap_or(0)
    };
    let wait = Duration::from_micros(if is_booked { booked() } else { 0 });
    Some(ScriptReply { decision: decision.with_wait(wait), taken_at, is_repetition: false })
}

/// Adds the unspent amounts to the decision of a peek, for each policy whose state has holds.
fn with_unspent(
    decision: Decision,
    normalized: &NormalizedCall<'_>,
    replies: &[ChargeReply],
) -> Decision {
    if normalized.operation != Operation::Peek || !normalized.stores_holds() {
        return decision;
    }
    let unspent = |((charge, _), reply): (&(Charge<'_>, u64), &ChargeReply)| {
        charge.policy.stores_holds().then_some(reply.holds.unspent)
    };
    let unspent: SmallVec<[Option<u64>; 4]> =
        normalized.charges.iter().zip(replies).map(unspent).collect();
    decision.with_unspent(normalized.each(&unspent))
}

fn foreign_value(charge: &Charge<'_>) -> Error {
    Error::new(
        ErrorKind::ForeignValue,
        format!(
            "the key of `{}` for this subject has a value that Tidegate did not write; it was not \
             changed",
            charge.policy.name()
        ),
    )
}

/// The reply of a script to a charge. It contains the outcome and four numbers of the state.
///
/// Functions of the core compute the rest of the verdict from the numbers of the state, as in every
/// other store.
pub(super) struct ChargeReply {
    outcome: Outcome,
    block_level: u8,
    blocked_until: u64,
    /// The numbers a, b, c and d that the rule returns: see `scripts/lib/rules.lua`.
    numbers: [u64; 4],
    /// The state of a quota, if the reply contains its value.
    quota: Option<Box<quota::State>>,
    holds: HoldsReply,
}

impl ChargeReply {
    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let mut first = reader.byte()?;
        let mut quota = None;
        if first == layout::WITH_VALUE {
            quota = Some(quota_value::read(reader)?);
            first = reader.byte()?;
        }
        let block_level = first / layout::LEVEL_UNIT;
        let outcome = match first % layout::LEVEL_UNIT {
            layout::ALLOWED => Outcome::Allowed,
            layout::DENIED => Outcome::Denied,
            layout::BLOCKED => Outcome::Blocked,
            _ => return None,
        };
        let blocked_until = reader.number()?;
        let numbers = [reader.number()?, reader.number()?, reader.number()?, reader.number()?];
        let holds = HoldsReply::default();
        Some(Self { outcome, block_level, blocked_until, numbers, quota, holds })
    }

    /// Reads a reply that is only the value that an admitted charge has written. The store computes
    /// the whole reply from this value.
    fn read_value(reader: &mut Reader<'_>) -> Option<Self> {
        match quota_value::is_kind(*reader.0.first()?) {
            true => Some(Self::for_quota(quota_value::read(reader)?)),
            false => Some(Self::written(&Value::read(reader)?)),
        }
    }

    fn for_quota(state: Box<quota::State>) -> Self {
        let written = Self::written(&Value::Window { ends: state.end, count: state.count });
        Self { quota: Some(state), ..written }
    }

    fn written(value: &Value) -> Self {
        let numbers = match *value {
            Value::Window { ends, count } => [ends, count, 0, 0],
            Value::Counter { ends, previous, current } => [ends, previous, current, 0],
            Value::Bucket { time, debt, .. } => [time, debt, 0, 0],
            Value::Interval { anchor, debt, .. } => [anchor, debt, 0, 0],
            Value::Slots { count } => [0, count, 0, 0],
            Value::Calendar { ends, count, .. } | Value::Drift { ends, count, .. } => {
                [ends, count, 0, 0]
            }
        };
        let (outcome, holds) = (Outcome::Allowed, HoldsReply::default());
        let (block_level, blocked_until, quota) = (0, 0, None);
        Self { outcome, block_level, blocked_until, numbers, quota, holds }
    }

    /// Reads the reply to a charge of a usual batch. The inner `None` stands for a charge that the
    /// general script must decide.
    pub(super) fn read_usual(reader: &mut Reader<'_>, charge: &Charge<'_>) -> Option<Option<Self>> {
        let is_denied = match *reader.0.first()? {
            layout::EMPTY => {
                reader.byte()?;
                let (block_level, blocked_until, numbers) = (0, 0, [0; 4]);
                let (outcome, quota, holds) = (Outcome::Denied, None, HoldsReply::default());
                let reply = Self { outcome, block_level, blocked_until, numbers, quota, holds };
                return Some(Some(reply));
            }
            layout::DENIED => {
                reader.byte()?;
                true
            }
            _ => false,
        };
        if quota_value::is_kind(*reader.0.first()?) {
            let reply = Self::for_quota(quota_value::read(reader)?);
            let outcome = if is_denied { Outcome::Denied } else { Outcome::Allowed };
            return Some(Some(Self { outcome, ..reply }));
        }
        let value = Value::read(reader)?;
        let mut reply = Self::written(&value);
        if !is_denied {
            return Some(Some(reply));
        }
        // An earlier policy with other numbers possibly wrote the value. So the end of the state is
        // read from the value, and not computed for the current policy.
        match (value, charge.policy.rule()) {
            (Value::Bucket { unit, recovers_at, .. }, Rule::TokenBucket(rule)) => {
                if unit != rule.unit() {
                    return Some(None);
                }
                reply.numbers[3] = recovers_at;
            }
            // If the end does not fit into the value, the script stores `MAX_NUMBER`, and the core
            // computes the end.
            (Value::Interval { recovers_at, .. }, Rule::IntervalBucket(_))
                if recovers_at < MAX_NUMBER =>
            {
                reply.numbers[3] = recovers_at;
            }
            _ => {}
        }
        Some(Some(Self { outcome: Outcome::Denied, ..reply }))
    }

    /// Returns the time at which the state ends without further writes, computed by the policy that
    /// wrote the state. Returns `None` if the core can compute this time.
    fn ends_at(&self) -> Option<u64> {
        let [.., d] = self.numbers;
        (d > 0).then_some(d)
    }

    fn verdict(&self, charge: &Charge<'_>, cost: u64, now: u64) -> Option<Verdict> {
        let (mut wait, level) = self.weigh(charge, cost, now)?;
        if charge.policy.is_concurrent() && self.outcome == Outcome::Denied && wait.is_zero() {
            // Slots are free, but another call waits for them and goes first.
            wait = Wait::UNKNOWN;
        }
        if let Some(holds) = &self.holds.open
            && !wait.is_zero()
        {
            wait = holds.wait(charge.policy, cost, now, wait);
        }
        let total = match charge.policy.rule() {
            Rule::Quota(rule) if charge.policy.warn_percent().is_some() => {
                Some(rule.total(self.quota_state().as_deref(), now))
            }
            _ => None,
        };
        let input = VerdictInput {
            outcome: self.outcome,
            wait,
            level,
            ends_at: self.ends_at(),
            blocked_until: self.blocked_until,
            block_level: self.block_level,
            now,
        };
        Some(match total {
            Some(total) => input.verdict_of_quota(charge.policy, total),
            None => input.verdict(charge.policy),
        })
    }

    /// Returns the time of the charge: the current time, or the time of the last write if the clock
    /// stepped back.
    fn clock_of_the_state(&self, charge: &Charge<'_>, now: u64) -> u64 {
        let [a, b, ..] = self.numbers;
        let written_at = match charge.policy.rule().shape() {
            StateShape::FixedWindow(_, window)
            | StateShape::SlidingCounter(window)
            | StateShape::FairPool(window) => a.saturating_sub(window),
            StateShape::SlidingLog(_, grain) => b.saturating_sub(grain),
            StateShape::Quota(_) => now,
            _ => a,
        };
        now.max(written_at)
    }

    fn quota_state(&self) -> Option<Box<quota::State>> {
        let [end, count, ..] = self.numbers;
        let plain = || (count > 0).then(|| Box::new(quota::State::new(0, end, count)));
        self.quota.clone().or_else(plain)
    }

    fn weigh(&self, charge: &Charge<'_>, cost: u64, now: u64) -> Option<(Wait, Level)> {
        let [a, b, c, _] = self.numbers;
        Some(match charge.policy.rule() {
            Rule::FixedWindow(rule) => {
                let state = (a > 0).then_some(fixed_window::State::new(a, b));
                weigh(rule, state.as_ref(), cost, now)
            }
            Rule::SlidingLog(_) => self.weigh_log(charge, cost, now)?,
            Rule::SlidingCounter(rule) => {
                let state = (a > 0).then_some(sliding_counter::State::new(a, b, c));
                weigh(rule, state.as_ref(), cost, now)
            }
            Rule::TokenBucket(rule) => {
                let state = (b > 0).then_some(token_bucket::State::new(a, b));
                weigh(rule, state.as_ref(), cost, now)
            }
            Rule::IntervalBucket(rule) => {
                let state = (b > 0).then_some(interval_bucket::State::new(a, b));
                weigh(rule, state.as_ref(), cost, now)
            }
            Rule::Concurrent(rule) => {
                let state = (b > 0).then_some(concurrent::State::new(b));
                weigh(rule, state.as_ref(), cost, now)
            }
            Rule::Quota(rule) => weigh(rule, self.quota_state().as_ref(), cost, now),
            Rule::FairPool(rule) => {
                // The numbers are the end of the window, the cost that the member was charged, the
                // remaining amount, and the time of recovery.
                let [ends, _, remaining, recovers_at] = self.numbers;
                let wait = match self.outcome {
                    _ if cost > rule.limit() => Wait::NEVER,
                    Outcome::Denied => Wait::between(now, ends),
                    _ => Wait::ZERO,
                };
                (wait, Level::new(remaining, recovers_at.max(now)))
            }
            _ => return None,
        })
    }

    /// Computes the wait and the level of a log from the three numbers that the rule returns: the
    /// sum of the records, the stamp of the newest record, and the stamp of the last record that
    /// must expire before the cost is admitted.
    fn weigh_log(&self, charge: &Charge<'_>, cost: u64, now: u64) -> Option<(Wait, Level)> {
        let [sum, newest, last_to_expire, _] = self.numbers;
        let StateShape::SlidingLog(window, _) = charge.policy.rule().shape() else {
            return None;
        };
        let limit = charge.policy.limit();
        let wait = match limit.checked_sub(cost) {
            None => Wait::NEVER,
            Some(max_before) if sum <= max_before => Wait::ZERO,
            Some(_) => Wait::between(now, last_to_expire.saturating_add(window)),
        };
        let recovers_at = if sum > 0 { newest.saturating_add(window) } else { now };
        Some((wait, Level::new(limit.saturating_sub(sum), recovers_at)))
    }
}

fn weigh<A: Algorithm>(rule: &A, state: Option<&A::State>, cost: u64, now: u64) -> (Wait, Level) {
    (rule.wait(state, cost, now), rule.level(state, now))
}
