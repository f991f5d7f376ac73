//! Decides a single call, with states in one slot or in several slots.

use std::sync::Arc;

use tidegate_core::{Call, Decision, Error, ErrorKind};
use tidegate_redis::protocol::Keys;

use crate::dispatch::cross_slot;
use crate::dispatch::wait_replicas::Replicas;
use crate::inner::Inner;
use crate::routing::slots::split_by_slot;

pub(crate) async fn decide(store: &Arc<Inner>, call: Call<'_>) -> Result<Decision, Error> {
    check_id(&call)?;
    // A call with a single charge is always within one slot.
    if call.charges.len() > 1 {
        call.check()?;
        if split_by_slot(&store.keys, &call).len() > 1 {
            return cross_slot::decide(store, call).await;
        }
    }
    let decided = store.decide_in_slot(call).await?;
    Replicas::check(store.replicas.as_ref(), &call, decided)
}

/// Checks that all charges of a call with an id have the same hash tag. The id is stored in the
/// slot of the first charge, and one script must access the id and all states.
fn check_id(call: &Call<'_>) -> Result<(), Error> {
    let mut charges = call.charges.iter();
    let (Some(_), Some(first)) = (call.id, charges.next()) else { return Ok(()) };
    if charges.all(|charge| Keys::have_one_tag(&first, &charge)) {
        return Ok(());
    }
    let (call, record) = match call.operation.is_of_hold() {
        true => ("hold", "hold"),
        false => ("call with an id", "id"),
    };
    Err(Error::new(
        ErrorKind::Unsupported,
        format!(
            "the states of this {call} may be in several slots, which cannot store the {record} together; the charges \
             must have one tenant, so that their states are in one slot"
        ),
    ))
}
