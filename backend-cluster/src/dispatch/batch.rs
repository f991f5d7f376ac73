//! Batches: the calls of one slot share requests, and the requests to one node share a write.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::future::join_all;
use redis::cluster_routing::Slot;
use tidegate_core::{Call, Decision, Error};
use tidegate_redis::wire::{Places, Plan};

use crate::dispatch::single;
use crate::dispatch::wait_replicas::Replicas;
use crate::inner::{Inner, no_answer};
use crate::routing::slots::{SlotPart, split_by_slot};

type Answers = Vec<Option<Result<Decision, Error>>>;

/// Decides calls. The result has one entry per call, in order.
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

/// Returns the batch group of a call: the calls on one connection to one node. Returns `None` for a
/// call that is sent alone.
pub(crate) fn batch_group(store: &Inner, call: &Call<'_>) -> Option<u64> {
    if call.id.is_some() {
        return None;
    }
    let [SlotPart { slot, .. }] = split_by_slot(&store.keys, call)[..] else { return None };
    let Some(node) = store.slot_map.primary(slot) else { return Some(0) };
    // The address in memory identifies the node. If a new node gets the address of a dropped one, a
    // batch may contain calls for both for a moment, which is correct too.
    let connection = node.connections.share(|| slot);
    Some((Arc::as_ptr(&node).addr() as u64).wrapping_add(connection))
}

/// Calls that can be in flight together. The calls of `in_slots` are sent before those of `alone`.
#[derive(Debug, Default)]
struct Wave {
    /// The indices of the calls of each slot.
    in_slots: Vec<Places>,
    /// The index of each slot in `in_slots`.
    groups: HashMap<Slot, usize>,
    /// The indices of calls across slots and of calls with an id. No two of them share a slot.
    alone: Vec<usize>,
}

/// Groups calls in waves, so that calls that share a slot, and so perhaps a key, stay in order.
fn waves(store: &Inner, calls: &[Call<'_>], answers: &mut Answers) -> Vec<Wave> {
    let mut waves: Vec<Wave> = vec![];
    // For each slot with an earlier call in `alone`, the first wave after that call.
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
