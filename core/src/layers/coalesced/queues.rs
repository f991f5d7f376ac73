//! The calls that wait to be sent.

use std::collections::{BTreeMap, HashMap};

use tokio::sync::oneshot;

use crate::{Call, Decision, Error, OwnedCall};

/// The maximum number of bytes of tenants and subjects in a batch of several calls.
const MAX_BYTES: usize = 1 << 20;

/// Waiting calls by group. A group has an entry exactly as long as it has a driver.
#[derive(Debug, Default)]
pub(super) struct Queues {
    groups: HashMap<u64, Queue>,
    /// The number of the next call. Calls are sent in the order of their numbers.
    next: u64,
}

/// Ordered, and not a plain queue: any call can be withdrawn, and then takes no place any more.
type Queue = BTreeMap<u64, WaitingCall>;

pub(super) type AnswerSender = oneshot::Sender<Result<Decision, Error>>;

/// A call that waits, and where its answer goes.
#[derive(Debug)]
pub(super) struct WaitingCall {
    pub(super) call: OwnedCall,
    pub(super) caller: AnswerSender,
    charges: usize,
    bytes: usize,
}

/// A call that was added.
#[derive(Debug, Clone, Copy)]
pub(super) struct Added {
    pub(super) number: u64,
    /// Whether the group needs a driver.
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
    /// Adds a call to a group, unless `max` calls of it wait already.
    pub(super) fn add(&mut self, group: u64, call: WaitingCall, max: usize) -> Option<Added> {
        let queue = self.groups.get(&group);
        let is_first = queue.is_none();
        // A store without a place for a waiting call still takes one that need not wait.
        if queue.is_some_and(|queue| queue.len() >= max) {
            return None;
        }
        let number = self.next;
        self.next += 1;
        self.groups.entry(group).or_default().insert(number, call);
        Some(Added { number, is_first })
    }

    /// Removes a call, if it waits.
    pub(super) fn withdraw(&mut self, group: u64, number: u64) {
        if let Some(queue) = self.groups.get_mut(&group) {
            queue.remove(&number);
        }
    }

    /// Takes the first calls of a group, as many as go in one batch. Without any, the group ends.
    pub(super) fn take(&mut self, group: u64, max_charges: usize) -> Option<Vec<WaitingCall>> {
        let queue = self.groups.get_mut(&group)?;
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
            self.groups.remove(&group);
            return None;
        }
        Some(batch)
    }

    /// Ends a group whose driver has failed, and returns the calls that waited.
    pub(super) fn end(&mut self, group: u64) -> impl Iterator<Item = WaitingCall> + use<> {
        self.groups.remove(&group).unwrap_or_default().into_values()
    }
}
