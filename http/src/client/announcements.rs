//! The announcements of servers: the time until which a server wants no requests.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_core::{Limiter, Store};
use tokio::runtime::Handle;
use tokio::time::Instant;

/// The number of entries below which expired entries are not removed.
const MIN_ENTRIES: usize = 64;

/// The time until which each subject must wait, from the announcements that this process received.
/// These times do not depend on the store.
#[derive(Debug, Clone, Default)]
pub(super) struct Announcements(Arc<Mutex<Entries>>);

#[derive(Debug, Default)]
struct Entries {
    until: HashMap<Box<[u8]>, Instant>,
    /// The number of entries at which expired entries are removed. After each removal, this number
    /// becomes twice the number of remaining entries.
    max: usize,
}

impl Announcements {
    fn entries(&self) -> MutexGuard<'_, Entries> {
        // A poisoned lock is ignored, because no code panics in the middle of a change.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the time until which requests of the subject must wait. Returns `None` if they need
    /// not wait.
    pub(super) fn until(&self, subject: &[u8]) -> Option<Instant> {
        let mut entries = self.entries();
        let until = *entries.until.get(subject)?;
        if until > Instant::now() {
            return Some(until);
        }
        entries.until.remove(subject);
        None
    }

    /// Delays requests of the subject until this time. If the subject must already wait longer,
    /// nothing changes.
    pub(super) fn extend(&self, subject: &[u8], until: Instant) {
        let mut entries = self.entries();
        if let Some(known) = entries.until.get_mut(subject) {
            *known = until.max(*known);
            return;
        }
        if entries.until.len() >= entries.max.max(MIN_ENTRIES) {
            let now = Instant::now();
            entries.until.retain(|_, until| *until > now);
            entries.max = entries.until.len() * 2;
        }
        entries.until.insert(subject.into(), until);
    }
}

/// Blocks the subject in the store until this time. If the subject is already blocked longer,
/// nothing changes. A task sends the block, so that it is sent even if the caller is dropped.
pub(super) async fn block<S: Store + 'static>(
    limiter: &Limiter<S>,
    subject: &[u8],
    until: Instant,
) {
    let (limiter, subject) = (limiter.clone(), Box::<[u8]>::from(subject));
    let Ok(runtime) = Handle::try_current() else { return };
    let task = runtime.spawn(async move {
        // The block starts when the store decides, which is later than now. So the block does not
        // end before `until`.
        let span = until.saturating_duration_since(Instant::now());
        // If the write to the store fails, this process still remembers the announcement.
        let _ = limiter.subject(&subject).block_at_least(span).await;
    });
    // The task fails only if the runtime shuts down.
    let _ = task.await;
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_announcement_is_never_shortened_and_ends() {
        let announcements = Announcements::default();
        let now = Instant::now();
        let [short, long] = [1, 9].map(|secs| now + Duration::from_secs(secs));
        announcements.extend(b"a", long);
        announcements.extend(b"a", short);
        assert_eq!((announcements.until(b"a"), announcements.until(b"b")), (Some(long), None));
        tokio::time::advance(Duration::from_secs(9)).await;
        assert_eq!(announcements.until(b"a"), None);
        assert!(announcements.entries().until.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn announcements_that_are_over_are_dropped() {
        let announcements = Announcements::default();
        for number in 0..10_000_u32 {
            let until = Instant::now() + Duration::from_secs(10);
            announcements.extend(&number.to_le_bytes(), until);
            tokio::time::advance(Duration::from_secs(1)).await;
            assert!(announcements.entries().until.len() <= MIN_ENTRIES);
        }
        for number in 0..10_000_u32 {
            announcements.extend(&number.to_le_bytes(), Instant::now() + Duration::from_secs(10));
        }
        let kept = |number: &u32| announcements.until(&number.to_le_bytes()).is_some();
        assert_eq!((0..10_000_u32).filter(kept).count(), 10_000);
    }
}
