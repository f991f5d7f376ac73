//! The trait of stores.

mod answer;

use std::fmt;
use std::sync::Arc;

pub use answer::Answer;

use crate::{Call, Charge, Charges, Decision, Error, ErrorKind, Policy, Timestamp};

/// A store keeps states and decides calls. It uses its own clock.
///
/// A store executes a whole operation and returns a decision. It has no separate methods to read or
/// write a state. A layer is a store around another store, such as a timeout or a circuit breaker:
/// see [`Layer`](crate::layers::Layer).
///
/// The trait is object safe: `Arc<dyn Store>` is a store. A call through an `Arc<dyn Store>`
/// allocates nothing if the store answers immediately.
///
/// # What every store guarantees
///
/// 1. A call makes all of its charges, or none, atomically. The costs of charges to one key add up.
/// 2. A denial, a peek, a cost of 0 and a failed call write nothing. (A denial by a policy with
///    [`block_for`](Policy::block_for) writes the block, and a denial by a [fair
///    pool](crate::FairPool) writes the demand, and nothing else.)
/// 3. The store admits exactly as much as the policy allows, in any interleaving of calls.
/// 4. If the clock steps back, the store admits nothing more. The step delays a recovery by at most
///    the length of the step.
/// 5. The store drops a state only if the state cannot be distinguished from no state, by the
///    store's clock.
/// 6. The same calls at the same times get the same answers, in single calls or in a batch.
/// 7. The values of a verdict are exact: `remaining`, `retry_after`, `reset_after`.
/// 8. Two subjects, two tenants or two policies share no state, for any bytes of their names.
///    (Policies share states only if they have the same [`state_name`](Policy::state_name).)
/// 9. If a policy changes and keeps its name, it also keeps its usage, or it has another state.
/// 10. A block lasts exactly as long as requested, and a shadow never refuses.
/// 11. An undo refunds the part of its charge that has not recovered. It never refunds a charge of
///     another call.
/// 12. An error is never a denial, and a call is charged at most once.
///
/// `tidegate-testkit` checks these guarantees on any store, and names the guarantee that a store
/// breaks.
///
/// The engine does the arithmetic. A store finds the records of a call, locks out other callers,
/// and calls [`engine::decide`](crate::engine::decide) (see [`Records`](crate::engine::Records)). A
/// store with its states in a database restores the records from its rows with
/// [`Record::restore`](crate::engine::Record::restore). `examples/sqlite` in the repository does
/// this.
///
/// # Example
///
/// A store that admits every call, for an application in which limits are switched off:
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
    /// Executes one call.
    fn decide<'a>(&'a self, call: Call<'a>) -> Answer<'a, Result<Decision, Error>>;

    /// Executes a batch of independent calls, and returns one answer per call, in order.
    ///
    /// Each call is atomic, but the batch as a whole is not. The store is allowed to execute the
    /// calls in any order, unless they share a key. If each round trip has a cost, the store sends
    /// the calls together.
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

    /// Returns the current time by the store's clock.
    fn now(&self) -> Answer<'_, Result<Timestamp, Error>>;

    /// Checks that the store can decide, for example when a program starts. The check changes no
    /// state of any subject.
    ///
    /// A store on a server checks that it can reach the server, and that the server accepts this
    /// client and its writes. The default implementation reads the time. The `ready` of a layer
    /// directly calls the `ready` of its inner store, without timeouts, breakers and fallbacks.
    ///
    /// # Errors
    ///
    /// Returns the first error that a call would return.
    fn ready(&self) -> Answer<'_, Result<(), Error>> {
        self.now().map(|time| time.map(drop))
    }

    /// Returns `true` if [`decide`](Self::decide) always returns an answer that is
    /// [ready](Answer::into_ready).
    ///
    /// If the method returns `true`, a caller in a synchronous function, such as a middleware,
    /// needs no future that owns the charges of the call. The default is `false`.
    fn answers_immediately(&self) -> bool {
        false
    }

    /// Returns the batch group of this call. The calls of one group can be sent in one batch.
    /// Returns `None` if a batch does not make this call cheaper.
    ///
    /// The layer `coalesced` (feature `tokio`) sends a batch per group. A cluster has a group for
    /// each node, so that a slow node does not delay the calls for other nodes. Calls that share a
    /// key should be in one group. This method must not call a server. By default, all calls are in
    /// one group.
    fn batch_group(&self, call: &Call<'_>) -> Option<u64> {
        let _ = call;
        Some(0)
    }

    /// Returns a future that completes when a [call in turn](crate::Operation::HoldInTurn) with the
    /// place `place` should be sent again, because slots are possibly free. Returns `None` if the
    /// store cannot detect this now, so that the caller must send the call at short intervals.
    ///
    /// The future is only a hint, so the caller also sends the call at long intervals. The future
    /// completes if slots become free after this method has returned, even if it was not polled
    /// before. So a caller that calls this method first and then sends the call misses nothing. The
    /// future also completes if the store can no longer detect free slots.
    ///
    /// This method must not wait for a server. A store on a server returns `None` while it
    /// subscribes to the wake-ups of the server, and the caller calls the method again later. By
    /// default, the method returns `None`.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate_core::{Call, CallId, Charge, Decision, Error, Operation, Place, Store};
    ///
    /// /// Sends a call again that has the place `place`, until it is admitted.
    /// async fn wait_in_turn(
    ///     store: &impl Store,
    ///     charges: &[Charge<'_>],
    ///     id: CallId<'_>,
    ///     place: u64,
    /// ) -> Result<Decision, Error> {
    ///     let call = Call::new(Operation::HoldInTurn { place }, charges).with_id(id);
    ///     loop {
    ///         let turn = store.until_turn(call.charges, place);
    ///         let decision = store.decide(call).await?;
    ///         if decision.place().map(|place| place.number) != Some(place) {
    ///             return Ok(decision); // admitted, or has lost its place
    ///         }
    ///         match turn {
    ///             Some(turn) => drop(tokio::time::timeout(Duration::from_secs(1), turn).await),
    ///             None => tokio::time::sleep(Duration::from_millis(50)).await,
    ///         }
    ///     }
    /// }
    /// ```
    fn until_turn(&self, charges: Charges<'_>, place: u64) -> Option<Answer<'_, ()>> {
        let _ = (charges, place);
        None
    }

    /// Returns the policy that replaces the policy of a charge in this store, because a [limit
    /// set](crate::LimitSet) has a limit for its subject. Returns `None` if the store decides by
    /// the policy of the charge, as it does by default.
    ///
    /// A limiter checks the [maximum hold](Policy::max_hold) of this policy before it sends a hold.
    fn adjusted_policy<'a>(&'a self, charge: Charge<'a>) -> Answer<'a, Option<Policy>> {
        let _ = charge;
        Answer::ready(None)
    }

    /// Checks that the store can keep states of this policy.
    ///
    /// A limiter calls this method when the limiter is built, so the method must not call a server.
    /// The default implementation rejects policies whose states [store their
    /// holds](Policy::stores_holds), because this needs code of the store.
    ///
    /// # Errors
    ///
    /// Returns an error of kind [`Unsupported`](crate::ErrorKind::Unsupported). The message of the
    /// error says which change of the policy or of the store would help.
    fn supports(&self, policy: &Policy) -> Result<(), Error> {
        keeps_lapsed(policy)
    }
}

