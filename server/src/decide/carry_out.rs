//! Carries out a plan on a store.
//!
//! 1. `rate_limit:` counts its hits, whatever becomes of the request.
//! 2. Policies are decided together, all or none. If a `rate_limit:` refuses already, they are only looked at.
//! 3. What policies refused is remembered where refunds are taken, and refunds give back the rest.
//!
//! Each step is one batch, and a step with nothing to do is none.

use std::collections::HashMap;
use std::time::Duration;

use smallvec::SmallVec;
use tidegate_core::{
    Call, Charge, Decision, Error, ErrorKind, MAX_EXACT, Operation, Outcome, Store, Verdict,
};

use super::Behaviour;
use super::plan::{Limited, Planned, Rule, Target};
use crate::config::PolicyLimit;

/// What came of a descriptor with a limit.
#[derive(Debug, Clone, Copy)]
pub(super) enum Answer {
    Counted(Count),
    /// Of hits that a policy admits or refuses, or gives back.
    Policy(Verdict),
    /// Of hits that have happened.
    Used(Verdict),
}

/// The count of a `rate_limit:`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Count {
    /// The hits of this window before those of this request.
    pub(super) before: u64,
    /// The hits of this window, those of this request included, if they were counted.
    pub(super) after: u64,
    /// How long the window lasts.
    pub(super) reset: Duration,
}

/// The stores of limits: one for those per second, if they have one of their own.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stores<'s> {
    pub(super) all: &'s dyn Store,
    pub(super) per_second: Option<&'s dyn Store>,
}

/// The answers for all descriptors, `None` for those without a limit. `is_over` says whether the answers so far
/// refuse the request.
pub(super) async fn carry_out(
    planned: &[Planned],
    stores: Stores<'_>,
    behaviour: &Behaviour,
    is_over: impl Fn(&[Option<Answer>]) -> bool,
) -> Result<Vec<Option<Answer>>, Error> {
    let mut answers = vec![None; planned.len()];
    count(planned, stores, behaviour, &mut answers).await?;
    let is_refused = is_over(&answers);
    decide(planned, stores.all, is_refused, &mut answers).await?;
    give_back(planned, stores.all, &mut answers).await?;
    Ok(answers)
}

/// The descriptors with a limit for which `select` returns something.
fn select<'p, T: 'p>(
    planned: &'p [Planned],
    select: impl Fn(&'p Planned, &'p Limited) -> Option<T> + 'p,
) -> impl Iterator<Item = (usize, &'p Planned, &'p Limited, T)> + 'p {
    planned.iter().enumerate().filter_map(move |(index, it)| match &it.target {
        Target::Limited(limited) => select(it, limited).map(|value| (index, it, limited, value)),
        Target::None | Target::Unlimited => None,
    })
}

// ---- 1. `rate_limit:` ----

async fn count(
    planned: &[Planned],
    stores: Stores<'_>,
    behaviour: &Behaviour,
    answers: &mut [Option<Answer>],
) -> Result<(), Error> {
    let second = Duration::from_secs(1);
    for (store, is_per_second) in [(Some(stores.all), false), (stores.per_second, true)] {
        let Some(store) = store else { continue };
        let has_own = stores.per_second.is_some();
        let counters: Vec<Counter<'_>> = select(planned, |_, limited| match &limited.rule {
            Rule::Counted(counted) => Some(u64::from(counted.requests_per_unit)),
            Rule::Policy(_) => None,
        })
        .filter(|(_, _, limited, _)| {
            (has_own && limited.policy().window() == second) == is_per_second
        })
        .map(|(index, it, limited, limit)| Counter {
            index,
            limit,
            hits: it.hits,
            is_refund: it.is_refund,
            charge: Charge::new(limited.policy(), &limited.subject),
        })
        .collect();
        if counters.is_empty() {
            continue;
        }
        // With a store for those per second, these two are two groups, which spare each other nothing.
        let counted = if behaviour.spares_others_when_over {
            count_where_over(&counters, store).await?
        } else {
            let all = counters.iter().map(|it| it.operation()).collect();
            counts(&counters, all, store).await?
        };
        for (counter, count) in counters.iter().zip(counted) {
            set(answers, counter.index, Answer::Counted(count));
        }
    }
    Ok(())
}

struct Counter<'p> {
    index: usize,
    limit: u64,
    hits: u64,
    is_refund: bool,
    charge: Charge<'p>,
}

impl Counter<'_> {
    fn operation(&self) -> (Operation, u64) {
        (if self.is_refund { Operation::Refund } else { Operation::Charge }, self.hits)
    }
}

