//! Many calls at once: those of one slot in one script call, those of one node in one write.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::future::join_all;
use redis::cluster_routing::Slot;
use smallvec::smallvec;
use tidegate_core::{Call, Decision, Error};
use tidegate_redis::wire::Batch;

use crate::across;
use crate::cluster_store::{Inner, no_answer};
use crate::errand::{Calls, Errand};
use crate::place::parts;
use crate::replicas::Replicas;

type Answers = Vec<Result<Decision, Error>>;

/// One answer for each call, in the order asked.
pub(crate) async fn decide(store: &Arc<Inner>, calls: &[Call<'_>]) -> Answers {
    let mut answers: Answers = calls.iter().map(|_| Err(no_answer())).collect();
    for wave in waves(store, calls, &mut answers) {
        let mut errands = vec![];
        for (_, group) in wave.in_slots {
            errands_of(store, group, &mut errands, &mut answers);
        }
        for (place, decided) in store.carry(errands).await {
            answers[place] = decided.and_then(|decided| {
                Replicas::check(store.replicas.as_ref(), &calls[place], decided)
            });
        }
        let across = wave.across.iter().map(|&place| across::decide(store, calls[place]));
        for (place, answer) in wave.across.iter().zip(join_all(across).await) {
            answers[*place] = answer;
        }
    }
    answers
}

/// Calls that can be carried out together: first those within a slot, then those across slots, of
/// which no two share one.
#[derive(Debug, Default)]
struct Wave<'a> {
    in_slots: Vec<(Slot, Vec<(usize, Call<'a>)>)>,
    places: HashMap<Slot, usize>,
    across: Vec<usize>,
}

/// The calls in waves, so that calls that share a slot, and so perhaps a key, keep their order.
fn waves<'a>(store: &Inner, calls: &[Call<'a>], answers: &mut Answers) -> Vec<Wave<'a>> {
    let mut waves: Vec<Wave<'a>> = vec![];
    // From which wave on a slot is free.
    let mut free: HashMap<Slot, usize> = HashMap::new();
    for (place, call) in calls.iter().enumerate() {
        if let Err(error) = call.check() {
            answers[place] = Err(error);
            continue;
        }
        let parts = parts(&store.keys, call);
        let slots = || parts.iter().map(|part| part.slot);
        let number = slots().filter_map(|slot| free.get(&slot).copied()).max().unwrap_or(0);
        if waves.len() <= number {
            waves.resize_with(number + 1, Wave::default);
        }
        let wave = &mut waves[number];
        match &parts[..] {
            [part] => wave.add(part.slot, place, *call),
            _ => {
                wave.across.push(place);
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

/// The script calls for calls in one slot: as few as it takes.
fn errands_of<'a>(
    store: &Inner,
    group: Vec<(usize, Call<'a>)>,
    errands: &mut Vec<Errand<'a>>,
    answers: &mut Answers,
) {
    let mut together = Calls::new();
    let (mut charges, mut bytes) = (0, 0);
    for (place, call) in group {
        if charges + call.charges.len() > Batch::MAX_CHARGES || bytes > Batch::MAX_KEY_BYTES {
            put(store, std::mem::take(&mut together), errands, answers);
            (charges, bytes) = (0, 0);
        }
        charges += call.charges.len();
        bytes += call.charges.iter().map(|c| c.tenant.len() + c.subject.len()).sum::<usize>();
        together.push((place, call));
    }
    put(store, together, errands, answers);
}

fn put<'a>(store: &Inner, calls: Calls<'a>, errands: &mut Vec<Errand<'a>>, answers: &mut Answers) {
    match (store.errand(calls.clone()), &calls[..]) {
        (Ok(errand), _) => errands.push(errand),
        (Err(error), [(place, _)]) => answers[*place] = Err(error),
        // One that cannot be asked does not keep the others from it.
        (Err(_), _) => {
            for call in calls {
                put(store, smallvec![call], errands, answers);
            }
        }
    }
}
