//! A guard that settles its hold when the guard is dropped.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Instant, timeout};

use super::guard_count::CountedGuard;
use super::renewal::Slots;
use super::settlement::Settlement;
use super::ticket::Ticket;
use crate::error::{Error, ErrorKind};
use crate::limiter::Limiter;
use crate::store::Store;

/// The maximum duration of a task that settles a hold after its owner was dropped.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(10);

/// Settles a hold whose owner is being dropped. If the store answers immediately, `settle` is
/// polled once. Otherwise, a task settles the hold.
#[doc(hidden)]
pub fn settle_in_drop(
    store: &impl Store,
    runtime: &Handle,
    settle: impl Future<Output = ()> + Send + 'static,
) {
    if store.answers_immediately() {
        let _guard = runtime.enter();
        let _ = pin!(settle).as_mut().poll(&mut Context::from_waker(Waker::noop()));
    } else {
        runtime.spawn(async move { timeout(SETTLE_TIMEOUT, settle).await });
    }
}

/// The action of a dropped [`HoldGuard`] on its hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum OnDrop {
    /// Settles the hold at the reported costs ([`HoldGuard::spent`]). The charge of a policy
    /// without a reported cost is settled at the held amount. This is the default.
    #[default]
    Settle,
    /// Settles the hold at the reported costs. The charge of a policy without a reported cost is
    /// settled at zero.
    Cancel,
    /// Does not settle the hold, so that the held amounts stay charged.
    Keep,
}

/// A guard that settles its hold when the guard is dropped, for example when a stream is cut or a
/// handler is cancelled.
///
/// If the store answers immediately, the drop itself settles the hold. Otherwise a task settles the
/// hold, on the runtime in which the guard was created. If the store does not answer within 10 s,
/// the task ends, and the hold stays charged. Before a program ends, it can wait for these tasks
/// with [`Limiter::guards_settled`].
///
/// While the guard of a hold with [slots](crate::Concurrent) lives, a task renews the hold at a
/// third of the lease. All guards of a limiter and its clones share this task. The task runs on the
/// runtime of the first guard. It also renews the slots that a [fallback
/// store](crate::layers::FallbackStore) has taken. If a policy has failed open, no store has taken
/// its slots, and the guard has no deadline.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// use std::time::Duration;
/// use tidegate_core::{HoldGuard, Limiter, OnDrop};
/// use tidegate_memory::MemoryStore;
///
/// let limiter = Limiter::new(MemoryStore::new(), ["tokens: fixed-window 1000/1h".parse()?])?;
/// let hold = limiter.subject("alice").cost(600).hold("job 7", Duration::from_secs(60)).await?;
/// let mut guard = HoldGuard::new(&limiter, hold.into_ticket().unwrap(), OnDrop::Settle)?;
/// for _chunk in 0..5 {
///     guard.spent("tokens", 20);
/// }
/// drop(guard); // the client has disconnected
/// assert_eq!(limiter.subject("alice").cost(0).peek().await?.verdicts()[0].remaining(), 900);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "a guard that is dropped settles its hold"]
pub struct HoldGuard<S: Store + 'static> {
    open: Option<OpenHold<S>>,
    on_drop: OnDrop,
    runtime: Handle,
}

#[derive(Debug)]
struct OpenHold<S> {
    limiter: Limiter<S>,
    ticket: Ticket,
    spent: Vec<Option<u64>>,
    /// The slots of the hold, which are renewed until this value is dropped.
    slots: Option<Renewed<S>>,
    /// [`Limiter::guards_settled`] waits until this value is dropped, which is after the hold was
    /// settled.
    _counted: CountedGuard,
}

/// Slots that a task renews until this value is dropped.
#[derive(Debug)]
struct Renewed<S> {
    slots: Arc<Slots>,
    limiter: Limiter<S>,
}

impl<S> Drop for Renewed<S> {
    fn drop(&mut self) {
        self.limiter.shared.renewals.remove(&self.slots);
    }
}

