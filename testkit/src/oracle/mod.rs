//! The oracle: a slow second implementation of the decisions, which is easy to check. It shares no
//! code with the algorithms of the core.
//!
//! The oracle reads only the settings of a policy and its tick. It keeps every cost separately, and
//! keeps fractions of tokens as exact fractions. The core computes the following values, but the
//! oracle finds them by search:
//!
//! * `remaining` is the largest cost that fits into the limit.
//! * `retry_after` is the shortest wait after which the cost fits into the limit.
//! * `reset_after` is the time until the store decides as if the state did not exist.
//!
//! | file | contents |
//! |---|---|
//! | `fixed_window`, `sliding_log`, `sliding_counter`, `bucket`, `interval_bucket`, `concurrent`, `quota`, `fair_pool` | the rules of each algorithm, and the past that it keeps |
//! | `rules` | the trait that each algorithm implements, and the searches |
//! | `record` | the record of one key: past charges, block, and policy of the last write |
//! | `block` | the block of a subject, and its offenses |
//! | `ledger` | the execution of a whole call, with several charges, blocks and shadows |
//! | `holds` | holds and their settlements, by id |
//! | `queues` | the calls that wait for slots |
//! | `refunds` | refunds that have possibly refunded a hold |
//! | `reply` | a form of an answer that can be compared |

mod block;
mod bucket;
mod concurrent;
mod fair_pool;
mod fixed_window;
mod holds;
mod interval_bucket;
mod ledger;
mod queues;
mod quota;
mod record;
mod refunds;
mod reply;
mod rules;
mod sliding_counter;
mod sliding_log;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tidegate_core::{Algorithm, Call, Charge, Decision, Error, Operation, Timestamp};

use holds::{Hold, HoldKey};
use ledger::Ledger;
use queues::Queues;
use record::Record;
use refunds::KeyRefunds;
use reply::Reply;

use crate::show;

/// The key of a state: the policy's name and shape, the tenant, and the subject.
type Key = (String, Vec<u8>, Vec<u8>);

/// An oracle predicts every answer of a store that starts empty and receives only the calls that
/// the oracle sees.
///
/// When a state has recovered by the store's clock, the store is allowed to drop the state or to
/// keep it. If the clock then steps back, a dropped state and a kept state lead to different
/// answers. The oracle therefore keeps both possibilities, and removes each possibility that
/// contradicts an answer.
///
/// ```
/// use tidegate_core::{Call, Charge, Clock, ManualClock, Store};
/// use tidegate_testkit::{ModelStore, Oracle};
///
/// let clock = ManualClock::default();
/// let store = ModelStore::new(clock.clone());
/// let mut oracle = Oracle::new();
///
/// let policy = "login: sliding-log 5/15m".parse()?;
/// let charges = [Charge::new(&policy, "alice")];
/// let call = Call::acquire(&charges);
/// let answer = store.decide(call).into_ready().unwrap();
/// oracle.check(&call, clock.now(), &answer)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Oracle {
    /// The possible records of each state, by key: at least one, without duplicates. `None` means
    /// that the state does not exist.
    keys: BTreeMap<Key, Vec<Option<Record>>>,
    holds: BTreeMap<HoldKey, Hold>,
    /// For each key, the refunds that have possibly refunded a hold.
    refunds: BTreeMap<Key, KeyRefunds>,
    /// The number of changes to holds so far. It orders holds that lapse at the same time.
    turns: u64,
    /// The last fence or place of each key. A store is allowed to forget it when its clock has
    /// passed it, but this makes no difference, because the clock does not step back in traces of
    /// holds.
    numbers: BTreeMap<Key, u64>,
    /// The keys whose last hold belongs to a policy that counts failures.
    attempted: BTreeSet<Key>,
    queues: Queues,
}

/// A possible result of a call: an answer, and the state of the oracle after the call.
struct Future {
    reply: Reply,
    ledger: Ledger,
    hold: Option<Hold>,
    refunds: BTreeMap<Key, KeyRefunds>,
    queues: Queues,
}

impl Oracle {
    /// Creates the oracle of an empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Checks that `answer` is a correct answer to `call` at the time `now`. Then removes the
    /// possible records that contradict the answer.
    ///
    /// # Errors
    ///
    /// Returns an error if the answer is not correct. The error contains the call, the expected
    /// answers, the actual answer, and the fields that differ.
    pub fn check(
        &mut self,
        call: &Call<'_>,
        now: Timestamp,
        answer: &Result<Decision, Error>,
    ) -> Result<(), String> {
        self.check_reply(call, now, &Reply::from_answer(answer), |reply| reply)
    }

