//! Calls whose charges are kept in several slots, which no script can decide on together.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::{
    Call, Charge, Decision, Error, ErrorKind, Operation, Outcome, Policy, Timestamp, Verdict, Wait,
};

use crate::cluster_store::{Inner, no_answer};
use crate::errand::Decided;
use crate::place::{Part, parts};
use crate::replicas::Replicas;

/// Decides on a call across slots.
///
/// A call that takes runs in a task of its own: if it were dropped with its caller, as at a timeout,
/// between taking and undoing, what was to be given back would stay taken.
pub(crate) async fn decide(store: &Arc<Inner>, call: Call<'_>) -> Result<Decision, Error> {
    if !takes(call.operation) {
        return merge(store, call, ask(store, call).await, None);
    }
    let (store, operation) = (Arc::clone(store), call.operation);
    let owned: Vec<Owned> = call.charges.iter().map(|charge| Owned::new(&charge)).collect();
    let task = tokio::spawn(async move {
        let charges: Vec<Charge<'_>> = owned.iter().map(Owned::charge).collect();
        look_and_take(&store, Call::new(operation, &charges)).await
    });
    task.await.unwrap_or_else(|ended| {
        let message = format!("a call across slots was not carried to its end: {ended}");
        Err(Error::new(ErrorKind::Unavailable, message))
    })
}

fn takes(operation: Operation) -> bool {
    matches!(operation, Operation::Acquire | Operation::Reserve { .. })
}

/// Takes the charges if all slots would admit them, and writes nothing else but blocks.
///
/// Without the look, a call that one slot refuses would take in the others and undo that: callers that
/// are refused again and again would hold a part of the other limits all the time, and would replace
/// states that another setting has written.
async fn look_and_take(store: &Inner, call: Call<'_>) -> Result<Decision, Error> {
    let seen = look(store, call).await?;
    if seen.is_denied() {
        return block_refused(store, call, seen).await;
    }
    let mut slots = in_slots(store, call);
    let mut rest = vec![];
    if let Some(scarcest) = scarcest(&slots, &seen) {
        slots.swap(0, scarcest);
        rest = slots.split_off(1);
    }
    ask_each(store, call.operation, &mut slots).await;
    let holds = |slot: &SlotAnswer<'_>| slot.holds(store, call.operation);
    if slots.iter().all(holds) {
        ask_each(store, call.operation, &mut rest).await;
        slots.extend(rest);
    }
    // Another call may have taken since the look.
    if !slots.iter().all(holds) {
        undo(store, &mut slots).await?;
    }
    merge(store, call, slots, Some(&seen))
}

/// A policy that would admit fewer charges like that of the call than this is scarce.
const SCARCE: u64 = 16;

/// The slot in which to take before all others: that of the charge of which least remains, if that is little.
///
/// Many calls at once see the last of a limit, and one gets it. Those that do not have taken nothing
/// elsewhere then. This costs a round trip, so it is left out where such a race is unlikely.
fn scarcest(slots: &[SlotAnswer<'_>], seen: &Decision) -> Option<usize> {
    let remains_of = |slot: &SlotAnswer<'_>| {
        let verdicts = slot.part.places.iter().filter_map(|&place| seen.verdicts().get(place));
        let in_force = slot.charges.iter().zip(verdicts);
        let in_force = in_force.filter(|(charge, verdict)| charge.cost > 0 && !verdict.is_shadow());
        in_force.map(|(charge, verdict)| verdict.remaining() / charge.cost).min()
    };
    let scarce = slots.iter().enumerate();
    let scarce = scarce.filter_map(|(place, slot)| Some((remains_of(slot)?, place)));
    scarce.min().filter(|(remains, _)| *remains < SCARCE).map(|(_, place)| place)
}

/// What the call would be answered now. Writes nothing.
async fn look(store: &Inner, call: Call<'_>) -> Result<Decision, Error> {
    let mut slots = in_slots(store, call);
    let calls: Vec<_> = slots.iter().map(|slot| Call::new(call.operation, &slot.charges)).collect();
    let answers = store.look_in_slots(&calls).await;
    slots.iter_mut().zip(answers).for_each(|(slot, answer)| slot.answer = answer);
    merge(store, Call { operation: Operation::Peek, ..call }, slots, None)
}

