use std::time::Duration;

use smallvec::SmallVec;
use tidegate_core::algorithm::{fixed_window, interval_bucket, sliding_counter, token_bucket};
use tidegate_core::no_semver::{Algorithm, Level, VerdictInput, Wait};
use tidegate_core::policy::{Rule, StateShape};
use tidegate_core::{Charge, Decision, Error, ErrorKind, Operation, Outcome, Timestamp, Verdict};

use super::bytes::Reader;
use super::normalized::NormalizedCall;

/// What a script says to a call.
#[derive(Debug)]
pub struct ScriptReply {
    /// The decision.
    pub decision: Decision,
    /// For each charge, when by its state's clock it was taken, if it was: what
    /// [`Operation::Undo`] has to be told. A state's clock never goes back behind the time that the
    /// state was last written at, as the server's may.
    pub taken_at: SmallVec<[Timestamp; 4]>,
}

/// Reads an answer; `None` if it makes no sense.
pub(super) fn read(
    calls: &[NormalizedCall<'_>],
    answer: &[u8],
) -> Option<Vec<Result<ScriptReply, Error>>> {
    let mut reader = Reader(answer);
    let told = if answer.first()? == &VERDICTS {
        reader.byte()?;
        let now = reader.number()?;
        let told = calls.iter().map(|asked| read_call(asked, now, &mut reader));
        told.collect::<Option<_>>()?
    } else {
        // One bucket's value, which is of now.
        let [asked] = calls else { return None };
        let said = ChargeReply::of_value(&mut reader)?;
        let now = said.numbers[0];
        vec![Ok(decide(asked, &[said], now)?)]
    };
    reader.0.is_empty().then_some(told)
}

/// The first byte of an answer that is not a value.
const VERDICTS: u8 = 0;

/// What stands for the first of all kinds of values; no call has so many charges.
const LEAST_KIND: u8 = 0x90;

fn read_call(
    asked: &NormalizedCall<'_>,
    now: u64,
    reader: &mut Reader<'_>,
) -> Option<Result<ScriptReply, Error>> {
    if *reader.0.first()? >= LEAST_KIND {
        let said = ChargeReply::of_value(reader)?;
        return Some(Ok(decide(asked, &[said], now)?));
    }
    let foreign = usize::from(reader.byte()?);
    if foreign > 0 {
        let (charge, _) = asked.charges.get(foreign - 1)?;
        return Some(Err(foreign_value(charge)));
    }
    let said = asked.charges.iter().map(|_| ChargeReply::read(reader));
    let said: SmallVec<[ChargeReply; 1]> = said.collect::<Option<_>>()?;
    Some(Ok(decide(asked, &said, now)?))
}

fn decide(asked: &NormalizedCall<'_>, said: &[ChargeReply], now: u64) -> Option<ScriptReply> {
    if said.len() != asked.charges.len() {
        return None;
    }
    let mut booked = 0;
    let mut verdicts: SmallVec<[Verdict; 4]> = SmallVec::new();
    let mut taken_at: SmallVec<[Timestamp; 4]> = SmallVec::new();
    for ((charge, cost), said) in asked.charges.iter().zip(said) {
        if !charge.policy.is_shadow() {
            booked = booked.max(said.numbers[2]);
        }
        // These answer as a peek of no cost would.
        let cost = if asked.answers_as_a_peek() { 0 } else { *cost };
        verdicts.push(said.verdict(charge, cost, now)?);
        taken_at.push(Timestamp::from_micros(said.clock_of_the_state(charge, now)));
    }
    let decision = Decision::new(asked.each(&verdicts));
    let taken_at = asked.each(&taken_at).collect();
    let is_booked = matches!(asked.operation, Operation::Reserve { .. }) && decision.is_allowed();
    let wait = Duration::from_micros(if is_booked { booked } else { 0 });
    Some(ScriptReply { decision: decision.with_wait(wait), taken_at })
}

fn foreign_value(charge: &Charge<'_>) -> Error {
    Error::new(
        ErrorKind::ForeignValue,
        format!(
            "under the key of `{}` for this subject lies something that is not Tidegate's; it was \
             left as it is",
            charge.policy.name()
        ),
    )
}

/// What a script says to a charge: what is decided, and what is taken now, in the policy's numbers.
/// All else follows from that, by the same functions that every other store computes with.
struct ChargeReply {
    outcome: Outcome,
    blocked_until: u64,
    numbers: [u64; 3],
    /// When the state ends under the policy that wrote it, if nothing is written until then; 0 if that is
    /// when its numbers say.
    ends_at: u64,
}

impl ChargeReply {
    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let outcome = match reader.byte()? {
            0 => Outcome::Allowed,
            1 => Outcome::Denied,
            2 => Outcome::Blocked,
            _ => return None,
        };
        let blocked_until = reader.number()?;
        let numbers = [reader.number()?, reader.number()?, reader.number()?];
        let ends_at = reader.number()?;
        Some(Self { outcome, blocked_until, numbers, ends_at })
    }

    /// What the value says that was written to admit: its numbers are those of the rule.
    fn of_value(reader: &mut Reader<'_>) -> Option<Self> {
        let kind = reader.byte()?;
        let mut number = || reader.number();
        let numbers = match kind {
            0x91..=0x93 => {
                let (ends, count) = (number()?, number()?);
                [ends, count, 0]
            }
            0x95 => [number()?, number()?, number()?],
            0x96 => {
                let (time, debt) = (number()?, number()?);
                let (_unit, _recovers_at, _lives_until) = (number()?, number()?, number()?);
                [time, debt, 0]
            }
            0x97 => {
                let (anchor, debt) = (number()?, number()?);
                let (_recovers_at, _lives_until) = (number()?, number()?);
                [anchor, debt, 0]
            }
            _ => return None,
        };
        Some(Self { outcome: Outcome::Allowed, blocked_until: 0, numbers, ends_at: 0 })
    }

    fn verdict(&self, charge: &Charge<'_>, cost: u64, now: u64) -> Option<Verdict> {
        let (wait, level) = self.weigh(charge, cost, now)?;
        let input = VerdictInput {
            outcome: self.outcome,
            wait,
            level,
            ends_at: (self.ends_at > 0).then_some(self.ends_at),
            blocked_until: self.blocked_until,
            now,
        };
        Some(input.verdict(charge.policy))
    }

    /// The time as the state sees it, which it was written at if it was.
    fn clock_of_the_state(&self, charge: &Charge<'_>, now: u64) -> u64 {
        let [a, b, _] = self.numbers;
        let written_at = match charge.policy.rule().shape() {
            StateShape::FixedWindow(_, window) | StateShape::SlidingCounter(window) => {
                a.saturating_sub(window)
            }
            StateShape::SlidingLog(_, grain) => b.saturating_sub(grain),
            _ => a,
        };
        now.max(written_at)
    }

    fn weigh(&self, charge: &Charge<'_>, cost: u64, now: u64) -> Option<(Wait, Level)> {
        let [a, b, c] = self.numbers;
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
            _ => return None,
        })
    }

    /// Of a log not the records come back, but their sum, the newest, and the one that has to go
    /// before the cost is admitted.
    fn weigh_log(&self, charge: &Charge<'_>, cost: u64, now: u64) -> Option<(Wait, Level)> {
        let [sum, newest, frees] = self.numbers;
        let StateShape::SlidingLog(window, _) = charge.policy.rule().shape() else {
            return None;
        };
        let limit = charge.policy.limit();
        let wait = match limit.checked_sub(cost) {
            None => Wait::NEVER,
            Some(max_before) if sum <= max_before => Wait::ZERO,
            Some(_) => Wait::between(now, frees.saturating_add(window)),
        };
        let recovers_at = if sum > 0 { newest.saturating_add(window) } else { now };
        Some((wait, Level::new(limit.saturating_sub(sum), recovers_at)))
    }
}

fn weigh<A: Algorithm>(rule: &A, state: Option<&A::State>, cost: u64, now: u64) -> (Wait, Level) {
    (rule.wait(state, cost, now), rule.level(state, now))
}