    /// Checks an answer like [`check`](Self::check), but ignores the times in verdicts. Such a time
    /// is allowed to be shorter than the oracle expects, if open holds will lapse and be refunded
    /// before.
    ///
    /// # Errors
    ///
    /// Returns an error in the same cases as [`check`](Self::check).
    pub(crate) fn check_without_times(
        &mut self,
        call: &Call<'_>,
        now: Timestamp,
        answer: &Result<Decision, Error>,
    ) -> Result<(), String> {
        let actual = Reply::from_answer(answer).without_times();
        self.check_reply(call, now, &actual, Reply::without_times)
    }

    fn check_reply(
        &mut self,
        call: &Call<'_>,
        now: Timestamp,
        actual: &Reply,
        compared: impl Fn(Reply) -> Reply,
    ) -> Result<(), String> {
        let futures = self.futures(call, now.as_micros()).into_iter().map(|future| {
            let reply = compared(future.reply);
            Future { reply, ..future }
        });
        let (right, wrong): (Vec<_>, Vec<_>) =
            futures.partition(|future| actual.is_one_of(&future.reply));
        if right.is_empty() {
            let expected: Vec<_> = wrong.iter().map(|future| future.reply.to_string()).collect();
            return Err(format!(
                "at {now:?}: {}\n    expected: {}\n    actual:   {actual}{}",
                show::call(call),
                show::cut(&expected.join("\n    or:       "), 4, 1_500),
                wrong.first().map(|future| actual.differences(&future.reply)).unwrap_or_default(),
            ));
        }
        self.learn(call, now.as_micros(), right);
        Ok(())
    }

    /// Takes into account that the clock of the store has shown `now`, for example during a call
    /// that the store does not support. The store is allowed to drop recovered states then.
    pub(crate) fn pass(&mut self, now: Timestamp) {
        let now = now.as_micros();
        self.lapse(now);
        for pasts in self.keys.values_mut() {
            forget(pasts, now);
        }
    }

