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

/// Returns the number of the batch group of a call. A batch group consists of the calls that are
/// sent on the same connection to the same node. Returns `None` for a call that is sent alone.
pub(crate) fn batch_group(store: &Inner, call: &Call<'_>) -> Option<u64> {
    if call.id.is_some() {
        return None;
    }
    let [SlotPart { slot, .. }] = split_by_slot(&store.keys, call)[..] else { return None };
    let Some(node) = store.slot_map.primary(slot) else { return Some(0) };
    // The address of the `Node` value in memory identifies a node. If a new node gets the memory
    // address of a dropped node, one batch can contain calls for both nodes for a short time. Such
    // a batch is also decided correctly.
    let connection = node.connections.share(|| slot);
    Some((Arc::as_ptr(&node).addr() as u64).wrapping_add(connection))
}

/// A part of a batch. The store first decides all calls in `in_slots`, and then all calls in
/// `alone`.
#[derive(Debug, Default)]
struct Wave {
    /// One list for each slot. The list contains the indices of the calls in the slot.
    in_slots: Vec<Places>,
    /// For each slot, the index of its list in `in_slots`.
    groups: HashMap<Slot, usize>,
    /// The indices of calls that are sent alone: calls across slots and calls with an id. No two of
    /// these calls have a slot in common.
    alone: Vec<usize>,
}

/// Splits a batch into waves. The store decides one wave after the other. So calls with a common
/// slot, which possibly have a common key, are executed in order.
fn waves(store: &Inner, calls: &[Call<'_>], answers: &mut Answers) -> Vec<Wave> {
    let mut waves: Vec<Wave> = vec![];
    // For each slot that a call in `alone` uses, the number of the wave after this call. Later
    // calls that use the slot must be in this wave or in a later wave.
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
