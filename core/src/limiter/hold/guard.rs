//! A hold that is settled when it is dropped.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::timeout;

use super::guard_count::CountedGuard;
use super::{Settlement, Ticket};
use crate::{Error, ErrorKind, Limiter, Store};

/// The time after which a task that settles a dropped guard gives up.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(10);

/// What happens to a hold whose [`HoldGuard`] is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum OnDrop {
    /// It is settled at what was [spent](HoldGuard::spent) so far; a policy for which nothing was reported, at what it
    /// holds. The default.
    #[default]
    Settle,
    /// It is settled at what was spent so far; a policy for which nothing was reported, at nothing.
    Cancel,
    /// Nothing: what is held stays charged.
    Keep,
}

/// A hold that settles itself when it is dropped, as when a stream is cut or a handler is cancelled.
///
/// A dropped guard settles in place if the store answers immediately, else in a task of the runtime
/// in which it was made. The task gives up after 10 s: then the hold stays charged. A program that
/// ends waits for the tasks with [`Limiter::guards_settled`].
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// use std::time::Duration;
/// use tidegate_core::Limiter;
/// use tidegate_core::hold::{HoldGuard, OnDrop};
/// use tidegate_memory::MemoryStore;
///
/// let limiter = Limiter::new(MemoryStore::new(), ["tokens: fixed-window 1000/1h".parse()?])?;
/// let hold = limiter.subject("alice").cost(600).hold("job 7", Duration::from_secs(60)).await?;
/// let mut guard = HoldGuard::new(&limiter, hold.into_ticket().unwrap(), OnDrop::Settle)?;
/// for _chunk in 0..5 {
///     guard.spent("tokens", 20);
/// }
/// drop(guard); // the client has gone away
/// assert_eq!(limiter.subject("alice").cost(0).peek().await?.verdicts()[0].remaining(), 900);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "a guard that is dropped settles its hold"]
pub struct HoldGuard<S: Store + 'static> {
    /// `None` once it is settled.
    open: Option<Open<S>>,
    on_drop: OnDrop,
    runtime: Handle,
}

#[derive(Debug)]
struct Open<S> {
    limiter: Limiter<S>,
    ticket: Ticket,
    /// By the indices of the charges.
    spent: Vec<Option<u64>>,
    /// Dropped with the rest once the hold is settled.
    _counted: CountedGuard,
}

impl<S: Store + 'static> HoldGuard<S> {
    /// A guard of the hold of this ticket.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`] outside of a Tokio runtime.
    pub fn new(limiter: &Limiter<S>, ticket: Ticket, on_drop: OnDrop) -> Result<Self, Error> {
        let Ok(runtime) = Handle::try_current() else {
            let message = "a guard of a hold needs a Tokio runtime, to settle when it is dropped";
            return Err(Error::new(ErrorKind::Unsupported, message));
        };
        let spent = vec![None; ticket.charges().len()];
        let _counted = limiter.counted_guard();
        let open = Open { limiter: limiter.clone(), ticket, spent, _counted };
        Ok(Self { open: Some(open), on_drop, runtime })
    }

    /// Adds to what was spent of a policy. Nothing is sent to the store. A policy that the hold does not have is ignored.
    pub fn spent(&mut self, policy: &str, amount: u64) {
        let Some(open) = &mut self.open else { return };
        for (charge, spent) in open.ticket.charges().iter().zip(&mut open.spent) {
            if charge.charge.policy().name() == policy {
                *spent = Some(spent.unwrap_or(0).saturating_add(amount));
            }
        }
    }

    /// The ticket of the hold; `None` once the guard has settled it.
    #[must_use]
    pub fn ticket(&self) -> Option<&Ticket> {
        self.open.as_ref().map(|open| &open.ticket)
    }

    /// Sends what was spent so far to the store: see [`Limiter::settle_so_far`].
    ///
    /// # Errors
    ///
    /// As [`Limiter::settle_so_far`].
    pub async fn settle_so_far(&self) -> Result<(), Error> {
        let Some(open) = &self.open else { return Ok(()) };
        let spent: Vec<_> = open.costs(|_| None).collect();
        open.limiter.settle_so_far(&open.ticket, spent).await.map(drop)
    }

    /// Settles the hold at what was actually used, in place of what was [spent](Self::spent): see [`Limiter::settle`].
    ///
    /// # Errors
    ///
    /// As [`Limiter::settle`]. The guard settles nothing more then.
    pub async fn settle<'n>(
        mut self,
        costs: impl IntoIterator<Item = (&'n str, u64)>,
    ) -> Result<Settlement, Error> {
        // Only once it has been sent: a caller that is cancelled before leaves that to the drop.
        let answer = match &self.open {
            Some(open) => open.limiter.settle(&open.ticket, costs).await,
            None => Err(Error::new(ErrorKind::UnknownHold, "the guard has settled its hold")),
        };
        self.open = None;
        answer
    }

    /// The ticket of the hold, which the guard no longer settles.
    #[must_use]
    pub fn into_ticket(mut self) -> Option<Ticket> {
        self.open.take().map(|open| open.ticket)
    }
}

impl<S: Store + 'static> Open<S> {
    /// What was spent by policy, or `other` of a policy for which nothing was reported.
    fn costs<'o>(
        &'o self,
        other: impl Fn(u64) -> Option<u64> + 'o,
    ) -> impl Iterator<Item = (&'o str, u64)> {
        let charges = self.ticket.held().zip(&self.spent);
        charges
            .filter_map(move |((name, held), spent)| Some((name, spent.or_else(|| other(held))?)))
    }
}

impl<S: Store + 'static> Drop for HoldGuard<S> {
    fn drop(&mut self) {
        let is_cancel = match self.on_drop {
            OnDrop::Keep => return,
            OnDrop::Settle => false,
            OnDrop::Cancel => true,
        };
        let Some(open) = self.open.take() else { return };
        let is_immediate = open.limiter.store().answers_immediately();
        let settle = async move {
            let costs: Vec<_> = open.costs(|held| Some(if is_cancel { 0 } else { held })).collect();
            open.limiter.settle(&open.ticket, costs).await.map(drop)
        };
        if is_immediate {
            let _guard = self.runtime.enter();
            let mut settle = pin!(settle);
            // No caller is left to return an error to: what is held stays charged, as documented.
            let _ = settle.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        } else {
            self.runtime.spawn(async move { timeout(SETTLE_TIMEOUT, settle).await });
        }
    }
}
