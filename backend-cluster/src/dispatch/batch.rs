//! Batches: the calls of one slot go in one script call, those of one node in one write.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::future::join_all;
use redis::cluster_routing::Slot;
use smallvec::smallvec;
use tidegate_core::{Call, Decision, Error};
use tidegate_redis::wire::Batch;

use crate::dispatch::request::{Calls, SlotRequest};
use crate::dispatch::single;
use crate::dispatch::wait_replicas::Replicas;
use crate::inner::{Inner, no_answer};
use crate::routing::slots::{SlotPart, split_by_slot};

type Answers = Vec<Result<Decision, Error>>;

/// Carries out the calls. One answer for each, in order.
pub(crate) async fn decide(store: &Arc<Inner>, calls: &[Call<'_>]) -> Answers {
    let mut answers: Answers = calls.iter().map(|_| Err(no_answer())).collect();
    for wave in waves(store, calls, &mut answers) {
        let mut requests = vec![];
        for (_, group) in wave.in_slots {
            requests_of(store, group, &mut requests, &mut answers);
        }
        for (place, decided) in store.dispatch(requests).await {
            answers[place] = decided.and_then(|decided| {
                Replicas::check(store.replicas.as_ref(), &calls[place], decided)
            });
        }
        let alone = wave.alone.iter().map(|&place| single::decide(store, calls[place]));
        for (place, answer) in wave.alone.iter().zip(join_all(alone).await) {
            answers[*place] = answer;
        }
    }
    answers
}

/// The group of calls that go in one write: those on one connection to one node. `None` for a call that goes alone.
pub(crate) fn group_of(store: &Inner, call: &Call<'_>) -> Option<u64> {
    if call.id.is_some() {
        return None;
    }
    let [SlotPart { slot, .. }] = split_by_slot(&store.keys, call)[..] else { return None };
    let Some(node) = store.slot_map.primary(slot) else { return Some(0) };
    // The address tells nodes apart. If a later node gets that of an earlier one, their batches mix for a moment.
    let connection = node.connections.share(|| slot);
    Some((Arc::as_ptr(&node).addr() as u64).wrapping_add(connection))
}

/// Calls that can be in flight together: first those within a slot, then those across slots and those with an id, of
/// which no two share a slot.
#[derive(Debug, Default)]
struct Wave<'a> {
    in_slots: Vec<(Slot, Vec<(usize, Call<'a>)>)>,
    places: HashMap<Slot, usize>,
    /// Calls across slots, and calls with an id.
    alone: Vec<usize>,
}

/// Groups calls in waves, so that calls that share a slot, and so perhaps a key, keep their order.
fn waves<'a>(store: &Inner, calls: &[Call<'a>], answers: &mut Answers) -> Vec<Wave<'a>> {
    let mut waves: Vec<Wave<'a>> = vec![];
    // The first wave in which a slot is free.
    let mut free: HashMap<Slot, usize> = HashMap::new();
    for (place, call) in calls.iter().enumerate() {
        if let Err(error) = call.check() {
            answers[place] = Err(error);
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
            [part] if call.id.is_none() => wave.add(part.slot, place, *call),
            _ => {
                wave.alone.push(place);
                free.extend(slots().map(|slot| (slot, number + 1)));
            }
        }
    }
    waves
}

impl<'a> Wave<'a> {
    fn add(&mut self, slot: Slot, place: usize, call: Call<'a>) {
        let next = self.in_slots.len();
        let group = *self.places.entry(slot).or_insert(next);
        if group == next {
            self.in_slots.push((slot, vec![]));
        }
        self.in_slots[group].1.push((place, call));
    }
}

/// Makes the script calls for calls in one slot, as few as possible.
fn requests_of<'a>(
    store: &Inner,
    group: Vec<(usize, Call<'a>)>,
    requests: &mut Vec<SlotRequest<'a>>,
    answers: &mut Answers,
) {
    let mut together = Calls::new();
    let (mut charges, mut bytes) = (0, 0);
    for (place, call) in group {
        if charges + call.charges.len() > Batch::MAX_CHARGES || bytes > Batch::MAX_KEY_BYTES {
            put(store, std::mem::take(&mut together), requests, answers);
            (charges, bytes) = (0, 0);
        }
        charges += call.charges.len();
        bytes += call.charges.iter().map(|c| c.tenant.len() + c.subject.len()).sum::<usize>();
        together.push((place, call));
    }
    put(store, together, requests, answers);
}

fn put<'a>(
    store: &Inner,
    calls: Calls<'a>,
    requests: &mut Vec<SlotRequest<'a>>,
    answers: &mut Answers,
) {
    match (store.request(calls.clone()), &calls[..]) {
        (Ok(request), _) => requests.push(request),
        (Err(error), [(place, _)]) => answers[*place] = Err(error),
        // An invalid call must not fail the others.
        (Err(_), _) => {
            for call in calls {
                put(store, smallvec![call], requests, answers);
            }
        }
    }
}
