//! Holds that are bound to the connection of their client.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use tidegate_core::{Decision, Error, ErrorKind, HoldGuard, Limiter, OnDrop, Operation, Store};

use crate::calls::CallRequest;

/// The maximum number of bound holds of a connection.
const MAX_BOUND: usize = 10_000;

type Guard = HoldGuard<Arc<dyn Store>>;

/// The guards of the holds that are bound to a connection. While the connection is open, the guards
/// renew the holds. When this value is dropped, they settle the holds.
#[derive(Debug)]
pub(super) struct Bound {
    guards: HashMap<(Vec<u8>, Bytes), Guard>,
}

/// Creates the limiter whose tasks renew and settle all bound holds.
pub(super) fn limiter(store: &Arc<dyn Store>) -> Option<Limiter<Arc<dyn Store>>> {
    // Each guard has its own policies. A limiter must have a policy, so it gets one that no call
    // uses.
    let unused = "bound: fixed-window 1/1s".parse().ok()?;
    Limiter::new(Arc::clone(store), [unused]).ok()
}

impl Bound {
    pub(super) fn new() -> Self {
        Self { guards: HashMap::new() }
    }

    /// Returns an error if the connection cannot bind a further hold.
    pub(super) fn check(&self, request: &CallRequest) -> Result<(), Error> {
        if !request.is_bound() || self.guards.len() < MAX_BOUND {
            return Ok(());
        }
        let message =
            format!("the connection has {MAX_BOUND} bound holds, the maximum; settle some of them");
        Err(Error::new(ErrorKind::TooManyHolds, message))
    }

    /// Learns the decision on a call. Binds a new hold, and releases a hold that the client has
    /// settled.
    pub(super) fn learn(
        &mut self,
        limiter: Option<&Limiter<Arc<dyn Store>>>,
        request: &CallRequest,
        decision: &Decision,
    ) {
        // The earlier guard of a hold must not settle it, because the hold is settled already, or
        // has another guard.
        let release = |guard: Guard| drop(guard.into_ticket());
        if request.operation() == Operation::Settle && !self.guards.is_empty() {
            request.hold_key().and_then(|key| self.guards.remove(&key)).map(release);
        }
        if request.is_bound()
            && let (Some(limiter), Some(key), Some(ticket)) =
                (limiter, request.hold_key(), request.ticket(decision))
            && let Ok(guard) = HoldGuard::new(limiter, ticket, OnDrop::Settle)
        {
            // A client sends a hold again if it did not receive the answer.
            self.guards.insert(key, guard).map(release);
        }
    }
}