    fn futures(&mut self, call: &Call<'_>, now: u64) -> Vec<Future> {
        self.pass(Timestamp::from_micros(now));
        let hold = holds::key_of(call).and_then(|key| self.holds.get(&key));
        let is_known = hold.is_some_and(|hold| !hold.is_expired(now));
        // A repeated hold is only extended, so its place does not count.
        let place = match call.operation {
            Operation::HoldInTurn { place } if !is_known => place,
            _ => 0,
        };
        let behind = self.queues.behind(call, place, now);
        let earliest_lapses = self.earliest_lapses(call, now);
        let open_attempts = self.open_attempts(call);
        let ledger = Ledger { behind, earliest_lapses, open_attempts, ..Ledger::default() };
        let mut ledgers = vec![ledger];
        for charge in call.charges.iter() {
            let key = ledger::key_of(&charge);
            if ledgers.iter().any(|ledger| ledger.contains_key(&key)) {
                continue;
            }
            let pasts = self.keys.get(&key).cloned().unwrap_or_else(|| vec![None]);
            ledgers = ledgers
                .iter()
                .flat_map(|ledger| {
                    pasts.iter().map(|past| {
                        let mut ledger = ledger.clone();
                        ledger.insert(key.clone(), past.clone());
                        ledger
                    })
                })
                .collect();
        }
        ledgers
            .into_iter()
            .map(|mut ledger| {
                if !call.operation.is_of_hold() {
                    let reply = ledger::execute(&mut ledger, call, now);
                    let reply = reply.with_unspent(self.unspent(call));
                    let mut queues = self.queues.clone();
                    if let Operation::Leave { place } = call.operation {
                        queues.leave_all(call, place, now);
                    }
                    return Future { reply, ledger, hold: None, refunds: BTreeMap::new(), queues };
                }
                let hold = holds::key_of(call).and_then(|key| self.holds.get(&key));
                let mut refunds = self.refunds.clone();
                let is_alone = |charge: &Charge<'_>| !self.is_any_known(charge, now);
                let next_fence = |charge: &Charge<'_>| {
                    let last = self.numbers.get(&ledger::key_of(charge));
                    last.map_or(now, |last| now.max(last + 1))
                };
                let (reply, hold) = holds::execute(
                    &mut ledger,
                    &mut refunds,
                    hold,
                    call,
                    is_alone,
                    next_fence,
                    now,
                );
                let mut queues = self.queues.clone();
                let mut place = None;
                if let Operation::HoldInTurn { place: old } = call.operation
                    && !is_known
                {
                    let last_number = |key: &Key| self.numbers.get(key).copied().unwrap_or(0);
                    place = queues.update(call, old, &reply, last_number, now);
                }
                Future { reply: reply.with_place(place), ledger, hold, refunds, queues }
            })
            .collect()
    }

    /// Returns the time until the first hold on the slots of each key lapses. A reservation that
    /// may wait reports no lapses.
    fn earliest_lapses(&self, call: &Call<'_>, now: u64) -> BTreeMap<Key, Duration> {
        let is_reservation =
            matches!(call.operation, Operation::Reserve { max_wait } if !max_wait.is_zero());
        let slots = call.charges.iter().filter(|charge| charge.policy.is_concurrent());
        let earliest = |charge: Charge<'_>| {
            let key = ledger::key_of(&charge);
            let open = self.holds.values().filter(|hold| hold.is_open_on(&key));
            let lapse = open.filter_map(|hold| Some(hold.lapses_at()?.0)).min()?;
            Some((key, Duration::from_micros(lapse - now)))
        };
        slots.filter_map(earliest).filter(|_| !is_reservation).collect()
    }

    /// Returns the unspent part of the open attempts of each key whose policy counts failures.
    fn open_attempts(&self, call: &Call<'_>) -> BTreeMap<Key, u64> {
        let keys = call.charges.iter().map(|charge| ledger::key_of(&charge));
        let counting = keys.filter(|key| self.attempted.contains(key));
        let unspent = |key: &Key| self.holds.values().map(|hold| hold.unspent_of(key)).sum();
        counting.map(|key| (key.clone(), unspent(&key))).collect()
    }

    /// Returns the unspent part of the holds on the state of each charge of a peek. Returns an
    /// empty list if no state of the peek stores its holds.
    fn unspent(&self, call: &Call<'_>) -> Vec<Option<u64>> {
        let knows = |charge: &Charge<'_>| charge.policy.stores_holds();
        if call.operation != Operation::Peek || !call.charges.iter().any(|charge| knows(&charge)) {
            return vec![];
        }
        let unspent = |charge: Charge<'_>| -> u64 {
            let key = ledger::key_of(&charge);
            self.holds.values().map(|hold| hold.unspent_of(&key)).sum()
        };
        call.charges.iter().map(|charge| knows(&charge).then(|| unspent(charge))).collect()
    }

    /// Returns `true` if the state of a charge records a hold. A lapsed hold counts until it
    /// expires.
    fn is_any_known(&self, charge: &Charge<'_>, now: u64) -> bool {
        let key = ledger::key_of(charge);
        self.holds.values().any(|hold| hold.is_known_on(&key, now))
    }

    /// Lets all holds lapse whose time is over at `now`. Refunds each hold by the amount that a
    /// refund at the time of its lapse would refund.
    fn lapse(&mut self, now: u64) {
        let Self { keys, holds, refunds, attempted, .. } = self;
        loop {
            let open = holds.values_mut().filter_map(|hold| Some((hold.lapses_at()?, hold)));
            let first = open.min_by_key(|(lapse, _)| *lapse);
            let Some(((at, _), hold)) = first.filter(|((at, _), _)| *at <= now) else { return };
            hold.lapse(|charge, change| {
                let key = ledger::key_of(charge);
                if attempted.contains(&key) {
                    return 0; // A lapsed attempt counts as a failure.
                }
                let refunds_key = ledger::key_of_refunds(charge);
                let pasts = keys.entry(key.clone()).or_insert_with(|| vec![None]);
                let (mut amount, before) =
                    (0, refunds.get(&refunds_key).copied().unwrap_or_default());
                for past in pasts {
                    let mut ledger = Ledger::with_record(key.clone(), past.clone());
                    let mut key_refunds = before;
                    let lapsing = &mut key_refunds.lapsing;
                    amount = amount.max(lapsing.settle(&mut ledger, charge, change, at));
                    *past = ledger.remove(&key).flatten();
                    refunds.insert(refunds_key.clone(), key_refunds);
                }
                amount
            });
        }
    }

    /// Updates the oracle from `futures`, the possible results that match the answer. The oracle
    /// keeps the records of all these results, and the hold and the refunds of the first result.
    fn learn(&mut self, call: &Call<'_>, now: u64, mut futures: Vec<Future>) {
        let Some(first) = futures.first_mut() else { return };
        if call.operation == Operation::Refund
            && let Reply::Decision { amounts, .. } = &first.reply
        {
            for (charge, amount) in call.charges.iter().zip(amounts) {
                let key = ledger::key_of(&charge);
                let is_any_open = self.holds.values().any(|hold| hold.is_open_on(&key));
                // A refund of a bucket's whole debt can include a fraction of a token, which the
                // amount in the answer omits. So the oracle records one token more than this
                // amount.
                let has_part = *amount < charge.cost
                    && !charge.is_check_only
                    && matches!(charge.policy.algorithm(), Algorithm::TokenBucket(spec) if !spec.is_by_interval());
                let noted = *amount + u64::from(has_part);
                let refunds = self.refunds.entry(ledger::key_of_refunds(&charge)).or_default();
                refunds.refund(is_any_open, noted, now);
            }
        }
        self.refunds.append(&mut first.refunds);
        let hold = first.hold.take();
        if let (Some(key), Some(mut hold)) = (holds::key_of(call), hold) {
            if hold.is_new() {
                for charge in call.charges.iter() {
                    let key = ledger::key_of(&charge);
                    match hold.is_recorded_on(&key) {
                        true if charge.policy.counts_failures() => self.attempted.insert(key),
                        true => self.attempted.remove(&key),
                        false => false,
                    };
                }
                for (charge, fence) in call.charges.iter().zip(hold.fences()) {
                    let Some(fence) = *fence else { continue };
                    let state_key = ledger::key_of(&charge);
                    self.numbers.insert(state_key.clone(), fence);
                    let record = first.ledger.get(&state_key).and_then(Option::as_ref);
                    let in_use = record.map_or(0, ledger::slots_in_use);
                    claim_slots(&mut self.holds, &state_key, in_use, charge.policy.limit(), now);
                }
            }
            hold.set_turn(self.turns);
            self.turns += 1;
            self.holds.insert(key, hold);
        }
        if call.operation == Operation::Reset && matches!(first.reply, Reply::Decision { .. }) {
            self.holds.values_mut().for_each(|hold| hold.reset(call));
            for charge in call.charges.iter() {
                self.refunds.remove(&ledger::key_of_refunds(&charge));
            }
        }
        self.queues = std::mem::take(&mut first.queues);
        if let Reply::Decision { place: Some(place), .. } = &first.reply {
            for charge in call.charges.iter().filter(ledger::takes_slots) {
                if !charge.policy.is_shadow() {
                    let number = self.numbers.entry(ledger::key_of(&charge)).or_default();
                    *number = place.number.max(*number);
                }
            }
        }
        let ledgers = futures.into_iter().map(|future| future.ledger.into_records());
        let mut seen: BTreeMap<Key, Vec<Option<Record>>> = BTreeMap::new();
        for (key, record) in ledgers.flatten() {
            let pasts = seen.entry(key).or_default();
            if !pasts.contains(&record) {
                pasts.push(record);
            }
        }
        self.keys.extend(seen);
    }
}

