//! Replays requests with late costs against one policy, in one [`Way`].

use std::collections::BTreeMap;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::Settling;
use super::fill::Fill;
use super::meter::Meter;
use crate::replay::Error;
use crate::replay::stores::{memory, none_at_hand};
use crate::replay::tally::would_admit;
use crate::report::{SettlingRun, Way};
use crate::trace::{Record, Subjects};
use tidegate_core::{
    Call, Charge, Decision, Estimator, Limiter, MAX_EXACT, MAX_SPAN, ManualClock, Operation,
    Outcome, Policy, Ticket, Timestamp,
};
use tidegate_memory::MemoryStore;

/// The key of the estimator. All requests have the same key, so that they share one estimate.
const KEY: &str = "";

/// The minimum time to live of a hold. A hold can be settled for twice its time to live.
const MIN_TTL: Duration = Duration::from_secs(1);

/// The maximum number of holds that the store remembers. It must be large, because the store also
/// remembers settled holds for some time.
const MAX_IDS: usize = 1 << 22;

const SECOND: u128 = 1_000_000;

pub(super) struct Run<'a> {
    way: Way,
    policy: &'a Policy,
    settling: &'a Settling,
    estimate: u64,
    estimator: Estimator,
    clock: ManualClock,
    limiter: Limiter<MemoryStore<ManualClock>>,
    /// The used amount.
    used: Meter,
    /// The used amount, if the cost of each request counts only up to its hold.
    covered: Meter,
    /// The admitted requests that have not ended, by the time of their end and their number.
    running: BTreeMap<(u64, u64), Running>,
    /// The idle amount of each subject: the amount that is held now and will not be used.
    idle_now: Vec<u64>,
    /// The sum of all idle amounts, each multiplied by its duration in microseconds.
    idle: u128,
    covered_overshoot: u64,
    first: u64,
    end: u64,
    number: u64,
    fill: Fill,
    report: SettlingRun,
}

struct Running {
    record: Record,
    /// The ticket of the hold. `None` in the way `check`, which makes no holds.
    ticket: Option<Ticket>,
    held: u64,
}

impl Running {
    fn idle(&self) -> u64 {
        self.held.saturating_sub(self.record.cost)
    }
}

impl<'a> Run<'a> {
    pub(super) fn new(
        policy: &'a Policy,
        way: Way,
        settling: &'a Settling,
        estimate: u64,
        records: &[Record],
    ) -> Result<Self, Error> {
        let clock = ManualClock::default();
        let first = records.first().map_or(0, |record| record.time);
        let last = records.last().map_or(first, |record| record.time);
        Ok(Self {
            way,
            policy,
            settling,
            estimate,
            estimator: Estimator::new(settling.cover, estimate),
            limiter: Limiter::new(memory(clock.clone(), MAX_IDS), [policy.clone()])?,
            used: Meter::new(policy, clock.clone()),
            covered: Meter::new(policy, clock.clone()),
            clock,
            running: BTreeMap::new(),
            idle_now: Vec::new(),
            idle: 0,
            covered_overshoot: 0,
            first,
            end: last,
            number: 0,
            fill: Fill::new(first, last),
            report: SettlingRun {
                policy: policy.to_string(),
                limit: policy.limit(),
                way,
                ..SettlingRun::default()
            },
        })
    }

    /// Ends all requests that end at or before the time of the record, and then begins the request
    /// of the record.
    pub(super) fn begin(&mut self, record: Record, subjects: &Subjects) -> Result<(), Error> {
        self.end_until(record.time, subjects)?;
        self.clock.set(Timestamp::from_micros(record.time));
        let subject = subjects.get(record.subject).unwrap_or_default();
        let micros = self.settling.pace.micros(record.late_cost);
        let (decision, ticket) = self.decide(record, subject, Duration::from_micros(micros))?;
        let place = record.subject as usize;
        if place >= self.idle_now.len() {
            self.idle_now.resize(place + 1, 0);
        }
        let before = self.used.used(subject)?;
        if would_admit(&decision) {
            self.report.admitted += 1;
            self.report.cost_admitted = self.report.cost_admitted.saturating_add(record.cost);
            let held = ticket.iter().flat_map(Ticket::held).fold(0, |sum, (_, held)| sum + held);
            let running = Running { record, ticket, held };
            self.idle_now[place] += running.idle();
            self.idle += u128::from(running.idle()) * u128::from(micros);
            let ends_at = record.time.saturating_add(micros);
            self.running.insert((ends_at, self.number), running);
            self.number += 1;
            self.meter(record, subject, held)?;
        } else {
            self.report.denied += 1;
            self.report.cost_denied = self.report.cost_denied.saturating_add(record.cost);
            let is_blocked = |outcome| outcome == Outcome::Blocked;
            let is_blocked =
                decision.verdicts().iter().any(|verdict| is_blocked(verdict.outcome()));
            let would_fit = before.saturating_add(record.cost) <= self.policy.limit();
            self.report.falsely_denied += u64::from(would_fit && !is_blocked);
        }
        self.fill.note(record.time, self.used.used(subject)?, self.idle_now[place]);
        Ok(())
    }

