//! Measures the used amount of a policy, also beyond its limit.
//!
//! If usage exceeds the limit, a store reports a remaining amount of 0. So a meter has its own
//! store, and the policy with the largest limit that its states can count. The used amount is this
//! limit minus the remaining amount. It is correct for the original policy too, because a state
//! does not depend on the limit: for example, the state of a bucket is a debt. Quota does not roll
//! over in the meter, because it does not change the used amount.
//!
//! An anchored window begins with a charge, and so does the interval of a bucket. The meter and the
//! policy are charged at different times or with different amounts, so their windows and intervals
//! can begin at different times. Then the meter of a bucket that refills by intervals can show an
//! overshoot of up to one refill.

use tidegate_core::{Call, Charge, Error, ErrorKind, ManualClock, Operation, Policy};
use tidegate_memory::MemoryStore;

use crate::replay::stores::memory;

#[derive(Debug)]
pub(super) struct Meter {
    store: MemoryStore<ManualClock>,
    /// The policy with the largest limit.
    policy: Policy,
}

impl Meter {
    pub(super) fn new(policy: &Policy, clock: ManualClock) -> Self {
        Self { store: memory(clock, 0), policy: policy.beyond_limit() }
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
        let meter = Meter::new(&policy.parse().unwrap(), clock.clone());
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
        assert_eq!(used("quota 10/day in UTC rollover 1/2"), [8, 15, 15]);
        assert_eq!(used("credits 10"), [8, 15, 15]);
    }

    #[test]
    fn usage_beyond_what_a_state_can_count_is_an_error() {
        let log: Policy = format!("sliding-log {}/1m", (1 << 20) - 4).parse().unwrap();
        let meter = Meter::new(&log, ManualClock::default());
        assert_eq!(meter.add(b"a", 9).unwrap(), 9);
        let error = meter.add(b"a", 1 << 20).unwrap_err();
        assert!(error.to_string().contains("sliding-log"), "{error}");
    }
}
