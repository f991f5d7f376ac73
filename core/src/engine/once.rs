//! Calls with an id, which happen once.

use std::time::Duration;

use super::{Records, RememberedCall};
use crate::time::micros_of_ceil;
use crate::{Call, CallId, Decision, Error, ErrorKind, Timestamp};

/// Answers a call that is remembered under its id as the first time; carries out and remembers any other.
pub(super) fn carry_out(
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
    let decision = super::carry_out(call, now, records)?;
    // A refusal has taken nothing, and the next call may be admitted.
    if !call.operation.is_acquire() || decision.is_allowed() {
        let expires_at = later(now, id.ttl);
        records.remember(RememberedCall::new(fingerprint, expires_at, decision.clone()));
    }
    Ok(decision)
}

/// What is remembered, unless it has expired.
pub(super) fn remembered(
    now: Timestamp,
    records: &mut impl Records,
) -> Result<Option<RememberedCall>, Error> {
    let known = records.remembered()?;
    Ok(known.filter(|known| now.as_micros() < known.expires_at_micros))
}

/// Microseconds since 1970, a span after `now`.
pub(super) fn later(now: Timestamp, span: Duration) -> u64 {
    now.as_micros().saturating_add(micros_of_ceil(span))
}

pub(super) fn reused(id: CallId<'_>) -> Error {
    let id = id.id.escape_ascii();
    Error::new(ErrorKind::IdReused, format!("the id \"{id}\" was used for another call"))
}
