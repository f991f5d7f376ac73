//! The maximum hold of a policy, which is checked before a store is called.

use crate::call::{Call, Charge, Operation};
use crate::decision::{Decision, Verdict};

impl Call<'_> {
    /// Returns `true` if this is a [hold](Operation::Hold) that an enforced policy denies because
    /// the cost exceeds its [maximum hold](crate::Policy::max_hold).
    ///
    /// A store does not check this. Instead of the hold, a [`Limiter`](crate::Limiter) sends a peek
    /// of the same charges and answers with the [refusal](Self::max_hold_refusal).
    /// [`Operation::HoldUpTo`] is never denied for this reason, because its costs are lowered
    /// [to the maximum](Charge::within_max_hold) first.
    #[must_use]
    pub fn exceeds_max_hold(&self) -> bool {
        let denies = |charge: Charge<'_>| charge.exceeds_max_hold() && !charge.policy.is_shadow();
        self.operation == Operation::Hold && self.charges.iter().any(denies)
    }

    /// Turns the decision on a peek of the same charges into the decision on a hold that
    /// [exceeds the maximum](Self::exceeds_max_hold): the outcome of each charge above the maximum
    /// is [`Outcome::TooLarge`](crate::Outcome::TooLarge).
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate_core::{Call, CallId, Charge, Operation, Outcome, Policy};
    /// use tidegate_memory::MemoryStore;
    ///
    /// let store = MemoryStore::new();
    /// let policy: Policy = "tokens: token-bucket 1000/1m max-hold 1/4".parse()?;
    /// let charges = [Charge::new(&policy, "alice").cost(300)];
    /// let hold = Call::new(Operation::Hold, &charges)
    ///     .with_id(CallId::new("job 7", Duration::from_secs(60)));
    /// assert!(hold.exceeds_max_hold());
    /// let peek = store.decide_now(&Call::new(Operation::Peek, &charges))?;
    /// let decision = hold.max_hold_refusal(&peek);
    /// assert_eq!(decision.verdicts()[0].outcome(), Outcome::TooLarge);
    /// assert_eq!(decision.verdicts()[0].remaining(), 1000);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn max_hold_refusal(&self, peek: &Decision) -> Decision {
        let verdict = |(charge, verdict): (Charge<'_>, &Verdict)| {
            if charge.exceeds_max_hold() { verdict.too_large() } else { *verdict }
        };
        let decision = Decision::new(self.charges.iter().zip(peek.verdicts()).map(verdict));
        match peek.degraded() {
            Some(degraded) => decision.degraded_by(degraded.clone()),
            None => decision,
        }
    }
}
