//! The oracle: slow and obvious, and sharing no code with the core's algorithms.
//!
//! It reads what a policy *says* (its specification and its tick) and never what the core made of
//! it. Costs are kept as they came, fractions of tokens as exact fractions, and whatever the core
//! works out by arithmetic is found here by search: `remaining` is the largest cost that fits,
//! `retry_after` the first instant at which the cost fits, `reset_after` the first at which nothing
//! can be told from a fresh start.
//!
//! | file | what is in it |
//! |---|---|
//! | `fixed_window`, `sliding_log`, `sliding_counter`, `bucket`, `interval_bucket` | what each algorithm admits, and what it remembers |
//! | `rules` | what they have in common, and the searches |
//! | `record` | one key: a past, a block, and a policy that may change |
//! | `ledger` | a whole call: several charges, penalties, shadows |
//! | `holds` | holds and their settlements, by their ids |
//! | `refunds` | refunds that may have refunded a hold |
//! | `reply` | the answer, ready to be compared |

mod bucket;
mod fixed_window;
mod holds;
mod interval_bucket;
mod ledger;
mod record;
mod refunds;
mod reply;
mod rules;
mod sliding_counter;
mod sliding_log;

use std::collections::BTreeMap;

use tidegate_core::{Algorithm, Call, Charge, Decision, Error, Operation, Timestamp};

use holds::{Hold, HoldKey};
use ledger::Ledger;
use record::Record;
use refunds::KeyRefunds;
pub use reply::{Reply, ReplyVerdict};

use crate::show;

/// Which state: policy name and shape, tenant, subject.
type Key = (String, Vec<u8>, Vec<u8>);

/// Predicts every answer of a store that starts empty and gets no other calls than those shown to
/// the oracle.
///
/// A store may forget what no longer matters by its clock, and need not. Once the clock steps back,
/// the two can be told apart, so the oracle keeps both possibilities in mind, and strikes out those
/// that an answer refutes.
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
    /// What each key may look like: never empty, and without repetition. `None` is a fresh key.
    keys: BTreeMap<Key, Vec<Option<Record>>>,
    holds: BTreeMap<HoldKey, Hold>,
    /// The refunds that may have refunded a hold.
    refunds: BTreeMap<Key, KeyRefunds>,
    /// How often a hold was changed.
    turns: u64,
}

/// What may come of a call.
struct Future {
    reply: Reply,
    /// The keys of the call.
    ledger: Ledger,
    /// The hold that the call is about.
    hold: Option<Hold>,
    /// The refunds of the keys of the call.
    refunds: BTreeMap<Key, KeyRefunds>,
}

impl Oracle {
    /// The oracle for an empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether `answer` is one that the store may give to `call` now; and if so, learns from it.
    ///
    /// # Errors
    ///
    /// If it is not: the call, what was expected, the actual answer, and which fields differ.
    pub fn check(
        &mut self,
        call: &Call<'_>,
        now: Timestamp,
        answer: &Result<Decision, Error>,
    ) -> Result<(), String> {
        self.check_reply(call, now, &Reply::from_answer(answer), |reply| reply)
    }

