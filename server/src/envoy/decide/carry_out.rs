//! Sends the calls of a plan to the stores, in these steps:
//!
//! 1. Each `rate_limit:` counts its hits, even if the request is refused.
//! 2. The slots are taken, and then the policies are charged, together or not at all. If the
//!    request is already refused, a peek replaces the holds and the charges. If a policy refuses
//!    the request, the slots are freed again.
//! 3. The hits of each refund are refunded to its policy. If a policy has `refunds: true`, step 2
//!    also records refused hits, and step 3 reduces a refund by these hits, because they were never
//!    charged. A refund of slots settles their hold.
//!
//! A step sends its calls together, and usually once. A step without calls is skipped.

use std::collections::HashMap;
use std::time::Duration;

use smallvec::SmallVec;
use tidegate_core::no_semver::send_all;
use tidegate_core::{
    Call, Charge, Decision, Error, ErrorKind, MAX_EXACT, Operation, Outcome, Policy, Store,
    Timestamp, Verdict, engine,
};

use super::deny_cache::LimitStore;
use super::plan::{Limited, Planned, Rule, Target};
use super::{Behaviour, DecideError, slots};
use crate::limits::config::PolicyLimit;

/// The answer of the store for a descriptor with a limit.
#[derive(Debug, Clone, Copy)]
pub(super) enum Answer {
    Counted(Count),
    /// The verdict of a policy that admitted, refused or refunded the hits.
    Policy(Verdict),
    /// The verdict of a policy that charged hits that have already happened.
    Used(Verdict),
    /// The verdict of a policy of slots.
    Slots(Verdict),
}

/// The count of a `rate_limit:`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Count {
    /// The number of hits in the window before this request.
    pub(super) before: u64,
    /// The number of hits in the window, including the hits of this request if they were counted.
    pub(super) after: u64,
    /// The time until the window ends.
    pub(super) reset: Duration,
}

/// The stores of the limits. Limits per second can have a separate store.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stores<'s> {
    pub(super) all: &'s LimitStore,
    pub(super) per_second: Option<&'s LimitStore>,
}

impl<'s> Stores<'s> {
    /// Returns the store that has the state of a limit.
    pub(super) fn store_for(self, limited: &Limited) -> &'s LimitStore {
        let is_counter = matches!(limited.rule, Rule::Counted(_));
        match self.per_second {
            Some(store) if is_counter && limited.policy().window() == SECOND => store,
            _ => self.all,
        }
    }
}

/// The window of a limit per second.
const SECOND: Duration = Duration::from_secs(1);

/// Writes the answers for all descriptors, and returns the indices of the descriptors that a cache
/// of denials refused. The answer stays `None` for a descriptor without a limit, and for a refund
/// of slots that are not taken. `is_over` returns `true` if the answers for each `rate_limit:`
/// refuse the request.
///
/// # Errors
///
/// Returns the error of a store. The answers that are known without this store are still written,
/// because they possibly refuse the request.
pub(super) async fn carry_out(
    planned: &[Planned],
    stores: Stores<'_>,
    behaviour: &Behaviour,
    answers: &mut [Option<Answer>],
    is_over: impl Fn(&[Option<Answer>]) -> bool,
) -> Result<Vec<usize>, DecideError> {
    deny(planned, answers);
    let mut cached = Vec::new();
    count(planned, stores, Some(stores.all), behaviour, answers, &mut cached).await?;
    // The limits in the other store stay in force even if the store for limits per second fails.
    let per_second = stores.per_second;
    let per_second = count(planned, stores, per_second, behaviour, answers, &mut cached).await;
    let is_refused = is_over(answers);
    cached.extend(decide(planned, stores.all, is_refused, answers).await?);
    give_back(planned, &*stores.all.store, answers).await?;
    slots::give_back(planned, &*stores.all.store, answers).await?;
    per_second?;
    Ok(cached)
}

/// Returns each descriptor that has a limit and for which `select` returns `Some`, together with
/// its index, its limit and the value from `select`.
pub(super) fn select<'p, T: 'p>(
    planned: &'p [Planned],
    select: impl Fn(&'p Planned, &'p Limited) -> Option<T> + 'p,
) -> impl Iterator<Item = (usize, &'p Planned, &'p Limited, T)> + 'p {
    planned.iter().enumerate().filter_map(move |(index, descriptor)| match &descriptor.target {
        Target::Limited(limited) => {
            select(descriptor, limited).map(|value| (index, descriptor, limited, value))
        }
        Target::None | Target::Unlimited => None,
    })
}

