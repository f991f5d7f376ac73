//! Decides calls on the records of a store.
//!
//! A backend that keeps its states in its own process implements [`Records`], locks out other
//! callers, and calls [`decide`]. Before the engine writes anything, it checks everything that can
//! fail.
//!
//! A backend that keeps its states elsewhere stores the parts of each record, and restores the
//! record with [`Record::restore`].
//!
//! The modules, in the order in which they process a call:
//!
//! * `once` and `hold` execute calls with an id. They answer a repeated call with the stored
//!   answer.
//! * `execute` calls the function for the operation, which is in `acquire`, `change` or `report`.
//! * `evaluate` computes the outcome and the wait of each charge, before anything is written.
//! * `record` and `dispatch` apply the rule of a policy to a state.
//! * `report` and `verdict` compute the verdicts from the states after the operation.
//! * `fast` decides frequent kinds of calls on packed states, without the other modules.

mod acquire;
mod block;
pub(crate) mod change;
mod dispatch;
mod evaluate;
mod execute;
pub(crate) mod fast;
pub(crate) mod hold;
mod once;
mod queue;
mod record;
mod records;
mod remembered;
mod report;
pub(crate) mod state_holds;
pub(crate) mod verdict;

pub use crate::algorithm::rule::Rule;
pub use crate::algorithm::shape::StateShape;
pub use crate::policy::StateName;
pub use dispatch::State;
pub use record::Record;
pub use records::Records;
pub use remembered::{HeldCharge, RememberedCall, RememberedHold};

use crate::call::Call;
use crate::decision::Decision;
use crate::error::Error;
use crate::time::Timestamp;

/// Executes a call on the records of its charges.
///
/// # Errors
///
/// Returns an error if the call is not valid ([`Call::check`]), or if there is no room for its
/// records. Also returns an error if the operation fails, such as the settlement of an unknown
/// hold. In all these cases, the call charges and refunds nothing.
pub fn decide(
    call: &Call<'_>,
    now: Timestamp,
    records: &mut impl Records,
) -> Result<Decision, Error> {
    call.check()?;
    match call.id {
        None => execute::execute(call, now, records),
        Some(id) if call.operation.is_of_hold() => hold::execute(call, id, now, records),
        Some(id) => once::execute(call, id, now, records),
    }
}
