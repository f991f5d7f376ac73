//! Executes an operation that needs no id.

use super::acquire::{acquire, acquire_up_to};
use super::block::Block;
use super::change::{block, charge, grant, refund, reset, undo};
use super::evaluate::Waits;
use super::queue::leave;
use super::records::Records;
use super::report::peek;
use crate::call::{Call, Operation, hold_without_id};
use crate::decision::Decision;
use crate::error::Error;
use crate::time::{MAX_SPAN_MICROS, Timestamp, Wait, micros_of};

pub(super) fn execute(
    call: &Call<'_>,
    now: Timestamp,
    records: &mut impl Records,
) -> Result<Decision, Error> {
    let (charges, now) = (call.charges, now.as_micros());
    match call.operation {
        Operation::Acquire => acquire(charges, now, Waits::COUNTING, records),
        Operation::AcquireUpTo { min } => acquire_up_to(charges, min, now, records),
        Operation::Reserve { max_wait } => {
            let max_wait = Wait::from_micros(micros_of(max_wait).min(MAX_SPAN_MICROS));
            acquire(charges, now, Waits::up_to(max_wait), records)
        }
        Operation::Peek => Ok(peek(charges, now, records)),
        Operation::Charge => charge(charges, now, records),
        Operation::Grant { ends_at } => grant(charges, ends_at, now, records),
        Operation::Refund => Ok(refund(charges, now, records)),
        Operation::Undo { at } => Ok(undo(charges, at.as_micros(), now, records)),
        Operation::Reset => Ok(reset(charges, now, records)),
        Operation::Block { span } => {
            block(charges, now, span, records, |old, until| until > 0 || old != Block::NONE)
        }
        Operation::BlockAtLeast { span } => {
            block(charges, now, span, records, |old, until| old.until < until)
        }
        Operation::Leave { place } => Ok(leave(charges, place, now, records)),
        // This arm is never reached. `Call::check` refuses an operation on a hold without an id,
        // and `decide` passes an operation on a hold with an id to the module `hold`.
        Operation::Hold
        | Operation::HoldUpTo { .. }
        | Operation::HoldInTurn { .. }
        | Operation::Settle
        | Operation::SettleSoFar
        | Operation::Extend => Err(hold_without_id()),
    }
}