/// Has the policies that refuse, and block whom they refuse, do so. Only their charges are sent: they are
/// refused again, and nothing is taken.
async fn block_refused(store: &Inner, call: Call<'_>, seen: Decision) -> Result<Decision, Error> {
    let all = call.charges.iter().zip(seen.verdicts()).enumerate();
    let (places, charges): (Vec<usize>, Vec<Charge<'_>>) = all
        .filter(|(_, (charge, verdict))| {
            // A cost that can never pass does not block.
            charge.policy.blocks_for().is_some()
                && verdict.outcome() == Outcome::Denied
                && verdict.retry_after().is_some()
        })
        .map(|(place, (charge, _))| (place, charge))
        .unzip();
    if places.is_empty() {
        return Ok(seen);
    }
    let call = Call::new(call.operation, &charges);
    let mut answers = ask(store, call).await;
    // A window may have ended since the look, or a refund have come.
    undo(store, &mut answers).await?;
    let blocked = merge(store, call, answers, None)?;
    let mut verdicts = seen.verdicts().to_vec();
    for (place, verdict) in places.into_iter().zip(blocked.verdicts()) {
        if verdict.outcome() != Outcome::Allowed {
            verdicts[place] = *verdict;
        }
    }
    Ok(Decision::new(verdicts))
}

/// A charge that borrows nothing.
struct Owned {
    policy: Policy,
    tenant: Vec<u8>,
    subject: Vec<u8>,
    cost: u64,
}

impl Owned {
    fn new(charge: &Charge<'_>) -> Self {
        Self {
            policy: charge.policy.clone(),
            tenant: charge.tenant.to_vec(),
            subject: charge.subject.to_vec(),
            cost: charge.cost,
        }
    }

    fn charge(&self) -> Charge<'_> {
        Charge::new(&self.policy, &self.subject).tenant(&self.tenant).cost(self.cost)
    }
}

/// The charges of one slot, and what its node answered.
struct SlotAnswer<'a> {
    part: Part,
    charges: Vec<Charge<'a>>,
    answer: Result<Decided, Error>,
}

/// The charges of a call by their slots, which have not been asked yet.
fn in_slots<'a>(store: &Inner, call: Call<'a>) -> Vec<SlotAnswer<'a>> {
    let parts = parts(&store.keys, &call).into_iter();
    let slots = parts.map(|part| {
        let charges = part.places.iter().filter_map(|&place| call.charges.get(place)).collect();
        SlotAnswer { part, charges, answer: Err(no_answer()) }
    });
    slots.collect()
}

/// Asks each slot for itself, all at once.
async fn ask<'a>(store: &Inner, call: Call<'a>) -> Vec<SlotAnswer<'a>> {
    let mut slots = in_slots(store, call);
    ask_each(store, call.operation, &mut slots).await;
    slots
}

async fn ask_each(store: &Inner, operation: Operation, slots: &mut [SlotAnswer<'_>]) {
    let calls: Vec<_> = slots.iter().map(|slot| Call::new(operation, &slot.charges)).collect();
    let answers = store.decide_in_slots(&calls).await;
    slots.iter_mut().zip(answers).for_each(|(slot, answer)| slot.answer = answer);
}

impl<'a> SlotAnswer<'a> {
    /// Whether what this slot has taken may stay taken, as far as it is concerned.
    fn holds(&self, store: &Inner, operation: Operation) -> bool {
        let Ok(decided) = &self.answer else { return false };
        decided.told.decision.is_allowed()
            && store.replicas.as_ref().is_none_or(|replicas| {
                replicas.suffices(&Call::new(operation, &self.charges), decided)
            })
    }

    /// What has to be undone: the charges that were taken, by when they were.
    fn taken(&self) -> Vec<TakenTogether<'a>> {
        let mut taken: Vec<TakenTogether<'a>> = vec![];
        let Some(Decided { told, .. }) = self.answer.as_ref().ok() else { return taken };
        if told.decision.is_denied() {
            return taken;
        }
        let told = told.decision.verdicts().iter().zip(&told.taken_at);
        for (place, (charge, (verdict, at))) in self.charges.iter().zip(told).enumerate() {
            if verdict.outcome() != Outcome::Allowed {
                continue;
            }
            match taken.iter_mut().find(|taken| taken.at == *at) {
                Some(taken) => taken.add(place, *charge),
                None => {
                    taken.push(TakenTogether {
                        at: *at,
                        places: vec![place],
                        charges: vec![*charge],
                    });
                }
            }
        }
        // A charge of no cost takes nothing; but it may be to a key that another one takes from.
        taken.retain(|taken| taken.charges.iter().any(|charge| charge.cost > 0));
        taken
    }

    /// The same answer, now that these charges are given back.
    fn after_undo(&mut self, places: &[usize], undone: &Decision) {
        let Ok(decided) = &mut self.answer else { return };
        let mut verdicts = decided.told.decision.verdicts().to_vec();
        for (place, now) in places.iter().zip(undone.verdicts()) {
            if let Some(verdict) = verdicts.get_mut(*place) {
                *verdict = not_taken(now);
            }
        }
        decided.told.decision = Decision::new(verdicts);
    }
}