/// Sets the answers for the descriptors that a list denies. They need no store.
fn deny(planned: &[Planned], answers: &mut [Option<Answer>]) {
    let denied =
        |descriptor: &Planned, limited: &Limited| limited.is_denied(descriptor.hits).then_some(());
    for (index, descriptor, limited, ()) in select(planned, denied) {
        let verdict = Verdict::deny_listed(limited.policy());
        let answer = match &limited.rule {
            Rule::Counted(counted) => {
                let before = counted.requests_per_unit.into();
                let hits = descriptor.hits.max(1);
                Answer::Counted(Count {
                    before,
                    after: hits.saturating_add(before),
                    reset: Duration::ZERO,
                })
            }
            Rule::Policy(_) => Answer::Policy(verdict),
            Rule::Slots(_) => Answer::Slots(verdict),
        };
        set(answers, index, answer);
    }
}

// ---- 1. `rate_limit:` ----

/// Counts the hits of each `rate_limit:` whose counter is in `store`. `cached` receives the indices
/// of the descriptors that the cache of denials refused.
async fn count(
    planned: &[Planned],
    stores: Stores<'_>,
    store: Option<&LimitStore>,
    behaviour: &Behaviour,
    answers: &mut [Option<Answer>],
    cached: &mut Vec<usize>,
) -> Result<(), Error> {
    let Some(store) = store else { return Ok(()) };
    let mut counters: Vec<Counter<'_>> =
        select(planned, |descriptor, limited| match &limited.rule {
            _ if limited.is_denied(descriptor.hits) => None,
            Rule::Counted(counted) => Some(counted),
            Rule::Policy(_) | Rule::Slots(_) => None,
        })
        .filter(|(_, _, limited, _)| std::ptr::eq(stores.store_for(limited), store))
        .map(|(index, descriptor, limited, counted)| Counter {
            index,
            limit: counted.requests_per_unit.into(),
            hits: descriptor.hits,
            is_refund: descriptor.is_refund,
            is_allowed: limited.is_allowed(),
            charge: Charge::new(limited.policy(), &limited.subject),
            admission: Charge::new(&counted.policy, &limited.subject).cost(descriptor.hits),
        })
        .collect();
    let known = cached.len();
    counters.retain(|counter| match counter.cached(store) {
        Some(count) => {
            set(answers, counter.index, Answer::Counted(count));
            cached.push(counter.index);
            false
        }
        None => true,
    });
    if counters.is_empty() {
        return Ok(());
    }
    // If limits per second have a separate store, each store has its own counters. A counter
    // over its limit does not affect the counters in the other store.
    let counted = if behaviour.spares_others_when_over {
        count_where_over(&counters, cached.len() > known, &*store.store).await?
    } else {
        let all = counters.iter().map(|counter| counter.operation()).collect();
        counts(&counters, all, &*store.store).await?
    };
    for (counter, count) in counters.iter().zip(&counted) {
        set(answers, counter.index, Answer::Counted(*count));
    }
    cache_denials(&counters, &counted, store).await;
    Ok(())
}

/// Sends a peek for each exceeded limit, so that the cache of denials keeps the denial of the
/// store.
async fn cache_denials(counters: &[Counter<'_>], counted: &[Count], store: &LimitStore) {
    if !store.caches_all() {
        return;
    }
    let is_over = |(counter, count): &(&Counter<'_>, &Count)| {
        counter.can_be_cached() && count.after > counter.limit
    };
    let over = counters.iter().zip(counted).filter(is_over);
    let charges: Vec<[Charge<'_>; 1]> = over.map(|(counter, _)| [counter.admission]).collect();
    let calls: Vec<Call<'_>> =
        charges.iter().map(|charge| Call::new(Operation::Peek, charge)).collect();
    // The answers are not needed. If a peek fails, the cache does not contain the denial, so the
    // next request calls the store.
    drop(send_all(&*store.store, &calls).await);
}

struct Counter<'p> {
    index: usize,
    limit: u64,
    hits: u64,
    is_refund: bool,
    /// Whether a list allows the hits. They are then counted, and never refused.
    is_allowed: bool,
    charge: Charge<'p>,
    /// The same hits, charged to the policy with the configured limit. The store denies a peek of
    /// this charge while the limit is exceeded. The policy of `charge` denies nothing.
    admission: Charge<'p>,
}

impl Counter<'_> {
    /// Returns `true` if a denial of the hits ends with the window. If the hits alone exceed the
    /// limit, the denial never ends, so it is not cached.
    fn can_be_cached(&self) -> bool {
        !self.is_refund && !self.is_allowed && (1..=self.limit).contains(&self.hits)
    }

    /// Returns a count above the limit if the cache contains a denial. Does not call the store.
    fn cached(&self, store: &LimitStore) -> Option<Count> {
        if !store.caches_all() || !self.can_be_cached() {
            return None;
        }
        let decision = store.cached_denial(Call::new(Operation::Peek, &[self.admission]))?;
        let reset = decision.verdicts().first()?.reset_after();
        Some(Count { before: self.limit, after: self.limit.saturating_add(self.hits), reset })
    }

    fn operation(&self) -> (Operation, u64) {
        (if self.is_refund { Operation::Refund } else { Operation::Charge }, self.hits)
    }
}

