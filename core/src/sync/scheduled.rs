//! Tasks and timers in schedule tests: what Tokio's are elsewhere.
//!
//! Time is virtual. A test moves it by [`advance`]; and [`run_timers`] moves it to the next timer, which a test's
//! scheduler runs when no other task can run.
//!
//! The tasks of one execution run in turn in one thread, so its state is kept per thread.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use shuttle::future::{AbortHandle, yield_now};

/// Tasks, and the timers of all tasks in the order in which they end.
#[derive(Debug, Default)]
struct Runtime {
    now: Duration,
    timers: BTreeMap<TimerKey, Waker>,
    next_number: u64,
    /// Of [`run_timers`], which waits for the first timer.
    driver: Option<Waker>,
    tasks: Vec<AbortHandle>,
}

/// The time at which a timer ends, and a number that makes it unique.
type TimerKey = (Duration, u64);

thread_local! {
    static RUNTIME: RefCell<Runtime> = RefCell::default();
}

fn with<T>(run: impl FnOnce(&mut Runtime) -> T) -> T {
    RUNTIME.with_borrow_mut(run)
}

/// Forgets the timers and tasks of the last execution. To be called when one begins.
pub fn begin() {
    drop(RUNTIME.take());
}

/// The time since the execution began.
#[must_use]
pub fn now() -> Duration {
    with(|it| it.now)
}

/// Moves the time forwards, and ends the timers that are due.
pub fn advance(span: Duration) {
    let due = with(|it| {
        it.now += span;
        let later = it.timers.split_off(&(it.now, u64::MAX));
        std::mem::replace(&mut it.timers, later)
    });
    due.into_values().for_each(Waker::wake);
}

/// Ends one timer after another, each when this is polled. Never ends.
pub async fn run_timers() {
    loop {
        let until_next = poll_fn(|context| {
            with(|it| match it.timers.first_key_value() {
                Some(((end, _), _)) => Poll::Ready(end.saturating_sub(it.now)),
                None => {
                    it.driver = Some(context.waker().clone());
                    Poll::Pending
                }
            })
        });
        until_next.await;
        // The scheduler comes back when no other task can run. By then the next timer may be another one.
        yield_now().await;
        let next = with(|it| it.timers.first_key_value().map(|((end, _), _)| *end));
        if let Some(end) = next {
            advance(end.saturating_sub(now()));
        }
    }
}

/// Drops the tasks that [`Handle`] has spawned, each where it waits: as when a store panics, or a runtime ends.
pub fn cancel_tasks() {
    let tasks = with(|it| std::mem::take(&mut it.tasks));
    for task in tasks {
        task.abort();
    }
}

/// The runtime of the current execution.
#[derive(Debug, Clone)]
pub(crate) struct Handle(());

impl Handle {
    pub(crate) fn try_current() -> Result<Self, ()> {
        Ok(Self(()))
    }

    pub(crate) fn spawn(&self, task: impl Future<Output: Send> + Send + 'static) {
        let task = shuttle::future::spawn(async move { drop(task.await) });
        with(|it| it.tasks.push(task.abort_handle()));
    }

    pub(crate) fn enter(&self) -> EnterGuard<'_> {
        EnterGuard(self)
    }
}

/// While it lives, the runtime is the current one: always, in an execution.
pub(crate) struct EnterGuard<'a>(#[expect(dead_code, reason = "it is kept, not used")] &'a Handle);

/// A time of the virtual clock.
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

/// Waits until a time.
pub fn sleep(span: Duration) -> Sleep {
    Sleep { end: now().saturating_add(span), timer: None }
}

/// A future that is ready at a time: see [`sleep`].
#[derive(Debug)]
#[must_use = "it waits when it is awaited"]
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
        let driver = with(|it| {
            let timer = *self.timer.get_or_insert_with(|| {
                it.next_number += 1;
                (end, it.next_number)
            });
            it.timers.insert(timer, context.waker().clone());
            it.driver.take()
        });
        driver.map(Waker::wake);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(timer) = self.timer {
            drop(with(|it| it.timers.remove(&timer)));
        }
    }
}

/// The error of [`timeout`].
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
