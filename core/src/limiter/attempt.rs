//! Attempts, such as logins. Only the failed attempts are counted.

use std::time::Duration;

use super::Limiter;
use super::hold::{HoldGuard, OnDrop, hold};
use super::multi::MultiRequest;
use super::operations::async_operations;
use super::request::Request;
use crate::call::{Call, CallId, ChargeBuf, Charges, Operation, random_bits};
use crate::decision::Decision;
use crate::error::{Error, ErrorKind};
use crate::store::Store;

/// The time after which an attempt lapses. A lapsed attempt counts as a failure, but can still be
/// settled for the same time.
const TTL: Duration = Duration::from_secs(60);

async_operations! {
    [Store + 'static]

    /// Makes an [`Attempt`], such as a login, which is counted only if it fails. Needs the feature
    /// `tokio`.
    ///
    /// The store charges the costs of the request immediately, and refunds them if the attempt
    /// succeeds. So a hundred guesses at the same time do not pass a limit of five failures.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::InvalidCall`] if a policy of the request has a block, but does not
    /// [count failures](crate::Policy::count_failures). Also returns the errors of
    /// [`hold`](Self::hold), and [`ErrorKind::Unsupported`] outside of a Tokio runtime.
    attempt(request) -> Attempt<S> {
        let (limiter, charges) = (request.limiter, request.charges()?);
        check(charges)?;
        let id = random_bits().map(u64::to_le_bytes);
        let id = CallId::new(id.as_flattened(), TTL);
        let hold = hold(limiter, charges, Operation::Hold, id).await?;
        let decision = hold.decision().clone();
        let guard = match hold.into_ticket() {
            Ok(ticket) => Some(HoldGuard::new(limiter, ticket, OnDrop::Settle)?),
            Err(_) => None,
        };
        let charges = charges.iter().map(|charge| ChargeBuf::from(charge).into_owned()).collect();
        Ok(Attempt { limiter: limiter.clone(), charges, decision, guard })
    }
}

/// Checks that no policy would block a subject because of open attempts.
fn check(charges: Charges<'_>) -> Result<(), Error> {
    let mut policies = charges.iter().map(|charge| charge.policy);
    let Some(policy) = policies.find(|policy| policy.blocks() && !policy.counts_failures()) else {
        return Ok(());
    };
    let message = format!(
        "`{policy}` blocks a subject also if its attempts are correct; add `count-failures` to it"
    );
    Err(Error::new(ErrorKind::InvalidCall, message))
}

/// An attempt, such as a login. [`Request::attempt`] makes it.
///
/// Call [`fail`](Self::fail) or [`succeed`](Self::succeed) for each attempt, also for one that was
/// refused. Then a refused attempt causes as many calls to the store as a wrong password, so their
/// durations do not show whether an account is locked.
///
/// An attempt that is dropped has failed. An attempt of a process that crashes has failed too: it
/// stays charged, and counts as open for a minute.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// use tidegate_core::Limiter;
/// use tidegate_memory::MemoryStore;
///
/// let policies = [
///     "account: sliding-log 5/15m block 1m x4 up to 1d forget 7d count-failures".parse()?,
///     "address: sliding-log 50/15m block 1m x4 up to 1d forget 7d count-failures".parse()?,
/// ];
/// let limiter = Limiter::new(MemoryStore::new(), policies)?;
/// let login = limiter.by("account", "alice").by("address", "203.0.113.9");
///
/// for guess in 1..=5 {
///     let attempt = login.attempt().await?;
///     assert!(attempt.is_allowed(), "guess {guess}");
///     attempt.fail().await?;
/// }
/// let attempt = login.attempt().await?;
/// assert!(!attempt.is_allowed());
/// // The account is locked, so the right password does not help either.
/// assert!(!attempt.succeed().await?);
/// // A locked account charges nothing to the address.
/// assert_eq!(limiter.by("address", "203.0.113.9").peek().await?.verdicts()[0].remaining(), 45);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "an attempt that is dropped has failed"]
pub struct Attempt<S: Store + 'static> {
    limiter: Limiter<S>,
    charges: Vec<ChargeBuf<'static>>,
    decision: Decision,
    /// The guard of the hold, or `None` if the attempt was refused.
    guard: Option<HoldGuard<S>>,
}

impl<S: Store + 'static> Attempt<S> {
    /// Returns `true` if the attempt may succeed. Otherwise a policy refused the attempt, and
    /// nothing is charged.
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        self.guard.is_some()
    }

    /// Returns the decision, with a verdict for each charge.
    pub fn decision(&self) -> &Decision {
        &self.decision
    }

    /// Counts a failure. If the attempt was refused, this method changes nothing, but also calls
    /// the store.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Limiter::settle`]. After an error, the attempt stays charged.
    pub async fn fail(mut self) -> Result<(), Error> {
        match self.guard.take() {
            Some(guard) => guard.settle([]).await.map(drop),
            None => self.look().await,
        }
    }

    /// Refunds the attempt, and returns `true`. If the attempt was refused, this method changes
    /// nothing and returns `false`: the client must not be let in.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Limiter::settle`]. After an error, the attempt stays charged.
    pub async fn succeed(mut self) -> Result<bool, Error> {
        self.refund().await
    }

    /// Refunds the attempt like [`succeed`](Self::succeed), and then removes all charges, the block
    /// and the offenses of the subject under `policy`, such as the failures of an account. An
    /// attempt that is still open then counts only if it [fails](Self::fail).
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::InvalidCall`] if the attempt has no charge to `policy`. The attempt has
    /// then failed. Also returns the errors of [`succeed`](Self::succeed). If only the removal
    /// fails, the attempt itself is refunded.
    pub async fn succeed_and_clear(mut self, policy: &str) -> Result<bool, Error> {
        let is_cleared = |charge: &&ChargeBuf<'_>| charge.policy().name() == policy;
        if !self.charges.iter().any(|charge| is_cleared(&charge)) {
            self.limiter.policy(policy)?;
            let message = format!("the attempt has no charge to the policy `{policy}`");
            return Err(Error::new(ErrorKind::InvalidCall, message));
        }
        if !self.refund().await? {
            return Ok(false);
        }
        let cleared: Vec<_> =
            self.charges.iter().filter(is_cleared).map(ChargeBuf::as_charge).collect();
        self.limiter.store().decide(Call::new(Operation::Reset, &cleared)).await.map(|_| true)
    }

    /// Refunds the attempt. Returns `false` if the attempt was refused.
    async fn refund(&mut self) -> Result<bool, Error> {
        let Some(guard) = self.guard.take() else {
            return self.look().await.map(|()| false);
        };
        guard.settle(self.charges.iter().map(|charge| (charge.policy().name(), 0))).await?;
        Ok(true)
    }

    /// Calls the store for a refused attempt, as a settlement would do.
    async fn look(&self) -> Result<(), Error> {
        let charges: Vec<_> = self.charges.iter().map(ChargeBuf::as_charge).collect();
        self.limiter.store().decide(Call::new(Operation::Peek, &charges)).await.map(drop)
    }
}
