//! The layer that sends the calls of concurrent callers in batches.
//!
//! Each batch group has a task that sends its batches. The first waiting call spawns the task, and
//! the task ends when no call waits. Callers do not send batches, because a caller that is not
//! polled would delay all other callers, and a cancelled caller would interrupt its batch.

mod driver;
mod queues;

use std::fmt;
use std::sync::Arc;

use smallvec::SmallVec;
use tokio::sync::oneshot;

use self::driver::{Driver, abandoned};
use self::queues::{Queues, WaitingCall};
use super::layered::{Layer, Layered};
use crate::sync::task::Handle;
use crate::{Answer, Call, Decision, Error, ErrorKind, Store};

/// A store that sends the calls of concurrent callers in batches: see
/// [`StoreExt::coalesced`](super::StoreExt::coalesced).
///
/// At most one batch of a [batch group](Store::batch_group) is in flight. The calls that arrive
/// while the batch is in flight form the next batch, which is sent by
/// [`decide_many`](Store::decide_many). There is no timer: if no batch is in flight, a call is sent
/// immediately.
///
/// With more concurrent callers, the batches are larger. In a batch, a call costs a Redis server a
/// quarter to a half of its cost without a batch.
///
/// Add this layer first, directly around the store, and add all other layers after it. Then a
/// [timeout](super::StoreExt::timeout) around this layer applies to each single call.
///
/// * Each call gets the answer that it would get alone, and an error of one call does not affect
///   other calls. If a batch fails as a whole, each call of the batch gets the error of the batch.
///   After a [`Timeout`](ErrorKind::Timeout), it is unknown which calls of the batch were charged.
/// * The calls of one batch group are executed in the order in which they arrive. By default, a
///   store has one batch group. Redis has one batch group for each connection, and Redis Cluster
///   has one batch group for each node.
/// * A cancelled caller does not affect other callers. If the call of the cancelled caller was not
///   sent yet, the call is not made. If the call is in flight, the call is possibly charged.
/// * At most [`max_waiting`](Self::max_waiting) calls of a batch group wait. Above this number, a
///   new call fails with [`ErrorKind::TooManyWaiters`] and is not charged, so that a slow store
///   does not fill the memory.
///
/// The following calls are not added to a batch:
///
/// * calls to a store that [answers immediately](Store::answers_immediately);
/// * calls that a batch does not make cheaper, such as calls with an [id](crate::CallId) on Redis;
/// * calls that an inner layer (a [deny cache](super::StoreExt::deny_cache) or
///   [leases](super::StoreExt::leased)) answers from memory;
/// * the calls of a [`decide_many`](Store::decide_many) with more than 8 calls, because a copy of
///   these calls for a common batch would cost more than the common batch saves.
///
/// The layer copies each charge with its subject. A call must be made within a Tokio runtime. If
/// the runtime ends or the inner store panics, all calls in flight and all waiting calls fail with
/// [`ErrorKind::Unavailable`]. The waiting calls are
/// [definitely not charged](Error::is_definitely_not_charged).
///
/// Clones are cheap and share the batches. The inner store is in an `Arc`, because the tasks share
/// the inner store.
pub type CoalescedStore<S> = Layered<CoalescedLayer, Arc<S>>;

/// The layer of a [`CoalescedStore`]. Clones of the layer share the batches.
#[derive(Clone)]
pub struct CoalescedLayer {
    queues: Arc<Queues>,
    max_batch: usize,
    max_waiting: usize,
}

impl<S> CoalescedStore<S> {
    /// Sets the maximum number of charges in a batch. The default is 512. A single call with more
    /// charges is sent alone.
    #[must_use]
    pub fn max_batch(self, charges: usize) -> Self {
        self.map_layer(|layer| CoalescedLayer { max_batch: charges, ..layer })
    }

    /// Sets the maximum number of calls of one batch group that wait for a batch. The default is
    /// 8,192.
    #[must_use]
    pub fn max_waiting(self, calls: usize) -> Self {
        self.map_layer(|layer| CoalescedLayer { max_waiting: calls, ..layer })
    }
}

impl CoalescedLayer {
    /// The default maximum number of charges in a batch. A script call for 512 charges keeps a
    /// Redis server busy for a millisecond.
    const MAX_BATCH: usize = 512;

    /// The default maximum number of waiting calls. At 400,000 decisions per second, the last of
    /// 8,192 waiting calls waits for 20 ms.
    const MAX_WAITING: usize = 8_192;

