//! What an observed store counts.

use std::sync::OnceLock;
use std::time::Instant;

use metrics::{Counter, Histogram, counter, histogram};

use super::Asked;
use super::names;
use super::policies::Policies;
use crate::{Call, Decision, Degraded, DegradedAnswer, Error, ErrorKind, Operation};

/// The words for operations, in the order of [`row_of`]; the last is that of batches, of which only the
/// time is taken: their calls are counted one by one.
const OPERATIONS: [&str; 8] =
    ["acquire", "peek", "refund", "undo", "reserve", "reset", "block", "batch"];
const BATCH: usize = 7;

/// The words for what comes of a call.
const OUTCOMES: [&str; 4] = ["allowed", "denied", "failed", "cancelled"];
const ALLOWED: usize = 0;
const DENIED: usize = 1;
const FAILED: usize = 2;
const CANCELLED: usize = 3;

/// The counters of one observed store.
///
/// They are looked up at the first call: not earlier, because an application installs its recorder when
/// it likes, and not later, because looking them up costs more than the decision.
#[derive(Debug, Default)]
pub(super) struct Tally {
    fixed: OnceLock<Box<Fixed>>,
    policies: Policies,
}

/// Those whose labels are known beforehand. They all begin at zero: of a counter that appears together
/// with its first event, Prometheus does not see that event.
#[derive(Debug)]
struct Fixed {
    calls: [[Counter; OUTCOMES.len()]; BATCH],
    seconds: [Histogram; OPERATIONS.len()],
    errors: [Counter; ErrorKind::ALL.len()],
    degraded: [[Counter; ErrorKind::ALL.len()]; DegradedAnswer::ALL.len()],
}

impl Fixed {
    fn register() -> Box<Self> {
        names::ALL.iter().for_each(names::Metric::describe);
        let calls = |row: usize, outcome: usize| {
            let (operation, outcome) = (OPERATIONS[row], OUTCOMES[outcome]);
            counter!(names::CALLS.name, "operation" => operation, "outcome" => outcome)
        };
        let degraded = |answer: usize, reason: usize| {
            let (answer, reason) = (DegradedAnswer::ALL[answer], ErrorKind::ALL[reason]);
            if reason.is_callers_mistake() {
                // Never degraded: not worth a series.
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

impl Tally {
    fn fixed(&self) -> &Fixed {
        self.fixed.get_or_init(Fixed::register)
    }

    /// An error that is the answer to something else than a call.
    pub(super) fn error(&self, error: &Error) {
        increment(&self.fixed().errors, error.kind() as usize);
    }

    fn count(&self, call: &Call<'_>, answer: &Result<Decision, Error>) {
        let calls = &self.fixed().calls[row_of(call.operation)];
        match answer {
            Ok(decision) => {
                calls[if decision.is_allowed() { ALLOWED } else { DENIED }].increment(1);
                if let Some(degraded) = decision.degraded() {
                    self.degraded(degraded);
                }
                if is_decided(call.operation) {
                    for (charge, verdict) in call.charges.iter().zip(decision.verdicts()) {
                        self.policies.of(charge.policy).count(verdict);
                    }
                }
            }
            Err(error) => {
                calls[FAILED].increment(1);
                self.error(error);
            }
        }
    }

    fn degraded(&self, degraded: &Degraded) {
        if let Some(reasons) = self.fixed().degraded.get(degraded.answer as usize) {
            increment(reasons, degraded.reason as usize);
        }
    }
}

/// One more, of the kind at this place in `ALL`.
fn increment(counters: &[Counter], place: usize) {
    if let Some(counter) = counters.get(place) {
        counter.increment(1);
    }
}

/// A call, or a batch, that is under way. Who drops it before its end has gone away.
#[derive(Debug)]
pub(super) struct Timed<'a> {
    tally: &'a Tally,
    asked: Asked<'a>,
    started: Instant,
    ended: bool,
}

impl<'a> Timed<'a> {
    pub(super) fn start(tally: &'a Tally, asked: Asked<'a>) -> Self {
        Self { tally, asked, started: Instant::now(), ended: false }
    }

    pub(super) fn end(mut self, answers: &[Result<Decision, Error>]) {
        self.ended = true;
        self.stop();
        for (call, answer) in self.asked.calls().iter().zip(answers) {
            self.tally.count(call, answer);
        }
    }

    fn stop(&self) {
        let row = match self.asked {
            Asked::One(call) => row_of(call.operation),
            Asked::Many(_) => BATCH,
        };
        self.tally.fixed().seconds[row].record(self.started.elapsed());
    }
}

impl Drop for Timed<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.stop();
            for call in self.asked.calls() {
                self.tally.fixed().calls[row_of(call.operation)][CANCELLED].increment(1);
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
    }
}

/// Whether a request passes or is refused by this: the other operations only ask or repair.
fn is_decided(operation: Operation) -> bool {
    matches!(operation, Operation::Acquire | Operation::Reserve { .. })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_error_and_of_degraded_answer_has_a_place_of_its_own() {
        for (place, kind) in ErrorKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, place, "{kind}");
        }
        for (place, answer) in DegradedAnswer::ALL.into_iter().enumerate() {
            assert_eq!(answer as usize, place, "{answer:?}");
        }
        // The last ones: where this no longer compiles or holds, `ALL` lacks the new one.
        assert!(ErrorKind::ALL.iter().all(|kind| match kind {
            ErrorKind::Timeout | ErrorKind::Unavailable | ErrorKind::ReadOnly | ErrorKind::Busy =>
                true,
            ErrorKind::OutOfMemory | ErrorKind::ForeignValue | ErrorKind::Unsupported => true,
            ErrorKind::UnsupportedServer | ErrorKind::InvalidCall | ErrorKind::Protocol => true,
            ErrorKind::CircuitOpen | ErrorKind::TooManyWaiters => true,
            ErrorKind::WaitTooLong => true,
            ErrorKind::Misconfigured => true,
        }));
        assert!(DegradedAnswer::ALL.iter().all(|answer| match answer {
            DegradedAnswer::FailedOpen | DegradedAnswer::FailedClosed => true,
            DegradedAnswer::FellBack => true,
        }));
    }
}
