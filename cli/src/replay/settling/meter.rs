//! Measures the used amount of a policy, also beyond its limit.
//!
//! If usage exceeds the limit, a store reports a remaining amount of 0. So a meter has its own
//! store, and a policy with the same algorithm and a limit that is never reached. The used amount
//! is this limit minus the remaining amount. It is correct for the original policy too, because a
//! state does not depend on the limit: for example, the state of a bucket is a debt.
//!
//! An anchored window begins with a charge, and so does the interval of a bucket. The meter and the
//! policy are charged at different times or with different amounts, so their windows and intervals
//! can begin at different times. Then the meter of a bucket that refills by intervals can show an
//! overshoot of up to one refill.

use tidegate_core::algorithm::fixed_window::Start;
use tidegate_core::{
    Algorithm, Call, Charge, Error, ErrorKind, FixedWindow, ManualClock, Operation, Policy,
    SlidingCounter, SlidingLog, TokenBucket,
};
use tidegate_memory::MemoryStore;

use crate::replay::stores::memory;

#[derive(Debug)]
pub(super) struct Meter {
    store: MemoryStore<ManualClock>,
    /// The policy with the higher limit.
    policy: Policy,
}

impl Meter {
    /// Creates a meter for a policy. `total` is an upper bound of the used amount.
    pub(super) fn new(policy: &Policy, total: u64, clock: ManualClock) -> Result<Self, Error> {
        let limit = policy.limit();
        // The product of limit and time is bounded. The loop reduces the limit until the policy is
        // valid.
        let mut more = total.max(1);
        let raised = loop {
            match raised(policy, limit.saturating_add(more)) {
                Some(raised) => break raised,
                None if more > 1 => more /= 2,
                None => return Err(unmeasurable(policy)),
            }
        };
        Ok(Self { store: memory(clock, 0), policy: raised })
    }

    /// Returns the used amount of a subject.
    pub(super) fn used(&self, subject: &[u8]) -> Result<u64, Error> {
        self.call(Operation::Peek, subject, 0)
    }

    /// Charges a cost, and returns the used amount including this cost.
    pub(super) fn add(&self, subject: &[u8], cost: u64) -> Result<u64, Error> {
        self.call(Operation::Charge, subject, cost)
    }

    fn call(&self, operation: Operation, subject: &[u8], cost: u64) -> Result<u64, Error> {
        let charge = [Charge::new(&self.policy, subject).cost(cost)];
        let decision = self.store.decide_now(&Call::new(operation, &charge))?;
        let remaining = decision.verdicts().first().map_or(0, |verdict| verdict.remaining());
        if remaining == 0 {
            return Err(unmeasurable(&self.policy));
        }
        Ok(self.policy.limit() - remaining)
    }
}

fn unmeasurable(policy: &Policy) -> Error {
    let message = format!(
        "the usage of `{policy}` beyond its limit cannot be measured; use a lower limit or a coarser grain"
    );
    Error::new(ErrorKind::Unsupported, message)
}

/// Returns a policy with the same algorithm and another limit, or `None` if this limit is not
/// possible. The other settings of the policy, such as a block, are omitted.
fn raised(policy: &Policy, limit: u64) -> Option<Policy> {
    let algorithm: Algorithm = match policy.algorithm() {
        Algorithm::FixedWindow(it) => {
            let raised = FixedWindow::new(limit, it.window());
            match it.start() {
                Start::Aligned => raised.into(),
                Start::Phased => raised.phased().into(),
                Start::Anchored => raised.anchored().into(),
                _ => return None,
            }
        }
        Algorithm::SlidingLog(it) => {
            let raised = SlidingLog::new(limit, it.window());
            match it.granularity() {
                Some(grain) => raised.grain(grain).into(),
                None => raised.into(),
            }
        }
        Algorithm::SlidingCounter(it) => SlidingCounter::new(limit, it.window()).into(),
        Algorithm::TokenBucket(it) => {
            let raised = TokenBucket::new(it.refill(), it.period()).burst(limit);
            if it.is_by_interval() { raised.by_interval().into() } else { raised.into() }
        }
        _ => return None,
    };
    Policy::unnamed(algorithm).ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tidegate_core::Timestamp;

    use super::*;

    /// Charges 8 and then 7 at the same time. Returns the used amount after each charge, and half a
    /// minute later.
    fn used(policy: &str) -> [u64; 3] {
        let clock = ManualClock::default();
        clock.set(Timestamp::from_micros(60_000_000));
        let meter = Meter::new(&policy.parse().unwrap(), 15, clock.clone()).unwrap();
        let first = meter.add(b"a", 8).unwrap();
        let second = meter.add(b"a", 7).unwrap();
        clock.advance(Duration::from_secs(30));
        [first, second, meter.used(b"a").unwrap()]
    }

    #[test]
    fn what_is_used_is_measured_beyond_the_limit() {
        assert_eq!(used("fixed-window 10/1m"), [8, 15, 15]);
        assert_eq!(used("fixed-window 10/30s anchored"), [8, 15, 0]);
        assert_eq!(used("sliding-log 10/1m"), [8, 15, 15]);
        assert_eq!(used("sliding-log 10/1m grain 10s"), [8, 15, 15]);
        assert_eq!(used("sliding-counter 10/1m"), [8, 15, 15]);
        assert_eq!(used("token-bucket 10/1m"), [8, 15, 10]);
        assert_eq!(used("gcra 10/1m burst 5 block 1h"), [8, 15, 10]);
        assert_eq!(used("token-bucket 4/15s burst 10 by-interval"), [8, 15, 7]);
    }

    #[test]
    fn the_limit_is_raised_as_far_as_the_algorithm_allows() {
        let log: Policy = format!("sliding-log {}/1m", (1 << 20) - 4).parse().unwrap();
        let meter = Meter::new(&log, 1 << 40, ManualClock::default()).unwrap();
        assert_eq!(meter.add(b"a", 9).unwrap(), 9);
        let error = meter.add(b"a", 1 << 20).unwrap_err();
        assert!(error.to_string().contains("sliding-log"), "{error}");
    }
}