/// Charges of one slot that were taken at one time, and their places among the charges of that slot.
struct TakenTogether<'a> {
    at: Timestamp,
    places: Vec<usize>,
    charges: Vec<Charge<'a>>,
}

impl<'a> TakenTogether<'a> {
    fn add(&mut self, place: usize, charge: Charge<'a>) {
        self.places.push(place);
        self.charges.push(charge);
    }
}

/// The verdict on a charge that would be admitted, but for others: with the levels after it was given
/// back, which is what a peek of no cost reports.
fn not_taken(now: &Verdict) -> Verdict {
    let reset = u64::try_from(now.reset_after().as_micros()).unwrap_or(u64::MAX);
    Verdict::new(Outcome::Allowed, now.limit(), now.remaining(), Wait::NOW, reset)
        .in_shadow(now.is_shadow())
}

/// Gives back what was taken, in all slots at once.
///
/// # Errors
///
/// If it could not be given back somewhere: it then stays taken until it recovers by itself.
async fn undo(store: &Inner, slots: &mut [SlotAnswer<'_>]) -> Result<(), Error> {
    let taken = slots.iter().enumerate();
    let taken: Vec<(usize, TakenTogether<'_>)> = taken
        .flat_map(|(number, slot)| slot.taken().into_iter().map(move |taken| (number, taken)))
        .collect();
    let calls: Vec<_> = taken
        .iter()
        .map(|(_, TakenTogether { at, charges, .. })| {
            Call::new(Operation::Undo { at: *at }, charges)
        })
        .collect();
    let answers = store.decide_in_slots(&calls).await;
    let mut failure = None;
    for ((number, taken), undone) in taken.iter().zip(answers) {
        match undone {
            Ok(undone) => slots[*number].after_undo(&taken.places, &undone.told.decision),
            Err(error) => failure = Some(error),
        }
    }
    failure.map_or(Ok(()), |error| {
        let why = "a call across slots was not admitted, and what it had taken of one could not be \
                   given back; it recovers by itself";
        Err(done_in_part(why, error))
    })
}

/// An error with this cause, of a kind that does not say that nothing was written.
fn done_in_part(why: &str, cause: Error) -> Error {
    let kind = cause.kind();
    let kind = if kind.is_surely_not_charged() { ErrorKind::Unavailable } else { kind };
    Error::new(kind, why).with_source(cause)
}

/// One decision of all slots, its verdicts in the order asked. What was `seen` of slots that are left out
/// stays as it is.
fn merge(
    store: &Inner,
    call: Call<'_>,
    slots: Vec<SlotAnswer<'_>>,
    seen: Option<&Decision>,
) -> Result<Decision, Error> {
    let mut verdicts: Vec<Option<Verdict>> = match seen {
        Some(seen) => seen.verdicts().iter().copied().map(Some).collect(),
        None => vec![None; call.charges.len()],
    };
    let mut booked = Duration::ZERO;
    let (mut failures, mut is_done_in_part) = (vec![], false);
    for SlotAnswer { part, charges, answer } in slots {
        let asked = Call::new(call.operation, &charges);
        let decision = answer.and_then(|it| Replicas::check(store.replicas.as_ref(), &asked, it));
        let decision = match decision {
            Ok(decision) => decision,
            Err(error) => {
                failures.push(error.repeated(&format!("across slots, of {:?}", part.slot)));
                continue;
            }
        };
        // What was taken is undone if a slot fails, and a look does nothing.
        is_done_in_part |= !takes(call.operation) && call.operation != Operation::Peek;
        booked = booked.max(decision.wait());
        for (place, verdict) in part.places.iter().zip(decision.verdicts()) {
            verdicts[*place] = Some(*verdict);
        }
    }
    if !failures.is_empty() {
        // Nothing is charged only if nothing is in any slot.
        let is_uncertain = |error: &Error| !error.is_surely_not_charged();
        let error = failures.swap_remove(failures.iter().position(is_uncertain).unwrap_or(0));
        let why = "a call across slots failed in one of them, and may be done in the others";
        return Err(if is_done_in_part { done_in_part(why, error) } else { error });
    }
    let verdicts = verdicts.into_iter().collect::<Option<Vec<_>>>().ok_or_else(no_answer)?;
    let decision = Decision::new(verdicts);
    let is_booked = matches!(call.operation, Operation::Reserve { .. }) && decision.is_allowed();
    Ok(if is_booked { decision.with_wait(booked) } else { decision })
}