/// Counts the hits of a request. If the request exceeds a limit, only the exceeded limits count its
/// hits. `is_any_over` is `true` if the request exceeds a limit that is not in `counters`.
async fn count_where_over(
    counters: &[Counter<'_>],
    is_any_over: bool,
    store: &dyn Store,
) -> Result<Vec<Count>, Error> {
    let look = counters.iter().map(|_| (Operation::Peek, 0)).collect();
    let before = counts(counters, look, store).await?;
    let is_over = |(counter, count): (&Counter<'_>, &Count)| {
        !counter.is_refund
            && !counter.is_allowed
            && count.after.saturating_add(counter.hits) > counter.limit
    };
    let any_is_over = is_any_over || counters.iter().zip(&before).any(is_over);
    let some = counters.iter().zip(&before);
    let some = some.map(|(counter, count)| {
        let is_spared = any_is_over && !counter.is_refund && !is_over((counter, count));
        if is_spared { (Operation::Peek, 0) } else { counter.operation() }
    });
    let some = some.collect();
    counts(counters, some, store).await
}

/// Executes one operation with its cost on each counter, and returns the resulting counts.
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
    let answered = send_all(store, &calls).await.into_iter().zip(counters);
    for ((decision, counter), (_, hits)) in answered.zip(operations) {
        let verdict = only(&decision?)?;
        let mut reset = verdict.reset_after();
        if reset.is_zero() {
            // If the window contains no hits, the verdict does not contain the time until the
            // window ends. This function computes it from the clock of the store.
            reset = until_end_of_window(counter.charge.policy, store.now().await?);
        }
        let after = MAX_EXACT.saturating_sub(verdict.remaining());
        counts.push(Count { before: after.saturating_sub(hits), after, reset });
    }
    Ok(counts)
}

/// Returns the time until the current window of a counter ends.
fn until_end_of_window(counter: &Policy, now: Timestamp) -> Duration {
    let (now, window) = (now.as_micros(), counter.window().as_micros());
    let window = u64::try_from(window).unwrap_or(u64::MAX).max(1);
    Duration::from_micros(match counter.rule() {
        engine::Rule::Quota(quota) => quota.window_at(now).end - now,
        _ => window - now % window,
    })
}

/// Returns the verdict of a decision on a call with one charge.
pub(super) fn only(decision: &Decision) -> Result<Verdict, Error> {
    decision.verdicts().first().copied().ok_or_else(|| {
        let message = "the store returned a decision without a verdict";
        Error::new(ErrorKind::Protocol, message)
    })
}

// ---- 2. Policies ----

/// A charge, and the indices of the descriptors that receive the verdict on it.
struct Asked<'p> {
    charge: Charge<'p>,
    indices: SmallVec<[usize; 1]>,
}

/// The lists of alternatives of a request: the name of each list, and the number of its charges.
struct Lists<'p>(Vec<(&'p str, usize)>);

impl<'p> Lists<'p> {
    fn new(names: impl Iterator<Item = &'p str>) -> Self {
        let mut lists: Vec<(&str, usize)> = Vec::new();
        for name in names {
            match lists.iter_mut().find(|(known, _)| *known == name) {
                Some((_, charges)) => *charges += 1,
                None => lists.push((name, 1)),
            }
        }
        Self(lists)
    }

    /// Returns the number of a list, or 0 if the request has only one charge of it.
    fn number_of(&self, name: Option<&str>) -> u8 {
        let is_list = |(known, charges): &(&str, usize)| *charges > 1 && Some(*known) == name;
        let place = self.0.iter().position(is_list);
        // A call with more than 64 charges is refused, so each number fits.
        place.map_or(0, |place| u8::try_from(place + 1).unwrap_or(u8::MAX))
    }
}

/// The operation that a policy needs for the hits of a descriptor.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    /// The policy must admit the hits. If the descriptor has 0 hits, the store checks whether the
    /// policy would admit one hit.
    Ask,
    /// The policy charges the hits even beyond the limit, because they have already happened.
    Use,
    Refund,
}

