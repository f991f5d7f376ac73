//! Decides a batch of calls. The calls of one slot are sent in the same request, and the requests
//! to one node are sent in the same write.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::future::join_all;
use redis::cluster_routing::Slot;
use tidegate_core::{Call, Decision, Error};
use tidegate_redis::protocol::{Places, Plan};

use crate::dispatch::single;
use crate::dispatch::wait_replicas::Replicas;
use crate::inner::{Inner, no_answer};
use crate::routing::slots::{SlotPart, split_by_slot};

type Answers = Vec<Option<Result<Decision, Error>>>;

/// Decides calls, and returns one decision or error per call in the order of the calls.
pub(crate) async fn decide(store: &Arc<Inner>, calls: &[Call<'_>]) -> Vec<Result<Decision, Error>> {
    let mut answers: Answers = calls.iter().map(|_| None).collect();
    for wave in waves(store, calls, &mut answers) {
        let plans = wave.in_slots.into_iter().map(|places| Plan::new(&store.keys, calls, places));
        for (place, decided) in store.dispatch(plans).await {
            answers[place] = Some(decided.and_then(|decided| {
                Replicas::check(store.replicas.as_ref(), &calls[place], decided)
            }));
        }
        let alone = wave.alone.iter().map(|&place| single::decide(store, calls[place]));
        for (place, answer) in wave.alone.iter().zip(join_all(alone).await) {
            answers[*place] = Some(answer);
        }
    }
    answers.into_iter().map(|answer| answer.unwrap_or_else(|| Err(no_answer()))).collect()
}

/// Returns a number that identifies the batch group of a call: the calls that are sent to the same
/// node on the same connection. Returns `None` for a call that is sent alone.
pub(crate) fn batch_group(store: &Inner, call: &Call<'_>) -> Option<u64> {
    if call.id.is_some() {
        return None;
    }
    let [SlotPart { slot, .. }] = split_by_slot(&store.keys, call)[..] else { return None };
    let Some(node) = store.slot_map.primary(slot) else { return Some(0) };
    // The memory address of the `Node` value identifies a node. A new node can get the address of a
    // dropped node. Then one batch contains calls for both nodes for a short time, and is still
    // decided correctly.
    let connection = node.connections.share(|| slot);
    Some((Arc::as_ptr(&node).addr() as u64).wrapping_add(connection))
}

/// A part of a batch, which the store completes before the next part. The store first sends the
/// calls of each slot, in the order of the batch, and then the calls that are sent alone.
#[derive(Debug, Default)]
struct Wave {
    /// The calls of each slot, as indices into the batch.
    in_slots: Vec<Places>,
    /// The position of each slot in `in_slots`.
    groups: HashMap<Slot, usize>,
    /// The indices of calls that are sent alone: calls across slots and calls with an id. No two of
    /// these calls have a slot in common.
    alone: Vec<usize>,
}

/// Splits a batch into waves, which the store decides one after the other. So two calls with a
/// common slot, which can have a common key, are executed in the order of the batch.
fn waves(store: &Inner, calls: &[Call<'_>], answers: &mut Answers) -> Vec<Wave> {
    let mut waves: Vec<Wave> = vec![];
    // For each slot that a call in `alone` uses, the number of the wave after this call. It is the
    // first wave that is allowed to contain later calls of the slot.
    let mut free: HashMap<Slot, usize> = HashMap::new();
    for (place, call) in calls.iter().enumerate() {
        if let Err(error) = call.check() {
            answers[place] = Some(Err(error));
            continue;
        }
        let split_by_slot = split_by_slot(&store.keys, call);
        let slots = || split_by_slot.iter().map(|part| part.slot);
        let number = slots().filter_map(|slot| free.get(&slot).copied()).max().unwrap_or(0);
        if waves.len() <= number {
            waves.resize_with(number + 1, Wave::default);
        }
        let wave = &mut waves[number];
        match &split_by_slot[..] {
            [part] if call.id.is_none() => wave.add(part.slot, place),
            _ => {
                wave.alone.push(place);
                free.extend(slots().map(|slot| (slot, number + 1)));
            }
        }
    }
    waves
}

impl Wave {
    fn add(&mut self, slot: Slot, place: usize) {
        let next = self.in_slots.len();
        let group = *self.groups.entry(slot).or_insert(next);
        if group == next {
            self.in_slots.push(Places::new());
        }
        self.in_slots[group].push(place);
    }
}
