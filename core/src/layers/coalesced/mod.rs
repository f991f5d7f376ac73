//! Batches of the calls of concurrent callers.
//!
//! Batches are sent by a task for each group of calls, which is spawned by the first call and ends when no call waits.
//! If callers sent them in turn, a caller that is not polled for a while would hold back all others, whether it is
//! dropped or not; and a task outlives any caller, so there is nothing to hand over when one is cancelled.

mod driver;
mod queues;

use std::fmt;
use std::sync::{Arc, PoisonError};

use tokio::sync::oneshot;

use self::driver::{Driver, abandoned};
use self::queues::{Queues, WaitingCall};
use crate::sync::task::Handle;
use crate::sync::{Mutex, MutexGuard};
use crate::{Answer, Call, Decision, Error, ErrorKind, Policy, Store, Timestamp};

/// A store that sends the calls of concurrent callers in batches: see
/// [`StoreExt::coalesced`](crate::StoreExt::coalesced).
///
/// At most one batch of a [group](Store::batch_group) is in flight, and the calls that arrive meanwhile make up the
/// next one, by [`decide_many`](Store::decide_many). So batches are as large as the load makes them. There is no timer:
/// if no batch is in flight, a call is sent immediately. The more callers, the less the store does per call; a batch of
/// Redis costs the server a quarter to a half of as many single calls.
///
/// Put it directly around the store, with the other layers around it: a
/// [timeout](crate::StoreExt::timeout) is then one of each call, and what a [deny cache](crate::StoreExt::deny_cache)
/// answers does not wait for a batch.
///
/// * Each call is answered as if it had been made alone, and each error is that of its own call. If a batch as a whole
///   fails, each of its calls has that error: after a [`Timeout`](ErrorKind::Timeout) it is not known which were charged.
/// * Calls of one group are carried out in the order in which they arrive. A store without nodes has one group, Redis
///   one for each connection, Redis Cluster one for each node.
/// * A caller that gives up affects no other. A call that was not sent yet is not made; one in flight may be charged.
/// * At most [`max_waiting`](Self::max_waiting) calls of a group wait. Another one fails with
///   [`ErrorKind::TooManyWaiters`], without a charge, so that a store that is too slow does not fill the memory.
/// * Not batched are: calls to a store that [answers immediately](Store::answers_immediately); calls that a batch does
///   not make cheaper, such as those with an [id](crate::CallId) on Redis, which are sent as they come; and
///   [`decide_many`](Store::decide_many), which is a batch already.
///
/// Charges are copied, with their subjects. A call must be made within a Tokio runtime. If that runtime ends, or the inner
/// store panics, calls in flight fail with [`ErrorKind::Unavailable`], and so do those that waited, which are
/// [definitely not charged](Error::is_definitely_not_charged).
///
/// Cheap to clone: clones share the batches.
pub struct CoalescedStore<S> {
    shared: Arc<Shared<S>>,
    max_batch: usize,
    max_waiting: usize,
}

/// The inner store, and the calls that wait.
struct Shared<S> {
    inner: S,
    queues: Mutex<Queues>,
}

impl<S> CoalescedStore<S> {
    /// One script call for 512 charges keeps a Redis busy for a millisecond.
    const MAX_BATCH: usize = 512;

    /// At 400,000 decisions per second, the last of them waits for 20 ms.
    const MAX_WAITING: usize = 8_192;

    pub(super) fn new(inner: S) -> Self {
        let shared = Arc::new(Shared { inner, queues: Mutex::default() });
        Self { shared, max_batch: Self::MAX_BATCH, max_waiting: Self::MAX_WAITING }
    }

    /// The maximum number of charges in a batch, if it has more than one call. Default: 512.
    #[must_use]
    pub fn max_batch(self, charges: usize) -> Self {
        Self { max_batch: charges, ..self }
    }

