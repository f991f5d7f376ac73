//! Decides calls with states in several slots. No script can decide such a call, because a script
//! can access only one slot.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::{
    Block, Call, Charge, Decision, Error, ErrorKind, Operation, Outcome, OwnedCall, Timestamp,
    Verdict,
};

use crate::dispatch::request::SlotDecision;
use crate::dispatch::wait_replicas::Replicas;
use crate::inner::{Inner, no_answer};
use crate::routing::slots::{SlotPart, slot_of, split_by_slot};

/// Decides a call across slots. An acquire runs in its own task, so that it continues if the caller
/// is cancelled. If an acquire ended between a charge and the undo of the charge, the charge would
/// remain in its slot.
pub(crate) async fn decide(store: &Arc<Inner>, call: Call<'_>) -> Result<Decision, Error> {
    check(call.operation)?;
    check_lists(store, &call)?;
    if !call.operation.is_acquire() {
        return merge(store, call, send(store, call).await, None);
    }
    let (store, call) = (Arc::clone(store), OwnedCall::from(call));
    let task = tokio::spawn(async move { peek_then_charge(&store, call.as_call()).await });
    task.await.unwrap_or_else(|ended| {
        let message = format!("the task of a call across slots ended early: {ended}");
        Err(Error::new(ErrorKind::Unavailable, message))
    })
}

/// Returns [`ErrorKind::Unsupported`] for an acquire up to the costs. Such an acquire charges one
/// common amount, which depends on the states in all slots.
pub(crate) fn check(operation: Operation) -> Result<(), Error> {
    if !matches!(operation, Operation::AcquireUpTo { .. }) {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Unsupported,
        "the states of this call are in several slots, which cannot charge a common amount \
         together; the charges must have one tenant, so that their states are in one slot",
    ))
}

