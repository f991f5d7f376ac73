//! The oracle's execution of a whole call, from the recorded charges of each state.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use tidegate_core::{Algorithm, Call, Charge, ErrorKind, Operation, Outcome, Policy};

use super::record::Record;
use super::reply::{Reply, ReplyVerdict};
use super::rules::{self, Past, Take, rules_of};
use super::{Key, concurrent, quota};

/// The records of the states that a call uses, by key. A key without a state has the record `None`.
#[derive(Debug, Clone, Default)]
pub(super) struct Ledger {
    pub(super) records: BTreeMap<Key, Option<Record>>,
    /// The keys of slots for which another call waits that goes first.
    pub(super) behind: BTreeSet<Key>,
    /// The time until the first hold on the slots of a key lapses.
    pub(super) earliest_lapses: BTreeMap<Key, Duration>,
    /// The unspent part of the open attempts of each key whose policy counts failures.
    pub(super) open_attempts: BTreeMap<Key, u64>,
}

impl Deref for Ledger {
    type Target = BTreeMap<Key, Option<Record>>;

    fn deref(&self) -> &Self::Target {
        &self.records
    }
}

impl DerefMut for Ledger {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.records
    }
}

impl Ledger {
    pub(super) fn with_record(key: Key, record: Option<Record>) -> Self {
        Self { records: BTreeMap::from([(key, record)]), ..Self::default() }
    }

    pub(super) fn into_records(self) -> BTreeMap<Key, Option<Record>> {
        self.records
    }
}

/// Returns the key of a charge's state. Policies with the same name share a state if their
/// algorithms and windows are equal, regardless of their limits. A policy without a name has its
/// text as its name.
pub(super) fn key_of(charge: &Charge<'_>) -> Key {
    use Algorithm::{FixedWindow, SlidingCounter, SlidingLog, TokenBucket};
    let shape = match charge.policy.algorithm() {
        FixedWindow(spec) => format!("window {:?} {:?}", spec.window(), spec.start()),
        SlidingLog(spec) => format!("log {:?} {:?}", spec.window(), spec.granularity()),
        SlidingCounter(spec) => format!("counter {:?}", spec.window()),
        Algorithm::Concurrent(_) => "slots".to_owned(),
        Algorithm::Quota(spec) => format!("quota {:?}", spec.unit()),
        Algorithm::FairPool(spec) => format!("pool {:?}", spec.window()),
        TokenBucket(spec) if spec.is_by_interval() => format!("by interval {:?}", spec.period()),
        _ => "bucket".to_owned(),
    };
    let name = format!("{}: {shape}", charge.policy.name());
    (name, charge.tenant.to_vec(), charge.state_subject().to_vec())
}

/// Returns the key of the refunds of a charge. Each member of a fair pool has its own refunds.
pub(super) fn key_of_refunds(charge: &Charge<'_>) -> Key {
    let (name, tenant, _) = key_of(charge);
    (name, tenant, charge.subject.to_vec())
}

pub(super) fn execute(ledger: &mut Ledger, call: &Call<'_>, now: u64) -> Reply {
    let charges: Vec<Charge<'_>> = call.charges.iter().collect();
    let mistakes = mistakes(call.operation, &charges);
    if !mistakes.is_empty() {
        return Reply::Error(mistakes);
    }
    execute_valid(ledger, call, now)
}

