//! The maximum hold of a policy. The limiter checks this maximum before it calls a store.

use crate::call::{Call, Charge, Operation};
use crate::decision::{Decision, Verdict};

impl Call<'_> {
    /// Returns `true` if this call is a [hold](Operation::Hold) with a cost above the [maximum
    /// hold](crate::Policy::max_hold) of an enforced policy.
    ///
    /// A store does not check the maximum hold. If a call exceeds the maximum, a
    /// [`Limiter`](crate::Limiter) sends a peek of the same charges instead of the hold, and
    /// returns the [refusal](Self::max_hold_refusal). An [`Operation::HoldUpTo`] never exceeds the
    /// maximum, because the limiter lowers its costs [to the maximum](Charge::within_max_hold)
    /// before it sends the call.
    #[must_use]
    pub fn exceeds_max_hold(&self) -> bool {
        let denies = |charge: Charge<'_>| charge.exceeds_max_hold() && !charge.policy.is_shadow();
        self.operation == Operation::Hold && self.charges.iter().any(denies)
    }

    /// Returns the refusal of a hold that [exceeds the maximum](Self::exceeds_max_hold). `peek` is
    /// the decision on a peek of the same charges. The outcome of each charge above the maximum
    /// becomes [`Outcome::TooLarge`](crate::Outcome::TooLarge).
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