impl<S: Store + 'static> HoldGuard<S> {
    /// Creates a guard for the hold of `ticket`.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Unsupported`] if the caller is outside of a Tokio runtime.
    pub fn new(limiter: &Limiter<S>, ticket: Ticket, on_drop: OnDrop) -> Result<Self, Error> {
        let Ok(runtime) = Handle::try_current() else {
            let message = "a guard of a hold needs a Tokio runtime, to settle when it is dropped";
            return Err(Error::new(ErrorKind::Unsupported, message));
        };
        let spent = vec![None; ticket.charges.len()];
        let _counted = limiter.counted_guard();
        let slots = Slots::new(&ticket).map(|slots| {
            slots.start(limiter, &runtime);
            Renewed { slots, limiter: limiter.clone() }
        });
        let open = OpenHold { limiter: limiter.clone(), ticket, spent, slots, _counted };
        Ok(Self { open: Some(open), on_drop, runtime })
    }

    /// Adds `amount` to the reported cost of a policy. This method does not call the store. If the
    /// hold has no charge of the policy, the amount is ignored.
    pub fn spent(&mut self, policy: &str, amount: u64) {
        let Some(open) = &mut self.open else { return };
        for ((name, _), spent) in open.ticket.held().zip(&mut open.spent) {
            if name == policy {
                *spent = Some(spent.unwrap_or(0).saturating_add(amount));
            }
        }
    }

    /// Returns the ticket of the hold, or `None` after the guard has settled the hold.
    #[must_use]
    pub fn ticket(&self) -> Option<&Ticket> {
        self.open.as_ref().map(|open| &open.ticket)
    }

    /// Returns the time until which the holder of the slots may work. Returns `None` if the hold
    /// has no [slots](crate::Concurrent), or if the guard has settled the hold.
    ///
    /// The deadline is the time at which the last successful renewal was sent, plus the lease,
    /// minus a twentieth of the lease. Each successful renewal moves the deadline. If the holders
    /// of a subject stop their work at their deadlines, no more of them than there are slots work
    /// at any time, regardless of pauses and lost answers.
    ///
    /// If the ticket of the guard comes from another process, the deadline has passed until the
    /// first renewal is answered.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.open.as_ref()?.slots.as_ref().map(|renewed| renewed.slots.deadline())
    }

    /// Waits until the slots of the hold are lost. This is the case when the store answers that it
    /// does not know the hold, that the hold was settled, or that another hold needed the slots. If
    /// the store does not answer, the slots count as lost one lease after the
    /// [deadline](Self::deadline).
    ///
    /// If the hold has no slots, this method waits forever.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// use std::time::Duration;
    /// use tidegate_core::{HoldGuard, Limiter, OnDrop};
    /// use tidegate_memory::MemoryStore;
    ///
    /// let limiter = Limiter::new(MemoryStore::new(), ["jobs: concurrent 2 lease 30s".parse()?])?;
    /// let hold = limiter.subject("alice").hold("job 7", Duration::from_secs(3600)).await?;
    /// let guard = HoldGuard::new(&limiter, hold.into_ticket().unwrap(), OnDrop::Settle)?;
    /// let work = async { "a report" };
    /// let result = tokio::select! {
    ///     report = work => Some(report),
    ///     () = guard.lost() => None, // another job possibly has the slot
    /// };
    /// assert_eq!(result, Some("a report"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn lost(&self) {
        match self.open.as_ref().and_then(|open| open.slots.as_ref()) {
            Some(renewed) => renewed.slots.lost().await,
            None => std::future::pending().await,
        }
    }

    /// Sends the reported costs to the store: see [`Limiter::settle_so_far`].
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Limiter::settle_so_far`].
    pub async fn settle_so_far(&self) -> Result<(), Error> {
        let Some(open) = &self.open else { return Ok(()) };
        let spent: Vec<_> = open.costs(|_| None).collect();
        open.limiter.settle_so_far(&open.ticket, spent).await.map(drop)
    }

    /// Settles the hold at the actual costs: see [`Limiter::settle`]. The [reported](Self::spent)
    /// costs are ignored. If the future is dropped before its end, a task settles the hold at the
    /// same costs.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Limiter::settle`]. Even after an error, the guard does not settle
    /// the hold again.
    pub async fn settle<'n>(
        mut self,
        costs: impl IntoIterator<Item = (&'n str, u64)>,
    ) -> Result<Settlement, Error> {
        let Some(open) = &mut self.open else {
            return Err(Error::new(ErrorKind::UnknownHold, "the guard has settled its hold"));
        };
        // `open` is cleared only after the call. So if the caller is cancelled during the call,
        // `drop` settles the hold at these costs.
        let costs: Vec<(&str, u64)> = costs.into_iter().collect();
        for ((name, _), spent) in open.ticket.held().zip(&mut open.spent) {
            *spent = costs.iter().rev().find(|(policy, _)| *policy == name).map(|(_, cost)| *cost);
        }
        self.on_drop = OnDrop::Settle;
        let answer = open.limiter.settle(&open.ticket, costs).await;
        self.open = None;
        answer
    }

    /// Returns the ticket of the hold. After that, the guard does not settle the hold.
    #[must_use]
    pub fn into_ticket(mut self) -> Option<Ticket> {
        self.open.take().map(|open| open.ticket)
    }
}

impl<S: Store + 'static> OpenHold<S> {
    /// Returns the name and the cost of each policy. The cost is the reported cost, or if there is
    /// none, the result of `default` for the held amount. If this result is `None`, the policy is
    /// omitted. Slots are omitted too, because a settlement frees all of them.
    fn costs<'o>(
        &'o self,
        default: impl Fn(u64) -> Option<u64> + 'o,
    ) -> impl Iterator<Item = (&'o str, u64)> {
        let charges = self.ticket.charges.iter().zip(&self.spent);
        charges.filter_map(move |(held, spent)| {
            let policy = held.charge.policy();
            let cost = spent.or_else(|| default(held.held)).filter(|_| !policy.is_concurrent())?;
            Some((policy.name(), cost))
        })
    }
}

impl<S: Store + 'static> Drop for HoldGuard<S> {
    fn drop(&mut self) {
        let is_cancel = match self.on_drop {
            OnDrop::Keep => return,
            OnDrop::Settle => false,
            OnDrop::Cancel => true,
        };
        let Some(mut open) = self.open.take() else { return };
        // The work has ended, so the slots must not be renewed while the settlement is in flight.
        open.slots = None;
        let limiter = open.limiter.clone();
        settle_in_drop(limiter.store(), &self.runtime, async move {
            let costs: Vec<_> = open.costs(|held| Some(if is_cancel { 0 } else { held })).collect();
            // A destructor cannot return an error of the settlement. After an error, the held
            // amounts stay charged, as documented.
            let _ = open.limiter.settle(&open.ticket, costs).await;
        });
    }
}
