//! Calls with an id. The engine executes such a call once, and answers repetitions with the stored
//! decision.

use std::time::Duration;

use super::execute;
use super::records::Records;
use super::remembered::RememberedCall;
use crate::call::{Call, CallId};
use crate::decision::Decision;
use crate::error::{Error, ErrorKind};
use crate::time::{Timestamp, micros_of_ceil};

pub(super) fn execute(
    call: &Call<'_>,
    id: CallId<'_>,
    now: Timestamp,
    records: &mut impl Records,
) -> Result<Decision, Error> {
    let fingerprint = call.fingerprint();
    match remembered(now, records)? {
        Some(known) if known.fingerprint == fingerprint && known.hold.is_none() => {
            return Ok(known.decision);
        }
        Some(_) => return Err(reused(id)),
        None => {}
    }
    records.make_room_to_remember()?;
    let decision = execute::execute(call, now, records)?;
    // A refused acquire charged nothing, so it is not remembered. A repetition is decided like a
    // new call.
    if !call.operation.is_acquire() || decision.is_allowed() {
        let expires_at = later(now, id.ttl);
        records.remember(RememberedCall::new(fingerprint, expires_at, decision.clone()));
    }
    Ok(decision)
}

pub(super) fn remembered(
    now: Timestamp,
    records: &mut impl Records,
) -> Result<Option<RememberedCall>, Error> {
    let known = records.remembered()?;
    Ok(known.filter(|known| now.as_micros() < known.expires_at_micros))
}

pub(super) fn later(now: Timestamp, span: Duration) -> u64 {
    now.as_micros().saturating_add(micros_of_ceil(span))
}

pub(super) fn reused(id: CallId<'_>) -> Error {
    let id = id.id.escape_ascii();
    Error::new(ErrorKind::IdReused, format!("the id \"{id}\" was used for another call"))
}
