//! Calls of leases that are in flight, for those that wait for their end.

use std::sync::Arc;

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::hash::spread;
use crate::layers::generations::Keys;
use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Calls of tasks, and settlements, which give chunks back.
#[derive(Debug)]
pub(super) struct InFlight {
    calls: AtomicUsize,
    settlements: AtomicUsize,
    /// Settlements that have ended.
    settled: AtomicU64,
    /// The groups of states, indexed by hash. A collision costs a refused caller one unnecessary
    /// retry, or delays a chunk until a call on the other state has ended.
    groups: Box<[Group]>,
    ended: Notify,
}

/// The settlements of a group of states, and the calls during which no chunk of them is fetched.
#[derive(Debug, Default)]
struct Group {
    in_flight: AtomicUsize,
    pauses: AtomicUsize,
    /// The number of the last one that has ended.
    last: AtomicU64,
}

/// What is known of the settlements of a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Settled {
    /// None has ended lately.
    No,
    /// One is in flight.
    Soon,
    /// One has ended since.
    Since,
}

impl InFlight {
    pub(super) fn new(groups: usize) -> Self {
        Self {
            calls: AtomicUsize::new(0),
            settlements: AtomicUsize::new(0),
            settled: AtomicU64::new(0),
            groups: (0..groups.max(1)).map(|_| Group::default()).collect(),
            ended: Notify::new(),
        }
    }

    /// Counts a call of a task until the guard is dropped.
    pub(super) fn begin(self: &Arc<Self>) -> InFlightCall {
        self.calls.fetch_add(1, Ordering::AcqRel);
        InFlightCall(Arc::clone(self))
    }

    /// Counts a settlement of a chunk of these states until the guard is dropped. To be called before the chunk is taken
    /// out: a caller that reads the chunks first, and then the settlements, misses none.
    pub(super) fn begin_settlement(self: &Arc<Self>, states: &Keys) -> Settlement {
        self.settlements.fetch_add(1, Ordering::AcqRel);
        for state in states {
            self.group(*state).in_flight.fetch_add(1, Ordering::AcqRel);
        }
        Settlement { in_flight: Arc::clone(self), states: states.clone() }
    }

    /// Prevents fetches of chunks of these states until the guard is dropped.
    pub(super) fn pause(self: &Arc<Self>, states: &Keys) -> Pause {
        for state in states {
            self.group(*state).pauses.fetch_add(1, Ordering::SeqCst);
        }
        Pause { in_flight: Arc::clone(self), states: states.clone() }
    }

    /// Returns `true` if no chunk of one of these states may be fetched now.
    pub(super) fn is_paused(&self, states: &Keys) -> bool {
        states.iter().any(|state| self.group(*state).pauses.load(Ordering::SeqCst) > 0)
    }

    /// The number of settlements that have ended until now.
    pub(super) fn settled(&self) -> u64 {
        self.settled.load(Ordering::Acquire)
    }

    /// Whether a settlement of any state is in flight, or more than `since` have ended.
    pub(super) fn is_any_settled(&self, since: u64) -> bool {
        self.settlements.load(Ordering::Acquire) > 0 || self.settled() > since
    }

    /// Whether a chunk of a state is being given back, or one was given back after the settlement of number `since`.
    pub(super) fn of_state(&self, state: u64, since: u64) -> Settled {
        let group = self.group(state);
        // In this order: the number is there before the settlement is not in flight any more.
        if group.in_flight.load(Ordering::Acquire) > 0 {
            Settled::Soon
        } else if group.last.load(Ordering::Acquire) > since {
            Settled::Since
        } else {
            Settled::No
        }
    }

    /// Ready when the next call or settlement has ended, from now on.
    pub(super) fn next_end(&self) -> Notified<'_> {
        self.ended.notified()
    }

    /// Waits until no call of a task is in flight.
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

/// A call of a task that is in flight.
#[derive(Debug)]
pub(super) struct InFlightCall(Arc<InFlight>);

impl Drop for InFlightCall {
    fn drop(&mut self) {
        self.0.calls.fetch_sub(1, Ordering::AcqRel);
        self.0.ended.notify_waiters();
    }
}

/// A settlement that is in flight. Answered, given up or dropped, it ends with the guard.
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

/// A call that needs all of the budget of some states. No chunk of them is fetched until the guard
/// is dropped.
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
        let of = |state, since| in_flight.of_state(state, since);
        assert_eq!(of(state, 0), Settled::No);
        assert!(!in_flight.is_any_settled(0));

        let settlement = in_flight.begin_settlement(&Keys::from_slice(&[state]));
        let since = in_flight.settled();
        assert_eq!((of(state, since), of(other, since)), (Settled::Soon, Settled::No));
        assert!(in_flight.is_any_settled(since));

        drop(settlement);
        assert_eq!((of(state, since), of(other, since)), (Settled::Since, Settled::No));
        assert!(in_flight.is_any_settled(since));
        assert_eq!(of(state, in_flight.settled()), Settled::No);
        assert!(!in_flight.is_any_settled(in_flight.settled()));
    }
}
