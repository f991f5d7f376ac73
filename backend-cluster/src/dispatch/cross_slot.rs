//! Calls whose states lie in several slots, which no script can decide on together.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::{
    Call, Charge, Decision, Error, ErrorKind, Operation, Outcome, OwnedCall, Timestamp, Verdict,
};

use crate::dispatch::request::SlotDecision;
use crate::dispatch::wait_replicas::Replicas;
use crate::inner::{Inner, no_answer};
use crate::routing::slots::{SlotPart, split_by_slot};

/// Decides on a call across slots.
///
/// A call that takes runs in its own task: if it were dropped with its caller's future between taking and
/// undoing, what was to be undone would stay taken.
pub(crate) async fn decide(store: &Arc<Inner>, call: Call<'_>) -> Result<Decision, Error> {
    check(call.operation)?;
    if !call.operation.is_acquire() {
        return merge(store, call, send(store, call).await, None);
    }
    let (store, call) = (Arc::clone(store), OwnedCall::from(call));
    let task = tokio::spawn(async move { peek_then_take(&store, call.as_call()).await });
    task.await.unwrap_or_else(|ended| {
        let message = format!("a call across slots was not carried to its end: {ended}");
        Err(Error::new(ErrorKind::Unavailable, message))
    })
}

/// Checks that an operation is possible across slots, so that each part can be sent to its slot.
///
/// # Errors
///
/// Returns [`ErrorKind::Unsupported`] if the charges have to take one common amount.
pub(crate) fn check(operation: Operation) -> Result<(), Error> {
    if !matches!(operation, Operation::AcquireUpTo { .. }) {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Unsupported,
        "the states of this call are in several slots, which cannot take one common amount \
         together; with one tenant for all charges they are in one slot",
    ))
}

/// Peeks in all slots, and takes the charges if all of them would admit. Otherwise writes nothing but blocks.
///
/// Without the peek, a call that one slot refuses would take in the others and undo that: callers that are
/// refused repeatedly would always hold a part of the other limits, and would replace states that another
/// setting has written.
async fn peek_then_take(store: &Inner, call: Call<'_>) -> Result<Decision, Error> {
    let peeked = look(store, call).await?;
    if peeked.is_denied() {
        return block_refused(store, call, peeked).await;
    }
    let mut slots = slot_answers(store, call);
    let mut rest = vec![];
    if let Some(scarcest) = scarcest(&slots, &peeked) {
        slots.swap(0, scarcest);
        rest = slots.split_off(1);
    }
    send_each(store, call.operation, &mut slots).await;
    let holds = |slot: &SlotAnswer<'_>| slot.holds(store, call.operation);
    if slots.iter().all(holds) {
        send_each(store, call.operation, &mut rest).await;
        slots.extend(rest);
    }
    // Another call may have taken since the peek.
    if !slots.iter().all(holds) {
        undo(store, &mut slots).await?;
    }
    merge(store, call, slots, Some(&peeked))
}

/// A policy that would admit fewer charges like the call's than this is scarce.
const SCARCE_BELOW: u64 = 16;

/// The slot in which to take first: that of the scarcest policy, if one is scarce.
///
/// When many calls race for the last charge of a limit, the ones that lose have taken nothing elsewhere then.
/// It costs a round trip, so it is left out where such a race is unlikely.
fn scarcest(slots: &[SlotAnswer<'_>], peeked: &Decision) -> Option<usize> {
    let remains_of = |slot: &SlotAnswer<'_>| {
        let verdicts = slot.part.places.iter().filter_map(|&place| peeked.verdicts().get(place));
        let in_force = slot.charges.iter().zip(verdicts);
        let in_force = in_force.filter(|(charge, verdict)| charge.cost > 0 && !verdict.is_shadow());
        in_force.map(|(charge, verdict)| verdict.remaining() / charge.cost).min()
    };
    let scarce = slots.iter().enumerate();
    let scarce = scarce.filter_map(|(place, slot)| Some((remains_of(slot)?, place)));
    scarce.min().filter(|(remains, _)| *remains < SCARCE_BELOW).map(|(_, place)| place)
}

/// Peeks in all slots.
async fn look(store: &Inner, call: Call<'_>) -> Result<Decision, Error> {
    let mut slots = slot_answers(store, call);
    let calls: Vec<_> = slots.iter().map(|slot| Call::new(call.operation, &slot.charges)).collect();
    let answers = store.peek_in_slots(&calls).await;
    slots.iter_mut().zip(answers).for_each(|(slot, answer)| slot.answer = answer);
    merge(store, Call::with_charges(Operation::Peek, call.charges), slots, None)
}

