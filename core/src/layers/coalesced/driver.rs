//! The task that sends the batches of a batch group.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::queues::{AnswerSender, Queues, WaitingCall};
use crate::store::send_all;
use crate::sync::task::yield_now;
use crate::{Error, ErrorKind, OwnedCall, Store};

/// Sends the batches of one batch group, one batch after another.
///
/// If the store panics or the runtime ends, the `Driver` is dropped before it has sent all calls.
/// Then the waiting calls fail.
pub(super) struct Driver<S> {
    queues: Arc<Queues>,
    store: Arc<S>,
    group: u64,
    is_done: bool,
}

impl<S: Store> Driver<S> {
    pub(super) fn new(queues: Arc<Queues>, store: Arc<S>, group: u64) -> Self {
        Self { queues, store, group, is_done: false }
    }

    pub(super) async fn run(mut self, max_charges: usize) {
        loop {
            let Some(batch) = self.queues.take(self.group, max_charges) else {
                self.is_done = true;
                return;
            };
            send(&*self.store, batch).await;
            // While this task yields, the callers of the previous batch receive their answers and
            // make their next calls, so that these calls form one batch.
            yield_now().await;
        }
    }
}

impl<S> Drop for Driver<S> {
    fn drop(&mut self) {
        if !self.is_done {
            for waiting in self.queues.end(self.group) {
                let _ = waiting.caller.send(Err(abandoned().definitely_not_charged()));
            }
        }
    }
}

async fn send(store: &impl Store, batch: Vec<WaitingCall>) {
    let (calls, mut callers): (Vec<_>, Vec<_>) =
        batch.into_iter().map(|waiting| (waiting.call, waiting.caller)).unzip();
    let answers = {
        let calls: Vec<_> = calls.iter().map(OwnedCall::as_call).collect();
        answers_while_needed(send_all(store, &calls), &mut callers).await
    };
    let mut answers = answers.unwrap_or_default().into_iter();
    for caller in callers {
        // If the caller is cancelled, its channel is closed, and `send` fails. This error is
        // ignored, because no caller needs the answer.
        let _ = caller.send(answers.next().unwrap_or_else(|| Err(Error::no_answer())));
    }
}

/// Returns the answers to a batch, or `None` if all callers are cancelled before the answers
/// arrive.
///
/// If all callers are cancelled, the batch is cancelled too, so that the next batch does not wait
/// for its answers.
async fn answers_while_needed<T>(
    answers: impl Future<Output = T>,
    callers: &mut [AnswerSender],
) -> Option<T> {
    let mut answers = pin!(answers);
    let mut cancelled = 0;
    poll_fn(move |context| match answers.as_mut().poll(context) {
        Poll::Ready(answers) => Poll::Ready(Some(answers)),
        Poll::Pending => poll_all_cancelled(callers, &mut cancelled, context).map(|()| None),
    })
    .await
}

/// Returns `Ready` when all callers are cancelled. `cancelled` is the number of callers at the
/// start of the list that are already known to be cancelled.
fn poll_all_cancelled(
    callers: &mut [AnswerSender],
    cancelled: &mut usize,
    context: &mut Context<'_>,
) -> Poll<()> {
    while let Some(caller) = callers.get_mut(*cancelled) {
        if caller.poll_closed(context).is_pending() {
            return Poll::Pending;
        }
        *cancelled += 1;
    }
    Poll::Ready(())
}

pub(super) fn abandoned() -> Error {
    let message =
        "the batch of the call was abandoned: the store panicked, or the runtime has ended";
    Error::new(ErrorKind::Unavailable, message)
}