    pub(super) fn new() -> Self {
        let queues = Arc::new(Queues::default());
        Self { queues, max_batch: Self::MAX_BATCH, max_waiting: Self::MAX_WAITING }
    }

    /// The maximum number of calls in a `decide_many` whose calls join the batches of other
    /// callers. A larger `decide_many` is sent as a batch of its own.
    const MAX_JOINED: usize = 8;

    async fn decide_in_batch<S: Store + 'static>(
        &self,
        inner: &Arc<S>,
        group: u64,
        call: Call<'_>,
    ) -> Result<Decision, Error> {
        self.enqueue(inner, group, call)?.answer().await
    }

    /// Adds all calls to the queues of their groups, and then waits for the answers.
    async fn decide_many_in_batches<S: Store + 'static>(
        &self,
        inner: &Arc<S>,
        groups: SmallVec<[u64; Self::MAX_JOINED]>,
        calls: &[Call<'_>],
    ) -> Vec<Result<Decision, Error>> {
        let places = groups.into_iter().zip(calls);
        let places: SmallVec<[_; Self::MAX_JOINED]> =
            places.map(|(group, call)| self.enqueue(inner, group, *call)).collect();
        let mut answers = Vec::with_capacity(places.len());
        for place in places {
            answers.push(match place {
                Ok(place) => place.answer().await,
                Err(error) => Err(error),
            });
        }
        answers
    }

    fn enqueue<S: Store + 'static>(
        &self,
        inner: &Arc<S>,
        group: u64,
        call: Call<'_>,
    ) -> Result<Place<'_>, Error> {
        call.check()?;
        let runtime = Handle::try_current().map_err(|_| no_runtime())?;
        let (sender, receiver) = oneshot::channel();
        let waiting = WaitingCall::new(call, sender);
        let added = self.queues.add(group, waiting, self.max_waiting);
        let added = added.ok_or_else(|| too_many(self.max_waiting))?;
        let queues = &self.queues;
        let place = Place { queues, group, number: added.number, receiver, is_answered: false };
        if added.is_first {
            let driver = Driver::new(Arc::clone(&self.queues), Arc::clone(inner), group);
            runtime.spawn(driver.run(self.max_batch));
        }
        Ok(place)
    }
}

impl<S: Store + 'static> Layer<Arc<S>> for CoalescedLayer {
    const MAY_WAIT: bool = false;

    fn decide<'a>(
        &'a self,
        inner: &'a Arc<S>,
        call: Call<'a>,
    ) -> Answer<'a, Result<Decision, Error>> {
        match group_of(inner, &call) {
            Some(group) => Answer::later(self.decide_in_batch(inner, group, call)),
            None => inner.decide(call),
        }
    }

    fn decide_many<'a>(
        &'a self,
        inner: &'a Arc<S>,
        calls: &'a [Call<'a>],
    ) -> Answer<'a, Vec<Result<Decision, Error>>> {
        if calls.is_empty() || calls.len() > Self::MAX_JOINED {
            return inner.decide_many(calls);
        }
        match calls.iter().map(|call| group_of(inner, call)).collect() {
            Some(groups) => Answer::later(self.decide_many_in_batches(inner, groups, calls)),
            None => inner.decide_many(calls),
        }
    }
}

/// Returns the batch group of a call, or `None` if a batch does not make the call cheaper.
fn group_of(store: &impl Store, call: &Call<'_>) -> Option<u64> {
    if store.answers_immediately() { None } else { store.batch_group(call) }
}

/// The place of a call in a queue. If the caller is cancelled before the call is sent, `drop`
/// removes the call from the queue.
struct Place<'a> {
    queues: &'a Queues,
    group: u64,
    number: u64,
    receiver: oneshot::Receiver<Result<Decision, Error>>,
    is_answered: bool,
}

impl Place<'_> {
    async fn answer(mut self) -> Result<Decision, Error> {
        let answer = (&mut self.receiver).await;
        self.is_answered = true;
        answer.unwrap_or_else(|_| Err(abandoned()))
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            self.queues.withdraw(self.group, self.number);
        }
    }
}

impl fmt::Debug for CoalescedLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CoalescedLayer")
            .field("max_batch", &self.max_batch)
            .field("max_waiting", &self.max_waiting)
            .finish_non_exhaustive()
    }
}

fn too_many(max: usize) -> Error {
    Error::new(ErrorKind::TooManyWaiters, format!("{max} calls already wait for a batch"))
}

fn no_runtime() -> Error {
    Error::new(
        ErrorKind::Unsupported,
        "coalescing needs a Tokio runtime for the task that sends the batches",
    )
}
