//! Tasks and timers that replace the tasks and timers of Tokio in schedule tests.
//!
//! Time is virtual. A test moves the time with [`advance`]. If no other task can run, the scheduler
//! of a test runs [`run_timers`], which moves the time to the end of the next timer.
//!
//! An execution is one run of a test, in one interleaving of its tasks. All tasks of an execution
//! run in one thread, so the state of the execution is stored in a thread-local variable.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use shuttle::future::{AbortHandle, yield_now};

/// The tasks and the timers of an execution. The timers are ordered by their ends.
#[derive(Debug, Default)]
struct Runtime {
    now: Duration,
    timers: BTreeMap<TimerKey, Waker>,
    next_number: u64,
    /// Wakes the task of [`run_timers`], which waits while there are no timers. It is woken when a
    /// timer is created.
    driver: Option<Waker>,
    tasks: Vec<AbortHandle>,
}

/// The time at which a timer ends, and a number that makes the key unique.
type TimerKey = (Duration, u64);

thread_local! {
    static RUNTIME: RefCell<Runtime> = RefCell::default();
}

fn with<T>(run: impl FnOnce(&mut Runtime) -> T) -> T {
    RUNTIME.with_borrow_mut(run)
}

/// Forgets the timers and the tasks of the previous execution. Each execution must first call this
/// function.
pub fn begin() {
    drop(RUNTIME.take());
}

/// Returns the time since the execution began.
#[must_use]
pub fn now() -> Duration {
    with(|runtime| runtime.now)
}

/// Moves the time forward by `span`, and ends all timers that are due at the new time.
pub fn advance(span: Duration) {
    let due = with(|runtime| {
        runtime.now += span;
        let later = runtime.timers.split_off(&(runtime.now, u64::MAX));
        std::mem::replace(&mut runtime.timers, later)
    });
    due.into_values().for_each(Waker::wake);
}

/// Moves the time to the end of the next timer each time that the scheduler runs this task. This
/// function never returns.
pub async fn run_timers() {
    loop {
        let until_next = poll_fn(|context| {
            with(|runtime| match runtime.timers.first_key_value() {
                Some(((end, _), _)) => Poll::Ready(end.saturating_sub(runtime.now)),
                None => {
                    runtime.driver = Some(context.waker().clone());
                    Poll::Pending
                }
            })
        });
        until_next.await;
        // After `yield_now`, the scheduler continues this task only when no other task can run. The
        // other tasks have possibly changed the timers, so the next timer is read again.
        yield_now().await;
        let next = with(|runtime| runtime.timers.first_key_value().map(|((end, _), _)| *end));
        if let Some(end) = next {
            advance(end.saturating_sub(now()));
        }
    }
}

/// Drops all tasks that [`Handle`] has spawned, at whatever point each task waits. This simulates
/// the panic of a store or the end of a runtime.
pub fn cancel_tasks() {
    let tasks = with(|runtime| std::mem::take(&mut runtime.tasks));
    for task in tasks {
        task.abort();
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Handle(());

impl Handle {
    pub(crate) fn try_current() -> Result<Self, ()> {
        Ok(Self(()))
    }

    pub(crate) fn spawn(&self, task: impl Future<Output: Send> + Send + 'static) {
        let task = shuttle::future::spawn(async move { drop(task.await) });
        with(|runtime| runtime.tasks.push(task.abort_handle()));
    }

    pub(crate) fn enter(&self) -> EnterGuard<'_> {
        EnterGuard(self)
    }
}

/// The guard that [`Handle`] returns instead of Tokio's guard. It does nothing, because the runtime
/// of an execution is always the current runtime.
pub(crate) struct EnterGuard<'a>(#[expect(dead_code, reason = "kept for its lifetime")] &'a Handle);

#[derive(Debug, Clone, Copy)]
pub(crate) struct Instant(Duration);

impl Instant {
    pub(crate) fn now() -> Self {
        Self(now())
    }

    pub(crate) fn elapsed(&self) -> Duration {
        now().saturating_sub(self.0)
    }
}

/// Returns a future that is ready after `span`.
pub fn sleep(span: Duration) -> Sleep {
    Sleep { end: now().saturating_add(span), timer: None }
}

/// The future of [`sleep`].
#[derive(Debug)]
#[must_use = "futures do nothing unless they are awaited"]
pub struct Sleep {
    end: Duration,
    timer: Option<TimerKey>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let end = self.end;
        if now() >= end {
            return Poll::Ready(());
        }
        let driver = with(|runtime| {
            let timer = *self.timer.get_or_insert_with(|| {
                runtime.next_number += 1;
                (end, runtime.next_number)
            });
            runtime.timers.insert(timer, context.waker().clone());
            runtime.driver.take()
        });
        driver.map(Waker::wake);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(timer) = self.timer {
            drop(with(|runtime| runtime.timers.remove(&timer)));
        }
    }
}

#[derive(Debug)]
pub(crate) struct Elapsed;

pub(crate) async fn timeout<F: Future>(span: Duration, future: F) -> Result<F::Output, Elapsed> {
    let (mut future, mut sleep) = (pin!(future), pin!(sleep(span)));
    poll_fn(move |context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Ok(output)),
        Poll::Pending => sleep.as_mut().poll(context).map(|()| Err(Elapsed)),
    })
    .await
}