/// Executes a call that is known to be valid, or the acquire of a valid hold.
pub(super) fn execute_valid(ledger: &mut Ledger, call: &Call<'_>, now: u64) -> Reply {
    let charges: Vec<Charge<'_>> = call.charges.iter().collect();
    match call.operation {
        Operation::Peek => peek(ledger, &charges, now),
        Operation::Acquire => acquire(ledger, &charges, None, now),
        Operation::Reserve { max_wait } => {
            // A larger `max_wait` is reduced to 2^51 µs, the maximum span.
            let max_wait = max_wait.min(Duration::from_micros(1 << 51));
            acquire(ledger, &charges, Some(max_wait), now)
        }
        Operation::AcquireUpTo { min } => acquire_up_to(ledger, &charges, min, now),
        Operation::Charge => {
            let amounts = charges.iter().map(|charge| overcharge(ledger, charge, now)).collect();
            look(ledger, &charges, now).with_amounts(amounts)
        }
        Operation::Refund => {
            let amounts = charges.iter().map(|charge| refund(ledger, charge, now)).collect();
            look(ledger, &charges, now).with_amounts(amounts)
        }
        Operation::Undo { at } => {
            let before = ledger.clone();
            // If several charges have the same key, the oracle undoes them together, and divides
            // the undone amount among these charges in their order.
            let mut undone: BTreeMap<Key, u64> = BTreeMap::new();
            for charge in &charges {
                let amount = undo(ledger, &before, &charges, charge, at.as_micros(), now);
                undone.insert(key_of(charge), amount);
            }
            let amounts = charges.iter().map(|charge| {
                let rest = undone.entry(key_of(charge)).or_default();
                let amount = charge.cost.min(*rest);
                *rest -= amount;
                amount
            });
            let amounts = amounts.collect();
            look(ledger, &charges, now).with_amounts(amounts)
        }
        Operation::Reset => {
            for charge in &charges {
                ledger.insert(key_of(charge), None);
            }
            look(ledger, &charges, now)
        }
        Operation::Block { span } => {
            let until = block_ends(span, now).unwrap_or(0);
            for charge in &charges {
                let mut record = record_of(ledger, charge);
                record.block = record.block.ending_at(until, charge.policy, now);
                keep(ledger, charge, record);
            }
            look(ledger, &charges, now)
        }
        Operation::BlockAtLeast { span } => {
            for charge in &charges {
                let mut record = record_of(ledger, charge);
                if let Some(until) = block_ends(span, now).filter(|&end| end > record.block.until) {
                    record.block = record.block.ending_at(until, charge.policy, now);
                }
                keep(ledger, charge, record);
            }
            look(ledger, &charges, now)
        }
        Operation::Leave { .. } => look(ledger, &charges, now),
        Operation::Grant { ends_at } => {
            let before = ledger.clone();
            let has_ended = ends_at.is_some_and(|end| end.as_micros() <= now);
            for charge in charges.iter().filter(|_| !has_ended) {
                let record = record_of(ledger, charge);
                let (past, spec) = (record.past_under(charge, now), charge.policy.algorithm());
                let Algorithm::Quota(spec) = spec else { continue };
                let Some(past) = quota::Calendar::new(spec).grant(&past, charge.cost, ends_at, now)
                else {
                    *ledger = before;
                    return Reply::Error(vec![ErrorKind::TooManyGrants]);
                };
                keep(ledger, charge, record.with_past(charge, past));
            }
            look(ledger, &charges, now)
        }
        // The oracle does not know this operation, so it accepts no answer.
        _ => Reply::Error(vec![]),
    }
}

/// Returns the time at which a block with the span `span` ends, or `None` for a span of zero. The
/// span is rounded up to a microsecond, and is at most 2^51 µs.
fn block_ends(span: Duration, now: u64) -> Option<u64> {
    let span = span.as_nanos().div_ceil(1_000).min(1 << 51);
    (span > 0).then(|| u64::try_from(span).map_or(u64::MAX, |span| now + span))
}

