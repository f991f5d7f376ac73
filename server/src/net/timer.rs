//! Timers that cost little if they do not fire. Setting a timer of tokio takes longer than parsing
//! a command.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

/// The time until a deadline that the clock cannot represent.
const FAR: Duration = Duration::from_secs(365 * 86_400);

/// Returns the time after `span`.
pub(crate) fn after(span: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(span).unwrap_or_else(|| now + FAR)
}

/// A timer whose deadline moves often. The timer of tokio is set only when the task has to wait,
/// and set again only when it fires too early or when the deadline is earlier.
#[derive(Debug, Default)]
pub(crate) struct Timer {
    deadline: Option<Instant>,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Timer {
    pub(crate) fn set(&mut self, deadline: Instant) {
        self.deadline = Some(deadline);
    }

    pub(crate) fn stop(&mut self) {
        self.deadline = None;
    }

    /// Is ready when the deadline has passed. Without a deadline, the timer is never ready, and
    /// wakes no task.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(deadline) = self.deadline else { return Poll::Pending };
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        if deadline < sleep.deadline() {
            sleep.as_mut().reset(deadline);
        }
        loop {
            ready!(sleep.as_mut().poll(cx));
            if deadline <= sleep.deadline() {
                return Poll::Ready(());
            }
            sleep.as_mut().reset(deadline);
        }
    }

    /// Returns `true` if the deadline has passed. Without a deadline, first sets it to the time
    /// after `span`.
    pub(crate) fn is_over(&mut self, cx: &mut Context<'_>, span: Duration) -> bool {
        self.deadline.get_or_insert_with(|| after(span));
        self.poll(cx).is_ready()
    }
}

/// Returns the output of a future, or an error of kind `TimedOut` if the future is not ready within
/// `span` after it was first polled. Creates no timer if the future is ready immediately.
pub(crate) async fn timeout<F: Future>(span: Duration, future: F) -> io::Result<F::Output> {
    bounded(future, || after(span)).await
}

/// Does the same as [`timeout`], but the deadline is a time.
pub(crate) async fn timeout_at<F: Future>(deadline: Instant, future: F) -> io::Result<F::Output> {
    bounded(future, || deadline).await
}

async fn bounded<F: Future>(future: F, deadline: impl Fn() -> Instant) -> io::Result<F::Output> {
    let (mut future, mut timer) = (pin!(future), Timer::default());
    poll_fn(|cx| {
        if let Poll::Ready(output) = future.as_mut().poll(cx) {
            return Poll::Ready(Ok(output));
        }
        timer.deadline.get_or_insert_with(&deadline);
        timer.poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use futures_util::future::{FutureExt, poll_immediate};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Returns the time until the timer is ready, in seconds.
    async fn fires_after(timer: &mut Timer) -> u64 {
        let start = Instant::now();
        poll_fn(|cx| timer.poll(cx)).await;
        start.elapsed().as_secs()
    }

    #[tokio::test(start_paused = true)]
    async fn a_timer_fires_at_the_deadline_that_was_set_last() {
        let mut timer = Timer::default();
        timer.set(after(10 * SECOND));
        assert_eq!(fires_after(&mut timer).await, 10);
        timer.set(after(20 * SECOND));
        assert!(poll_immediate(poll_fn(|cx| timer.poll(cx))).await.is_none());
        timer.set(after(30 * SECOND)); // The timer of tokio fires 10 s before this deadline.
        assert_eq!(fires_after(&mut timer).await, 30);
        timer.set(after(40 * SECOND));
        assert!(poll_immediate(poll_fn(|cx| timer.poll(cx))).await.is_none());
        timer.set(after(5 * SECOND));
        assert_eq!(fires_after(&mut timer).await, 5);
    }

    #[tokio::test(start_paused = true)]
    async fn a_timer_without_a_deadline_never_fires() {
        let mut timer = Timer::default();
        assert!(timer.deadline.is_none());
        timer.set(after(Duration::ZERO));
        assert!(timer.deadline.is_some());
        timer.stop();
        assert!(timer.deadline.is_none());
        let fires = timeout(1_000 * SECOND, poll_fn(|cx| timer.poll(cx)));
        assert!(fires.await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_deadline_that_the_clock_cannot_represent_is_far() {
        assert_eq!(after(Duration::MAX) - Instant::now(), FAR);
    }

    /// Without a runtime, no timer can be created.
    #[test]
    fn a_future_that_is_ready_needs_no_timer() {
        let output = timeout(Duration::ZERO, ready(1)).now_or_never();
        assert_eq!(output.unwrap().unwrap(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_future_that_waits_is_bounded() {
        let start = Instant::now();
        assert_eq!(timeout_at(start, ready(2)).await.unwrap(), 2);
        let error = timeout(SECOND, pending::<()>()).await.unwrap_err();
        assert_eq!((error.kind(), start.elapsed()), (io::ErrorKind::TimedOut, SECOND));
        assert!(timeout_at(start + 3 * SECOND, pending::<()>()).await.is_err());
        assert_eq!(start.elapsed(), 3 * SECOND);
        timeout(2 * SECOND, tokio::time::sleep(SECOND)).await.unwrap();
        assert_eq!(start.elapsed(), 4 * SECOND);
    }
}
