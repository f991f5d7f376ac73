//! The store trait.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::{Call, Decision, Error, ErrorKind, Policy, Timestamp};

/// Keeps states, and decides on calls by its clock.
///
/// A whole operation goes in and a decision comes out: never a get and a set. Layers around a store (a timeout, a circuit
/// breaker, a cache) are stores too.
///
/// The trait is object safe: `Arc<dyn Store>` is a store, and needs no allocation per call if the store answers
/// immediately.
///
/// # What every store guarantees
///
/// 1. All charges of a call are taken, or none, atomically; charges to one key add up.
/// 2. A denial, a peek, a cost of 0 and a failed call write nothing. (A policy with
///    [`block_for`](Policy::block_for) writes that block, and nothing else.)
/// 3. Never more is admitted than the policy says, and never less, whatever the interleaving.
/// 4. A clock that steps back mints nothing and costs at most the step.
/// 5. A state is dropped only once it is indistinguishable from none, by the store's clock.
/// 6. The same calls at the same times get the same answers, one by one or in a batch.
/// 7. A verdict is exact: `remaining`, `retry_after`, `reset_after`.
/// 8. Two subjects, two tenants and two policies share no state, whatever bytes they consist of.
///    (Policies share states by their [`state_name`](Policy::state_name).)
/// 9. A policy that changes under its name keeps what was used, or has a state of its own.
/// 10. A block lasts exactly as long as requested, and a shadow never refuses.
/// 11. An undo gives back what is left of its take, and nothing that others took.
/// 12. An error is never a denial, and a call is charged at most once.
///
/// `tidegate-testkit` checks all of this on any store, and names the guarantee that one breaks.
///
/// A store need not compute any of it: it finds the records of a call, locks out other callers, and calls
/// [`engine::decide`](crate::engine::decide) (see [`Records`](crate::engine::Records)). One that keeps its states in a
/// database restores records from its rows: [`Record::restore`](crate::engine::Record::restore), and
/// `examples/sqlite` in the repository.
///
/// # Example
///
/// A store that admits everything, for an application with limits switched off:
///
/// ```
/// use tidegate_core::{Answer, Call, Clock, Decision, Error, Outcome, Store, SystemClock};
/// use tidegate_core::{Timestamp, Verdict};
///
/// #[derive(Debug)]
/// struct Open;
///
/// impl Store for Open {
///     fn decide<'a>(&'a self, call: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
///         let verdicts = call.charges.iter().map(|charge| {
///             let limit = charge.policy.limit();
///             Verdict::new(Outcome::Allowed, limit).with_remaining(limit)
///         });
///         Answer::ready(Ok(Decision::new(verdicts)))
///     }
///
///     fn now(&self) -> Answer<'_, Result<Timestamp, Error>> {
///         Answer::ready(Ok(SystemClock::new().now()))
///     }
/// }
/// ```
pub trait Store: fmt::Debug + Send + Sync {
    /// Carries out one call.
    fn decide<'a>(&'a self, call: Call<'a>) -> Answer<'a, Result<Decision, Error>>;

    /// Carries out a batch of independent calls: each is atomic, all together are not, and they may be carried out in
    /// any order unless they share a key. Returns one answer per call, in order. A store with a cost per round trip
    /// sends them together.
    fn decide_many<'a>(
        &'a self,
        calls: &'a [Call<'a>],
    ) -> Answer<'a, Vec<Result<Decision, Error>>> {
        Answer::later(async move {
            let mut decisions = Vec::with_capacity(calls.len());
            for call in calls {
                decisions.push(self.decide(*call).await);
            }
            decisions
        })
    }

    /// The time by the store's clock.
    fn now(&self) -> Answer<'_, Result<Timestamp, Error>>;

    /// Checks that the store can decide, as when a program starts: that it can be reached and accepts this client and,
    /// if it is on a server, that the server accepts writes. Changes no subject's state.
    ///
    /// The default implementation reads the time. Layers call the inner store directly, without timeouts, breakers and
    /// fallbacks.
    ///
    /// # Errors
    ///
    /// The first error that a call would return.
    fn ready(&self) -> Answer<'_, Result<(), Error>> {
        self.now().map(|time| time.map(drop))
    }

    /// Whether each answer to [`decide`](Self::decide) is [ready](Answer::into_ready) when it is returned. Then a caller
    /// in a synchronous function, such as a middleware, needs no future that owns the call's charges. Default: `false`.
    fn answers_immediately(&self) -> bool {
        false
    }

    /// The group of calls with which the layer `coalesced` (feature `tokio`) may send this call in one batch: such as
    /// those for one node of a cluster, so that a slow node delays no calls for others. `None` for a call that a batch does not make cheaper. Must not need a server. Default: one group
    /// for all calls.
    ///
    /// Calls that share a key should be in one group.
    fn batch_group(&self, call: &Call<'_>) -> Option<u64> {
        let _ = call;
        Some(0)
    }

    /// Whether the store can keep states of this policy. Called when a limiter is built, so it must not need a
    /// server.
    ///
    /// The default implementation is that of a store that does not give back what [has lapsed](Policy::refund_lapsed).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported), with what would help.
    fn supports(&self, policy: &Policy) -> Result<(), Error> {
        keeps_lapsed(policy)
    }
}

