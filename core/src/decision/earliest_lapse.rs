use std::time::Duration;

/// The time until the first hold on the slots of a subject lapses, if its holder does not renew it.
///
/// This is a hint, and not a wait. A slot becomes free earlier if its holder frees it. If all
/// holders renew their slots, no slot becomes free. A caller that wants to wait uses `hold_within`
/// (feature `tokio`).
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// use std::time::Duration;
/// use tidegate_memory::{Limiter, MemoryStore};
///
/// let limiter = Limiter::new(MemoryStore::new(), ["jobs: concurrent 1 lease 30s".parse()?])?;
/// let alice = limiter.by("jobs", "alice");
/// let first = alice.hold("job 1", Duration::from_secs(60)).await?;
/// let second = alice.hold("job 2", Duration::from_secs(60)).await?;
/// assert!(first.decision().is_allowed() && second.decision().retry_after().is_none());
/// let lapse = second.decision().earliest_lapse().expect("job 1 has a lease");
/// assert!(lapse.after() <= Duration::from_secs(30));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EarliestLapse(Duration);

impl EarliestLapse {
    pub(super) const fn new(after: Duration) -> Self {
        Self(after)
    }

    /// Returns the time from the decision until the lapse.
    #[must_use]
    pub const fn after(self) -> Duration {
        self.0
    }
}
