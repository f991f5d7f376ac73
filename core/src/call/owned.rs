//! Calls that own their charges and their id.

use std::fmt;
use std::time::Duration;

use smallvec::SmallVec;

use super::Call;
use super::charge::ChargeBuf;
use super::charges::Charges;
use super::id::CallId;
use super::operation::Operation;

/// A call that owns its charges and its id. Unlike a [`Call`], an owned call can be moved into a
/// task, or stored and sent later.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// use std::sync::Arc;
/// use tidegate_core::{Call, Charge, OwnedCall, Policy, Store};
/// use tidegate_memory::MemoryStore;
///
/// let store = Arc::new(MemoryStore::new());
/// let policy: Policy = "api: fixed-window 10/1m".parse()?;
/// let call = OwnedCall::from(Call::acquire(&[Charge::new(&policy, "alice")]));
/// drop(policy);
/// let task = tokio::spawn(async move { store.decide(call.as_call()).await });
/// assert!(task.await??.is_allowed());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct OwnedCall {
    operation: Operation,
    charges: SmallVec<[ChargeBuf<'static>; 1]>,
    id: Option<Box<(Vec<u8>, Duration)>>,
}

impl OwnedCall {
    /// Returns the call as a [`Call`], which borrows from this value.
    #[must_use]
    pub fn as_call(&self) -> Call<'_> {
        let call = Call::with_charges(self.operation, Charges::from(&self.charges[..]));
        match self.id.as_deref() {
            Some((id, ttl)) => call.with_id(CallId::new(id, *ttl)),
            None => call,
        }
    }
}

impl From<Call<'_>> for OwnedCall {
    fn from(call: Call<'_>) -> Self {
        let owned = |charge| ChargeBuf::from(charge).into_owned();
        Self {
            operation: call.operation,
            charges: call.charges.iter().map(owned).collect(),
            id: call.id.map(|id| Box::new((id.id.to_vec(), id.ttl))),
        }
    }
}

impl fmt::Debug for OwnedCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_call().fmt(f)
    }
}