/// Checks that the policy does not refund lapsed holds.
///
/// # Errors
///
/// Returns [`ErrorKind::Unsupported`] if it does.
pub fn keeps_lapsed(policy: &Policy) -> Result<(), Error> {
    if !policy.refunds_lapsed() {
        return Ok(());
    }
    let message = format!(
        "`{policy}` refunds lapsed holds, which this store cannot do; without `refund-lapsed`, a hold stays \
         charged until it is settled"
    );
    Err(Error::new(ErrorKind::Unsupported, message))
}

macro_rules! forward {
    ($($pointer:ty),+) => {$(
        impl<S: Store + ?Sized> Store for $pointer {
            fn decide<'a>(&'a self, call: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
                (**self).decide(call)
            }

            fn decide_many<'a>(
                &'a self,
                calls: &'a [Call<'a>],
            ) -> Answer<'a, Vec<Result<Decision, Error>>> {
                (**self).decide_many(calls)
            }

            fn now(&self) -> Answer<'_, Result<Timestamp, Error>> {
                (**self).now()
            }

            fn ready(&self) -> Answer<'_, Result<(), Error>> {
                (**self).ready()
            }

            fn answers_immediately(&self) -> bool {
                (**self).answers_immediately()
            }

            fn batch_group(&self, call: &Call<'_>) -> Option<u64> {
                (**self).batch_group(call)
            }

            fn supports(&self, policy: &Policy) -> Result<(), Error> {
                (**self).supports(policy)
            }
        }
    )+};
}
forward!(&S, Box<S>, Arc<S>);

/// The answer of a store: a future that is boxed only if it has to wait.
///
/// ```
/// use tidegate_core::Answer;
///
/// let immediate: Answer<'_, u32> = Answer::ready(7);
/// assert_eq!(immediate.into_ready().unwrap(), 7);
///
/// let later: Answer<'_, u32> = Answer::later(async { 7 });
/// assert!(later.into_ready().is_err()); // returns the answer, to be awaited
/// ```
#[must_use = "an answer must be awaited"]
pub struct Answer<'a, T>(Inner<'a, T>);

enum Inner<'a, T> {
    Ready(Option<T>),
    Later(Pin<Box<dyn Future<Output = T> + Send + 'a>>),
}

impl<'a, T> Answer<'a, T> {
    /// An answer that is ready.
    #[inline]
    pub fn ready(answer: T) -> Self {
        Self(Inner::Ready(Some(answer)))
    }

    /// An answer that has to be awaited.
    pub fn later(answer: impl Future<Output = T> + Send + 'a) -> Self {
        Self(Inner::Later(Box::pin(answer)))
    }

    /// The same answer, changed by `change`.
    pub fn map<U>(self, change: impl FnOnce(T) -> U + Send + 'a) -> Answer<'a, U>
    where
        T: 'a,
    {
        match self.0 {
            Inner::Ready(Some(answer)) => Answer::ready(change(answer)),
            // Already polled to completion.
            Inner::Ready(None) => Answer(Inner::Ready(None)),
            Inner::Later(future) => Answer::later(async move { change(future.await) }),
        }
    }

    /// The answer, if it is ready.
    ///
    /// # Errors
    ///
    /// Returns itself if it has to be awaited (or was already taken by polling).
    #[inline]
    pub fn into_ready(self) -> Result<T, Self> {
        match self.0 {
            Inner::Ready(Some(answer)) => Ok(answer),
            inner => Err(Self(inner)),
        }
    }
}

// The future in the box is pinned by the box; an answer that is ready needs no pinning.
impl<T> Unpin for Answer<'_, T> {}

impl<T> Future for Answer<'_, T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        match &mut self.0 {
            Inner::Ready(answer) => Poll::Ready(answer.take().unwrap_or_else(|| polled_again())),
            Inner::Later(future) => future.as_mut().poll(context),
        }
    }
}

/// Panics, as the future of an `async` block does.
#[cold]
#[expect(clippy::panic, reason = "a caller that polls a future after its end is wrong")]
fn polled_again() -> ! {
    panic!("`Answer` polled after completion")
}

impl<T: fmt::Debug> fmt::Debug for Answer<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Inner::Ready(answer) => f.debug_tuple("Answer").field(answer).finish(),
            Inner::Later(_) => f.write_str("Answer(..)"),
        }
    }
}
