//! The holds on a state, in the reply to a charge.

use tidegate_core::algorithm::{
    fixed_window, interval_bucket, sliding_counter, sliding_log, token_bucket,
};
use tidegate_core::engine::{Rule, State};
use tidegate_core::no_semver::{MAX_COUNTED_LAPSES, OpenHolds, Take};

use super::bytes::{MAX_NUMBER, NUMBER, Reader};
use super::layout;

const _: () = assert!(
    layout::MAX_COUNTED_LAPSES as usize == MAX_COUNTED_LAPSES,
    "a reply has the holds that the core counts on"
);

/// The part of a reply to a charge about the holds on its state.
#[derive(Debug, Default)]
pub(super) struct HoldsReply {
    /// How much is held and not spent.
    pub(super) unspent: u64,
    /// The lapses that a wait counts on. `None` if the charge is admitted, or the operation does
    /// not count on lapses.
    pub(super) open: Option<Box<OpenHolds>>,
}

/// Reads the holds. Returns `None` if the reply is not valid.
pub(super) fn read(reader: &mut Reader<'_>, rule: &Rule, now: u64) -> Option<HoldsReply> {
    let (unspent, count) = (reader.number()?, reader.byte()?);
    if count == 0 {
        return Some(HoldsReply { unspent, open: None });
    }
    let (refunded, refunded_at) = (reader.number()?, reader.number()?);
    let state_size = size(reader)?;
    let state = bytes(reader, state_size)?;
    let mut open = OpenHolds::new(state_of(state, rule, now)?).refunded(refunded, refunded_at);
    for _ in 0..count {
        let lapses_at = reader.number()?;
        let (taken_at, cost, spent) = (reader.number()?, reader.number()?, reader.number()?);
        open.push(Take::new(taken_at, cost), spent, lapses_at);
    }
    Some(HoldsReply { unspent, open: Some(Box::new(open)) })
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
    let [head, record_size, foot] =
        [layout::LOG_HEAD, layout::RECORD, layout::LOG_FOOT].map(usize::from);
    let (records, foot) =
        value.get(head..)?.split_at_checked(value.len().checked_sub(head + foot)?)?;
    let mut before = Reader(foot).number()?;
    let oldest = foot.get(NUMBER..)?.first_chunk().map(|place| u16::from_le_bytes(*place))?;
    let counted = records.get(usize::from(oldest).checked_mul(record_size)?..)?;
    let record = |record: &[u8]| {
        let mut record = Reader(record);
        let (stamp, total) = (record.number()?, record.number()?);
        let cost = total.wrapping_sub(before) % MAX_NUMBER;
        before = total;
        Some((stamp, cost))
    };
    counted.chunks_exact(record_size).map(record).collect()
}
