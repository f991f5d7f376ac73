//! Waiting for slots in the order in which the store received the calls.

use std::fmt;
use std::future::{Future, poll_fn};
use std::hash::BuildHasher;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use super::ticket::{Hold, Sent};
use crate::call::{Call, CallId, Charge, ChargeBuf, Charges, Operation};
use crate::decision::{Decision, Place};
use crate::error::{Error, ErrorKind};
use crate::limiter::Limiter;
use crate::limiter::waiting::{is_failed_closed, too_many_waiters};
use crate::store::Store;
use crate::sync::hash::FastRandomState;

/// The bounds of the pause between two calls of the first caller in a queue.
const MIN_PAUSE: Duration = Duration::from_millis(2);
const MAX_PAUSE: Duration = Duration::from_millis(100);

/// The maximum pause of every other caller.
const MAX_PAUSE_BEHIND: Duration = Duration::from_secs(1);

/// The pause of the first caller if the store wakes callers. A caller also sends its call after a
/// pause, because no wake-up follows a lapse, and because a wake-up can be lost.
const PAUSE_WITH_WAKE_UP: Duration = Duration::from_millis(250);

/// The maximum duration of a task that gives up a place.
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(10);

/// Wakes the callers that wait for slots when a hold of the same limiter ends. The subjects are
/// distributed over a fixed number of parts, so that a settlement wakes few callers of other
/// subjects.
#[derive(Default)]
pub(crate) struct FreedSlots {
    parts: [Notify; 32],
    hasher: FastRandomState,
}

impl fmt::Debug for FreedSlots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FreedSlots")
    }
}

impl FreedSlots {
    fn part(&self, charge: &Charge<'_>) -> &Notify {
        let key = (charge.policy.name(), charge.tenant, charge.state_subject());
        let [byte, ..] = self.hasher.hash_one(key).to_le_bytes();
        &self.parts[usize::from(byte) % self.parts.len()]
    }

    /// Wakes the callers that wait for slots of the charges.
    pub(super) fn notify(&self, charges: &[Charge<'_>]) {
        for charge in charges.iter().filter(|charge| charge.policy.is_concurrent()) {
            self.part(charge).notify_waiters();
        }
    }
}

/// Sends the hold until it is admitted, or until `max_wait` has passed.
pub(super) async fn hold<S: Store + 'static>(
    limiter: &Limiter<S>,
    charges: Charges<'_>,
    id: CallId<'_>,
    max_wait: Duration,
) -> Result<Hold, Error> {
    let started = Instant::now();
    let mut turn = Turn::new(limiter, charges, id)?;
    let first_slots = charges.iter().find(|charge| charge.policy.is_concurrent());
    let life = Call::with_charges(Operation::Hold, charges).life_of_place(id.ttl);
    let (mut permit, mut own_turn) = (None, None);
    loop {
        let freed = first_slots.as_ref().map(|charge| limiter.shared.freed_slots.part(charge));
        // The caller listens before it sends the call, so that it misses no settlement.
        let mut wake_up = freed.map(|freed| Box::pin(freed.notified()));
        if let Some(wake_up) = &mut wake_up {
            wake_up.as_mut().enable();
        }
        let sent_at = Sent::now();
        let decision = match turn.send().await {
            Ok(decision) => decision,
            Err(error) => {
                turn.keep_hold();
                return Err(error);
            }
        };
        if decision.is_allowed() {
            turn.end();
            let waited = if permit.is_some() { started.elapsed() } else { Duration::ZERO };
            return Ok(Hold::new(decision.with_wait(waited), charges, id, sent_at));
        }
        let waited = started.elapsed();
        let left = max_wait.saturating_sub(waited);
        let is_too_long = left.is_zero() || decision.retry_after().is_some_and(|wait| wait > left);
        let pause = pause(&decision, waited, life, own_turn.is_some());
        let Some(pause) = pause.filter(|_| !is_too_long) else {
            return Ok(Hold::new(decision, charges, id, sent_at));
        };
        if permit.is_none() {
            let max = limiter.wait_limits.max_waiters;
            permit = Some(
                limiter.shared.waiters.acquire_permit(max).ok_or_else(|| too_many_waiters(max))?,
            );
        }
        let place = decision.place();
        let listen = || limiter.store().until_turn(charges, place?.number);
        if own_turn.is_none() {
            own_turn = listen();
            if own_turn.is_some() {
                // Slots have possibly become free before the store began to listen.
                continue;
            }
        }
        let freed = wake_up.filter(|_| place.is_some_and(|place| place.ahead <= 1));
        // It does not matter whether the pause has passed or slots are free.
        drop(timeout(pause.min(left), first_of(freed, own_turn.take())).await);
        own_turn = listen();
    }
}

