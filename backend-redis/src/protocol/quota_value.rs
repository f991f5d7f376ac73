//! Reads the values of quotas that have more numbers than a window and a count.

use tidegate_core::algorithm::quota::{State, TopUps};

use super::bytes::Reader;
use super::layout;
use crate::values::Value;

/// Returns `true` if `kind` is the kind of a value that [`read`] reads.
pub(super) fn is_kind(kind: u8) -> bool {
    matches!(kind, layout::DRIFT | layout::TOPPED_UP)
}

/// Reads the value of a quota. Returns `None` if it is not valid.
pub(super) fn read(reader: &mut Reader<'_>) -> Option<Box<State>> {
    if *reader.0.first()? != layout::TOPPED_UP {
        return match Value::read(reader)? {
            Value::Calendar { start, ends, count } => {
                Some(Box::new(State::new(start, ends, count)))
            }
            Value::Drift { start, earliest_end, ends, count, carry } => {
                Some(Box::new(State::new(start, ends, count).with_drift(earliest_end, carry)))
            }
            _ => None,
        };
    }
    reader.byte()?;
    let (start, earliest_end, end) = (reader.number()?, reader.number()?, reader.number()?);
    let (count, carry) = (reader.number()?, reader.number()?);
    let own = [reader.number()?, reader.number()?, reader.number()?];
    let grants = reader.number()?;
    let grants = (0..2 * grants).map(|_| reader.number()).collect::<Option<Vec<_>>>()?;
    let top_ups = TopUps::from_numbers(&[&own[..], &grants].concat())?;
    let state = State::new(start, end, count).with_drift(earliest_end, carry);
    Some(Box::new(state.with_top_ups(top_ups)))
}
