//! Stores with one defect each, which the conformance suite must find.
#![expect(clippy::unwrap_used, reason = "a test")]

mod records;

use std::sync::Mutex;
use std::time::Duration;

use records::{CallRecords, Ids, Map, key, with_waits};
use tidegate_core::engine::{self, Record};
use tidegate_core::{
    Answer, Call, Charge, Clock, Decision, Error, ManualClock, Operation, Outcome, Policy, Store,
    Timestamp, Verdict,
};

/// The defect of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Defect {
    None,
    ChargesDenials,
    ChargesPeeks,
    CountsCalls,
    PrunesAtDenials,
    LeaksPartialCharges,
    SplitsTwins,
    SplitsTenants,
    RefundsCreate,
    UndoesNothing,
    UndoesAsRefund,
    UndoesTwinsApart,
    UndoesBlocks,
    RemainingUp,
    WaitsForNever,
    NeverExpires,
    ForgetsEarly,
    SlidesOnHits,
    JoinsKeys,
    ReadsText,
    CutsSubjects,
    ResetsAll,
    GetsThenSets,
    LosesEqualTimes,
    MintsAtStepBack,
    NeverStepsBack,
    Milliseconds,
    LateByOne,
    ShortWaits,
    Blocks32Bit,
    ExtendsBlocks,
    ForgetsOffenses,
    ShortensBlocks,
    RefusesCharges,
    TakesChecks,
    IgnoresLists,
    ForgetsDemands,
    MixesMembers,
    TakesAllOrNothing,
    IgnoresIds,
    AnswersAnyCall,
    KeepsIds,
    SharesIds,
    SettlesTwice,
    ChargesSoFarAgain,
    HoldsTwice,
    HidesHolds,
    ShadowsRefuse,
    RefillsAtChange,
    OneStatePerName,
    UnnamedByAlgorithm,
    KeepsOldLimit,
    DeniesErrors,
    ReversesBatches,
    Deadlocks,
    Seconds,
    Panics,
}

/// A store with a defect.
#[derive(Debug)]
pub(crate) struct Broken {
    defect: Defect,
    clock: ManualClock,
    records: Mutex<Map>,
    ids: Mutex<Ids>,
    /// The latest time and the first time that the store has read from its clock.
    seen: Mutex<(Timestamp, Option<Timestamp>)>,
    left: Mutex<()>,
    right: Mutex<()>,
}

impl Broken {
    pub(crate) fn new(defect: Defect, clock: ManualClock) -> Self {
        Self {
            defect,
            clock,
            records: Mutex::default(),
            ids: Mutex::default(),
            seen: Mutex::default(),
            left: Mutex::default(),
            right: Mutex::default(),
        }
    }

    pub(crate) fn snapshot(&self) -> Vec<u8> {
        format!("{:?}", self.records.lock().unwrap()).into_bytes()
    }

    /// Returns the time that the store uses for decisions. Some defects change this time.
    fn time(&self) -> Timestamp {
        let now = self.clock.now();
        let (latest, first) = &mut *self.seen.lock().unwrap();
        let before = *latest;
        *latest = now.max(before);
        let micros = now.as_micros();
        match self.defect {
            Defect::NeverExpires => *first.get_or_insert(now),
            Defect::NeverStepsBack => *latest,
            Defect::Seconds => Timestamp::from_micros(micros - micros % 1_000_000),
            Defect::Milliseconds => Timestamp::from_micros(micros - micros % 1_000),
            Defect::LateByOne => Timestamp::from_micros(micros.saturating_sub(1)),
            Defect::MintsAtStepBack => {
                if now < before {
                    self.records.lock().unwrap().clear();
                    *latest = now;
                }
                now
            }
            _ => now,
        }
    }

    /// Executes a call on the records in `map`, with the engine of the core.
    fn engine(&self, call: &Call<'_>, map: &mut Map, now: Timestamp) -> Result<Decision, Error> {
        map.retain(|_, record| match self.defect {
            Defect::ForgetsEarly => is_after(record, now, 1),
            _ => true,
        });
        let ids = &mut *self.ids.lock().unwrap();
        let mut records = CallRecords { map, ids, call: *call, defect: self.defect };
        engine::decide(call, now, &mut records)
    }

    fn decide_now(&self, call: &Call<'_>) -> Result<Decision, Error> {
        let now = self.time();
        if self.defect == Defect::GetsThenSets {
            let mut copy = self.records.lock().unwrap().clone();
            std::thread::yield_now();
            let decision = self.engine(call, &mut copy, now);
            let mut map = self.records.lock().unwrap();
            let keys = call.charges.iter().map(|charge| self.key(&charge));
            for key in keys.collect::<Vec<_>>() {
                match copy.remove(&key) {
                    Some(record) => map.insert(key, record),
                    None => map.remove(&key),
                };
            }
            return decision;
        }
        let mut map = self.records.lock().unwrap();
        let decision = self.engine(call, &mut map, now)?;
        self.spoil(call, &mut map, now, decision)
    }

    fn key(&self, charge: &Charge<'_>) -> Vec<Vec<u8>> {
        key(self.defect, charge)
    }