/// Waits until one of the futures has completed.
async fn first_of(mut one: Option<impl Future + Unpin>, mut other: Option<impl Future + Unpin>) {
    poll_fn(|context| {
        let one = one.as_mut().is_some_and(|one| Pin::new(one).poll(context).is_ready());
        let other = other.as_mut().is_some_and(|other| Pin::new(other).poll(context).is_ready());
        if one || other { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// Returns the pause until the call is sent again, or `None` if it can never be admitted or the
/// store is away.
///
/// The first caller in a queue pauses for a sixteenth of the time that it has waited. So a short
/// wait ends soon after the slot is free, and a long wait sends few calls. A caller behind `n`
/// others pauses `n + 1` times as long. If the store wakes the caller (`is_woken`), all pauses are
/// longer. A pause is at most half of the life of a place.
fn pause(refusal: &Decision, waited: Duration, life: Duration, is_woken: bool) -> Option<Duration> {
    if is_failed_closed(refusal) {
        return None;
    }
    match (refusal.place(), refusal.retry_after()) {
        (Some(Place { ahead, .. }), rate) => {
            let (first, max) = match is_woken {
                true => (PAUSE_WITH_WAKE_UP, life),
                false => ((waited / 16).clamp(MIN_PAUSE, MAX_PAUSE), MAX_PAUSE_BEHIND),
            };
            let pause = first.saturating_mul(ahead.saturating_add(1)).min(max);
            Some(pause.max(rate.unwrap_or_default()).min(life / 2))
        }
        (None, rate) => rate.map(|rate| rate.max(MIN_PAUSE)),
    }
}

/// A call that waits for its turn. If this value is dropped before the call was admitted, a task
/// gives up the place of the call. If the call is in flight then, and is admitted, the task cancels
/// the hold.
struct Turn<S: Store + 'static> {
    parts: Option<Parts<S>>,
    call: Option<Pin<Box<dyn Future<Output = Answered<S>> + Send>>>,
    runtime: Handle,
}

type Answered<S> = (Parts<S>, Result<Decision, Error>);

struct Parts<S> {
    limiter: Limiter<S>,
    charges: Vec<ChargeBuf<'static>>,
    id: Vec<u8>,
    ttl: Duration,
    place: u64,
    /// Whether the store possibly holds slots for the call, because an answer was lost, and the
    /// store has not answered since then.
    is_unknown: bool,
}

impl<S: Store + 'static> Turn<S> {
    fn new(limiter: &Limiter<S>, charges: Charges<'_>, id: CallId<'_>) -> Result<Self, Error> {
        let Ok(runtime) = Handle::try_current() else {
            return Err(Error::new(ErrorKind::Unsupported, "waiting needs a Tokio runtime"));
        };
        let parts = Parts {
            limiter: limiter.clone(),
            charges: charges.iter().map(|charge| ChargeBuf::from(charge).into_owned()).collect(),
            id: id.id.to_vec(),
            ttl: id.ttl,
            place: 0,
            is_unknown: false,
        };
        Ok(Self { parts: Some(parts), call: None, runtime })
    }

    async fn send(&mut self) -> Result<Decision, Error> {
        let Some(parts) = self.parts.take() else {
            return Err(Error::new(ErrorKind::UnknownHold, "the call has ended"));
        };
        self.call = Some(Box::pin(parts.send()));
        let (parts, answer) = poll_fn(|context| match &mut self.call {
            Some(call) => call.as_mut().poll(context),
            None => Poll::Pending,
        })
        .await;
        (self.call, self.parts) = (None, Some(parts));
        answer
    }

    /// Keeps the hold that the store has possibly made although its answer was lost. The caller can
    /// send the call again under its id to get this hold, so a task must not cancel it.
    fn keep_hold(&mut self) {
        if let Some(parts) = &mut self.parts {
            parts.is_unknown = false;
        }
    }

    /// Ends the turn after the call was admitted.
    fn end(mut self) {
        self.parts = None;
    }
}

impl<S: Store + 'static> Parts<S> {
    async fn send(mut self) -> Answered<S> {
        let operation = Operation::HoldInTurn { place: self.place };
        let answer = self.decide(operation, Some(CallId::new(&self.id, self.ttl))).await;
        match &answer {
            Ok(decision) => {
                self.place = decision.place().map_or(0, |place| place.number);
                let reason = decision.degraded().map(|degraded| degraded.reason);
                self.is_unknown = reason
                    .is_some_and(|reason| self.is_unknown || !reason.is_definitely_not_charged());
            }
            Err(error) => self.is_unknown |= !error.is_definitely_not_charged(),
        }
        (self, answer)
    }

    async fn decide(
        &self,
        operation: Operation,
        id: Option<CallId<'_>>,
    ) -> Result<Decision, Error> {
        let call = Call::with_charges(operation, Charges::from(&self.charges[..]));
        self.limiter.store().decide(Call { id, ..call }).await
    }

    async fn give_up(self, is_admitted: bool) {
        // No caller waits for the answers to these calls. If they fail, the place and the slots end
        // by themselves.
        if self.place > 0 {
            let _ = self.decide(Operation::Leave { place: self.place }, None).await;
        }
        if is_admitted || self.is_unknown {
            let free: Vec<Charge<'_>> =
                self.charges.iter().map(|charge| charge.as_charge().cost(0)).collect();
            let settle = Call::new(Operation::Settle, &free);
            let _ =
                self.limiter.store().decide(settle.with_id(CallId::new(&self.id, self.ttl))).await;
            self.limiter.shared.freed_slots.notify(&free);
        }
    }
}

impl<S: Store + 'static> Turn<S> {
    fn clean_up(&self, work: impl Future<Output = ()> + Send + 'static) {
        // `timeout` is called in the task, because it panics outside of a runtime.
        self.runtime.spawn(async move { timeout(CLEANUP_TIMEOUT, work).await });
    }
}

