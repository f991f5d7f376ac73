//! Calls whose charges are kept in several slots, which no script can decide on together.

use std::sync::Arc;

use tidegate_core::{
    Call, Charge, Decision, Error, ErrorKind, Operation, Outcome, Policy, Timestamp, Verdict, Wait,
};

use crate::cluster_store::{Inner, no_answer};
use crate::errand::Decided;
use crate::node::again;
use crate::place::{Part, parts};
use crate::replicas::Replicas;

/// Decides on a call across slots.
///
/// What takes is carried to its end in a task of its own: a caller that goes away between the two
/// steps, as at a timeout, would leave taken what was to be given back.
pub(crate) async fn decide(store: &Arc<Inner>, call: Call<'_>) -> Result<Decision, Error> {
    if !takes(call.operation) {
        return decide_here(store, call).await;
    }
    let (store, operation) = (Arc::clone(store), call.operation);
    let owned: Vec<Owned> = call.charges.iter().map(|charge| Owned::new(&charge)).collect();
    let task = tokio::spawn(async move {
        let charges: Vec<Charge<'_>> = owned.iter().map(Owned::charge).collect();
        decide_here(&store, Call::new(operation, &charges)).await
    });
    task.await.unwrap_or_else(|ended| {
        let message = format!("a call across slots was not carried to its end: {ended}");
        Err(Error::new(ErrorKind::Unavailable, message))
    })
}

fn takes(operation: Operation) -> bool {
    matches!(operation, Operation::Acquire | Operation::Reserve { .. })
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

/// The charges of one slot, and what its node said to them.
struct Asked<'a> {
    part: Part,
    charges: Vec<Charge<'a>>,
    answer: Result<Decided, Error>,
}

async fn decide_here(store: &Inner, call: Call<'_>) -> Result<Decision, Error> {
    let mut asked = ask(store, call).await;
    if takes(call.operation) && !asked.iter().all(|asked| asked.holds(store, call.operation)) {
        undo(store, &mut asked).await?;
    }
    merge(store, call, asked)
}

/// Asks each slot for itself, all at once.
async fn ask<'a>(store: &Inner, call: Call<'a>) -> Vec<Asked<'a>> {
    let parts = parts(&store.keys, &call);
    let charges: Vec<Vec<Charge<'a>>> = parts
        .iter()
        .map(|part| part.places.iter().filter_map(|&place| call.charges.get(place)).collect())
        .collect();
    let calls: Vec<_> = charges.iter().map(|charges| Call::new(call.operation, charges)).collect();
    let answers = store.decide_in_slots(&calls).await;
    let asked = parts.into_iter().zip(charges).zip(answers);
    asked.map(|((part, charges), answer)| Asked { part, charges, answer }).collect()
}

impl<'a> Asked<'a> {
    /// Whether what this slot has taken may stay taken, as far as it is concerned.
    fn holds(&self, store: &Inner, operation: Operation) -> bool {
        let Ok(decided) = &self.answer else { return false };
        decided.told.decision.is_allowed()
            && store.replicas.as_ref().is_none_or(|replicas| {
                replicas.suffices(&Call::new(operation, &self.charges), decided)
            })
    }

    /// What has to be undone: the charges that were taken, by when they were.
    fn taken(&self) -> Vec<Taken<'a>> {
        let mut taken: Vec<Taken<'a>> = vec![];
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
                    taken.push(Taken { at: *at, places: vec![place], charges: vec![*charge] });
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
struct Taken<'a> {
    at: Timestamp,
    places: Vec<usize>,
    charges: Vec<Charge<'a>>,
}

impl<'a> Taken<'a> {
    fn add(&mut self, place: usize, charge: Charge<'a>) {
        self.places.push(place);
        self.charges.push(charge);
    }
}

/// The verdict on a charge that would be admitted, but for others: what is said of it after it was
/// given back, which is what a peek of no cost says.
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
async fn undo(store: &Inner, asked: &mut [Asked<'_>]) -> Result<(), Error> {
    let taken = asked.iter().enumerate();
    let taken: Vec<(usize, Taken<'_>)> = taken
        .flat_map(|(number, asked)| asked.taken().into_iter().map(move |taken| (number, taken)))
        .collect();
    let calls: Vec<_> = taken
        .iter()
        .map(|(_, Taken { at, charges, .. })| Call::new(Operation::Undo { at: *at }, charges))
        .collect();
    let answers = store.decide_in_slots(&calls).await;
    let mut failure = None;
    for ((number, taken), undone) in taken.iter().zip(answers) {
        match undone {
            Ok(undone) => asked[*number].after_undo(&taken.places, &undone.told.decision),
            Err(error) => failure = Some(error),
        }
    }
    failure.map_or(Ok(()), |error| {
        let why = "a call across slots was not admitted, and what it had taken of one could not be \
                   given back; it recovers by itself";
        let error = again(why, &error);
        // Whatever became of the undoing: something is charged.
        let kind = error.kind();
        let kind = if kind.is_surely_not_charged() { ErrorKind::Unavailable } else { kind };
        Err(Error::new(kind, error.to_string()))
    })
}

/// One decision of all parts, its verdicts in the order asked.
fn merge(store: &Inner, call: Call<'_>, asked: Vec<Asked<'_>>) -> Result<Decision, Error> {
    let mut verdicts: Vec<Option<Verdict>> = vec![None; call.charges.len()];
    let mut booked = std::time::Duration::ZERO;
    for Asked { part, charges, answer } in asked {
        let slot = part.slot;
        let within = |error: Error| again(&format!("across slots, of {slot:?}"), &error);
        let decided = answer.map_err(within)?;
        let asked = Call::new(call.operation, &charges);
        let decision = Replicas::check(store.replicas.as_ref(), &asked, decided).map_err(within)?;
        booked = booked.max(decision.wait());
        for (place, verdict) in part.places.iter().zip(decision.verdicts()) {
            verdicts[*place] = Some(*verdict);
        }
    }
    let verdicts = verdicts.into_iter().collect::<Option<Vec<_>>>().ok_or_else(no_answer)?;
    let decision = Decision::new(verdicts);
    let is_booked = matches!(call.operation, Operation::Reserve { .. }) && decision.is_allowed();
    Ok(if is_booked { decision.booked_in(booked) } else { decision })
}
