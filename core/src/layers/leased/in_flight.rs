//! The calls that tasks of leases have in flight, and the callers that wait for the end of such
//! calls.

use std::sync::Arc;

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::hash::spread;
use crate::layers::generations::Keys;
use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Counts three things that are in progress: calls of tasks, settlements, and pauses, which are
/// times without fetches.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    calls: AtomicUsize,
    settlements: AtomicUsize,
    settled: AtomicU64,
    /// The groups of states. The hash of a state selects its group. Two states can share a group.
    /// Then a refused caller possibly makes an unnecessary retry, and a pause of one state also
    /// prevents fetches for the other state.
    groups: Box<[Group]>,
    ended: Notify,
}

/// A group of states: the settlements of its chunks, and the pauses during which no chunk of the
/// group is fetched.
#[derive(Debug, Default)]
struct Group {
    in_flight: AtomicUsize,
    pauses: AtomicUsize,
    last: AtomicU64,
}

/// The progress of the settlements of a state since a given moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    /// No settlement of the state is in flight, and none has ended since the given moment.
    None,
    InFlight,
    /// A settlement of the state has ended since the given moment.
    Ended,
}

impl InFlight {
    pub(super) fn new(groups: usize) -> Self {
        let groups = (0..groups.max(1)).map(|_| Group::default()).collect();
        Self { groups, ..Self::default() }
    }

    pub(super) fn begin_call(self: &Arc<Self>) -> TaskCall {
        self.calls.fetch_add(1, Ordering::AcqRel);
        TaskCall(Arc::clone(self))
    }

    /// Counts a settlement of a chunk of these states, until the returned guard is dropped.
    ///
    /// If the caller removes a chunk from its lease, it must count the settlement before it
    /// releases the lock of the lease. If the chunk was never in a lease, it must count the
    /// settlement before it ends the fetch. So a reader that checks fetches, then chunks, and then
    /// settlements misses no chunk.
    pub(super) fn begin_settlement(self: &Arc<Self>, states: &Keys) -> Settlement {
        self.settlements.fetch_add(1, Ordering::AcqRel);
        for state in states {
            self.group(*state).in_flight.fetch_add(1, Ordering::AcqRel);
        }
        Settlement { in_flight: Arc::clone(self), states: states.clone() }
    }

    pub(super) fn pause(self: &Arc<Self>, states: &Keys) -> Pause {
        for state in states {
            self.group(*state).pauses.fetch_add(1, Ordering::SeqCst);
        }
        Pause { in_flight: Arc::clone(self), states: states.clone() }
    }

    pub(super) fn is_paused(&self, states: &Keys) -> bool {
        states.iter().any(|state| self.group(*state).pauses.load(Ordering::SeqCst) > 0)
    }

    pub(super) fn settled(&self) -> u64 {
        self.settled.load(Ordering::Acquire)
    }

    /// Returns `true` if a settlement of any state is in flight, or has ended since the moment at
    /// which `settled` returned `since`.
    pub(super) fn is_any_settled(&self, since: u64) -> bool {
        self.is_any_settling() || self.settled() > since
    }

    pub(super) fn is_any_settling(&self) -> bool {
        self.settlements.load(Ordering::Acquire) > 0
    }

    pub(super) fn is_settling(&self, state: u64) -> bool {
        self.group(state).in_flight.load(Ordering::Acquire) > 0
    }

    /// Returns the progress of the settlements of a state since the moment at which `settled`
    /// returned `since`.
    pub(super) fn progress(&self, state: u64, since: u64) -> Progress {
        // When a settlement ends, it first updates `last`, and then decrements `in_flight`. This
        // method reads these counters in the opposite order, so that it misses no settlement.
        if self.is_settling(state) {
            Progress::InFlight
        } else if self.group(state).last.load(Ordering::Acquire) > since {
            Progress::Ended
        } else {
            Progress::None
        }
    }

    pub(super) fn next_end(&self) -> Notified<'_> {
        self.ended.notified()
    }

    pub(super) async fn all_calls_ended(&self) {
        loop {
            let ended = self.next_end();
            if self.calls.load(Ordering::Acquire) == 0 {
                return;
            }
            ended.await;
        }
    }

    fn group(&self, state: u64) -> &Group {
        &self.groups[spread(state, self.groups.len())]
    }
}

/// A call of a task, which counts as in flight until this guard is dropped.
#[derive(Debug)]
pub(super) struct TaskCall(Arc<InFlight>);

impl Drop for TaskCall {
    fn drop(&mut self) {
        self.0.calls.fetch_sub(1, Ordering::AcqRel);
        self.0.ended.notify_waiters();
    }
}

/// A settlement of a chunk. The settlement counts as in flight until this guard is dropped, with or
/// without an answer of the store.
#[derive(Debug)]
pub(super) struct Settlement {
    in_flight: Arc<InFlight>,
    states: Keys,
}

impl Drop for Settlement {
    fn drop(&mut self) {
        let number = self.in_flight.settled.fetch_add(1, Ordering::AcqRel) + 1;
        for state in &self.states {
            let group = self.in_flight.group(*state);
            group.last.fetch_max(number, Ordering::AcqRel);
            group.in_flight.fetch_sub(1, Ordering::AcqRel);
        }
        self.in_flight.settlements.fetch_sub(1, Ordering::AcqRel);
        self.in_flight.ended.notify_waiters();
    }
}

/// A pause of some states. No chunk of these states is fetched until this guard is dropped.
#[derive(Debug)]
pub(super) struct Pause {
    in_flight: Arc<InFlight>,
    states: Keys,
}

impl Drop for Pause {
    fn drop(&mut self) {
        for state in &self.states {
            self.in_flight.group(*state).pauses.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

#[cfg(all(test, not(tidegate_schedules)))]
mod tests {
    use super::*;

    #[test]
    fn a_settlement_is_in_flight_and_then_has_ended() {
        let in_flight = Arc::new(InFlight::new(1 << 10));
        let (state, other) = (1 << 60, 2 << 60);
        let progress = |state, since| in_flight.progress(state, since);
        assert_eq!(progress(state, 0), Progress::None);
        assert!(!in_flight.is_any_settled(0));

        let settlement = in_flight.begin_settlement(&Keys::from_slice(&[state]));
        let since = in_flight.settled();
        assert_eq!(
            (progress(state, since), progress(other, since)),
            (Progress::InFlight, Progress::None)
        );
        assert!(in_flight.is_any_settled(since));

        drop(settlement);
        assert_eq!(
            (progress(state, since), progress(other, since)),
            (Progress::Ended, Progress::None)
        );
        assert!(in_flight.is_any_settled(since));
        assert_eq!(progress(state, in_flight.settled()), Progress::None);
        assert!(!in_flight.is_any_settled(in_flight.settled()));
    }
}
