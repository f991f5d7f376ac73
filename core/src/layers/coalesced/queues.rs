//! The queues of the calls that wait for the next batch.

use std::collections::{BTreeMap, HashMap};
use std::sync::PoisonError;

use tokio::sync::oneshot;

use crate::sync::{Mutex, MutexGuard};
use crate::{Call, Decision, Error, OwnedCall};

const MAX_BYTES: usize = 1 << 20;

#[derive(Debug, Default)]
pub(super) struct Queues(Mutex<Groups>);

#[derive(Debug, Default)]
struct Groups {
    queues: HashMap<u64, Queue>,
    /// The number of the next call. Calls are sent in the order of their numbers.
    next: u64,
}

/// The waiting calls of a batch group, sorted by their numbers. The queue is a map, so that the
/// call of a cancelled caller can be removed from the middle of the queue.
type Queue = BTreeMap<u64, WaitingCall>;

pub(super) type AnswerSender = oneshot::Sender<Result<Decision, Error>>;

#[derive(Debug)]
pub(super) struct WaitingCall {
    pub(super) call: OwnedCall,
    pub(super) caller: AnswerSender,
    charges: usize,
    bytes: usize,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Added {
    pub(super) number: u64,
    /// Whether the caller must spawn the task that sends the batches of the batch group, because no
    /// such task runs.
    pub(super) is_first: bool,
}

impl WaitingCall {
    pub(super) fn new(call: Call<'_>, caller: AnswerSender) -> Self {
        let charges = call.charges;
        let bytes = charges.iter().map(|charge| charge.tenant.len() + charge.subject.len()).sum();
        Self { call: call.into(), caller, charges: charges.len(), bytes }
    }
}

impl Queues {
    pub(super) fn add(&self, group: u64, call: WaitingCall, max: usize) -> Option<Added> {
        let mut groups = self.lock();
        let queue = groups.queues.get(&group);
        let is_first = queue.is_none();
        // If the group has no queue, no batch is in flight. Then the call is sent immediately, so
        // it is accepted even if no call is allowed to wait (`max` is 0).
        if queue.is_some_and(|queue| queue.len() >= max) {
            return None;
        }
        let number = groups.next;
        groups.next += 1;
        groups.queues.entry(group).or_default().insert(number, call);
        Some(Added { number, is_first })
    }

    pub(super) fn withdraw(&self, group: u64, number: u64) {
        if let Some(queue) = self.lock().queues.get_mut(&group) {
            queue.remove(&number);
        }
    }

    /// Removes and returns the calls of the next batch of `group`. If no call waits, removes the
    /// queue of the group and returns `None`.
    pub(super) fn take(&self, group: u64, max_charges: usize) -> Option<Vec<WaitingCall>> {
        let mut groups = self.lock();
        let queue = groups.queues.get_mut(&group)?;
        let mut batch: Vec<WaitingCall> = Vec::with_capacity(queue.len().min(max_charges));
        let (mut charges, mut bytes) = (0, 0);
        while let Some(first) = queue.first_entry() {
            charges += first.get().charges;
            bytes += first.get().bytes;
            if !batch.is_empty() && (charges > max_charges || bytes > MAX_BYTES) {
                break;
            }
            batch.push(first.remove());
        }
        if batch.is_empty() {
            groups.queues.remove(&group);
            return None;
        }
        Some(batch)
    }

    /// Removes the queue of a batch group, after the task that sends its batches has failed.
    /// Returns the calls that still wait.
    pub(super) fn end(&self, group: u64) -> impl Iterator<Item = WaitingCall> + use<> {
        self.lock().queues.remove(&group).unwrap_or_default().into_values()
    }

    fn lock(&self) -> MutexGuard<'_, Groups> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