/// Once a limit is over, counts its hits only.
async fn count_where_over(
    counters: &[Counter<'_>],
    store: &dyn Store,
) -> Result<Vec<Count>, Error> {
    let look = counters.iter().map(|_| (Operation::Peek, 0)).collect();
    let before = counts(counters, look, store).await?;
    let is_over = |(counter, count): (&Counter<'_>, &Count)| {
        !counter.is_refund && count.after.saturating_add(counter.hits) > counter.limit
    };
    let any_is_over = counters.iter().zip(&before).any(is_over);
    let some = counters.iter().zip(&before);
    let some = some.map(|(counter, count)| {
        let is_spared = any_is_over && !counter.is_refund && !is_over((counter, count));
        if is_spared { (Operation::Peek, 0) } else { counter.operation() }
    });
    let some = some.collect();
    counts(counters, some, store).await
}

/// The counts after an operation of some cost on each counter.
async fn counts(
    counters: &[Counter<'_>],
    operations: Vec<(Operation, u64)>,
    store: &dyn Store,
) -> Result<Vec<Count>, Error> {
    let charges: Vec<[Charge<'_>; 1]> = counters
        .iter()
        .zip(&operations)
        .map(|(counter, (_, cost))| [counter.charge.cost(*cost)])
        .collect();
    let calls: Vec<Call<'_>> = operations
        .iter()
        .zip(&charges)
        .map(|((operation, _), charges)| Call::new(*operation, charges))
        .collect();
    let mut counts = Vec::with_capacity(counters.len());
    let answered = store.decide_many(&calls).await.into_iter().zip(counters);
    for ((decision, counter), (_, hits)) in answered.zip(operations) {
        let verdict = only(&decision?)?;
        let mut reset = verdict.reset_after();
        if reset.is_zero() {
            // Nothing is counted, so the store does not know the window.
            let window = counter.charge.policy.window();
            let micros = u64::try_from(window.as_micros()).unwrap_or(u64::MAX).max(1);
            let into_window = store.now().await?.as_micros() % micros;
            reset = window.saturating_sub(Duration::from_micros(into_window));
        }
        let after = MAX_EXACT.saturating_sub(verdict.remaining());
        counts.push(Count { before: after.saturating_sub(hits), after, reset });
    }
    Ok(counts)
}

/// The verdict of a call of one charge.
fn only(decision: &Decision) -> Result<Verdict, Error> {
    decision.verdicts().first().copied().ok_or_else(|| {
        let message = "the store returned a decision without a verdict";
        Error::new(ErrorKind::Protocol, message)
    })
}

// ---- 2. Policies ----

/// A policy's charge, and the descriptors that it answers.
struct Asked<'p> {
    charge: Charge<'p>,
    indices: SmallVec<[usize; 1]>,
}

/// What the descriptors of a plan are to policies.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    /// Hits that have to be admitted; of no hits, whether one would be.
    Ask,
    /// Hits that have happened.
    Use,
    Refund,
}

fn policies(
    planned: &[Planned],
    role: Role,
) -> impl Iterator<Item = (usize, &Planned, &Limited, &PolicyLimit)> {
    select(planned, move |it, limited| match &limited.rule {
        Rule::Policy(policy) => {
            let own = match it {
                Planned { is_refund: true, .. } => Role::Refund,
                Planned { hits: 1.., .. } if policy.charges_afterwards => Role::Use,
                _ => Role::Ask,
            };
            (own == role).then_some(policy)
        }
        Rule::Counted(_) => None,
    })
}

fn asked(planned: &[Planned]) -> Vec<Asked<'_>> {
    let mut asked: Vec<Asked<'_>> = Vec::new();
    for (index, it, limited, policy) in policies(planned, Role::Ask) {
        let charge = Charge::new(&policy.policy, &limited.subject);
        let charge = if it.hits == 0 { charge.cost(1).check_only() } else { charge.cost(it.hits) };
        // A call must not check a state and take from it: to take is to check.
        let is_same = |other: &&mut Asked<'_>| {
            other.charge.shares_state_with(&charge)
                && (other.charge.is_check_only || charge.is_check_only)
        };
        match asked.iter_mut().find(is_same) {
            Some(other) => {
                other.indices.push(index);
                if other.charge.is_check_only {
                    other.charge = charge;
                }
            }
            None => asked.push(Asked { charge, indices: SmallVec::from_slice(&[index]) }),
        }
    }
    asked
}

