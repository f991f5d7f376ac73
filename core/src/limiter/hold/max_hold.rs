//! The maximum hold of a policy. The limiter checks this maximum before it calls a store.

use crate::call::{Call, Charge, Operation};
use crate::decision::{Decision, Verdict};
use crate::policy::Policy;
use crate::store::Store;

impl Charge<'_> {
    /// Returns `true` if the cost exceeds the maximum hold of a policy. Returns `false` for a
    /// check-only charge, because it holds nothing.
    fn exceeds_max_hold_of(&self, policy: &Policy) -> bool {
        !self.is_check_only && policy.max_hold().is_some_and(|max| self.cost > max)
    }

    /// Lowers the cost to `max` if it is above `max`.
    pub(super) fn at_most(self, max: u64) -> Self {
        self.cost(self.cost.min(max))
    }

    /// Lowers the cost to the [maximum hold](crate::Policy::max_hold) of the policy by which the
    /// store decides the charge, if the cost exceeds this maximum. A shadow does not lower the
    /// cost.
    #[must_use]
    pub async fn within_max_hold(self, store: &(impl Store + ?Sized)) -> Self {
        let adjusted = store.adjusted_policy(self).await;
        let policy = adjusted.as_ref().unwrap_or(self.policy);
        match policy.max_hold() {
            Some(max) if !self.is_check_only && !policy.is_shadow() => self.at_most(max),
            _ => self,
        }
    }
}

impl Call<'_> {
    /// Returns `true` if this call is a [hold](Operation::Hold), possibly [in
    /// turn](Operation::HoldInTurn), with a cost above the [maximum hold](crate::Policy::max_hold)
    /// of an enforced policy, by which the store decides a charge. For an [`Operation::HoldUpTo`],
    /// the minimum is compared instead of the cost.
    ///
    /// A store does not check the maximum hold. If a call exceeds the maximum, a
    /// [`Limiter`](crate::Limiter) sends a peek instead of the hold, and returns the
    /// [refusal](Self::max_hold_refusal). The peek has the same charges, or with an
    /// [`Operation::HoldUpTo`], charges of the minimum. If an [`Operation::HoldUpTo`] does not
    /// exceed the maximum, the limiter lowers its costs [to the maximum](Charge::within_max_hold)
    /// before it sends the call.
    #[must_use]
    pub async fn exceeds_max_hold(&self, store: &(impl Store + ?Sized)) -> bool {
        let max = match self.operation {
            Operation::Hold | Operation::HoldInTurn { .. } => u64::MAX,
            Operation::HoldUpTo { min } => min,
            _ => return false,
        };
        for charge in self.charges.iter().map(|charge| charge.at_most(max)) {
            let adjusted = store.adjusted_policy(charge).await;
            let policy = adjusted.as_ref().unwrap_or(charge.policy);
            if !policy.is_shadow() && charge.exceeds_max_hold_of(policy) {
                return true;
            }
        }
        false
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
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// let store = MemoryStore::new();
    /// let policy: Policy = "tokens: token-bucket 1000/1m max-hold 1/4".parse()?;
    /// let charges = [Charge::new(&policy, "alice").cost(300)];
    /// let hold = Call::new(Operation::Hold, &charges)
    ///     .with_id(CallId::new("job 7", Duration::from_secs(60)));
    /// assert!(hold.exceeds_max_hold(&store).await);
    /// let peek = store.decide_now(&Call::new(Operation::Peek, &charges))?;
    /// let decision = hold.max_hold_refusal(&peek);
    /// assert_eq!(decision.verdicts()[0].outcome(), Outcome::TooLarge);
    /// assert_eq!(decision.verdicts()[0].remaining(), 1000);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn max_hold_refusal(&self, peek: &Decision) -> Decision {
        let verdict = |(index, (charge, verdict)): (usize, (Charge<'_>, &Verdict))| {
            let policy = peek.adjusted_policy(index).unwrap_or(charge.policy);
            if charge.exceeds_max_hold_of(policy) { verdict.too_large() } else { *verdict }
        };
        let verdicts = self.charges.iter().zip(peek.verdicts()).enumerate().map(verdict);
        let mut decision = Decision::new(verdicts);
        if let Some(degraded) = peek.degraded() {
            decision = decision.degraded_by(degraded.clone());
        }
        match peek.policies() {
            [] => decision,
            policies => decision.adjusted_by(policies.iter().cloned()),
        }
    }
}
