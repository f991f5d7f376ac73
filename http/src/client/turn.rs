//! The wait of a request for its turn.

use std::time::Duration;

use tidegate_core::{Decision, Error, Limiter, Store, Verdict};
use tokio::time::{Instant, sleep};

use super::announcements::Announcements;

/// The maximum time by which a wait is extended at random.
const MAX_JITTER: Duration = Duration::from_secs(1);

/// The minimum time between two attempts, which is the resolution of Tokio's timers. Without this
/// minimum, a store that refuses with a wait of zero would be called in a busy loop.
const MIN_SLEEP: Duration = Duration::from_millis(1);

/// The reason why a request has no turn.
#[derive(Debug)]
pub(super) enum NoTurn {
    /// The request would have to wait this long, which exceeds its maximum. `None` means that no
    /// wait is long enough.
    TooLong(Option<Duration>),
    Store(Error),
}

/// A request that waits for its turn.
#[derive(Debug)]
pub(super) struct Turn<'a, S> {
    pub(super) limiter: &'a Limiter<S>,
    pub(super) announcements: &'a Announcements,
    pub(super) subject: &'a [u8],
    pub(super) cost: u64,
    /// The latest time at which a wait may end.
    pub(super) deadline: Instant,
}

impl<S: Store + 'static> Turn<'_, S> {
    /// Waits until the request can be sent.
    ///
    /// If the limiter admits a request while an announced pause is in effect, the request is
    /// charged again after the pause. Without the second charge, all requests that were admitted
    /// during the pause would be sent simultaneously.
    pub(super) async fn wait(&self) -> Result<(), NoTurn> {
        loop {
            let wait = match self.announced_pause() {
                Some(wait) => wait,
                None => match self.take().await? {
                    Some(wait) => wait,
                    None => return Ok(()),
                },
            };
            let wait = wait.max(MIN_SLEEP);
            let Some(spare) = self.left().checked_sub(wait) else {
                return Err(NoTurn::TooLong(Some(wait)));
            };
            sleep(wait + jitter(spare.min(wait / 8).min(MAX_JITTER))).await;
        }
    }

    /// Acquires the next turn. Returns `None` if the request can be sent. Otherwise, returns the
    /// time to wait before the next attempt.
    async fn take(&self) -> Result<Option<Duration>, NoTurn> {
        let request = self.limiter.subject(self.subject).cost(self.cost);
        let decision = request.acquire_within(self.left()).await.map_err(NoTurn::Store)?;
        if decision.is_denied() {
            return decision.retry_after().map(Some).ok_or(NoTurn::TooLong(None));
        }
        // The server may have announced a pause while the request waited for its turn.
        if decision.wait().is_zero() { Ok(self.pause_of(&decision)) } else { self.pause().await }
    }

    /// Returns the remaining pause of the subject: the longest of the blocks in the store and the
    /// announcement that this process received. Charges nothing.
    pub(super) async fn pause(&self) -> Result<Option<Duration>, NoTurn> {
        let request = self.limiter.subject(self.subject).cost(0);
        let decision = request.peek().await.map_err(NoTurn::Store)?;
        Ok(self.pause_of(&decision))
    }

    fn pause_of(&self, decision: &Decision) -> Option<Duration> {
        let blocked = decision.verdicts().iter().map(Verdict::blocked_for).max();
        self.announced_pause().max(blocked.filter(|span| !span.is_zero()))
    }

    fn announced_pause(&self) -> Option<Duration> {
        let until = self.announcements.until(self.subject)?;
        Some(until.saturating_duration_since(Instant::now()))
    }

    fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }
}

/// Returns a random duration up to `max`, so that callers with the same wait do not send their
/// requests simultaneously.
fn jitter(max: Duration) -> Duration {
    let nanos = u64::try_from(max.as_nanos()).unwrap_or(u64::MAX);
    Duration::from_nanos(fastrand::u64(..=nanos))
}
