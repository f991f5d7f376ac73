//! Grants, which top up quotas and credits.

use std::time::Duration;

use super::multi::MultiRequest;
use super::operations::async_operations;
use super::request::Request;
use crate::call::{Call, CallId, Charge, Charges, Operation};
use crate::decision::Receipt;
use crate::error::Error;
use crate::store::Store;
use crate::time::Timestamp;

/// The time for which a store remembers the id of a grant: 400 days.
pub const MEMORY_OF_GRANTS: Duration = Duration::from_secs(400 * 86_400);

async_operations! {
    [Store]

    /// Tops up a quota or credits of the subject by `amount`. The grant lasts until it is spent.
    ///
    /// The store makes a grant once per `id`, such as the number of an invoice, and remembers the
    /// id for 400 days. The same id in another tenant, or for a subject in another slot of a
    /// cluster, is another id.
    ///
    /// The part that ends first is spent first. So the quota of a window is spent before a grant
    /// without an end. [`Verdict::remaining`](crate::Verdict::remaining) is the sum of all parts,
    /// and can exceed [`Verdict::limit`](crate::Verdict::limit). A grant never rolls over.
    ///
    /// The [costs](Request::cost) of the request are ignored.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// use tidegate_core::Limiter;
    /// use tidegate_memory::MemoryStore;
    ///
    /// let limiter = Limiter::new(MemoryStore::new(), ["prepaid: credits 5".parse()?])?;
    /// for _ in 0..2 {
    ///     // The second call changes nothing, because its id is known.
    ///     limiter.by("prepaid", "customer 17").grant(20, "invoice 2026-001").await?;
    /// }
    /// let decision = limiter.by("prepaid", "customer 17").acquire().await?;
    /// assert_eq!(decision.verdicts()[0].remaining(), 24);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns these errors, and the errors of [`acquire`](Self::acquire):
    ///
    /// * [`ErrorKind::TooManyGrants`](crate::ErrorKind::TooManyGrants) if the subject has 16 open
    ///   grants, or if their sum would exceed 2^52
    /// * [`ErrorKind::IdReused`](crate::ErrorKind::IdReused) if the id was used for a grant of
    ///   another amount, or with another end
    /// * [`ErrorKind::InvalidCall`](crate::ErrorKind::InvalidCall) if the policy is not a quota and
    ///   has no credits, or if the amount is 0
    grant(request, amount: u64, id: &str) -> Receipt {
        make_grant(request.limiter.store(), request.charges()?, amount, id, None).await
    }

    /// Adds `amount` like [`grant`](Self::grant). The grant ends at `ends_at` by the clock of the
    /// store, and its unspent rest is then lost. A grant that has already ended changes nothing.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// use std::time::Duration;
    /// use tidegate_core::{Limiter, Store};
    /// use tidegate_memory::MemoryStore;
    ///
    /// let limiter = Limiter::new(MemoryStore::new(), ["plan: quota 100/day in UTC".parse()?])?;
    /// let week = Duration::from_secs(7 * 86_400);
    /// let ends_at = limiter.store().now().await?.saturating_add(week);
    /// limiter.by("plan", "alice").grant_until(50, "welcome alice", ends_at).await?;
    /// let decision = limiter.by("plan", "alice").acquire().await?;
    /// assert_eq!(decision.verdicts()[0].remaining(), 149);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns the errors of [`grant`](Self::grant).
    grant_until(request, amount: u64, id: &str, ends_at: Timestamp) -> Receipt {
        make_grant(request.limiter.store(), request.charges()?, amount, id, Some(ends_at)).await
    }
}

async fn make_grant(
    store: &impl Store,
    charges: Charges<'_>,
    amount: u64,
    id: &str,
    ends_at: Option<Timestamp>,
) -> Result<Receipt, Error> {
    let grants: Vec<Charge<'_>> = charges.iter().map(|charge| charge.cost(amount)).collect();
    let id = CallId::new(id, MEMORY_OF_GRANTS);
    let call = Call::new(Operation::Grant { ends_at }, &grants).with_id(id);
    store.decide(call).await.map(Receipt::new)
}