/// Returns the kinds of errors that a call can cause. If there are several, a store is allowed to
/// return any of them.
pub(super) fn mistakes(operation: Operation, charges: &[Charge<'_>]) -> Vec<ErrorKind> {
    let mut mistakes = vec![];
    let too_long = |bytes: &[u8]| bytes.len() > 1 << 20;
    let mixed_up = |a: &Charge<'_>, b: &Charge<'_>| {
        key_of(a) == key_of(b) && (a.policy != b.policy || a.is_check_only != b.is_check_only)
    };
    if matches!(operation, Operation::Grant { .. }) {
        let keys: BTreeSet<Key> = charges.iter().map(key_of).collect();
        let is_wrong = |charge: &Charge<'_>| {
            charge.cost == 0
                || charge.cost > 1 << 52
                || charge.is_check_only
                || !matches!(charge.policy.algorithm(), Algorithm::Quota(_))
        };
        if keys.len() < charges.len() || charges.iter().any(is_wrong) {
            mistakes.push(ErrorKind::InvalidCall);
        }
    }
    let changes_whole_state = matches!(
        operation,
        Operation::Reset | Operation::Block { .. } | Operation::BlockAtLeast { .. }
    );
    let is_wrong_in_pool = |charge: &Charge<'_>| {
        let is_other =
            |other: &Charge<'_>| key_of(other) == key_of(charge) && other.subject != charge.subject;
        charge.is_check_only || changes_whole_state || charges.iter().any(is_other)
    };
    let mut in_pool = charges.iter().filter(|charge| is_fair_pool(charge.policy));
    if in_pool.any(is_wrong_in_pool) {
        mistakes.push(ErrorKind::InvalidCall);
    }
    if charges.iter().any(|charge| charge.list > 0 && is_wrong_in_list(operation, charges, charge))
    {
        mistakes.push(ErrorKind::InvalidCall);
    }
    if operation.is_of_hold() {
        let keys: BTreeSet<Key> = charges.iter().map(key_of).collect();
        if keys.len() < charges.len() || charges.iter().any(|charge| charge.cost > 1 << 52) {
            mistakes.push(ErrorKind::InvalidCall);
        }
    }
    if let Operation::AcquireUpTo { min } | Operation::HoldUpTo { min } = operation {
        let taken = charges.iter().filter(|charge| !charge.is_check_only);
        let smallest = taken.map(|charge| charge.cost).min();
        let keys: BTreeSet<Key> = charges.iter().map(key_of).collect();
        if min == 0 || smallest.is_none_or(|cost| min > cost) || keys.len() < charges.len() {
            mistakes.push(ErrorKind::InvalidCall);
        }
    }
    if charges.is_empty()
        || charges.len() > 64
        || charges.iter().any(|charge| too_long(charge.subject) || too_long(charge.tenant))
        || charges.iter().any(|a| charges.iter().any(|b| mixed_up(a, b)))
    {
        mistakes.push(ErrorKind::InvalidCall);
    }
    // Only holds take slots, and a settlement frees all of them.
    let leaves_slots_alone = matches!(
        operation,
        Operation::Hold
            | Operation::HoldInTurn { .. }
            | Operation::Leave { .. }
            | Operation::Extend
            | Operation::Peek
            | Operation::Reserve { .. }
            | Operation::Reset
            | Operation::Block { .. }
            | Operation::BlockAtLeast { .. }
    );
    // A settlement also charges what a check-only charge has cost.
    let is_settlement = matches!(operation, Operation::Settle | Operation::SettleSoFar);
    let settles_slots =
        |charge: &Charge<'_>| is_settlement && is_slots(charge.policy) && charge.cost > 0;
    let changes_slots = |charge: &Charge<'_>| takes_slots(charge) || settles_slots(charge);
    if !leaves_slots_alone && charges.iter().any(changes_slots) {
        mistakes.push(ErrorKind::InvalidCall);
    }
    let is_bucket =
        |charge: &Charge<'_>| matches!(charge.policy.algorithm(), Algorithm::TokenBucket(_));
    if matches!(operation, Operation::Reserve { .. }) && !charges.iter().all(is_bucket) {
        mistakes.push(ErrorKind::Unsupported);
    }
    mistakes
}