fn policies(
    planned: &[Planned],
    role: Role,
) -> impl Iterator<Item = (usize, &Planned, &Limited, &PolicyLimit)> {
    select(planned, move |descriptor, limited| match &limited.rule {
        Rule::Policy(policy) => {
            let own = match descriptor {
                Planned { is_refund: true, .. } => Role::Refund,
                Planned { hits: 1.., .. } if policy.charges_afterwards => Role::Use,
                _ => Role::Ask,
            };
            (own == role).then_some(policy)
        }
        Rule::Counted(_) | Rule::Slots(_) => None,
    })
}

fn asked(planned: &[Planned]) -> Vec<Asked<'_>> {
    let mut asked: Vec<Asked<'_>> = Vec::new();
    let asked_policies = || {
        policies(planned, Role::Ask)
            .filter(|(_, descriptor, limited, _)| !limited.is_denied(descriptor.hits))
    };
    let lists = Lists::new(asked_policies().filter_map(|(.., policy)| policy.one_of.as_deref()));
    for (index, descriptor, limited, policy) in asked_policies() {
        let charge = Charge::new(limited.charged(), &limited.subject);
        let charge = match (descriptor.hits, lists.number_of(policy.one_of.as_deref())) {
            (0, 0) if !limited.policy().is_fair_pool() => charge.cost(1).check_only(),
            // An alternative and a pool cannot be check-only. Without hits, they admit.
            (hits, list) => charge.cost(hits).in_list(list),
        };
        // A call must not contain a check-only charge and another charge of the same state. The
        // other charge replaces the check-only charge, because it also checks the limit. Two
        // alternatives with the same state are one alternative.
        let is_single = |charge: &Charge<'_>| charge.is_check_only || charge.list > 0;
        let is_same = |other: &&mut Asked<'_>| {
            other.charge.shares_state_with(&charge)
                && (is_single(&other.charge) || is_single(&charge))
        };
        match asked.iter_mut().find(is_same) {
            Some(other) => {
                other.indices.push(index);
                if other.charge.is_check_only {
                    other.charge = charge;
                } else if !charge.is_check_only {
                    let cost = other.charge.cost.max(charge.cost);
                    other.charge =
                        other.charge.cost(cost).in_list(other.charge.list.min(charge.list));
                }
            }
            None => asked.push(Asked { charge, indices: SmallVec::from_slice(&[index]) }),
        }
    }
    // A list needs at least two charges.
    for index in 0..asked.len() {
        let list = asked[index].charge.list;
        if asked.iter().filter(|other| other.charge.list == list).count() == 1 {
            asked[index].charge = asked[index].charge.in_list(0);
        }
    }
    asked
}

/// Takes the slots and charges the policies of a request, or only peeks if `is_refused` is `true`.
/// Returns the indices of the descriptors that the cache of denials refused.
async fn decide(
    planned: &[Planned],
    store: &LimitStore,
    is_refused: bool,
    answers: &mut [Option<Answer>],
) -> Result<Vec<usize>, DecideError> {
    let asked = asked(planned);
    let charges: Vec<Charge<'_>> = asked.iter().map(|policy| policy.charge).collect();
    let denial = cached_denial(planned, store, &charges);
    // If the cache refuses the request, the request takes no slots, not even for a moment.
    let is_refused = is_refused || denial.is_some();
    let taken = slots::take(planned, &store.store, is_refused, answers).await?;
    let is_refused = is_refused || taken.is_refused;
    let result = charge(planned, &asked, &charges, denial, store, is_refused, answers).await;
    match &result {
        Ok((_, true)) => taken.keep(),
        Ok((_, false)) | Err(_) => taken.free(answers).await,
    }
    Ok(result?.0)
}