async fn decide(
    planned: &[Planned],
    store: &dyn Store,
    is_refused: bool,
    answers: &mut [Option<Answer>],
) -> Result<(), Error> {
    let asked = asked(planned);
    let charges: Vec<Charge<'_>> = asked.iter().map(|it| it.charge).collect();
    let used: Vec<(usize, [Charge<'_>; 1])> = policies(planned, Role::Use)
        .map(|(index, it, limited, policy)| {
            (index, [Charge::new(&policy.policy, &limited.subject).cost(it.hits)])
        })
        .collect();

    let mut calls: Vec<Call<'_>> = Vec::with_capacity(used.len() + 1);
    calls.extend(used.iter().map(|(_, charge)| Call::new(Operation::Charge, charge)));
    if !charges.is_empty() {
        let operation = if is_refused { Operation::Peek } else { Operation::Acquire };
        calls.push(Call::new(operation, &charges));
    }
    if calls.is_empty() {
        return Ok(());
    }
    let mut decisions = store.decide_many(&calls).await.into_iter();
    for ((index, _), decision) in used.iter().zip(&mut decisions) {
        set(answers, *index, Answer::Used(only(&decision?)?));
    }
    let Some(decision) = decisions.next().transpose()? else { return Ok(()) };
    for (it, verdict) in asked.iter().zip(decision.verdicts()) {
        it.indices.iter().for_each(|index| set(answers, *index, Answer::Policy(*verdict)));
    }
    let is_taken = decision.is_allowed() && !is_refused;
    remember_refused(planned, store, is_taken, answers).await
}

/// Remembers the hits that were not taken, so that a refund of them gives back nothing.
async fn remember_refused(
    planned: &[Planned],
    store: &dyn Store,
    is_taken: bool,
    answers: &[Option<Answer>],
) -> Result<(), Error> {
    let was_taken = |index: usize| match answers.get(index) {
        // A shadow may refuse its own part of what is taken.
        Some(Some(Answer::Policy(verdict))) => is_taken && verdict.outcome() == Outcome::Allowed,
        _ => is_taken,
    };
    let charges: Vec<[Charge<'_>; 1]> = policies(planned, Role::Ask)
        .filter(|(index, it, ..)| it.hits > 0 && !was_taken(*index))
        .filter_map(|(_, it, limited, policy)| {
            let refused = policy.refused.as_ref()?;
            Some([Charge::new(refused, &limited.subject).cost(it.hits)])
        })
        .collect();
    carry_out_each(Operation::Charge, &charges, store).await.map(drop)
}

// ---- 3. Refunds of policies ----

async fn give_back(
    planned: &[Planned],
    store: &dyn Store,
    answers: &mut [Option<Answer>],
) -> Result<(), Error> {
    let refunds: Vec<_> = policies(planned, Role::Refund).collect();
    // Of what was refused nothing was taken.
    let mut refused_of = Vec::new();
    let mut refused = Vec::new();
    for (index, it, limited, policy) in &refunds {
        if let Some(policy) = &policy.refused {
            refused_of.push(*index);
            refused.push([Charge::new(policy, &limited.subject).cost(it.hits)]);
        }
    }
    let refused = carry_out_each(Operation::Refund, &refused, store).await?;
    let refused = refused.iter().map(|it| it.amounts().first().copied().unwrap_or(0));
    let refused: HashMap<usize, u64> = refused_of.into_iter().zip(refused).collect();
    let charges: Vec<[Charge<'_>; 1]> = refunds
        .iter()
        .map(|(index, it, limited, policy)| {
            let taken = it.hits.saturating_sub(refused.get(index).copied().unwrap_or(0));
            [Charge::new(&policy.policy, &limited.subject).cost(taken)]
        })
        .collect();
    let decisions = carry_out_each(Operation::Refund, &charges, store).await?;
    for ((index, ..), decision) in refunds.iter().zip(&decisions) {
        set(answers, *index, Answer::Policy(only(decision)?));
    }
    Ok(())
}

/// Carries out one operation on each charge by itself.
async fn carry_out_each(
    operation: Operation,
    charges: &[[Charge<'_>; 1]],
    store: &dyn Store,
) -> Result<Vec<Decision>, Error> {
    if charges.is_empty() {
        return Ok(Vec::new());
    }
    let calls: Vec<Call<'_>> = charges.iter().map(|it| Call::new(operation, it)).collect();
    store.decide_many(&calls).await.into_iter().collect()
}

fn set(answers: &mut [Option<Answer>], index: usize, answer: Answer) {
    if let Some(slot) = answers.get_mut(index) {
        *slot = Some(answer);
    }
}