    fn decide(
        &self,
        record: Record,
        subject: &[u8],
        duration: Duration,
    ) -> Result<(Decision, Option<Ticket>), Error> {
        let estimate = match self.way {
            Way::Check => {
                let charge = [Charge::new(self.policy, subject).check_only()];
                let decision = self.limiter.store().decide_now(&Call::acquire(&charge))?;
                return Ok((decision, None));
            }
            Way::Fixed => self.estimate,
            Way::Learned => self.estimator.estimate(KEY, self.estimate),
        };
        let known = record.cost.saturating_sub(record.late_cost.into());
        let cost = known.saturating_add(estimate).min(MAX_EXACT);
        let id = self.number.to_be_bytes();
        let request = self.limiter.subject(subject).cost(cost);
        let hold = ready(request.hold(&id, duration.clamp(MIN_TTL, MAX_SPAN)))?;
        Ok((hold.decision().clone(), hold.into_ticket().ok()))
    }

    /// Charges the cost of an admitted request to the meters, and updates the maximum overshoot.
    fn meter(&mut self, record: Record, subject: &[u8], held: u64) -> Result<(), Error> {
        let limit = self.policy.limit();
        let covered = match self.way {
            Way::Check => record.cost,
            Way::Fixed | Way::Learned => record.cost.min(held),
        };
        let covered = self.covered.add(subject, covered)?.saturating_sub(limit);
        let overshoot = self.used.add(subject, record.cost)?.saturating_sub(limit);
        self.covered_overshoot = self.covered_overshoot.max(covered);
        self.report.overshoot = self.report.overshoot.max(overshoot);
        Ok(())
    }

    /// Ends all requests whose end is at `time` or earlier.
    fn end_until(&mut self, time: u64, subjects: &Subjects) -> Result<(), Error> {
        while let Some(first) = self.running.first_entry().filter(|entry| entry.key().0 <= time) {
            let ((ends_at, _), running) = first.remove_entry();
            self.clock.set(Timestamp::from_micros(ends_at));
            self.end = self.end.max(ends_at);
            let (record, subject) = (running.record, subjects.get(running.record.subject));
            self.settle(&running, subject.unwrap_or_default())?;
            self.estimator.observe(KEY, record.late_cost.into());
            self.idle_now[record.subject as usize] -= running.idle();
        }
        Ok(())
    }

    fn settle(&mut self, running: &Running, subject: &[u8]) -> Result<(), Error> {
        let cost = running.record.cost;
        if let Some(ticket) = &running.ticket {
            self.report.overage += cost.saturating_sub(running.held);
            ready(self.limiter.settle(ticket, [(self.policy.name(), cost)]))?;
        } else {
            let charge = [Charge::new(self.policy, subject).cost(cost)];
            let charge = Call::new(Operation::Charge, &charge);
            self.limiter.store().decide_now(&charge).map(drop)?;
        }
        Ok(())
    }

    /// Ends all requests, and returns the report.
    pub(super) fn finish(mut self, subjects: &Subjects) -> Result<SettlingRun, Error> {
        self.end_until(u64::MAX, subjects)?;
        let number = |number: u128| u64::try_from(number).unwrap_or(u64::MAX);
        let span = u128::from(self.end.saturating_sub(self.first)).max(1);
        Ok(SettlingRun {
            overshoot_of_overage: self.report.overshoot.saturating_sub(self.covered_overshoot),
            idle_cost_seconds: number((self.idle + SECOND / 2) / SECOND),
            idle_cost: number((self.idle + span / 2) / span),
            fill: self.fill.into_report(),
            ..self.report
        })
    }
}

/// Returns the answer of a store in memory, which is available immediately.
pub(in crate::replay) fn ready<T>(
    answer: impl Future<Output = Result<T, tidegate_core::Error>>,
) -> Result<T, tidegate_core::Error> {
    match pin!(answer).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => Err(none_at_hand()),
    }
}