    /// The same, but for the times that a verdict names, which may count on what will lapse.
    ///
    /// # Errors
    ///
    /// As [`check`](Self::check).
    pub fn check_without_times(
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
                wrong.first().map(|it| actual.differences(&it.reply)).unwrap_or_default(),
            ));
        }
        self.learn(call, now.as_micros(), right);
        Ok(())
    }

    /// The one answer that can come to `call` now, and takes it as given.
    ///
    /// # Errors
    ///
    /// If more than one can come, as the clock has stepped back.
    pub fn predict(&mut self, call: &Call<'_>, now: Timestamp) -> Result<Reply, String> {
        let futures = self.futures(call, now.as_micros());
        let Some(expected) = futures
            .first()
            .map(|future| future.reply.clone())
            .filter(|first| futures.iter().all(|other| other.reply == *first))
        else {
            return Err("the answer depends on what the store has forgotten".to_owned());
        };
        self.learn(call, now.as_micros(), futures);
        Ok(expected)
    }

    /// Each answer that may come, with what the keys of the call then look like.
    fn futures(&mut self, call: &Call<'_>, now: u64) -> Vec<Future> {
        self.lapse(now);
        for pasts in self.keys.values_mut() {
            forget(pasts, now);
        }
        let mut ledgers = vec![Ledger::default()];
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
                    let reply = ledger::carry_out(&mut ledger, call, now);
                    let reply = reply.with_unspent(self.unspent(call));
                    return Future { reply, ledger, hold: None, refunds: BTreeMap::new() };
                }
                let hold = holds::key_of(call).and_then(|key| self.holds.get(&key));
                let mut refunds = self.refunds.clone();
                let is_alone = |charge: &Charge<'_>| !self.is_any_known(charge, now);
                let (reply, hold) =
                    holds::carry_out(&mut ledger, &mut refunds, hold, call, is_alone, now);
                Future { reply, ledger, hold, refunds }
            })
            .collect()
    }

    /// Of each charge of a peek what is held and not spent; nothing if no state knows its holds.
    fn unspent(&self, call: &Call<'_>) -> Vec<Option<u64>> {
        let knows = |charge: &Charge<'_>| charge.policy.refunds_lapsed();
        if call.operation != Operation::Peek || !call.charges.iter().any(|charge| knows(&charge)) {
            return vec![];
        }
        let unspent = |charge: Charge<'_>| -> u64 {
            let key = ledger::key_of(&charge);
            self.holds.values().map(|hold| hold.unspent_of(&key)).sum()
        };
        call.charges.iter().map(|charge| knows(&charge).then(|| unspent(charge))).collect()
    }

    /// Returns `true` if the state of a charge knows a hold that lapses or has lapsed.
    fn is_any_known(&self, charge: &Charge<'_>, now: u64) -> bool {
        let key = ledger::key_of(charge);
        self.holds.values().any(|hold| hold.is_known_on(&key, now))
    }

    /// Gives back what has lapsed, hold by hold, each at its time.
    fn lapse(&mut self, now: u64) {
        let Self { keys, holds, refunds, .. } = self;
        loop {
            let open = holds.values_mut().filter_map(|hold| Some((hold.lapses_at()?, hold)));
            let first = open.min_by_key(|(lapse, _)| *lapse);
            let Some(((at, _), hold)) = first.filter(|((at, _), _)| *at <= now) else { return };
            hold.lapse(|charge, change| {
                let key = ledger::key_of(charge);
                let pasts = keys.entry(key.clone()).or_insert_with(|| vec![None]);
                let (mut amount, before) = (0, refunds.get(&key).copied().unwrap_or_default());
                for past in pasts {
                    let mut ledger = Ledger::from([(key.clone(), past.clone())]);
                    let mut key_refunds = before;
                    let refunds_of_key = &mut key_refunds.lapsing;
                    amount = amount.max(refunds_of_key.settle(&mut ledger, charge, change, at));
                    *past = ledger.remove(&key).flatten();
                    refunds.insert(key.clone(), key_refunds);
                }
                amount
            });
        }
    }

    /// If several futures are possible, the first one's hold is taken for the one.
    fn learn(&mut self, call: &Call<'_>, now: u64, mut futures: Vec<Future>) {
        let Some(first) = futures.first_mut() else { return };
        if call.operation == Operation::Refund
            && let Reply::Decision { amounts, .. } = &first.reply
        {
            for (charge, amount) in call.charges.iter().zip(amounts) {
                let key = ledger::key_of(&charge);
                let is_any_open = self.holds.values().any(|hold| hold.is_open_on(&key));
                // A refund of all the debt includes a part of a token, which the amount does not
                // show.
                let has_part = *amount < charge.cost
                    && !charge.is_check_only
                    && matches!(charge.policy.algorithm(), Algorithm::TokenBucket(spec) if !spec.is_by_interval());
                let noted = *amount + u64::from(has_part);
                self.refunds.entry(key).or_default().refund(is_any_open, noted, now);
            }
        }
        self.refunds.append(&mut first.refunds);
        let hold = first.hold.take();
        if let (Some(key), Some(mut hold)) = (holds::key_of(call), hold) {
            hold.set_turn(self.turns);
            self.turns += 1;
            self.holds.insert(key, hold);
        }
        if call.operation == Operation::Reset {
            self.holds.values_mut().for_each(|hold| hold.reset(call));
            for charge in call.charges.iter() {
                self.refunds.remove(&ledger::key_of(&charge));
            }
        }
        let ledgers = futures.into_iter().map(|future| future.ledger);
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

/// Adds what becomes of a key if a store forgets what is over by a clock that shows `now`.
fn forget(pasts: &mut Vec<Option<Record>>, now: u64) {
    let forgotten: Vec<_> =
        pasts.iter().flatten().flat_map(|record| record.possibly_forgotten(now)).collect();
    for record in forgotten {
        if !pasts.contains(&record) {
            pasts.push(record);
        }
    }
}