/// Sends the denied charges of policies with a block, so that they write it. They are denied again, and nothing
/// is taken.
async fn block_refused(store: &Inner, call: Call<'_>, peeked: Decision) -> Result<Decision, Error> {
    let all = call.charges.iter().zip(peeked.verdicts()).enumerate();
    let (places, charges): (Vec<usize>, Vec<Charge<'_>>) = all
        .filter(|(_, (charge, verdict))| {
            // A cost above the limit does not block.
            charge.policy.block_duration().is_some()
                && verdict.outcome() == Outcome::Denied
                && verdict.retry_after().is_some()
        })
        .map(|(place, (charge, _))| (place, charge))
        .unzip();
    let mut verdicts = peeked.verdicts().to_vec();
    if places.is_empty() {
        return Ok(Decision::new(verdicts));
    }
    let call = Call::new(call.operation, &charges);
    let mut answers = send(store, call).await;
    // They may be admitted by now, as a window may have ended since the peek.
    undo(store, &mut answers).await?;
    let blocked = merge(store, call, answers, None)?;
    for (place, verdict) in places.into_iter().zip(blocked.verdicts()) {
        if verdict.outcome() != Outcome::Allowed {
            verdicts[place] = *verdict;
        }
    }
    Ok(Decision::new(verdicts))
}

/// The charges of one slot, and its node's answer.
struct SlotAnswer<'a> {
    part: SlotPart,
    charges: Vec<Charge<'a>>,
    answer: Result<SlotDecision, Error>,
}

/// Splits a call by slot. Nothing is sent yet.
fn slot_answers<'a>(store: &Inner, call: Call<'a>) -> Vec<SlotAnswer<'a>> {
    let split_by_slot = split_by_slot(&store.keys, &call).into_iter();
    let slots = split_by_slot.map(|part| {
        let charges = part.places.iter().filter_map(|&place| call.charges.get(place)).collect();
        SlotAnswer { part, charges, answer: Err(no_answer()) }
    });
    slots.collect()
}

/// Sends to all slots concurrently.
async fn send<'a>(store: &Inner, call: Call<'a>) -> Vec<SlotAnswer<'a>> {
    let mut slots = slot_answers(store, call);
    send_each(store, call.operation, &mut slots).await;
    slots
}

async fn send_each(store: &Inner, operation: Operation, slots: &mut [SlotAnswer<'_>]) {
    let calls: Vec<_> = slots.iter().map(|slot| Call::new(operation, &slot.charges)).collect();
    let answers = store.decide_in_slots(&calls).await;
    slots.iter_mut().zip(answers).for_each(|(slot, answer)| slot.answer = answer);
}

impl<'a> SlotAnswer<'a> {
    /// Whether the slot admitted, and enough replicas have it.
    fn holds(&self, store: &Inner, operation: Operation) -> bool {
        let Ok(decided) = &self.answer else { return false };
        decided.reply.decision.is_allowed()
            && store.replicas.as_ref().is_none_or(|replicas| {
                replicas.suffices(&Call::new(operation, &self.charges), decided)
            })
    }

    /// The charges to undo, grouped by the time at which they were taken.
    fn taken(&self) -> Vec<TakenAt<'a>> {
        let mut taken: Vec<TakenAt<'a>> = vec![];
        let Some(SlotDecision { reply, .. }) = self.answer.as_ref().ok() else { return taken };
        if reply.decision.is_denied() {
            return taken;
        }
        let reply = reply.decision.verdicts().iter().zip(&reply.taken_at);
        for (place, (charge, (verdict, at))) in self.charges.iter().zip(reply).enumerate() {
            if verdict.outcome() != Outcome::Allowed {
                continue;
            }
            match taken.iter_mut().find(|taken| taken.at == *at) {
                Some(taken) => taken.add(place, *charge),
                None => {
                    taken.push(TakenAt { at: *at, places: vec![place], charges: vec![*charge] });
                }
            }
        }
        // A charge of cost 0 takes nothing, but it may share its key with one that does.
        let takes = |charge: &Charge<'_>| charge.cost > 0 && !charge.is_check_only;
        taken.retain(|taken| taken.charges.iter().any(takes));
        taken
    }

    /// Replaces the verdicts on charges that were undone.
    fn after_undo(&mut self, places: &[usize], undone: &Decision) {
        let Ok(decided) = &mut self.answer else { return };
        let mut verdicts = decided.reply.decision.verdicts().to_vec();
        for (place, now) in places.iter().zip(undone.verdicts()) {
            if let Some(verdict) = verdicts.get_mut(*place) {
                *verdict = not_taken(now);
            }
        }
        decided.reply.decision = Decision::new(verdicts);
    }
}

/// Charges of one slot that were taken at one time, with their indices among the charges of the slot.
struct TakenAt<'a> {
    at: Timestamp,
    places: Vec<usize>,
    charges: Vec<Charge<'a>>,
}

