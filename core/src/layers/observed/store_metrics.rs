//! The metrics of an observed store.

use std::sync::OnceLock;
use std::time::Instant;

use metrics::{Counter, Histogram, counter, histogram};

use super::calls::Calls;
use super::policy_counters::PolicyTable;
use crate::decision::held_of;
use crate::telemetry::names;
use crate::{Call, Decision, Degraded, DegradedAnswer, Error, ErrorKind, Operation};

/// The index of the metrics for batches. The metrics for single calls have the index of their
/// operation.
const BATCH: usize = Operation::NAMES.len();

/// The number of values of the label `operation`. The last value is `batch`. For a batch, only the
/// duration is recorded, because the calls of the batch are counted one by one.
const ROWS: usize = BATCH + 1;

const OUTCOMES: [&str; 4] = ["allowed", "denied", "failed", "cancelled"];
const ALLOWED: usize = 0;
const DENIED: usize = 1;
const FAILED: usize = 2;
const CANCELLED: usize = 3;

/// The metrics of one observed store.
///
/// The metrics are looked up at the first call. An earlier look-up would possibly miss a recorder
/// that the application installs late. A look-up for each call would cost more than a decision.
#[derive(Debug, Default)]
pub(super) struct StoreMetrics {
    static_metrics: OnceLock<Box<StaticMetrics>>,
    policies: PolicyTable,
}

/// The metrics whose labels are known at compile time. They are all registered together, with the
/// value zero. If a counter appeared only with its first event, Prometheus would not see this
/// event.
#[derive(Debug)]
struct StaticMetrics {
    calls: [[Counter; OUTCOMES.len()]; BATCH],
    seconds: [Histogram; ROWS],
    errors: [Counter; ErrorKind::ALL.len()],
    degraded: [[Counter; ErrorKind::ALL.len()]; DegradedAnswer::ALL.len()],
}

impl StaticMetrics {
    fn register() -> Box<Self> {
        names::ALL.iter().for_each(names::Metric::describe);
        let calls = |row: usize, outcome: usize| {
            let (operation, outcome) = (name_of(row), OUTCOMES[outcome]);
            counter!(names::CALLS.name, "operation" => operation, "outcome" => outcome)
        };
        let degraded = |answer: usize, reason: usize| {
            let (answer, reason) = (DegradedAnswer::ALL[answer], ErrorKind::ALL[reason]);
            if reason.is_invalid_request() {
                // A failed call with an invalid request gets an error, so this kind of error is not
                // the reason of a degraded decision. There is one exception, which is not counted
                // because it is not a failure of the store: the store has answered that it does not
                // know a hold of the fallback store.
                return Counter::noop();
            }
            let (answer, reason) = (answer.as_str(), reason.as_str());
            counter!(names::DEGRADED.name, "answer" => answer, "reason" => reason)
        };
        Box::new(Self {
            calls: std::array::from_fn(|row| std::array::from_fn(|column| calls(row, column))),
            seconds: std::array::from_fn(
                |row| histogram!(names::STORE_SECONDS.name, "operation" => name_of(row)),
            ),
            errors: ErrorKind::ALL
                .map(|kind| counter!(names::STORE_ERRORS.name, "kind" => kind.as_str())),
            degraded: std::array::from_fn(|row| {
                std::array::from_fn(|column| degraded(row, column))
            }),
        })
    }
}

impl StoreMetrics {
    fn static_metrics(&self) -> &StaticMetrics {
        self.static_metrics.get_or_init(StaticMetrics::register)
    }

    /// Counts an error that the store returned for a call, or for a request for the store's time.
    pub(super) fn count_error(&self, error: &Error) {
        increment(&self.static_metrics().errors, error.kind() as usize);
    }

    fn count(&self, call: &Call<'_>, answer: &Result<Decision, Error>) {
        let calls = &self.static_metrics().calls[call.operation.index()];
        match answer {
            Ok(decision) => {
                let is_admitted = decision.is_allowed();
                calls[if is_admitted { ALLOWED } else { DENIED }].increment(1);
                if let Some(degraded) = decision.degraded() {
                    self.count_degraded(degraded);
                }
                // A call that waits is counted only once, when its wait ends.
                if call.operation.is_acquire() && decision.place().is_none() {
                    for (charge, verdict) in call.charges.iter().zip(decision.verdicts()) {
                        let policy = charge.policy;
                        self.policies.counters(policy).count(policy, verdict, is_admitted);
                    }
                }
            }
            Err(error) => {
                calls[FAILED].increment(1);
                self.count_error(error);
            }
        }
        if let (true, Ok(decision)) = (call.operation.is_of_hold(), answer) {
            self.count_hold(call, decision);
        }
    }