/// Executes calls, and returns one answer per call, in order. A single call is not sent as a batch,
/// because layers do less for it.
#[doc(hidden)]
pub async fn send_all(
    store: &(impl Store + ?Sized),
    calls: &[Call<'_>],
) -> Vec<Result<Decision, Error>> {
    match calls {
        [] => vec![],
        [call] => vec![store.decide(*call).await],
        calls => store.decide_many(calls).await,
    }
}

/// Checks that the states of the policy do not store their holds.
///
/// # Errors
///
/// Returns [`ErrorKind::Unsupported`] if the states of the policy [store their
/// holds](Policy::stores_holds).
pub fn keeps_lapsed(policy: &Policy) -> Result<(), Error> {
    if !policy.stores_holds() {
        return Ok(());
    }
    let message = if policy.is_concurrent() {
        format!("`{policy}` has slots, whose holds this store cannot keep")
    } else if policy.counts_failures() {
        format!("`{policy}` counts failures, which this store cannot do: it cannot keep attempts")
    } else {
        format!(
            "`{policy}` refunds lapsed holds, which this store cannot do; without `refund-lapsed`, a hold stays \
             charged until it is settled"
        )
    };
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

            fn until_turn(&self, charges: Charges<'_>, place: u64) -> Option<Answer<'_, ()>> {
                (**self).until_turn(charges, place)
            }

            fn adjusted_policy<'a>(&'a self, charge: Charge<'a>) -> Answer<'a, Option<Policy>> {
                (**self).adjusted_policy(charge)
            }

            fn supports(&self, policy: &Policy) -> Result<(), Error> {
                (**self).supports(policy)
            }
        }
    )+};
}
forward!(&S, Box<S>, Arc<S>);