impl<'a> TakenAt<'a> {
    fn add(&mut self, place: usize, charge: Charge<'a>) {
        self.places.push(place);
        self.charges.push(charge);
    }
}

/// The verdict on a charge that its own policy admits, but others denied: with the levels after the undo, as a
/// peek of cost 0 reports them.
fn not_taken(now: &Verdict) -> Verdict {
    let verdict = Verdict::new(Outcome::Allowed, now.limit())
        .with_remaining(now.remaining())
        .with_reset_after(now.reset_after());
    if now.is_shadow() { verdict.in_shadow() } else { verdict }
}

/// Undoes what was taken, in all slots concurrently.
///
/// # Errors
///
/// If an undo failed: the charge then stays taken until it recovers by itself.
async fn undo(store: &Inner, slots: &mut [SlotAnswer<'_>]) -> Result<(), Error> {
    let taken = slots.iter().enumerate();
    let taken: Vec<(usize, TakenAt<'_>)> = taken
        .flat_map(|(number, slot)| slot.taken().into_iter().map(move |taken| (number, taken)))
        .collect();
    let calls: Vec<_> = taken
        .iter()
        .map(|(_, TakenAt { at, charges, .. })| Call::new(Operation::Undo { at: *at }, charges))
        .collect();
    let answers = store.decide_in_slots(&calls).await;
    let mut failure = None;
    for ((number, taken), undone) in taken.iter().zip(answers) {
        match undone {
            Ok(undone) => slots[*number].after_undo(&taken.places, &undone.reply.decision),
            Err(error) => failure = Some(error),
        }
    }
    failure.map_or(Ok(()), |error| {
        let why = "a call across slots was not admitted, and what it took in one slot could not be \
                   undone; it recovers by itself";
        Err(done_in_part(why, error))
    })
}

/// An error with this cause, of a kind that does not imply that nothing was charged.
fn done_in_part(why: &str, cause: Error) -> Error {
    let kind = cause.kind();
    let kind = if kind.is_definitely_not_charged() { ErrorKind::Unavailable } else { kind };
    Error::new(kind, why).with_source(cause)
}

/// Merges the answers of all slots, with the verdicts in the order of the call. Slots that are left out keep the
/// verdicts of `peeked`.
fn merge(
    store: &Inner,
    call: Call<'_>,
    slots: Vec<SlotAnswer<'_>>,
    peeked: Option<&Decision>,
) -> Result<Decision, Error> {
    let mut verdicts: Vec<Option<Verdict>> = match peeked {
        Some(peeked) => peeked.verdicts().iter().copied().map(Some).collect(),
        None => vec![None; call.charges.len()],
    };
    let mut booked = Duration::ZERO;
    let mut amounts: Vec<u64> = vec![];
    let mut unspent: Vec<Option<u64>> = vec![];
    let (mut failures, mut is_done_in_part) = (vec![], false);
    for SlotAnswer { part, charges, answer } in slots {
        let asked = Call::new(call.operation, &charges);
        let decision = answer.and_then(|it| Replicas::check(store.replicas.as_ref(), &asked, it));
        let decision = match decision {
            Ok(decision) => decision,
            Err(error) => {
                failures.push(error.with_context(format_args!("across slots, of {:?}", part.slot)));
                continue;
            }
        };
        // What was taken is undone if a slot fails, and a peek changes nothing.
        is_done_in_part |= !call.operation.can_be_refused();
        booked = booked.max(decision.wait());
        for (place, verdict) in part.places.iter().zip(decision.verdicts()) {
            verdicts[*place] = Some(*verdict);
        }
        for (place, amount) in part.places.iter().zip(decision.amounts()) {
            amounts.resize(call.charges.len(), 0);
            amounts[*place] = *amount;
        }
        for (place, its) in part.places.iter().zip(decision.unspent()) {
            unspent.resize(call.charges.len(), None);
            unspent[*place] = *its;
        }
    }
    if !failures.is_empty() {
        // Nothing is charged only if nothing is charged in any slot.
        let is_uncertain = |error: &Error| !error.is_definitely_not_charged();
        let error = failures.swap_remove(failures.iter().position(is_uncertain).unwrap_or(0));
        let why = "a call across slots failed in one of them, and may be done in the others";
        return Err(if is_done_in_part { done_in_part(why, error) } else { error });
    }
    let verdicts = verdicts.into_iter().collect::<Option<Vec<_>>>().ok_or_else(no_answer)?;
    let decision = Decision::new(verdicts);
    let decision = if amounts.is_empty() { decision } else { decision.with_amounts(amounts) };
    let decision = if unspent.is_empty() { decision } else { decision.with_unspent(unspent) };
    let is_booked = matches!(call.operation, Operation::Reserve { .. }) && decision.is_allowed();
    Ok(if is_booked { decision.with_wait(booked) } else { decision })
}
