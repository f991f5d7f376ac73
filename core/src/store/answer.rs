//! The answer of a store. It is ready, or must be awaited.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// The answer of a store: a value that is ready, or a boxed future that must be awaited.
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
    /// Creates an answer that is ready.
    #[inline]
    pub fn ready(answer: T) -> Self {
        Self(Inner::Ready(Some(answer)))
    }

    /// Creates an answer that must be awaited.
    pub fn later(answer: impl Future<Output = T> + Send + 'a) -> Self {
        Self(Inner::Later(Box::pin(answer)))
    }

    /// Creates an answer from a future. If `is_immediate` is `true`, the future must never wait,
    /// and the answer is ready.
    pub(crate) fn from_future(
        is_immediate: bool,
        future: impl Future<Output = T> + Send + 'a,
    ) -> Self {
        let mut answer = Self::later(future);
        if is_immediate
            && let Poll::Ready(value) =
                Pin::new(&mut answer).poll(&mut Context::from_waker(Waker::noop()))
        {
            return Self::ready(value);
        }
        answer
    }

    /// Returns this answer with `change` applied to its value.
    pub fn map<U>(self, change: impl FnOnce(T) -> U + Send + 'a) -> Answer<'a, U>
    where
        T: 'a,
    {
        match self.0 {
            Inner::Ready(Some(answer)) => Answer::ready(change(answer)),
            // The answer has no value, because an earlier poll has returned it.
            Inner::Ready(None) => Answer(Inner::Ready(None)),
            Inner::Later(future) => Answer::later(async move { change(future.await) }),
        }
    }

    /// Calls `look` with the value when the value is ready, and returns the value unchanged.
    ///
    /// ```
    /// use tidegate_core::Answer;
    ///
    /// let answer = Answer::ready(7).inspect(|value| assert_eq!(*value, 7));
    /// assert_eq!(answer.into_ready().unwrap(), 7);
    /// ```
    #[inline]
    pub fn inspect(self, look: impl FnOnce(&T) + Send + 'a) -> Self
    where
        T: 'a,
    {
        self.map(|value| {
            look(&value);
            value
        })
    }

    /// Returns the value if the value is ready.
    ///
    /// # Errors
    ///
    /// Returns the answer itself if the answer must be awaited. Also returns the answer itself if a
    /// poll has already returned the value.
    #[inline]
    pub fn into_ready(self) -> Result<T, Self> {
        match self.0 {
            Inner::Ready(Some(answer)) => Ok(answer),
            inner => Err(Self(inner)),
        }
    }
}

// `Unpin` is safe to implement: the box pins its future, and a value that is ready needs no
// pinning.
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
