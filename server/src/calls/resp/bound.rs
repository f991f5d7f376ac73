//! Holds that are bound to the connection of their client.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tidegate_core::{Decision, Error, ErrorKind, HoldGuard, Limiter, OnDrop, Operation, Store};

use crate::calls::CallRequest;

/// The maximum number of bound holds of a connection.
const MAX_BOUND: usize = 10_000;

type Key = (Vec<u8>, Bytes);
type Guard = HoldGuard<Arc<dyn Store>>;

/// The guards of all bound holds of the server, which renew the holds. A hold belongs to the
/// connection that has bound it last: a client that did not receive the answer sends the hold
/// again, possibly over a new connection.
#[derive(Debug)]
pub(super) struct Guards {
    limiter: Option<Limiter<Arc<dyn Store>>>,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    /// The guard of each hold, with the number of its binding.
    guards: HashMap<Key, (u64, Guard)>,
    last_number: u64,
}

impl Guards {
    pub(super) fn new(store: &Arc<dyn Store>) -> Self {
        // Each guard has its own policies. A limiter must have a policy, so it gets one that no
        // call uses.
        let unused = "bound: fixed-window 1/1s".parse().ok();
        let limiter = unused.and_then(|unused| Limiter::new(Arc::clone(store), [unused]).ok());
        Self { limiter, table: Mutex::default() }
    }

    /// Waits until the holds of all closed connections are settled.
    pub(super) async fn settled(&self) {
        if let Some(limiter) = &self.limiter {
            limiter.guards_settled().await;
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // No code panics while it has the lock.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Releases the guard of a hold that has ended. The guard must not settle the hold.
    fn release(&self, key: &Key) {
        let guard = self.table().guards.remove(key);
        drop(guard.and_then(|(_, guard)| guard.into_ticket()));
    }
}

/// The holds that are bound to a connection, each with the number of the binding. When this value
/// is dropped, the guards of these holds settle them.
pub(super) struct Bound {
    guards: Arc<Guards>,
    holds: HashMap<Key, u64>,
}

impl Bound {
    pub(super) fn new(guards: Arc<Guards>) -> Self {
        Self { guards, holds: HashMap::new() }
    }

    /// Returns `true` if the connection has bound a hold and not settled it.
    pub(super) fn has_holds(&self) -> bool {
        !self.holds.is_empty()
    }

    /// Returns an error if the connection cannot bind a further hold.
    pub(super) fn check(&mut self, request: &CallRequest) -> Result<(), Error> {
        if !request.is_bound() || self.holds.len() < MAX_BOUND {
            return Ok(());
        }
        // Another connection has possibly settled holds of this connection.
        let table = self.guards.table();
        self.holds.retain(|key, number| is_bound(&table, key, *number));
        if self.holds.len() < MAX_BOUND {
            return Ok(());
        }
        let message =
            format!("the connection has {MAX_BOUND} bound holds, the maximum; settle some of them");
        Err(Error::new(ErrorKind::TooManyHolds, message))
    }

    /// Learns the answer to a call. Binds a new hold, and releases a hold that has ended.
    pub(super) fn learn(&mut self, request: &CallRequest, answer: &Result<Decision, Error>) {
        if request.operation() == Operation::Settle
            && has_ended(answer)
            && let Some(key) = request.hold_key()
        {
            self.guards.release(&key);
            self.holds.remove(&key);
        }
        if request.is_bound()
            && let Ok(decision) = answer
            && let (Some(limiter), Some(key), Some(ticket)) =
                (&self.guards.limiter, request.hold_key(), request.ticket(decision))
            && let Ok(guard) = HoldGuard::new(limiter, ticket, OnDrop::Settle)
        {
            let mut table = self.guards.table();
            table.last_number += 1;
            let number = table.last_number;
            let earlier = table.guards.insert(key.clone(), (number, guard));
            drop(table);
            drop(earlier.and_then(|(_, guard)| guard.into_ticket()));
            self.holds.insert(key, number);
        }
    }
}

/// Returns `true` if a settlement with this answer has ended the hold, or if the hold had already
/// ended.
fn has_ended(answer: &Result<Decision, Error>) -> bool {
    use ErrorKind::{AlreadySettled, UnknownHold};
    match answer {
        Ok(_) => true,
        Err(error) => matches!(error.kind(), AlreadySettled | UnknownHold),
    }
}

fn is_bound(table: &Table, key: &Key, number: u64) -> bool {
    table.guards.get(key).is_some_and(|(newest, _)| *newest == number)
}

impl Drop for Bound {
    fn drop(&mut self) {
        let mut own = vec![];
        let mut table = self.guards.table();
        for (key, number) in self.holds.drain() {
            if is_bound(&table, &key, number) {
                own.extend(table.guards.remove(&key));
            }
        }
        drop(table);
        // The drop of the guards settles the holds.
        drop(own);
    }
}
