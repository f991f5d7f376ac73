//! The operations of [`Request`] and [`MultiRequest`]. Each row of the macro call `operations!`
//! defines one operation.

use std::time::Duration;

use super::multi::MultiRequest;
use super::request::Request;
use crate::call::Operation;
use crate::decision::{Decision, Receipt};
use crate::error::Error;
use crate::store::{Answer, Store};

/// Defines two methods for each row of the macro call. The method of [`Request`] consumes the
/// request, and the method of [`MultiRequest`] borrows the request.
macro_rules! operations {
    ($(
        #[doc = $summary:literal]
        $(#[doc = $details:literal])*
        $(#[inline($inline:ident)])?
        $name:ident($($argument:ident: $type:ty),*) -> $answer:ident = $operation:expr;
    )+) => {
        impl<'a, S: Store> Request<'a, S> {$(
            #[doc = $summary]
            $(#[doc = $details])*
            $(#[inline($inline)])?
            pub fn $name(self $(, $argument: $type)*) -> Answer<'a, Result<$answer, Error>> {
                operations!(@$answer self.send($operation))
            }
        )+}

        /// # Errors
        ///
        /// Each operation returns [`ErrorKind::InvalidCall`](crate::ErrorKind::InvalidCall) if the
        /// request has the name of a policy that the limiter does not have. It returns
        /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the store does not support
        /// a policy of the request. Each operation also returns the errors of the store.
        impl<S: Store> MultiRequest<'_, S> {$(
            #[doc = $summary]
            ///
            #[doc = concat!("See [`Request::", stringify!($name), "`].")]
            pub fn $name(&self $(, $argument: $type)*) -> Answer<'_, Result<$answer, Error>> {
                operations!(@$answer self.send($operation))
            }
        )+}
    };
    (@Decision $answer:expr) => { $answer };
    (@Receipt $answer:expr) => { $answer.map(|answer| answer.map(Receipt::new)) };
}

operations! {
    /// Charges each cost if all policies admit their costs. Otherwise charges nothing.
    #[inline(always)]
    acquire() -> Decision = Operation::Acquire;

    /// Decides as [`acquire`](Self::acquire) would, and changes nothing.
    peek() -> Decision = Operation::Peek;

    /// Charges the maximum amount that all policies admit, from `min` up to the cost.
    ///
    /// If the policies do not admit `min`, the request is refused. [`Decision::amounts`] returns
    /// the charged amount, which is the same for each policy.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// use tidegate_core::Limiter;
    /// use tidegate_memory::MemoryStore;
    ///
    /// let limiter = Limiter::new(MemoryStore::new(), ["fixed-window 1000/1h".parse()?])?;
    /// let jobs = limiter.subject("alice").cost(600).acquire_up_to(100).await?;
    /// assert_eq!(jobs.amounts(), [600]);
    /// let jobs = limiter.subject("alice").cost(600).acquire_up_to(100).await?;
    /// assert_eq!(jobs.amounts(), [400]); // everything that remained
    /// let jobs = limiter.subject("alice").cost(600).acquire_up_to(100).await?;
    /// assert!(jobs.is_denied());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    acquire_up_to(min: u64) -> Decision = Operation::AcquireUpTo { min };

    /// Records a cost that was not known before, even beyond the limits.
    ///
    /// No policy refuses this operation. Later requests wait longer, because the cost is charged.
    /// [`Receipt::amounts`] returns the recorded amounts. A recorded amount is less than its cost
    /// only if the usage reaches an upper bound of [`Operation::Charge`].
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// use std::time::Duration;
    /// use tidegate_core::Limiter;
    /// use tidegate_memory::MemoryStore;
    ///
    /// let limiter = Limiter::new(MemoryStore::new(), ["token-bucket 100/1s".parse()?])?;
    /// assert!(limiter.acquire("alice").await?.is_allowed());
    /// // The answer had 600 tokens: five seconds of debt.
    /// limiter.subject("alice").cost(600).charge().await?;
    /// let decision = limiter.acquire("alice").await?;
    /// assert!(decision.retry_after() > Some(Duration::from_secs(4)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    charge() -> Receipt = Operation::Charge;

    /// Refunds the cost. The refund is at most the amount that is still charged.
    ///
    /// [`Receipt::amounts`] returns the refunded amounts.
    refund() -> Receipt = Operation::Refund;

    /// Reserves a place in the queue of a bucket, at most `max_wait` in the future.
    ///
    /// [`Decision::wait`] returns the time from now until the reserved place. Callers are served in
    /// the order of their calls. All policies must be buckets.
    reserve(max_wait: Duration) -> Decision = Operation::Reserve { max_wait };

    /// Removes the charges, the block and the offenses of the subject.
    reset() -> Receipt = Operation::Reset;

    /// Blocks the subject for `span` from now. A span of zero removes the block and the offenses.
    block(span: Duration) -> Receipt = Operation::Block { span };

    /// Blocks the subject for at least `span` from now. An earlier block that ends later does not
    /// change. A span of zero changes nothing.
    block_at_least(span: Duration) -> Receipt = Operation::BlockAtLeast { span };

    /// Removes the block of the subject, such as a [ban](Self::ban), and forgets its offenses. The
    /// charges stay.
    unban() -> Receipt = Operation::Block { span: Duration::ZERO };
}

/// Like `operations!`, but defines `async` methods. The code of a row uses a reference to the
/// request.
macro_rules! async_operations {
    ([$($bound:tt)+] $(
        #[doc = $summary:literal]
        $(#[doc = $details:literal])*
        $name:ident($request:ident $(, $argument:ident: $type:ty)*) -> $answer:ty $body:block
    )+) => {
        impl<S: $($bound)+> Request<'_, S> {$(
            #[doc = $summary]
            $(#[doc = $details])*
            pub async fn $name(self $(, $argument: $type)*) -> Result<$answer, Error> {
                let $request = &self;
                $body
            }
        )+}

        impl<S: $($bound)+> MultiRequest<'_, S> {$(
            #[doc = $summary]
            ///
            #[doc = concat!("See [`Request::", stringify!($name), "`].")]
            ///
            /// # Errors
            ///
            #[doc = concat!("Returns the errors of [`Request::", stringify!($name), "`] and of")]
            /// [`acquire`](Self::acquire).
            pub async fn $name(&self $(, $argument: $type)*) -> Result<$answer, Error> {
                let $request = self;
                $body
            }
        )+}
    };
}

pub(super) use async_operations;