/// Takes lapsed slots away from their former holders, first the hold that expires first, until
/// these slots and the slots in use are at most `limit`.
fn claim_slots(holds: &mut BTreeMap<HoldKey, Hold>, key: &Key, in_use: u64, limit: u64, now: u64) {
    loop {
        let lapsed = holds.values_mut().filter_map(|hold| {
            let (place, slots) = hold.revivable_on(key, now)?;
            Some((hold.expires_at(), slots, place, hold))
        });
        let mut lapsed: Vec<_> = lapsed.collect();
        if in_use + lapsed.iter().map(|(_, slots, ..)| slots).sum::<u64>() <= limit {
            return;
        }
        let first = lapsed.iter_mut().min_by_key(|(expires_at, ..)| *expires_at);
        let Some((_, _, place, hold)) = first else { return };
        hold.lose(*place);
    }
}

/// Adds the records that a key can have at the time `now`. A store is allowed to drop the recovered
/// parts of a record, so the record without these parts is possible too.
fn forget(pasts: &mut Vec<Option<Record>>, now: u64) {
    let forgotten: Vec<_> =
        pasts.iter().flatten().flat_map(|record| record.possibly_forgotten(now)).collect();
    for record in forgotten {
        if !pasts.contains(&record) {
            pasts.push(record);
        }
    }
}