    /// The maximum number of calls of a group that wait for a batch. Default: 8,192.
    #[must_use]
    pub fn max_waiting(self, calls: usize) -> Self {
        Self { max_waiting: calls, ..self }
    }

    /// The inner store.
    ///
    /// There is no `into_inner`, because clones of this store and its tasks share the inner store.
    /// To keep a store of your own, pass a clone or an `Arc` of it.
    #[must_use]
    pub fn inner(&self) -> &S {
        &self.shared.inner
    }
}

impl<S> Shared<S> {
    fn queues(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: Store + 'static> CoalescedStore<S> {
    /// Waits for the answer of a call that goes in the next batch of its group.
    async fn batched(&self, group: u64, call: Call<'_>) -> Result<Decision, Error> {
        call.check()?;
        let runtime = Handle::try_current().map_err(|_| no_runtime())?;
        let (sender, receiver) = oneshot::channel();
        let waiting = WaitingCall::new(call, sender);
        let added = self.shared.queues().add(group, waiting, self.max_waiting);
        let added = added.ok_or_else(|| too_many(self.max_waiting))?;
        let place = Place { shared: &self.shared, group, number: added.number, is_answered: false };
        if added.is_first {
            runtime.spawn(Driver::new(Arc::clone(&self.shared), group).run(self.max_batch));
        }
        place.answer(receiver).await
    }
}

impl<S: Store + 'static> Store for CoalescedStore<S> {
    fn decide<'a>(&'a self, call: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
        let inner = &self.shared.inner;
        if inner.answers_immediately() {
            return inner.decide(call);
        }
        match inner.batch_group(&call) {
            Some(group) => Answer::later(self.batched(group, call)),
            None => inner.decide(call),
        }
    }

    fn decide_many<'a>(
        &'a self,
        calls: &'a [Call<'a>],
    ) -> Answer<'a, Vec<Result<Decision, Error>>> {
        self.shared.inner.decide_many(calls)
    }

    fn now(&self) -> Answer<'_, Result<Timestamp, Error>> {
        self.shared.inner.now()
    }

    fn ready(&self) -> Answer<'_, Result<(), Error>> {
        self.shared.inner.ready()
    }

    fn answers_immediately(&self) -> bool {
        self.shared.inner.answers_immediately()
    }

    fn batch_group(&self, call: &Call<'_>) -> Option<u64> {
        self.shared.inner.batch_group(call)
    }

    fn supports(&self, policy: &Policy) -> Result<(), Error> {
        self.shared.inner.supports(policy)
    }
}

/// A call that waits. Dropped before the call is sent, it withdraws it.
struct Place<'a, S> {
    shared: &'a Shared<S>,
    group: u64,
    number: u64,
    is_answered: bool,
}

impl<S> Place<'_, S> {
    async fn answer(
        mut self,
        receiver: oneshot::Receiver<Result<Decision, Error>>,
    ) -> Result<Decision, Error> {
        let answer = receiver.await;
        self.is_answered = true;
        answer.unwrap_or_else(|_| Err(abandoned()))
    }
}

impl<S> Drop for Place<'_, S> {
    fn drop(&mut self) {
        if !self.is_answered {
            self.shared.queues().withdraw(self.group, self.number);
        }
    }
}

impl<S> Clone for CoalescedStore<S> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), ..*self }
    }
}

impl<S: fmt::Debug> fmt::Debug for CoalescedStore<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CoalescedStore")
            .field("inner", &self.shared.inner)
            .field("max_batch", &self.max_batch)
            .field("max_waiting", &self.max_waiting)
            .finish_non_exhaustive()
    }
}

fn too_many(max: usize) -> Error {
    Error::new(ErrorKind::TooManyWaiters, format!("{max} calls wait for a batch already"))
}

fn no_runtime() -> Error {
    Error::new(
        ErrorKind::Unsupported,
        "calls are coalesced by a task of a Tokio runtime; there is none",
    )
}
