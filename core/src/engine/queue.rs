//! The queues of the calls that wait for slots. [`Operation::HoldInTurn`] documents their order.
//!
//! A call that waits has one place, which is its number in the queue of each state whose slots it
//! takes. The places and the fences of a state share one sequence of numbers.
//!
//! [`Operation::HoldInTurn`]: crate::Operation::HoldInTurn

use super::record::Record;
use super::records::{PerCharge, Records, update as update_record};
use super::report::report_after;
use super::state_holds::StateHolds;
use crate::call::{Call, CallId, Charge, Charges};
use crate::decision::{Decision, Outcome, Place, Verdict};
use crate::error::Error;
use crate::time::micros_of_ceil;

/// Updates the queues after a call with the place `place` was decided. If the call was admitted, or
/// can never be admitted, it leaves the queues. If it lacks slots or has a place already, it waits.
/// Returns the decision with the place.
pub(super) fn update(
    call: &Call<'_>,
    id: CallId<'_>,
    place: u64,
    decision: Decision,
    now: u64,
    records: &mut impl Records,
) -> Result<Decision, Error> {
    let charges = || call.charges.iter().zip(decision.verdicts()).enumerate();
    let takes_slots = |charge: &Charge<'_>| charge.takes_slots() && !charge.policy.is_shadow();
    let slots: PerCharge<(usize, bool)> = charges()
        .filter(|(_, (charge, _))| takes_slots(charge))
        .map(|(index, (_, verdict))| (index, verdict.outcome() != Outcome::Allowed))
        .collect();
    let has_place = place > 0
        && slots.iter().all(|&(index, _)| {
            let holds = records.get(index).and_then(Record::holds);
            holds.is_some_and(|holds| holds.has_place(place, now))
        });
    let is_above_limit = |(_, (charge, verdict)): (usize, (Charge<'_>, &Verdict))| {
        !verdict.passes() && charge.cost > charge.rule().limit_at(now)
    };
    let can_wait = !charges().any(is_above_limit);
    let lacks_slots = slots.iter().any(|(_, lacks_slots)| *lacks_slots);
    if decision.is_allowed() || !can_wait || !(lacks_slots || has_place && !slots.is_empty()) {
        slots.iter().for_each(|(index, _)| leave_state(*index, place, now, records));
        return Ok(decision);
    }
    let last_number = |&(index, _): &(usize, bool)| {
        records.get(index).and_then(Record::holds).map_or(0, StateHolds::last_number)
    };
    let number = match has_place {
        true => place,
        false => now.max(slots.iter().map(last_number).max().unwrap_or(0) + 1),
    };
    let indices: PerCharge<usize> = slots.iter().map(|(index, _)| *index).collect();
    records.make_room(&indices)?;
    let ends_at = now.saturating_add(micros_of_ceil(call.life_of_place(id.ttl)));
    let mut ahead = 0;
    for (index, lacks_slots) in slots {
        let wait = |holds: &mut StateHolds| {
            holds.leave(place, now);
            holds.wait_in_turn(number, lacks_slots, ends_at)
        };
        records.update(index, |record| ahead = record.change_holds(now, wait).max(ahead));
    }
    Ok(decision.with_place(Place::new(number, u32::try_from(ahead).unwrap_or(u32::MAX))))
}

fn leave_state(index: usize, place: u64, now: u64, records: &mut impl Records) {
    let holds = records.get(index).and_then(Record::holds);
    if holds.is_some_and(StateHolds::has_waiters) {
        update_record(index, records, |record| {
            record.change_holds(now, |holds| holds.leave(place, now));
        });
    }
}

pub(super) fn leave(
    charges: Charges<'_>,
    place: u64,
    now: u64,
    records: &mut impl Records,
) -> Decision {
    for index in 0..charges.len() {
        leave_state(index, place, now, records);
    }
    report_after(charges, now, records)
}
