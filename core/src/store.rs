//! The store: where states are, and whose clock counts.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::{Call, Decision, Error, Policy, Timestamp};

/// Where states are kept, and whose clock counts.
///
/// A whole operation goes in and a decision comes out: never a get and a set. Everything around a
/// store (a timeout, a circuit breaker, a cache) is a store too.
///
/// The trait is object safe as it stands: `Arc<dyn Store>` is a store, at no allocation per call if
/// the store answers at once.
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
/// 7. What a verdict says holds: `remaining`, `retry_after`, `reset_after`.
/// 8. Two subjects, two tenants and two policies share no state, whatever bytes they are made of.
///    (Policies share states by their [`state_name`](Policy::state_name).)
/// 9. A policy that changes under its name keeps what was used, or has a state of its own.
/// 10. A block lasts exactly as long as it was asked for, and a shadow never refuses.
/// 11. An undo gives back what its take has left, and nothing that others took.
/// 12. An error is never a denial, and a call is charged at most once.
///
/// `tidegate-testkit` checks all of this on any store, and names the guarantee that one breaks.
///
/// A store need not compute any of it: it finds the records of a call, holds off other callers
/// meanwhile, and calls [`engine::decide`](crate::engine::decide) (see
/// [`Records`](crate::engine::Records)). One that keeps its states in a database makes the records of
/// its rows: [`Record::restore`](crate::engine::Record::restore), and `examples/sqlite` in the
/// repository.
///
/// # Example
///
/// A store that admits everything, for an application that has switched limits off:
///
/// ```
/// use tidegate_core::{Answer, Call, Clock, Decision, Error, Outcome, Store, SystemClock};
/// use tidegate_core::{Timestamp, Verdict, Wait};
///
/// #[derive(Debug)]
/// struct Open;
///
/// impl Store for Open {
///     fn decide<'a>(&'a self, call: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
///         let verdicts = call.charges.iter().map(|charge| {
///             let limit = charge.policy.limit();
///             Verdict::new(Outcome::Allowed, limit, limit, Wait::ZERO, 0)
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

    /// Carries out many calls that are independent of each other: each is atomic, all together are
    /// not, and they may be carried out in any order unless they share a key. One answer per call,
    /// in the order asked. A store that pays per round trip sends them as one.
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

    /// The time by the clock that counts: the store's own.
    fn now(&self) -> Answer<'_, Result<Timestamp, Error>>;

    /// Checks that the store can decide, as when a program starts: that it can be reached and lets this
    /// client in, and, if the store is on a server, that the server takes the store's writes. Changes no
    /// subject's state.
    ///
    /// Without an implementation of its own a store only has to show the time. Stores around a store ask the
    /// one within, past timeouts, breakers and failure policies.
    ///
    /// # Errors
    ///
    /// The first that a call would meet.
    fn ready(&self) -> Answer<'_, Result<(), Error>> {
        match self.now().into_ready() {
            Ok(time) => Answer::ready(time.map(drop)),
            Err(later) => Answer::later(async move { later.await.map(drop) }),
        }
    }

    /// Whether the store can keep states of this policy. Asked when a limiter is built; it must not
    /// need a server.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported), with what would help.
    fn supports(&self, policy: &Policy) -> Result<(), Error> {
        let _ = policy;
        Ok(())
    }
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

            fn supports(&self, policy: &Policy) -> Result<(), Error> {
                (**self).supports(policy)
            }
        }
    )+};
}
forward!(&S, Box<S>, Arc<S>);

/// An answer that is there already, or will be: a future that boxes nothing if nothing waits.
///
/// ```
/// use tidegate_core::Answer;
///
/// let at_once: Answer<'_, u32> = Answer::ready(7);
/// assert_eq!(at_once.into_ready().unwrap(), 7);
///
/// let later: Answer<'_, u32> = Answer::later(async { 7 });
/// assert!(later.into_ready().is_err()); // gives the answer back, to be awaited
/// ```
#[must_use = "an answer must be awaited"]
pub struct Answer<'a, T>(Inner<'a, T>);

enum Inner<'a, T> {
    Ready(Option<T>),
    Later(Pin<Box<dyn Future<Output = T> + Send + 'a>>),
}

impl<'a, T> Answer<'a, T> {
    /// An answer that is there.
    #[inline]
    pub fn ready(answer: T) -> Self {
        Self(Inner::Ready(Some(answer)))
    }

    /// An answer that has to be waited for.
    pub fn later(answer: impl Future<Output = T> + Send + 'a) -> Self {
        Self(Inner::Later(Box::pin(answer)))
    }

    /// The same answer with what it holds changed by `change`.
    pub fn map<U>(self, change: impl FnOnce(T) -> U + Send + 'a) -> Answer<'a, U>
    where
        T: 'a,
    {
        match self.0 {
            Inner::Ready(Some(answer)) => Answer::ready(change(answer)),
            // Polled to its end already: stays so.
            Inner::Ready(None) => Answer(Inner::Ready(None)),
            Inner::Later(future) => Answer::later(async move { change(future.await) }),
        }
    }

    /// The answer, if it is there.
    ///
    /// # Errors
    ///
    /// Gives itself back, if it has to be waited for (or was already taken by polling).
    #[inline]
    pub fn into_ready(self) -> Result<T, Self> {
        match self.0 {
            Inner::Ready(Some(answer)) => Ok(answer),
            inner => Err(Self(inner)),
        }
    }
}

// The future in the box is pinned by the box; an answer that is there needs no pinning.
impl<T> Unpin for Answer<'_, T> {}

impl<T> Future for Answer<'_, T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        match &mut self.0 {
            // As for every future, polling on after the answer was given never gives another.
            Inner::Ready(answer) => answer.take().map_or(Poll::Pending, Poll::Ready),
            Inner::Later(future) => future.as_mut().poll(context),
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Answer<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Inner::Ready(answer) => f.debug_tuple("Answer").field(answer).finish(),
            Inner::Later(_) => f.write_str("Answer(..)"),
        }
    }
}
