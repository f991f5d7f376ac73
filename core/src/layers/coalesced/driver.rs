//! The task that sends the batches of a group.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::Shared;
use super::queues::{AnswerSender, WaitingCall};
use crate::sync::task::yield_now;
use crate::{Call, Decision, Error, ErrorKind, OwnedCall, Store};

/// Sends the batches of a group, one after another.
///
/// Dropped before its end, as the store has panicked or the runtime ends, it fails the calls that wait.
pub(super) struct Driver<S> {
    shared: Arc<Shared<S>>,
    group: u64,
    is_done: bool,
}

impl<S: Store> Driver<S> {
    pub(super) fn new(shared: Arc<Shared<S>>, group: u64) -> Self {
        Self { shared, group, is_done: false }
    }

    /// Runs until no call waits.
    pub(super) async fn run(mut self, max_charges: usize) {
        loop {
            let batch = self.shared.queues().take(self.group, max_charges);
            let Some(batch) = batch else {
                self.is_done = true;
                return;
            };
            send(&self.shared.inner, batch).await;
            // Callers that have their answer make their next calls first: these go in one batch.
            yield_now().await;
        }
    }
}

impl<S> Drop for Driver<S> {
    fn drop(&mut self) {
        if !self.is_done {
            let waiting = self.shared.queues().end(self.group);
            for waiting in waiting {
                let _ = waiting.caller.send(Err(abandoned().definitely_not_charged()));
            }
        }
    }
}

/// Sends a batch, and passes on the answers.
async fn send(store: &impl Store, batch: Vec<WaitingCall>) {
    let (calls, mut callers): (Vec<_>, Vec<_>) =
        batch.into_iter().map(|waiting| (waiting.call, waiting.caller)).unzip();
    let answers = {
        let calls: Vec<_> = calls.iter().map(OwnedCall::as_call).collect();
        answers_while_needed(decide(store, &calls), &mut callers).await
    };
    let mut answers = answers.unwrap_or_default().into_iter();
    for caller in callers {
        // An error is that of a caller that has gone.
        let _ = caller.send(answers.next().unwrap_or_else(|| Err(missing())));
    }
}

async fn decide(store: &impl Store, calls: &[Call<'_>]) -> Vec<Result<Decision, Error>> {
    match calls {
        [call] => vec![store.decide(*call).await],
        calls => store.decide_many(calls).await,
    }
}

/// The answers to a batch, or `None` if all callers have gone before: what is dropped then is what a single call drops
/// with its caller, and the next batch need not wait for it.
async fn answers_while_needed<T>(
    answers: impl Future<Output = T>,
    callers: &mut [AnswerSender],
) -> Option<T> {
    let mut answers = pin!(answers);
    let mut gone = 0;
    poll_fn(move |context| match answers.as_mut().poll(context) {
        Poll::Ready(answers) => Poll::Ready(Some(answers)),
        Poll::Pending => all_gone(callers, &mut gone, context).map(|()| None),
    })
    .await
}

/// Ready when all callers have gone; the first `gone` have.
fn all_gone(callers: &mut [AnswerSender], gone: &mut usize, context: &mut Context<'_>) -> Poll<()> {
    while let Some(caller) = callers.get_mut(*gone) {
        if caller.poll_closed(context).is_pending() {
            return Poll::Pending;
        }
        *gone += 1;
    }
    Poll::Ready(())
}

/// The error of a call whose batch came to no end.
pub(super) fn abandoned() -> Error {
    let message =
        "the batch of the call was abandoned: the store panicked, or the runtime has ended";
    Error::new(ErrorKind::Unavailable, message)
}

fn missing() -> Error {
    Error::new(ErrorKind::Protocol, "the store returned fewer answers than there were calls")
}
