//! The metrics of an observed store.

use std::sync::OnceLock;
use std::time::Instant;

use metrics::{Counter, Histogram, counter, histogram};

use super::Calls;
use super::policy_counters::PolicyTable;
use crate::decision::held_of;
use crate::telemetry::names;
use crate::{Call, Decision, Degraded, DegradedAnswer, Error, ErrorKind, Operation};

/// Values of the label `operation`, in the order of [`row_of`]. The last one is that of batches, of which only the
/// time is recorded: their calls are counted one by one.
const OPERATIONS: [&str; 16] = [
    "acquire",
    "peek",
    "refund",
    "undo",
    "reserve",
    "reset",
    "block",
    "block_at_least",
    "charge",
    "acquire_up_to",
    "hold",
    "hold_up_to",
    "settle",
    "settle_so_far",
    "extend",
    "batch",
];
const BATCH: usize = OPERATIONS.len() - 1;

/// Values of the label `outcome`.
const OUTCOMES: [&str; 4] = ["allowed", "denied", "failed", "cancelled"];
const ALLOWED: usize = 0;
const DENIED: usize = 1;
const FAILED: usize = 2;
const CANCELLED: usize = 3;

/// The metrics of one observed store.
///
/// They are looked up at the first call: not earlier, as the application may install its recorder late, and not
/// at each call, as a look-up costs more than a decision.
#[derive(Debug, Default)]
pub(super) struct StoreMetrics {
    static_metrics: OnceLock<Box<StaticMetrics>>,
    policies: PolicyTable,
}

/// Metrics whose labels are known at compile time. They are registered together, at zero: if a counter appears
/// only with its first event, Prometheus does not see that event.
#[derive(Debug)]
struct StaticMetrics {
    calls: [[Counter; OUTCOMES.len()]; BATCH],
    seconds: [Histogram; OPERATIONS.len()],
    errors: [Counter; ErrorKind::ALL.len()],
    degraded: [[Counter; ErrorKind::ALL.len()]; DegradedAnswer::ALL.len()],
}

impl StaticMetrics {
    fn register() -> Box<Self> {
        names::ALL.iter().for_each(names::Metric::describe);
        let calls = |row: usize, outcome: usize| {
            let (operation, outcome) = (OPERATIONS[row], OUTCOMES[outcome]);
            counter!(names::CALLS.name, "operation" => operation, "outcome" => outcome)
        };
        let degraded = |answer: usize, reason: usize| {
            let (answer, reason) = (DegradedAnswer::ALL[answer], ErrorKind::ALL[reason]);
            if reason.is_invalid_request() {
                // Such an error is never hidden by a degraded decision.
                return Counter::noop();
            }
            let (answer, reason) = (answer.as_str(), reason.as_str());
            counter!(names::DEGRADED.name, "answer" => answer, "reason" => reason)
        };
        Box::new(Self {
            calls: std::array::from_fn(|row| std::array::from_fn(|column| calls(row, column))),
            seconds: OPERATIONS
                .map(|operation| histogram!(names::STORE_SECONDS.name, "operation" => operation)),
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

    /// Counts an error that is not the answer to a call.
    pub(super) fn count_error(&self, error: &Error) {
        increment(&self.static_metrics().errors, error.kind() as usize);
    }

    fn count(&self, call: &Call<'_>, answer: &Result<Decision, Error>) {
        let calls = &self.static_metrics().calls[row_of(call.operation)];
        match answer {
            Ok(decision) => {
                let is_admitted = decision.is_allowed();
                calls[if is_admitted { ALLOWED } else { DENIED }].increment(1);
                if let Some(degraded) = decision.degraded() {
                    self.count_degraded(degraded);
                }
                if call.operation.is_acquire() {
                    for (charge, verdict) in call.charges.iter().zip(decision.verdicts()) {
                        self.policies.counters(charge.policy).count(verdict, is_admitted);
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
                Operation::Hold | Operation::HoldUpTo { .. } if decision.is_allowed() => {
                    // Without the store, nothing is held.
                    let is_held = decision.degraded().is_none();
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

/// Increments the counter at `index`, the position of its kind in `ALL`.
fn increment(counters: &[Counter], index: usize) {
    if let Some(counter) = counters.get(index) {
        counter.increment(1);
    }
}

/// Times a call or a batch in flight. Dropped before its end, it counts the calls as cancelled.
#[derive(Debug)]
pub(super) struct CallTimer<'a> {
    metrics: &'a StoreMetrics,
    calls: Calls<'a>,
    started: Instant,
    ended: bool,
}

impl<'a> CallTimer<'a> {
    pub(super) fn start(metrics: &'a StoreMetrics, calls: Calls<'a>) -> Self {
        Self { metrics, calls, started: Instant::now(), ended: false }
    }

    pub(super) fn end(mut self, answers: &[Result<Decision, Error>]) {
        self.ended = true;
        self.stop();
        for (call, answer) in self.calls.as_slice().iter().zip(answers) {
            self.metrics.count(call, answer);
        }
    }

    fn stop(&self) {
        let row = match self.calls {
            Calls::One(call) => row_of(call.operation),
            Calls::Batch(_) => BATCH,
        };
        self.metrics.static_metrics().seconds[row].record(self.started.elapsed());
    }
}

impl Drop for CallTimer<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.stop();
            for call in self.calls.as_slice() {
                self.metrics.static_metrics().calls[row_of(call.operation)][CANCELLED].increment(1);
            }
        }
    }
}

fn row_of(operation: Operation) -> usize {
    match operation {
        Operation::Acquire => 0,
        Operation::Peek => 1,
        Operation::Refund => 2,
        Operation::Undo { .. } => 3,
        Operation::Reserve { .. } => 4,
        Operation::Reset => 5,
        Operation::Block { .. } => 6,
        Operation::BlockAtLeast { .. } => 7,
        Operation::Charge => 8,
        Operation::AcquireUpTo { .. } => 9,
        Operation::Hold => 10,
        Operation::HoldUpTo { .. } => 11,
        Operation::Settle => 12,
        Operation::SettleSoFar => 13,
        Operation::Extend => 14,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_error_and_of_degraded_answer_has_a_place_of_its_own() {
        for (index, kind) in ErrorKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, index, "{kind}");
        }
        for (index, answer) in DegradedAnswer::ALL.into_iter().enumerate() {
            assert_eq!(answer as usize, index, "{answer:?}");
        }
        // The last ones: where this no longer compiles or holds, `ALL` lacks the new one.
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
            ErrorKind::TooManyHolds => true,
        }));
        assert!(DegradedAnswer::ALL.iter().all(|answer| match answer {
            DegradedAnswer::FailedOpen | DegradedAnswer::FailedClosed => true,
            DegradedAnswer::FellBack => true,
        }));
    }
}