    /// Applies the store's defect to a decision, and to the records after the decision.
    fn spoil(
        &self,
        call: &Call<'_>,
        map: &mut Map,
        now: Timestamp,
        decision: Decision,
    ) -> Result<Decision, Error> {
        let is_acquire = call.operation == Operation::Acquire;
        let charges: Vec<Charge<'_>> = call.charges.iter().collect();
        let verdicts = decision.verdicts().to_vec();
        match self.defect {
            Defect::ChargesDenials if is_acquire && decision.is_denied() => {
                for (charge, verdict) in charges.iter().zip(&verdicts) {
                    let rest = [charge.cost(verdict.remaining())];
                    let _ = self.engine(&Call::acquire(&rest), map, now)?;
                }
            }
            Defect::ChargesPeeks if call.operation == Operation::Peek => {
                let _ = self.engine(&Call::acquire(&charges), map, now)?;
            }
            Defect::PrunesAtDenials if is_acquire && decision.is_denied() => {
                map.retain(|_, record| is_after(record, now, 5));
            }
            Defect::LeaksPartialCharges if is_acquire && decision.is_denied() => {
                for (charge, verdict) in charges.iter().zip(&verdicts) {
                    if verdict.outcome() == Outcome::Allowed {
                        let _ = self.engine(&Call::acquire(&[*charge]), map, now)?;
                    }
                }
            }
            Defect::ResetsAll if call.operation == Operation::Reset => map.clear(),
            Defect::ExtendsBlocks if is_acquire => {
                for (charge, verdict) in charges.iter().zip(&verdicts) {
                    if let (Outcome::Blocked, Some(span)) =
                        (verdict.outcome(), charge.policy.block_duration())
                    {
                        let block = Operation::Block { span };
                        let _ = self.engine(&Call::new(block, &[*charge]), map, now)?;
                    }
                }
            }
            Defect::ForgetsOffenses => {
                for record in map.values_mut() {
                    *record = without_offenses(record)?;
                }
            }
            Defect::HidesHolds if call.operation == Operation::Peek => {
                return Ok(Decision::new(verdicts));
            }
            Defect::RemainingUp => {
                return Ok(with_waits(&verdicts, |v| (v.remaining() + 1, v.retry_after())));
            }
            Defect::ShortWaits => {
                return Ok(with_waits(&verdicts, |v| {
                    let wait = v.retry_after().map(|w| w.saturating_sub(Duration::from_micros(1)));
                    (v.remaining(), wait)
                }));
            }
            Defect::WaitsForNever => {
                return Ok(with_waits(&verdicts, |v| match v.retry_after() {
                    None => (v.remaining(), Some(Duration::from_millis(1))),
                    wait => (v.remaining(), wait),
                }));
            }
            _ => {}
        }
        Ok(decision)
    }

