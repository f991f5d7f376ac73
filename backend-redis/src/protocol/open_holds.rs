//! The part of a script's reply to a charge that describes the holds on the state of the charge.

use tidegate_core::algorithm::{
    concurrent, fixed_window, interval_bucket, sliding_counter, sliding_log, token_bucket,
};
use tidegate_core::engine::{Rule, State};
use tidegate_core::no_semver::{MAX_COUNTED_LAPSES, OpenHolds, Take};

use super::bytes::{MAX_NUMBER, NUMBER, Reader};
use super::{layout, quota_value};
use crate::values::Value;

const _: () = assert!(
    layout::MAX_COUNTED_LAPSES as usize == MAX_COUNTED_LAPSES,
    "a reply must contain as many holds as the core counts"
);

#[derive(Debug, Default)]
pub(super) struct HoldsReply {
    pub(super) unspent: u64,
    /// The open holds on the state, or `None` if the wait does not depend on their lapses.
    pub(super) open: Option<Box<OpenHolds>>,
}

/// Reads the part of a reply about holds. Returns `None` if this part is not valid.
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

/// Returns the state that a stored value contains, in the units of the policy. Returns an inner
/// `None` for a state in which nothing is charged.
fn state_of(value: &[u8], rule: &Rule, now: u64) -> Option<Option<State>> {
    match *value.first()? {
        layout::NONE => return Some(None),
        layout::LOG if matches!(rule, Rule::SlidingLog(_)) => {
            return Some(Some(State::SlidingLog(Box::new(read_log(value)?))));
        }
        _ if matches!(rule, Rule::Quota(_)) => {
            return Some(Some(State::Quota(quota_value::read(&mut Reader(value))?)));
        }
        _ => {}
    }
    Some(match (Value::read(&mut Reader(value))?, rule) {
        (Value::Window { ends, count }, Rule::FixedWindow(_)) => {
            Some(State::FixedWindow(fixed_window::State::new(ends, count)))
        }
        (Value::Counter { ends, previous, current }, Rule::SlidingCounter(_)) => {
            Some(State::SlidingCounter(sliding_counter::State::new(ends, previous, current)))
        }
        (Value::Bucket { time, debt, unit, recovers_at, .. }, Rule::TokenBucket(rule)) => {
            let adopted = || rule.adopt(token_bucket::State::new(time, debt), unit);
            (recovers_at > now).then(|| State::TokenBucket(adopted()))
        }
        (Value::Interval { anchor, debt, recovers_at, .. }, Rule::IntervalBucket(_)) => {
            let state = interval_bucket::State::new(anchor, debt);
            (recovers_at > now).then_some(State::IntervalBucket(state))
        }
        (Value::Slots { count }, Rule::Concurrent(_)) => {
            Some(State::Concurrent(concurrent::State::new(count)))
        }
        _ => return None,
    })
}

/// Reads the records that counted when the log was last written.
fn read_log(value: &[u8]) -> Option<sliding_log::State> {
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
