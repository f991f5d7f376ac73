//! The holds on a state, in the reply to a charge.

use tidegate_core::algorithm::{
    fixed_window, interval_bucket, sliding_counter, sliding_log, token_bucket,
};
use tidegate_core::engine::State;
use tidegate_core::no_semver::{OpenHolds, Take};
use tidegate_core::policy::Rule;

use super::bytes::{MAX_NUMBER, NUMBER, Reader};
use super::layout;

/// Bytes of a hold's key, and of a hold.
const KEY: usize = 20;
const HOLD: usize = 62;

/// In place of what was given back, before that.
const NOT_GIVEN_BACK: u64 = MAX_NUMBER;

/// Bytes of a log before its records, of a record, and behind them: see the diagram in `scripts/sliding_log.lua`.
const LOG_HEAD: usize = 1 + NUMBER;
const LOG_RECORD: usize = 2 * NUMBER;
const LOG_FOOT: usize = 37;

/// Reads the holds that are still to lapse. The outer `None` is a reply that is not valid; the inner one is that of a state
/// without holds, or of a log that is a list, which an earlier policy with more records has left: waits do not count on
/// what will lapse of it.
pub(super) fn read(reader: &mut Reader<'_>, rule: &Rule, now: u64) -> Option<Option<OpenHolds>> {
    let count = size(reader)?;
    if count == 0 {
        return Some(None);
    }
    let state_size = size(reader)?;
    let state = bytes(reader, state_size)?;
    let list = bytes(reader, count.checked_mul(HOLD)?)?;
    if state.is_empty() {
        return Some(None);
    }
    let mut holds = OpenHolds::new(state_of(state, rule, now)?);
    for hold in list.chunks_exact(HOLD) {
        let mut hold = Reader(hold.get(KEY..)?);
        let (taken_at, cost, spent) = (hold.number()?, hold.number()?, hold.number()?);
        let (lapses_at, _expires_at, given_back) = (hold.number()?, hold.number()?, hold.number()?);
        // One that was given back lapses in the future only if the clock has stepped back.
        if given_back == NOT_GIVEN_BACK {
            holds.push(Take::new(taken_at, cost), spent, lapses_at);
        }
    }
    Some(Some(holds))
}

fn size(reader: &mut Reader<'_>) -> Option<usize> {
    let (size, rest) = reader.0.split_first_chunk()?;
    reader.0 = rest;
    usize::try_from(u32::from_le_bytes(*size)).ok()
}

fn bytes<'b>(reader: &mut Reader<'b>, count: usize) -> Option<&'b [u8]> {
    let (bytes, rest) = reader.0.split_at_checked(count)?;
    reader.0 = rest;
    Some(bytes)
}

/// The state in a value, in the units of the policy. The inner `None` is one in which nothing is taken.
fn state_of(value: &[u8], rule: &Rule, now: u64) -> Option<Option<State>> {
    let mut reader = Reader(value);
    let kind = reader.byte()?;
    if kind == layout::NONE {
        return Some(None);
    }
    let mut number = || reader.number();
    let state = match (kind, rule) {
        (layout::FIXED_ALIGNED..=layout::FIXED_ANCHORED, Rule::FixedWindow(_)) => {
            let (ends, count) = (number()?, number()?);
            State::FixedWindow(fixed_window::State::new(ends, count))
        }
        (layout::LOG, Rule::SlidingLog(_)) => State::SlidingLog(Box::new(log_of(value)?)),
        (layout::COUNTER, Rule::SlidingCounter(_)) => {
            let (ends, previous, current) = (number()?, number()?, number()?);
            State::SlidingCounter(sliding_counter::State::new(ends, previous, current))
        }
        (layout::BUCKET, Rule::TokenBucket(rule)) => {
            let (time, debt, unit, recovers_at) = (number()?, number()?, number()?, number()?);
            if recovers_at <= now {
                return Some(None);
            }
            State::TokenBucket(rule.adopt(token_bucket::State::new(time, debt), unit))
        }
        (layout::INTERVAL, Rule::IntervalBucket(_)) => {
            let (anchor, debt, recovers_at) = (number()?, number()?, number()?);
            if recovers_at <= now {
                return Some(None);
            }
            State::IntervalBucket(interval_bucket::State::new(anchor, debt))
        }
        _ => return None,
    };
    Some(Some(state))
}

/// The records of a log that counted when it was written last.
fn log_of(value: &[u8]) -> Option<sliding_log::State> {
    let (records, foot) =
        value.get(LOG_HEAD..)?.split_at_checked(value.len().checked_sub(LOG_HEAD + LOG_FOOT)?)?;
    let mut before = Reader(foot).number()?;
    let oldest = foot.get(NUMBER..)?.first_chunk().map(|place| u16::from_le_bytes(*place))?;
    let counted = records.get(usize::from(oldest).checked_mul(LOG_RECORD)?..)?;
    let record = |record: &[u8]| {
        let mut record = Reader(record);
        let (stamp, total) = (record.number()?, record.number()?);
        let cost = total.wrapping_sub(before) % MAX_NUMBER;
        before = total;
        Some((stamp, cost))
    };
    counted.chunks_exact(LOG_RECORD).map(record).collect()
}