/// Returns `true` if this charge of a list of alternatives makes the call invalid.
fn is_wrong_in_list(operation: Operation, charges: &[Charge<'_>], charge: &Charge<'_>) -> bool {
    let accepts_lists = matches!(
        operation,
        Operation::Acquire
            | Operation::Peek
            | Operation::Reserve { .. }
            | Operation::Hold
            | Operation::Settle
            | Operation::SettleSoFar
            | Operation::Extend
            | Operation::Reset
            | Operation::Block { .. }
            | Operation::BlockAtLeast { .. }
    );
    let same = charges.iter().filter(|other| key_of(other) == key_of(charge));
    !accepts_lists
        || charge.is_check_only
        || charge.policy.is_shadow()
        || charge.policy.block().is_some()
        || same.count() > 1
}

/// Returns `true` if a hold with this charge takes slots.
pub(super) fn takes_slots(charge: &Charge<'_>) -> bool {
    is_slots(charge.policy) && !charge.is_check_only && charge.cost > 0
}

fn is_fair_pool(policy: &Policy) -> bool {
    matches!(policy.algorithm(), Algorithm::FairPool(_))
}

pub(super) fn is_slots(policy: &Policy) -> bool {
    matches!(policy.algorithm(), Algorithm::Concurrent(_))
}

/// Returns `true` if the state has room for `cost` slots.
pub(super) fn has_room(ledger: &Ledger, charge: &Charge<'_>, cost: u64, now: u64) -> bool {
    let past = record_of(ledger, charge).past_under(charge, now);
    rules_of(charge).fits(&past, cost, now)
}

/// Takes slots without a check.
pub(super) fn take_slots(ledger: &mut Ledger, charge: &Charge<'_>, cost: u64, now: u64) {
    let record = record_of(ledger, charge);
    let past = rules_of(charge).take(&record.past_under(charge, now), cost, now);
    keep(ledger, charge, record.with_past(charge, past));
}

/// Returns the number of slots in use.
pub(super) fn slots_in_use(record: &Record) -> u64 {
    concurrent::Slots::in_use(&record.past)
}

/// The decision of one policy, on the sum of all charges that a call makes to one key.
struct Opinion {
    cost: u64,
    outcome: Outcome,
    /// The time until the cost fits into the limit, regardless of blocks, or `None` if the cost
    /// never fits.
    wait: Option<u64>,
    is_above_limit: bool,
}

fn cost_of(charges: &[Charge<'_>], charge: &Charge<'_>) -> u64 {
    let key = key_of(charge);
    let twins = charges.iter().filter(|other| key_of(other) == key);
    twins.fold(0, |sum: u64, twin| sum.saturating_add(twin.cost))
}

fn opinion(
    ledger: &Ledger,
    charges: &[Charge<'_>],
    charge: &Charge<'_>,
    max_wait: Option<Duration>,
    now: u64,
) -> Opinion {
    let cost = cost_of(charges, charge);
    let record = record_of(ledger, charge);
    let (rules, past) = (rules_of(charge), record.past_under(charge, now));
    let mut wait = rules::wait(&*rules, &past, charge.policy.limit(), cost, now);
    if wait == Some(0) && cost > 0 && ledger.behind.contains(&key_of(charge)) {
        wait = Some(u64::MAX - now);
    }
    let bookable = |wait| {
        max_wait.is_some_and(|max_wait| Duration::from_micros(wait) <= max_wait)
            && rules.can_book(&past, cost, now)
    };
    let outcome = match wait {
        _ if now < record.block.until => Outcome::Blocked,
        Some(0) => Outcome::Allowed,
        Some(wait) if bookable(wait) => Outcome::Allowed,
        _ => Outcome::Denied,
    };
    let is_above_limit = cost > rules.limit(charge.policy.limit(), now);
    Opinion { cost, outcome, wait, is_above_limit }
}

/// Returns `true` if the cost would fit without the open attempts. A denial is then not an offense.
fn is_excused(ledger: &Ledger, charge: &Charge<'_>, cost: u64, now: u64) -> bool {
    let open = ledger.open_attempts.get(&key_of(charge)).copied().unwrap_or(0);
    let (rules, past) = (rules_of(charge), record_of(ledger, charge).past_under(charge, now));
    open > 0 && rules.fits(&rules.refund(&past, open, now).0, cost, now)
}

fn acquire(
    ledger: &mut Ledger,
    charges: &[Charge<'_>],
    max_wait: Option<Duration>,
    now: u64,
) -> Reply {
    let before = ledger.clone();
    let opinions: Vec<Opinion> =
        charges.iter().map(|charge| opinion(&before, charges, charge, max_wait, now)).collect();
    let is_spare: Vec<bool> =
        (0..charges.len()).map(|place| is_spare(charges, &opinions, place)).collect();
    let enforced = || {
        let all = charges.iter().zip(&opinions).zip(&is_spare);
        all.filter(|((charge, _), is_spare)| !charge.policy.is_shadow() && !**is_spare)
    };
    let allowed = enforced().all(|((_, opinion), _)| opinion.outcome == Outcome::Allowed);
    for ((charge, opinion), is_spare) in charges.iter().zip(&opinions).zip(&is_spare) {
        if *is_spare {
            continue;
        }
        // The new record of a key depends on the record before the call and on the sum of the costs
        // for the key. So two charges with the same key write the same new record.
        let mut record = record_of(&before, charge);
        match (opinion.outcome, charge.policy.block()) {
            _ if opinion.cost == 0 => continue,
            (Outcome::Allowed, _) if charge.is_check_only => continue,
            (Outcome::Allowed, _) if allowed => {
                let past = record.past_under(charge, now);
                let past = rules_of(charge).take(&past, opinion.cost, now);
                record = record.with_past(charge, past);
            }
            (Outcome::Denied, Some(_)) if !opinion.is_above_limit => {
                if is_excused(&before, charge, opinion.cost, now) {
                    continue;
                }
                record.block = record.block.after_denial(charge.policy, now);
            }
            (Outcome::Denied, None) if !opinion.is_above_limit && is_fair_pool(charge.policy) => {
                let past = record.past_under(charge, now);
                let past = rules_of(charge).refuse(&past, opinion.cost, now);
                record = record.with_past(charge, past);
            }
            (Outcome::Blocked, Some(_)) if !opinion.is_above_limit => {
                record.block = record.block.after_refusal(charge.policy, now);
            }
            _ => continue,
        }
        keep(ledger, charge, record);
    }
    let longest = enforced().filter_map(|((_, opinion), _)| opinion.wait).max();
    let booked = longest.filter(|_| allowed).unwrap_or(0);
    report(ledger, charges, &opinions, Duration::from_micros(booked), now)
}

/// Returns the place of the charge that pays for a list: the first charge that is admitted.
fn payer(charges: &[Charge<'_>], opinions: &[Opinion], list: u8) -> Option<usize> {
    let mut pairs = charges.iter().zip(opinions);
    pairs.position(|(charge, it)| charge.list == list && it.outcome == Outcome::Allowed)
}

/// Returns `true` if another charge of the same list pays, and the subject of this charge is not
/// blocked.
fn is_spare(charges: &[Charge<'_>], opinions: &[Opinion], place: usize) -> bool {
    let list = charges[place].list;
    let payer = payer(charges, opinions, list);
    list > 0
        && payer.is_some_and(|payer| payer != place)
        && opinions[place].outcome != Outcome::Blocked
}

/// Changes the verdicts on the charges of lists. If a list has a payer, its other charges are
/// skipped. If it has none, the charge with the shortest wait stays, and the others are skipped. A
/// blocked charge always stays.
fn skip(charges: &[Charge<'_>], opinions: &[Opinion], verdicts: &mut [ReplyVerdict]) {
    for list in 1..=u8::MAX {
        let places = || (0..charges.len()).filter(|place| charges[*place].list == list);
        // A known wait is shorter than a wait for slots, which is shorter than no end.
        let wait = |place: &usize| {
            let verdict = &verdicts[*place];
            let waits_for_slots =
                is_slots(charges[*place].policy) && !opinions[*place].is_above_limit;
            match (verdict.retry_after, verdict.earliest_lapse) {
                (Some(wait), _) => (0, wait),
                (None, Some(lapse)) => (1, lapse),
                (None, None) if waits_for_slots => (2, Duration::ZERO),
                (None, None) => (3, Duration::ZERO),
            }
        };
        let kept = payer(charges, opinions, list).or_else(|| places().min_by_key(wait));
        for place in places().filter(|place| Some(*place) != kept) {
            let verdict = &mut verdicts[place];
            if verdict.outcome == Outcome::Blocked {
                verdict.retry_after = Some(verdict.blocked_for);
            } else {
                verdict.outcome = Outcome::Skipped;
            }
        }
    }
}

/// Searches for the largest amount that all policies admit, and acquires it. If this amount is less
/// than `min`, the function tries to acquire `min`, and the call is refused.
fn acquire_up_to(ledger: &mut Ledger, charges: &[Charge<'_>], min: u64, now: u64) -> Reply {
    let is_taken = |charge: &Charge<'_>| !charge.is_check_only;
    let costs = charges.iter().filter(|charge| is_taken(charge)).map(|charge| charge.cost);
    let largest = costs.min().unwrap_or(0);
    let charges_at = |amount: u64| -> Vec<Charge<'_>> {
        let cost = |charge: &Charge<'_>| if is_taken(charge) { amount } else { charge.cost };
        charges.iter().map(|charge| charge.cost(cost(charge))).collect()
    };
    let all_admit = |amount: u64| {
        let charges = charges_at(amount);
        let mut enforced = charges.iter().filter(|charge| !charge.policy.is_shadow());
        enforced
            .all(|charge| opinion(ledger, &charges, charge, None, now).outcome == Outcome::Allowed)
    };
    let amount =
        rules::first(min, largest + 1, |amount| amount > largest || !all_admit(amount)) - 1;
    let charges = charges_at(amount.max(min));
    let reply = acquire(ledger, &charges, None, now);
    let Reply::Decision { allowed, ref verdicts, .. } = reply else { return reply };
    let took = |(charge, verdict): (&Charge<'_>, &ReplyVerdict)| {
        let took = allowed && is_taken(charge) && verdict.outcome == Outcome::Allowed;
        if took { charge.cost } else { 0 }
    };
    let amounts = charges.iter().zip(verdicts).map(took).collect();
    reply.with_amounts(amounts)
}

/// Charges the cost beyond the limit, but at most the maximum that the state can record. Returns
/// the charged amount.
fn overcharge(ledger: &mut Ledger, charge: &Charge<'_>, now: u64) -> u64 {
    let record = record_of(ledger, charge);
    let (rules, past) = (rules_of(charge), record.past_under(charge, now));
    let amount = if charge.is_check_only { 0 } else { charge.cost.min(rules.room(&past, now)) };
    if amount > 0 {
        let past = rules.charge(&past, amount, now);
        keep(ledger, charge, record.with_past(charge, past));
    }
    amount
}

fn peek(ledger: &Ledger, charges: &[Charge<'_>], now: u64) -> Reply {
    let opinions: Vec<Opinion> =
        charges.iter().map(|charge| opinion(ledger, charges, charge, None, now)).collect();
    report(ledger, charges, &opinions, Duration::ZERO, now)
}

/// Returns the reply to a peek at these charges with costs of 0.
pub(super) fn look(ledger: &Ledger, charges: &[Charge<'_>], now: u64) -> Reply {
    let charges: Vec<_> = charges.iter().map(|charge| charge.cost(0).in_list(0)).collect();
    peek(ledger, &charges, now)
}

fn refund(ledger: &mut Ledger, charge: &Charge<'_>, now: u64) -> u64 {
    if charge.cost == 0 || charge.is_check_only {
        return 0;
    }
    let record = record_of(ledger, charge);
    let past = record.past_under(charge, now);
    let (past, amount) = rules_of(charge).refund(&past, charge.cost, now);
    keep(ledger, charge, record.with_past(charge, past));
    amount
}

/// Undoes the charges to one key, and returns the undone amount. The function computes the new
/// record from the record before the call, so that two charges with the same key write the same new
/// record.
fn undo(
    ledger: &mut Ledger,
    before: &Ledger,
    charges: &[Charge<'_>],
    charge: &Charge<'_>,
    at: u64,
    now: u64,
) -> u64 {
    let cost = cost_of(charges, charge);
    // Only a quota with grants admits a cost above its limit.
    let max = if charge.policy.is_quota() { rules::MAX_COUNT } else { charge.policy.limit() };
    if cost == 0 || cost > max || charge.is_check_only {
        return 0; // No store makes a check-only charge, or a charge of 0 or above the limit.
    }
    let record = record_of(before, charge);
    let past = record.past_under(charge, now);
    let take = Take { at, cost };
    let Some((past, amount)) = rules_of(charge).undo(&past, cost, take, now) else {
        return 0;
    };
    keep(ledger, charge, record.with_past(charge, past));
    amount
}

/// Applies the change that a settlement makes to a key. Returns the charged or refunded amount.
pub(super) fn settle(ledger: &mut Ledger, charge: &Charge<'_>, change: Change, now: u64) -> u64 {
    match change {
        Change::Nothing => 0,
        Change::Charge(cost) => {
            // If the actual cost exceeds the held amount, the settlement charges the difference,
            // even if the charge was check-only in the hold.
            let charge = Charge::new(charge.policy, charge.subject).tenant(charge.tenant);
            overcharge(ledger, &charge.cost(cost), now)
        }
        Change::Refund(cost, take) => {
            let record = record_of(ledger, charge);
            let past = record.past_under(charge, now);
            let Some((past, amount)) = rules_of(charge).undo(&past, cost, take, now) else {
                return 0;
            };
            keep(ledger, charge, record.with_past(charge, past));
            amount
        }
    }
}

/// The change that the settlement or the lapse of a hold makes to a key.
#[derive(Debug, Clone, Copy)]
pub(super) enum Change {
    Nothing,
    Charge(u64),
    Refund(u64, Take),
}

fn report(
    ledger: &Ledger,
    charges: &[Charge<'_>],
    opinions: &[Opinion],
    wait: Duration,
    now: u64,
) -> Reply {
    let verdict = |(charge, opinion): (&Charge<'_>, &Opinion)| {
        let record = record_of(ledger, charge);
        let (rules, past) = (rules_of(charge), record.past_under(charge, now));
        let (policy, limit) = (charge.policy, charge.policy.limit());
        let blocked = record.block.until.saturating_sub(now);
        // A state recovers at the time that the policy of its last write determines, even if
        // another policy now reads the state.
        let ends_after = match past {
            Past::Nothing | Past::Quota(_) => u64::MAX,
            // A later time is not stored on Redis.
            Past::IntervalBucket(_) if record.recovers_at >= 1 << 53 => u64::MAX,
            _ => record.recovers_at.saturating_sub(now),
        };
        let remaining = rules::remaining(&*rules, &past, limit, now);
        ReplyVerdict {
            outcome: opinion.outcome,
            shadow: policy.is_shadow(),
            limit,
            remaining: if blocked == 0 { remaining } else { 0 },
            retry_after: match (opinion.outcome, opinion.wait) {
                (Outcome::Allowed, _) => Some(Duration::ZERO),
                (_, wait) => {
                    wait.map(|wait| Duration::from_micros(wait.min(ends_after).max(blocked)))
                }
            },
            earliest_lapse: match (opinion.outcome, opinion.wait) {
                (Outcome::Allowed, _) | (_, None | Some(0)) => None,
                _ => ledger.earliest_lapses.get(&key_of(charge)).copied(),
            },
            reset_after: Duration::from_micros(
                rules.resets_at(&past, now).saturating_sub(now).min(ends_after).max(blocked),
            ),
            blocked_for: Duration::from_micros(blocked),
            block_level: record.block.level(now),
            warns: policy.warn_percent().is_some_and(|percent| {
                let total = rules.most(&past, limit, now).min(rules::MAX_COUNT);
                let total = u128::from(total);
                let used = total - u128::from(remaining);
                blocked == 0 && total > 0 && 100 * used >= total * u128::from(percent)
            }),
        }
    };
    let mut verdicts: Vec<_> = charges.iter().zip(opinions).map(verdict).collect();
    skip(charges, opinions, &mut verdicts);
    let passes = |verdict: &ReplyVerdict| {
        verdict.shadow || matches!(verdict.outcome, Outcome::Allowed | Outcome::Skipped)
    };
    Reply::Decision {
        allowed: verdicts.iter().all(passes),
        wait,
        verdicts,
        amounts: vec![],
        charged: vec![],
        unspent: vec![],
        fences: vec![],
        place: None,
    }
}

fn record_of(ledger: &Ledger, charge: &Charge<'_>) -> Record {
    let record = ledger.get(&key_of(charge)).cloned().flatten();
    record.unwrap_or_else(|| Record::new(charge.policy))
}

fn keep(ledger: &mut Ledger, charge: &Charge<'_>, record: Record) {
    ledger.insert(key_of(charge), Some(record).filter(|record| !record.is_empty()));
}
