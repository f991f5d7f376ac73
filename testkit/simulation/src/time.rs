//! Virtual time: a queue of events, and a task (the driver). When no other task can run, the driver
//! moves the time to the next event.

use std::collections::BinaryHeap;
use std::fmt;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

/// The resolution of Tokio's timers, in microseconds.
const TICK: u64 = 1_000;

/// The virtual time, in microseconds since the simulation began. Clones share the time.
#[derive(Clone, Default)]
pub(super) struct Time(Arc<Inner>);

#[derive(Default)]
struct Inner {
    now: AtomicU64,
    events: Mutex<Events>,
    /// Whether all tasks except the driver (the task that moves the time) wait for an event.
    is_idle: AtomicBool,
    driver: Mutex<Option<Waker>>,
}

#[derive(Default)]
struct Events {
    queue: BinaryHeap<Event>,
    next_number: u64,
}

struct Event {
    at: u64,
    /// The number of the event. Events of the same time happen in the order in which they were
    /// added.
    number: u64,
    action: Action,
}

enum Action {
    Wake(Waker),
    Run(Box<dyn FnOnce() + Send>),
}

impl Time {
    pub(super) fn now(&self) -> u64 {
        self.0.now.load(SeqCst)
    }

    pub(super) fn at(&self, at: u64, run: impl FnOnce() + Send + 'static) {
        self.add(at, Action::Run(Box::new(run)));
    }

    /// Waits until the virtual time reaches `at`. The wait is exact to the microsecond.
    pub(super) async fn sleep_until(&self, at: u64) {
        let mut added: Option<Waker> = None;
        poll_fn(|context| {
            if self.now() >= at {
                return Poll::Ready(());
            }
            if !added.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
                self.add(at, Action::Wake(context.waker().clone()));
                added = Some(context.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }

    fn add(&self, at: u64, action: Action) {
        let mut events = lock(&self.0.events);
        let number = events.next_number;
        events.next_number += 1;
        events.queue.push(Event { at, number, action });
    }

    fn first(&self) -> Option<u64> {
        lock(&self.0.events).queue.peek().map(|event| event.at)
    }

    fn take_due(&self, now: u64) -> Vec<Action> {
        let mut events = lock(&self.0.events);
        let mut due = vec![];
        while events.queue.peek().is_some_and(|event| event.at <= now) {
            due.extend(events.queue.pop().map(|event| event.action));
        }
        due
    }

    /// Wakes the driver (the task that moves the time). The runtime calls this function when no
    /// task can run.
    pub(super) fn idle(&self) {
        self.0.is_idle.store(true, SeqCst);
        if let Some(driver) = lock(&self.0.driver).take() {
            driver.wake();
        }
    }

    /// Moves the time from event to event until `end`. No step is longer than the resolution of
    /// Tokio's timers, so that no timer of Tokio ends too late.
    pub(super) async fn drive(&self, end: u64) {
        while self.now() < end {
            self.until_idle().await;
            let now = self.now();
            let next_tick = (now / TICK + 1) * TICK;
            let next = self.first().map_or(next_tick, |at| at.clamp(now, next_tick));
            if next > now {
                self.0.now.store(next, SeqCst);
                tokio::time::advance(Duration::from_micros(next - now)).await;
            }
            for action in self.take_due(next) {
                match action {
                    Action::Wake(waker) => waker.wake(),
                    Action::Run(run) => run(),
                }
            }
        }
    }

    async fn until_idle(&self) {
        self.0.is_idle.store(false, SeqCst);
        poll_fn(|context| {
            if self.0.is_idle.load(SeqCst) {
                return Poll::Ready(());
            }
            *lock(&self.0.driver) = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Time").field(&self.now()).finish()
    }
}

impl Ord for Event {
    /// Compares in reverse order, because a `BinaryHeap` returns its greatest entry first, and the
    /// earliest event must be first.
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Event {}

pub(super) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000)).unwrap_or(u64::MAX)
}

/// Locks a mutex. Ignores that a panic has poisoned the mutex, because any panic ends the
/// simulation.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
