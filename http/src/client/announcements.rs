//! Announcements of servers: until when each wants no requests.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_core::{Limiter, Store};
use tokio::runtime::Handle;
use tokio::time::Instant;

/// Below this number of entries, none is dropped.
const MIN_ENTRIES: usize = 64;

/// The announcements that this process received, by subject: exact, whatever other processes write to the store.
#[derive(Debug, Clone, Default)]
pub(super) struct Announcements(Arc<Mutex<Entries>>);

#[derive(Debug, Default)]
struct Entries {
    until: HashMap<Box<[u8]>, Instant>,
    /// At this number of entries those that are over are dropped, so that there are at most twice as many as
    /// last.
    max: usize,
}

impl Announcements {
    fn entries(&self) -> MutexGuard<'_, Entries> {
        // No code that holds the lock panics halfway through a change.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Until when requests of the subject must wait, if they must.
    pub(super) fn until(&self, subject: &[u8]) -> Option<Instant> {
        let mut entries = self.entries();
        let until = *entries.until.get(subject)?;
        if until > Instant::now() {
            return Some(until);
        }
        entries.until.remove(subject);
        None
    }

    /// Makes requests of the subject wait until then, or longer if they must already.
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

/// Blocks the subject in the store until then, or longer if it is blocked longer already. A task does it, so that
/// it is done even if the caller is dropped.
pub(super) async fn block<S: Store + 'static>(
    limiter: &Limiter<S>,
    subject: &[u8],
    until: Instant,
) {
    let (limiter, subject) = (limiter.clone(), Box::<[u8]>::from(subject));
    let Ok(runtime) = Handle::try_current() else { return };
    let task = runtime.spawn(async move {
        // The store's span begins when the store decides, which is later: the block does not end before `until`.
        let span = until.saturating_duration_since(Instant::now());
        // If the store cannot be written, what is left is what this process remembers.
        let _ = limiter.subject(&subject).block_at_least(span).await;
    });
    // A task of this runtime fails only if the runtime ends.
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