/// Returns the cached denial of the charges, if they can be answered by the cache.
fn cached_denial(
    planned: &[Planned],
    store: &LimitStore,
    charges: &[Charge<'_>],
) -> Option<Decision> {
    // The cached denials of a policy with refunds are used only if the cache is for all limits,
    // because a refund through another server does not end a cached denial.
    let has_refunds = || policies(planned, Role::Ask).any(|(.., limit)| limit.refused.is_some());
    if charges.is_empty() || !store.caches_all() && has_refunds() {
        return None;
    }
    store.cached_denial(Call::acquire(charges))
}

/// Charges the policies of a request, or only peeks if `is_refused` is `true`. `denial` is the
/// cached denial of the charges. Returns the indices of the descriptors that the cache refused, and
/// whether the policies admit the request.
async fn charge(
    planned: &[Planned],
    asked: &[Asked<'_>],
    charges: &[Charge<'_>],
    denial: Option<Decision>,
    store: &LimitStore,
    is_refused: bool,
    answers: &mut [Option<Answer>],
) -> Result<(Vec<usize>, bool), Error> {
    let used: Vec<(usize, [Charge<'_>; 1])> = policies(planned, Role::Use)
        .map(|(index, descriptor, limited, policy)| {
            (index, [Charge::new(&policy.policy, &limited.subject).cost(descriptor.hits)])
        })
        .collect();

    let mut calls: Vec<Call<'_>> = Vec::with_capacity(used.len() + 1);
    calls.extend(used.iter().map(|(_, charge)| Call::new(Operation::Charge, charge)));
    if !charges.is_empty() && denial.is_none() {
        let operation = if is_refused { Operation::Peek } else { Operation::Acquire };
        calls.push(Call::new(operation, charges));
    }
    let is_cached = denial.is_some();
    let mut decisions = send_all(&*store.store, &calls).await.into_iter();
    for ((index, _), decision) in used.iter().zip(&mut decisions) {
        set(answers, *index, Answer::Used(only(&decision?)?));
    }
    let decision = denial.map(Ok).or_else(|| decisions.next()).transpose()?;
    let verdicts = decision.as_ref().map(Decision::verdicts).unwrap_or_default();
    let mut cached = Vec::new();
    for (policy, verdict) in asked.iter().zip(verdicts) {
        policy.indices.iter().for_each(|index| set(answers, *index, Answer::Policy(*verdict)));
        if is_cached && verdict.outcome() != Outcome::Allowed {
            cached.extend(&policy.indices);
        }
    }
    let is_taken = decision.is_none_or(|decision| decision.is_allowed()) && !is_refused;
    remember_refused(planned, &*store.store, is_taken, answers).await?;
    Ok((cached, is_taken))
}

/// Records the hits that were not charged, for policies with `refunds: true`, so that a later
/// refund does not refund these hits.
async fn remember_refused(
    planned: &[Planned],
    store: &dyn Store,
    is_taken: bool,
    answers: &[Option<Answer>],
) -> Result<(), Error> {
    let was_taken = |index: usize| match answers.get(index) {
        // If a shadow denies its own charge, the call still makes its other charges.
        Some(Some(Answer::Policy(verdict))) => is_taken && verdict.outcome() == Outcome::Allowed,
        _ => is_taken,
    };
    let charges: Vec<[Charge<'_>; 1]> = policies(planned, Role::Ask)
        .filter(|(index, descriptor, ..)| descriptor.hits > 0 && !was_taken(*index))
        .filter_map(|(_, descriptor, limited, policy)| {
            let refused = policy.refused.as_ref()?;
            Some([Charge::new(refused, &limited.subject).cost(descriptor.hits)])
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
    // Refused hits were never charged, so a refund is reduced by them.
    let mut refused_of = Vec::new();
    let mut refused = Vec::new();
    for (index, descriptor, limited, policy) in &refunds {
        if let Some(policy) = &policy.refused {
            refused_of.push(*index);
            refused.push([Charge::new(policy, &limited.subject).cost(descriptor.hits)]);
        }
    }
    let refused = carry_out_each(Operation::Refund, &refused, store).await?;
    let refused = refused.iter().map(|decision| decision.amounts().first().copied().unwrap_or(0));
    let refused: HashMap<usize, u64> = refused_of.into_iter().zip(refused).collect();
    let charges: Vec<[Charge<'_>; 1]> = refunds
        .iter()
        .map(|(index, descriptor, limited, policy)| {
            let taken = descriptor.hits.saturating_sub(refused.get(index).copied().unwrap_or(0));
            [Charge::new(&policy.policy, &limited.subject).cost(taken)]
        })
        .collect();
    let decisions = carry_out_each(Operation::Refund, &charges, store).await?;
    for ((index, ..), decision) in refunds.iter().zip(&decisions) {
        set(answers, *index, Answer::Policy(only(decision)?));
    }
    Ok(())
}

/// Executes the operation on each charge in a separate call, and sends the calls together.
async fn carry_out_each(
    operation: Operation,
    charges: &[[Charge<'_>; 1]],
    store: &dyn Store,
) -> Result<Vec<Decision>, Error> {
    let calls: Vec<Call<'_>> = charges.iter().map(|charge| Call::new(operation, charge)).collect();
    send_all(store, &calls).await.into_iter().collect()
}

pub(super) fn set(answers: &mut [Option<Answer>], index: usize, answer: Answer) {
    if let Some(slot) = answers.get_mut(index) {
        *slot = Some(answer);
    }
}