impl<S: Store + 'static> Drop for Turn<S> {
    fn drop(&mut self) {
        if let Some(call) = self.call.take() {
            self.clean_up(async move {
                let (parts, answer) = call.await;
                parts.give_up(answer.is_ok_and(|decision| decision.is_allowed())).await;
            });
        } else if let Some(parts) =
            self.parts.take().filter(|parts| parts.place > 0 || parts.is_unknown)
        {
            self.clean_up(parts.give_up(false));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Outcome, Verdict};

    fn refusal(place: Option<u32>, rate: Option<Duration>) -> Decision {
        let decision = Decision::one(Verdict::new(Outcome::Denied, 1).with_retry_after(rate));
        match place {
            Some(ahead) => decision.with_place(Place::new(7, ahead)),
            None => decision,
        }
    }

    #[test]
    fn a_pause_grows_with_the_wait_and_the_queue_and_keeps_the_place() {
        let millis = Duration::from_millis;
        let life = millis(5_000);
        for (ahead, waited, expected) in [
            (0, 0, 2),
            (0, 160, 10),
            (0, 60_000, 100),
            (1, 0, 4),
            (3, 160, 40),
            (9, 60_000, 1_000),
            (u32::MAX, 60_000, 1_000),
        ] {
            let pause = pause(&refusal(Some(ahead), None), millis(waited), life, false);
            assert_eq!(pause, Some(millis(expected)), "{ahead} {waited}");
        }
        // The caller waits for the rate, but keeps its place.
        let rate = |wait| pause(&refusal(Some(0), Some(millis(wait))), millis(0), life, false);
        assert_eq!((rate(1_000), rate(60_000)), (Some(millis(1_000)), Some(millis(2_500))));
        let short = pause(&refusal(Some(9), None), millis(60_000), millis(10), false);
        assert_eq!(short, Some(millis(5)));
        let without_place = |rate| pause(&refusal(None, rate), millis(0), life, false);
        assert_eq!(without_place(Some(millis(60_000))), Some(millis(60_000)));
        assert_eq!(without_place(None), None);
        let woken = |ahead| pause(&refusal(Some(ahead), None), millis(0), life, true);
        assert_eq!((woken(0), woken(1)), (Some(millis(250)), Some(millis(500))));
        assert_eq!(woken(u32::MAX), Some(millis(2_500)));
    }
}
