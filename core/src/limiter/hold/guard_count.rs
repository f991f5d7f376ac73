//! The number of guards whose holds are not settled yet.

use std::sync::Arc;

use tokio::sync::watch;

use crate::limiter::Limiter;

#[derive(Debug, Default)]
pub(crate) struct GuardCount(Arc<watch::Sender<usize>>);

impl GuardCount {
    fn count(&self) -> CountedGuard {
        self.0.send_modify(|count| *count += 1);
        CountedGuard(Arc::clone(&self.0))
    }
}

/// A counted guard. [`Limiter::guards_settled`] waits until this value is dropped.
#[derive(Debug)]
#[must_use = "the guard is counted until this value is dropped"]
pub struct CountedGuard(Arc<watch::Sender<usize>>);

impl Drop for CountedGuard {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

impl<S> Limiter<S> {
    /// Waits until each [`HoldGuard`](super::HoldGuard) of this limiter and of its clones has
    /// settled its hold. For each guard, this takes at most 10 s after the guard was dropped.
    ///
    /// A program calls this method after its guards were dropped and before the program ends. A
    /// dropped guard possibly settles its hold in a task, and the task ends with the runtime.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// use std::time::Duration;
    /// use tidegate_core::{HoldGuard, Limiter, OnDrop};
    /// use tidegate_memory::MemoryStore;
    ///
    /// let limiter = Limiter::new(MemoryStore::new(), ["tokens: fixed-window 1000/1h".parse()?])?;
    /// let hold = limiter.subject("alice").cost(600).hold("job 7", Duration::from_secs(60)).await?;
    /// let guard = HoldGuard::new(&limiter, hold.into_ticket().unwrap(), OnDrop::Cancel)?;
    /// drop(guard); // the program received SIGTERM
    /// tokio::time::timeout(Duration::from_secs(10), limiter.guards_settled()).await?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn guards_settled(&self) {
        let mut count = self.shared.guard_count.0.subscribe();
        // The wait fails only if the sender of the channel is dropped, and the limiter owns this
        // sender.
        let _ = count.wait_for(|&count| count == 0).await;
    }

    /// Counts a guard before the guard is created, so that [`guards_settled`](Self::guards_settled)
    /// waits for this guard too.
    ///
    /// A layer that makes holds for its requests calls this method before it sends a hold. If the
    /// caller is cancelled while the hold is in flight, a task can then still create the guard and
    /// settle the hold before the program ends.
    pub fn counted_guard(&self) -> CountedGuard {
        self.shared.guard_count.count()
    }
}