    fn count_hold(&self, call: &Call<'_>, decision: &Decision) {
        for (index, charge) in call.charges.iter().enumerate() {
            let holds = self.policies.counters(charge.policy).holds(charge.policy);
            match call.operation {
                operation if operation.is_acquire() && decision.is_allowed() => {
                    // Without the store, only a fallback store can keep a hold.
                    let is_held = decision.degraded().is_none_or(|degraded| degraded.is_held);
                    let held = held_of(decision, index, &charge).filter(|_| is_held);
                    holds.held.increment(held.unwrap_or(0));
                }
                Operation::Settle => holds.settled.increment(charge.cost),
                _ => {}
            }
        }
    }

    fn count_degraded(&self, degraded: &Degraded) {
        if let Some(reasons) = self.static_metrics().degraded.get(degraded.answer as usize) {
            increment(reasons, degraded.reason as usize);
        }
    }
}

/// Increments the counter of an error's kind. `index` is the position of the kind in
/// `ErrorKind::ALL`.
fn increment(counters: &[Counter], index: usize) {
    if let Some(counter) = counters.get(index) {
        counter.increment(1);
    }
}

/// Measures the duration of a call or a batch. A timer that is dropped before the answer arrives
/// counts its calls as cancelled.
#[derive(Debug)]
pub(super) struct CallTimer<'a> {
    metrics: &'a StoreMetrics,
    calls: Calls<'a>,
    started: Instant,
    has_ended: bool,
}

impl<'a> CallTimer<'a> {
    pub(super) fn start(metrics: &'a StoreMetrics, calls: Calls<'a>) -> Self {
        Self { metrics, calls, started: Instant::now(), has_ended: false }
    }

    pub(super) fn end(mut self, answers: &[Result<Decision, Error>]) {
        self.has_ended = true;
        self.stop();
        for (call, answer) in self.calls.as_slice().iter().zip(answers) {
            self.metrics.count(call, answer);
        }
    }

    fn stop(&self) {
        let row = match self.calls {
            Calls::One(call) => call.operation.index(),
            Calls::Batch(_) => BATCH,
        };
        self.metrics.static_metrics().seconds[row].record(self.started.elapsed());
    }
}

impl Drop for CallTimer<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.stop();
            for call in self.calls.as_slice() {
                self.metrics.static_metrics().calls[call.operation.index()][CANCELLED].increment(1);
            }
        }
    }
}

fn name_of(row: usize) -> &'static str {
    Operation::NAMES.get(row).copied().unwrap_or("batch")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_error_and_of_degraded_answer_has_its_own_place() {
        for (index, kind) in ErrorKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, index, "{kind}");
        }
        for (index, answer) in DegradedAnswer::ALL.into_iter().enumerate() {
            assert_eq!(answer as usize, index, "{answer:?}");
        }
        // These matches have no wildcard. So if a new variant is missing here, this test does not
        // compile.
        assert!(ErrorKind::ALL.iter().all(|kind| match kind {
            ErrorKind::Timeout | ErrorKind::Unavailable | ErrorKind::ReadOnly | ErrorKind::Busy =>
                true,
            ErrorKind::OutOfMemory | ErrorKind::ForeignValue | ErrorKind::Unsupported => true,
            ErrorKind::UnsupportedServer | ErrorKind::InvalidCall | ErrorKind::Protocol => true,
            ErrorKind::InvalidConfig => true,
            ErrorKind::CircuitOpen | ErrorKind::TooManyWaiters => true,
            ErrorKind::WaitTooLong => true,
            ErrorKind::Misconfigured | ErrorKind::IdReused => true,
            ErrorKind::UnknownHold | ErrorKind::AlreadySettled | ErrorKind::HoldLapsed => true,
            ErrorKind::TooManyHolds | ErrorKind::TooManyGrants => true,
        }));
        assert!(DegradedAnswer::ALL.iter().all(|answer| match answer {
            DegradedAnswer::FailedOpen | DegradedAnswer::FailedClosed => true,
            DegradedAnswer::FellBack => true,
        }));
    }
}