/// Returns [`ErrorKind::Unsupported`] if the states of a list of alternatives are in several slots.
fn check_lists(store: &Inner, call: &Call<'_>) -> Result<(), Error> {
    if !call.operation.can_be_refused() {
        return Ok(());
    }
    let mut slots: Vec<(u8, Charge<'_>)> = vec![];
    for charge in call.charges.iter().filter(|charge| charge.list > 0) {
        match slots.iter().find(|(list, _)| *list == charge.list) {
            Some((_, first)) if slot_of(&store.keys, first) == slot_of(&store.keys, &charge) => {}
            Some((_, first)) => {
                let message = format!(
                    "the alternatives `{}` and `{}` have their states in several slots; with one \
                     tenant, their states are in one slot",
                    first.policy, charge.policy
                );
                return Err(Error::new(ErrorKind::Unsupported, message));
            }
            None => slots.push((charge.list, charge)),
        }
    }
    Ok(())
}

/// Peeks in all slots, and makes the charges if every slot would admit its part of the call. If the
/// call is refused, writes only the blocks and the demands of the policies that refuse.
///
/// Without the peek, a refused call would charge some slots and then undo these charges. So a
/// caller that is refused repeatedly would always occupy a part of the limits in these slots. It
/// would also replace states that were written under older settings of a policy.
async fn peek_then_charge(store: &Inner, call: Call<'_>) -> Result<Decision, Error> {
    let peeked = peek(store, call).await?;
    if peeked.is_denied() {
        return write_refusals(store, call, peeked).await;
    }
    let mut slots = slot_answers(store, call);
    let mut rest = vec![];
    if let Some(scarcest) = scarcest(&slots, &peeked) {
        slots.swap(0, scarcest);
        rest = slots.split_off(1);
    }
    send_each(store, call.operation, &mut slots).await;
    let has_admitted = |slot: &SlotAnswer<'_>| slot.has_admitted(store, call.operation);
    if slots.iter().all(has_admitted) {
        send_each(store, call.operation, &mut rest).await;
        slots.extend(rest);
    }
    // A slot can refuse its part although the peek admitted it, because another call has charged
    // the same state since.
    if !slots.iter().all(has_admitted) {
        undo(store, &mut slots).await?;
    }
    merge(store, call, slots, Some(&peeked))
}

/// A policy is scarce if it admits fewer than this number of further charges of the same cost.
const SCARCE_BELOW: u64 = 16;

/// Returns the index of the slot that must be charged first: the slot whose policy admits the
/// fewest further charges. Returns `None` if every policy admits at least [`SCARCE_BELOW`] further
/// charges.
///
/// If many calls compete for the last unit of a limit, they all charge the slot of this limit
/// first. So a call that does not get the unit charges no other slot. Charging one slot first costs
/// a round trip, so the store does this only near a limit.
fn scarcest(slots: &[SlotAnswer<'_>], peeked: &Decision) -> Option<usize> {
    let min_remaining = |slot: &SlotAnswer<'_>| {
        let verdicts = slot.part.places.iter().filter_map(|&place| peeked.verdicts().get(place));
        let enforced = slot.charges.iter().zip(verdicts);
        let enforced = enforced.filter(|(charge, verdict)| charge.cost > 0 && !verdict.is_shadow());
        enforced.map(|(charge, verdict)| verdict.remaining() / charge.cost).min()
    };
    let scarce = slots.iter().enumerate();
    let scarce = scarce.filter_map(|(place, slot)| Some((min_remaining(slot)?, place)));
    scarce.min().filter(|(remaining, _)| *remaining < SCARCE_BELOW).map(|(_, place)| place)
}

async fn peek(store: &Inner, call: Call<'_>) -> Result<Decision, Error> {
    let mut slots = slot_answers(store, call);
    let calls: Vec<_> = slots.iter().map(|slot| Call::new(call.operation, &slot.charges)).collect();
    let answers = store.peek_in_slots(&calls).await;
    slots.iter_mut().zip(answers).for_each(|(slot, answer)| slot.answer = answer);
    merge(store, Call::with_charges(Operation::Peek, call.charges), slots, None)
}

/// After a refused peek, sends the denied charges of the policies that block after a denial, the
/// blocked charges of the policies that restart the block, and the charges that a fair pool denies.
/// The scripts usually refuse these charges again, and write the blocks and the demands.
async fn write_refusals(
    store: &Inner,
    call: Call<'_>,
    peeked: Decision,
) -> Result<Decision, Error> {
    let all = || call.charges.iter().zip(peeked.verdicts());
    // If a list has no payer, all its alternatives refuse, also the skipped ones.
    let has_payer = |list| {
        all().any(|(charge, verdict)| charge.list == list && verdict.outcome() == Outcome::Allowed)
    };
    let (places, charges): (Vec<usize>, Vec<Charge<'_>>) = all()
        .enumerate()
        .filter(|(_, (charge, verdict))| {
            // If a denial has no wait, the cost of the charge is above the limit. Such a charge
            // does not cause a block. But a denial by credits has no wait at any cost.
            let writes_block = |block: &Block| match verdict.outcome() {
                Outcome::Denied => true,
                Outcome::Blocked => block.restarts(),
                _ => false,
            };
            let can_be_offense = verdict.retry_after().is_some() || charge.policy.is_quota();
            if charge.policy.is_fair_pool() {
                return match verdict.outcome() {
                    Outcome::Denied => can_be_offense,
                    Outcome::Skipped => !has_payer(charge.list),
                    _ => false,
                };
            }
            charge.policy.block().is_some_and(writes_block) && can_be_offense
        })
        .map(|(place, (charge, _))| (place, charge.in_list(0)))
        .unzip();
    let mut verdicts = peeked.verdicts().to_vec();
    if places.is_empty() {
        return Ok(Decision::new(verdicts));
    }
    let call = Call::new(call.operation, &charges);
    let mut answers = send(store, call).await;
    // If a window has ended since the peek, a slot admits charges that the peek denied. The call is
    // still refused, so the store undoes these charges.
    undo(store, &mut answers).await?;
    let blocked = merge(store, call, answers, None)?;
    for (place, verdict) in places.into_iter().zip(blocked.verdicts()) {
        let is_skipped = verdicts[place].outcome() == Outcome::Skipped;
        if verdict.outcome() != Outcome::Allowed && !is_skipped {
            verdicts[place] = *verdict;
        }
    }
    Ok(Decision::new(verdicts))
}

struct SlotAnswer<'a> {
    part: SlotPart,
    charges: Vec<Charge<'a>>,
    answer: Result<SlotDecision, Error>,
}

/// Splits a call into one part per slot, and sends nothing. The answer of each part is an error
/// until the part is sent.
fn slot_answers<'a>(store: &Inner, call: Call<'a>) -> Vec<SlotAnswer<'a>> {
    let split_by_slot = split_by_slot(&store.keys, &call).into_iter();
    let slots = split_by_slot.map(|part| {
        let charges = part.places.iter().filter_map(|&place| call.charges.get(place)).collect();
        SlotAnswer { part, charges, answer: Err(no_answer()) }
    });
    slots.collect()
}

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
    /// Returns `true` if the slot has admitted its charges, and if enough replicas have
    /// acknowledged the write.
    fn has_admitted(&self, store: &Inner, operation: Operation) -> bool {
        let Ok(decided) = &self.answer else { return false };
        decided.reply.decision.is_allowed()
            && store.replicas.as_ref().is_none_or(|replicas| {
                replicas.suffices(&Call::new(operation, &self.charges), decided)
            })
    }

    /// Returns the charges that the slot has made and that must be undone, grouped by the time at
    /// which they were made.
    fn charged(&self) -> Vec<ChargedAt<'a>> {
        let mut charged: Vec<ChargedAt<'a>> = vec![];
        let Some(SlotDecision { reply, .. }) = self.answer.as_ref().ok() else { return charged };
        if reply.decision.is_denied() {
            return charged;
        }
        let reply = reply.decision.verdicts().iter().zip(&reply.taken_at);
        for (place, (charge, (verdict, at))) in self.charges.iter().zip(reply).enumerate() {
            if verdict.outcome() != Outcome::Allowed {
                continue;
            }
            // An undo names only the charges of lists that have paid.
            let charge = &charge.in_list(0);
            match charged.iter_mut().find(|group| group.at == *at) {
                Some(group) => group.add(place, *charge),
                None => {
                    charged.push(ChargedAt {
                        at: *at,
                        places: vec![place],
                        charges: vec![*charge],
                    });
                }
            }
        }
        // A group of only check-only charges and charges of cost 0 has changed nothing, so it needs
        // no undo. Any other group is undone as a whole. If one of its charges has a cost of 0 and
        // the key of another charge, the undo also changes its verdict.
        let changes = |charge: &Charge<'_>| charge.cost > 0 && !charge.is_check_only;
        charged.retain(|group| group.charges.iter().any(changes));
        charged
    }

    /// Updates the verdicts on charges that were undone. `places` contains the indices of these
    /// charges among all charges of the slot.
    fn after_undo(&mut self, places: &[usize], undone: &Decision) {
        let Ok(decided) = &mut self.answer else { return };
        let mut verdicts = decided.reply.decision.verdicts().to_vec();
        for (place, now) in places.iter().zip(undone.verdicts()) {
            if let Some(verdict) = verdicts.get_mut(*place) {
                *verdict = undone_verdict(now);
            }
        }
        decided.reply.decision = Decision::new(verdicts);
    }
}