    /// Applies the store's defect to a call, and executes the changed call.
    fn misread(&self, call: Call<'_>) -> Result<Decision, Error> {
        let mut charges: Vec<Charge<'_>> = call.charges.iter().collect();
        let mut operation = call.operation;
        let changed: Vec<Policy> = charges.iter().map(|charge| self.policy(charge)).collect();
        match self.defect {
            Defect::CountsCalls => charges.iter_mut().for_each(|c| c.cost = c.cost.min(1)),
            Defect::ShadowsRefuse | Defect::KeepsOldLimit => {
                for (charge, policy) in charges.iter_mut().zip(&changed) {
                    charge.policy = policy;
                }
            }
            Defect::Panics if operation == Operation::Reset => {
                unreachable!("this store panics at {call:?}")
            }
            Defect::Blocks32Bit => {
                if let Operation::Block { span } = &mut operation {
                    let micros = u64::try_from(span.as_micros()).unwrap() % (1 << 32);
                    *span = Duration::from_micros(micros);
                }
            }
            Defect::ShortensBlocks => {
                if let Operation::BlockAtLeast { span } = operation {
                    operation = Operation::Block { span };
                }
            }
            Defect::RefusesCharges if operation == Operation::Charge => {
                operation = Operation::Acquire;
            }
            Defect::TakesChecks => charges.iter_mut().for_each(|c| c.is_check_only = false),
            Defect::IgnoresLists => charges.iter_mut().for_each(|c| c.list = 0),
            Defect::ForgetsDemands if operation == Operation::Acquire => {
                let peek = self.decide_now(&Call::new(Operation::Peek, &charges))?;
                if peek.is_denied() && charges.iter().any(|charge| charge.policy.is_fair_pool()) {
                    return Ok(peek);
                }
            }
            Defect::MixesMembers => {
                let in_pool = charges.iter_mut().filter(|charge| charge.policy.is_fair_pool());
                in_pool.for_each(|charge| charge.subject = b"");
            }
            Defect::TakesAllOrNothing if matches!(operation, Operation::AcquireUpTo { .. }) => {
                operation = Operation::Acquire;
            }
            Defect::UndoesNothing if is_undo(operation) => {
                charges.iter_mut().for_each(|charge| charge.cost = 0);
            }
            Defect::UndoesAsRefund if is_undo(operation) => operation = Operation::Refund,
            Defect::UndoesTwinsApart if is_undo(operation) => {
                Call::new(operation, &charges).check()?;
                for charge in &charges {
                    let _ = self.decide_now(&Call::new(operation, &[*charge]))?;
                }
                charges.iter_mut().for_each(|charge| charge.cost = 0);
            }
            Defect::UndoesBlocks if is_undo(operation) => {
                let lift = Operation::Block { span: Duration::ZERO };
                let _ = self.decide_now(&Call::new(lift, &charges))?;
            }
            Defect::SlidesOnHits if operation == Operation::Acquire => {
                // To restart the window, the store refunds the usage and charges it again.
                for charge in &charges {
                    let peek = self.decide_now(&Call::new(Operation::Peek, &[charge.cost(0)]))?;
                    let used = charge.policy.limit() - peek.verdicts()[0].remaining();
                    let used = [charge.cost(used)];
                    let _ = self.decide_now(&Call::new(Operation::Refund, &used))?;
                    let _ = self.decide_now(&Call::acquire(&used))?;
                }
            }
            Defect::LosesEqualTimes if operation == Operation::Acquire => {
                let denied = self.decide_now(&Call::new(Operation::Peek, &charges))?.is_denied();
                let half: Vec<_> = charges.iter().map(|c| c.cost(c.cost * 9 / 10)).collect();
                return if denied {
                    self.decide_now(&Call::new(operation, &charges))
                } else {
                    self.decide_now(&Call::new(operation, &half))
                };
            }
            Defect::SplitsTwins => {
                let mut verdicts = vec![];
                Call::new(operation, &charges).check()?;
                for charge in &charges {
                    let one = self.decide_now(&Call::new(operation, &[*charge]))?;
                    verdicts.extend_from_slice(one.verdicts());
                }
                return Ok(Decision::new(verdicts));
            }
            Defect::Deadlocks => {
                let reversed =
                    charges.first().map(|c| c.subject) > charges.last().map(|c| c.subject);
                let (one, two) =
                    if reversed { (&self.left, &self.right) } else { (&self.right, &self.left) };
                let _one = one.lock().unwrap();
                std::thread::sleep(Duration::from_micros(50));
                let _two = two.lock().unwrap();
                return self.decide_now(&call);
            }
            _ => {}
        }
        let changed = Call::new(operation, &charges);
        match call.id.filter(|_| self.defect != Defect::IgnoresIds) {
            Some(id) => self.decide_now(&changed.with_id(id)),
            None => self.decide_now(&changed),
        }
    }

    fn policy(&self, charge: &Charge<'_>) -> Policy {
        let text = charge.policy.to_string();
        match self.defect {
            Defect::ShadowsRefuse => text.replace(" shadow", "").parse().unwrap(),
            Defect::KeepsOldLimit => {
                let map = self.records.lock().unwrap();
                let record = map.get(&self.key(charge));
                record.map_or(charge.policy, Record::policy).clone()
            }
            _ => charge.policy.clone(),
        }
    }
}

/// Returns `true` if the record recovers more than `micros` microseconds after `now`.
fn is_after(record: &Record, now: Timestamp, micros: u64) -> bool {
    let late = now.saturating_add(Duration::from_micros(micros));
    record.recovers_at().is_none_or(|at| at > late)
}

/// Returns the record without its offenses. A record with holds cannot be restored, so it stays the
/// same.
fn without_offenses(record: &Record) -> Result<Record, Error> {
    let (policy, until) = (record.policy(), record.blocked_until_micros());
    let restored = Record::restore(policy, record.state().cloned(), until)?;
    Ok(if record.offenses().is_some() { restored } else { record.clone() })
}

fn is_undo(operation: Operation) -> bool {
    matches!(operation, Operation::Undo { .. })
}

impl Store for Broken {
    fn decide<'a>(&'a self, call: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
        Answer::ready(match self.misread(call) {
            Err(_) if self.defect == Defect::DeniesErrors => {
                let denied = |charge: Charge<'_>| {
                    let limit = charge.policy.limit();
                    Verdict::new(Outcome::Denied, limit)
                        .with_retry_after(Some(Duration::from_millis(1)))
                };
                Ok(Decision::new(call.charges.iter().map(denied)))
            }
            answer => answer,
        })
    }

    fn decide_many<'a>(
        &'a self,
        calls: &'a [Call<'a>],
    ) -> Answer<'a, Vec<Result<Decision, Error>>> {
        let mut answers = vec![];
        if self.defect == Defect::ReversesBatches {
            answers.extend(calls.iter().rev().map(|call| self.misread(*call)));
            answers.reverse();
        } else {
            answers.extend(calls.iter().map(|call| self.misread(*call)));
        }
        Answer::ready(answers)
    }

    fn now(&self) -> Answer<'_, Result<Timestamp, Error>> {
        Answer::ready(Ok(self.clock.now()))
    }

    fn supports(&self, _: &Policy) -> Result<(), Error> {
        Ok(())
    }
}