/// Charges in one slot that were made at the same time. `places` contains their indices among all
/// charges of the slot.
struct ChargedAt<'a> {
    at: Timestamp,
    places: Vec<usize>,
    charges: Vec<Charge<'a>>,
}

impl<'a> ChargedAt<'a> {
    fn add(&mut self, place: usize, charge: Charge<'a>) {
        self.places.push(place);
        self.charges.push(charge);
    }
}

/// Returns the verdict on a charge that was undone. The verdict is "allowed", because the policy of
/// the charge had admitted it. The remaining amount and the reset time are the values after the
/// undo.
fn undone_verdict(now: &Verdict) -> Verdict {
    let verdict = Verdict::new(Outcome::Allowed, now.limit())
        .with_remaining(now.remaining())
        .with_reset_after(now.reset_after())
        .with_warning(now.warns());
    if now.is_shadow() { verdict.in_shadow() } else { verdict }
}

/// Undoes the charges that the slots have made, in all slots concurrently.
///
/// # Errors
///
/// Returns an error if an undo failed. The charge that was not undone remains until its state
/// recovers.
async fn undo(store: &Inner, slots: &mut [SlotAnswer<'_>]) -> Result<(), Error> {
    let charged: Vec<(usize, ChargedAt<'_>)> = slots
        .iter()
        .enumerate()
        .flat_map(|(number, slot)| slot.charged().into_iter().map(move |group| (number, group)))
        .collect();
    let calls: Vec<_> = charged
        .iter()
        .map(|(_, ChargedAt { at, charges, .. })| Call::new(Operation::Undo { at: *at }, charges))
        .collect();
    let answers = store.decide_in_slots(&calls).await;
    let mut failure = None;
    for ((number, group), undone) in charged.iter().zip(answers) {
        match undone {
            Ok(undone) => slots[*number].after_undo(&group.places, &undone.reply.decision),
            Err(error) => failure = Some(error),
        }
    }
    failure.map_or(Ok(()), |error| {
        let why = "a call across slots was not admitted, and its charge in one slot could not be undone; the state \
                   recovers with time";
        Err(done_in_part(why, error))
    })
}

/// Creates the error of a call that was executed in part. The kind of the error never means that
/// nothing was charged.
fn done_in_part(why: &str, cause: Error) -> Error {
    let kind = cause.kind();
    let kind = if kind.is_definitely_not_charged() { ErrorKind::Unavailable } else { kind };
    Error::new(kind, why).with_source(cause)
}

/// Merges the replies of the slots into one decision. The verdicts have the order of the charges in
/// `call`. If the slot of a charge is not in `slots`, its verdict is taken from `peeked`.
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
    let mut wait = Duration::ZERO;
    let mut amounts: Vec<u64> = vec![];
    let mut unspent: Vec<Option<u64>> = vec![];
    let (mut failures, mut is_done_in_part) = (vec![], false);
    for SlotAnswer { part, charges, answer } in slots {
        let part_call = Call::new(call.operation, &charges);
        let decision = answer
            .and_then(|decided| Replicas::check(store.replicas.as_ref(), &part_call, decided));
        let decision = match decision {
            Ok(decision) => decision,
            Err(error) => {
                failures.push(error.with_context(format_args!("across slots, in {:?}", part.slot)));
                continue;
            }
        };
        // This slot has executed its part of the call. If another slot fails, a refund, a reset or
        // a block is therefore executed in part. An acquire is not: its charges were undone.
        is_done_in_part |= !call.operation.can_be_refused();
        wait = wait.max(decision.wait());
        for (place, verdict) in part.places.iter().zip(decision.verdicts()) {
            verdicts[*place] = Some(*verdict);
        }
        for (place, amount) in part.places.iter().zip(decision.amounts()) {
            amounts.resize(call.charges.len(), 0);
            amounts[*place] = *amount;
        }
        for (place, amount) in part.places.iter().zip(decision.unspent()) {
            unspent.resize(call.charges.len(), None);
            unspent[*place] = *amount;
        }
    }
    if !failures.is_empty() {
        // If one slot was not charged and another slot was possibly charged, the call is possibly
        // charged. So the error of the possibly charged slot is returned.
        let is_uncertain = |error: &Error| !error.is_definitely_not_charged();
        let error = failures.swap_remove(failures.iter().position(is_uncertain).unwrap_or(0));
        let why =
            "a call across slots failed in one slot, and may have been executed in the other slots";
        return Err(if is_done_in_part { done_in_part(why, error) } else { error });
    }
    let verdicts = verdicts.into_iter().collect::<Option<Vec<_>>>().ok_or_else(no_answer)?;
    let decision = Decision::new(verdicts);
    let decision = if amounts.is_empty() { decision } else { decision.with_amounts(amounts) };
    let decision = if unspent.is_empty() { decision } else { decision.with_unspent(unspent) };
    let is_reserved = matches!(call.operation, Operation::Reserve { .. }) && decision.is_allowed();
    Ok(if is_reserved { decision.with_wait(wait) } else { decision })
}
