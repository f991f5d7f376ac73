//! Renewal of the holds with slots, while their guards live.
//!
//! A limiter and its clones share one task. The task renews each hold at a third of its lease, and
//! sends the renewals that are due together in one batch.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout, timeout_at};

use super::ticket::Ticket;
use crate::call::{Call, Charge, Operation};
use crate::decision::Decision;
use crate::error::{Error, ErrorKind};
use crate::limiter::Limiter;
use crate::store::Store;

/// The maximum number of renewals in one batch. A batch occupies a Redis server for about 1 ms.
const MAX_BATCH: usize = 32;

/// The renewals of the guards of a limiter.
#[derive(Debug, Default)]
pub(crate) struct Renewals {
    queue: Mutex<Queue>,
    /// The task waits for this value, so that it notices a renewal that is due before all others.
    added: Notify,
}

#[derive(Debug, Default)]
struct Queue {
    /// The slots to renew.
    next: BTreeMap<Key, Weak<Slots>>,
    last_number: u64,
    has_task: bool,
}

/// The time of a renewal, and a number that makes the key unique.
type Key = (Instant, u64);

/// The slots of a hold, as the guard and the task see them.
#[derive(Debug)]
pub(super) struct Slots {
    ticket: Ticket,
    /// The key in the queue. It changes only while the queue is locked.
    key: Mutex<Option<Key>>,
    status: watch::Sender<Status>,
}

#[derive(Debug, Clone, Copy)]
struct Status {
    /// The lease by which the store prolonged the slots last. It changes if a limit set changes the
    /// lease of the policy.
    lease: Duration,
    /// The time until which the holder may work.
    deadline: Instant,
    is_lost: bool,
}

impl Renewals {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        // No code panics while it has the lock.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, at: Instant, slots: &Arc<Slots>) {
        let mut queue = self.lock();
        queue.last_number += 1;
        let key = (at, queue.last_number);
        slots.replace_key(Some(key));
        queue.next.insert(key, Arc::downgrade(slots));
        drop(queue);
        self.added.notify_one();
    }

    /// Removes the slots of a guard that is dropped. A renewal that is in flight adds them once
    /// more, and then finds that the guard was dropped.
    pub(super) fn remove(&self, slots: &Slots) {
        let mut queue = self.lock();
        if let Some(key) = slots.replace_key(None) {
            queue.next.remove(&key);
        }
    }

    /// Returns the time of the next renewal. Returns `None` if there is no renewal; the task then
    /// ends.
    fn next(&self) -> Option<Instant> {
        let mut queue = self.lock();
        let next = queue.next.first_key_value().map(|((at, _), _)| *at);
        queue.has_task = next.is_some();
        next
    }

    /// Removes and returns the slots whose renewal is due at `now`, at most [`MAX_BATCH`]. Also
    /// includes slots that are due within a tenth of the time between their renewals.
    fn take_due(&self, now: Instant) -> Vec<Arc<Slots>> {
        let mut queue = self.lock();
        let mut due = vec![];
        while due.len() < MAX_BATCH
            && let Some(first) = queue.next.first_entry()
        {
            let at = first.key().0;
            match first.get().upgrade() {
                Some(slots) if at > now + slots.lease() / 30 => break,
                Some(slots) => due.push(slots),
                None => {} // The guard was dropped.
            }
            first.remove();
        }
        due
    }
}

impl Slots {
    /// Creates the slots of a hold, if the hold has slots of an enforced policy. A hold that was
    /// admitted without the store has slots only if a fallback store keeps the hold.
    pub(super) fn new(ticket: &Ticket) -> Option<Arc<Self>> {
        let charges: Vec<Charge<'_>> =
            ticket.charges.iter().map(|held| held.charge.as_charge().cost(held.held)).collect();
        let call = Call::new(Operation::Extend, &charges);
        if ticket.is_kept_nowhere() || !call.must_renew() {
            return None;
        }
        let lease = call.life_of_hold(ticket.ttl);
        // The age of a hold of another process is unknown, so its deadline has passed until the
        // first renewal.
        let deadline =
            ticket.sent_at.at.map_or_else(Instant::now, |sent_at| deadline(sent_at, lease));
        let status = watch::Sender::new(Status { lease, deadline, is_lost: false });
        Some(Arc::new(Self { ticket: ticket.clone(), key: Mutex::default(), status }))
    }

    /// Starts the renewal of the slots. The task ends when all guards of the limiter are dropped.
    pub(super) fn start<S: Store + 'static>(
        self: &Arc<Self>,
        limiter: &Limiter<S>,
        runtime: &Handle,
    ) {
        let renewals = &limiter.shared.renewals;
        let next =
            self.ticket.sent_at.at.map_or_else(Instant::now, |sent_at| sent_at + self.lease() / 3);
        renewals.add(next, self);
        if !std::mem::replace(&mut renewals.lock().has_task, true) {
            let task = Task { limiter: limiter.clone(), is_running: true };
            runtime.spawn(task.run());
        }
    }

    fn replace_key(&self, key: Option<Key>) -> Option<Key> {
        std::mem::replace(&mut self.key.lock().unwrap_or_else(PoisonError::into_inner), key)
    }

    fn lease(&self) -> Duration {
        self.status.borrow().lease
    }

    pub(super) fn deadline(&self) -> Instant {
        self.status.borrow().deadline
    }

    /// Waits until the slots are lost, or until one lease after the deadline.
    pub(super) async fn lost(&self) {
        let mut status = self.status.subscribe();
        loop {
            let Status { lease, deadline, is_lost } = *status.borrow_and_update();
            let end = deadline + lease;
            if is_lost || Instant::now() >= end {
                return;
            }
            // The channel stays open, because `self` owns its sender.
            let _ = timeout_at(end, status.changed()).await;
        }
    }

    /// Records the answer to a renewal that was sent at `sent_at`. Returns the time of the next
    /// renewal, or `None` if the slots are lost.
    fn learn(&self, sent_at: Instant, answer: &Result<Decision, Error>) -> Option<Instant> {
        use ErrorKind::{AlreadySettled, HoldLapsed, IdReused, UnknownHold};
        match answer.as_ref().map_err(Error::kind) {
            Ok(decision) => {
                let charges = self.ticket.charges_under(decision);
                let lease = Call::new(Operation::Extend, &charges).life_of_hold(self.ticket.ttl);
                self.status.send_modify(|status| {
                    // A renewal never shortens the hold in the store.
                    status.deadline = status.deadline.max(deadline(sent_at, lease));
                    status.lease = lease;
                });
                Some(sent_at + lease / 3)
            }
            Err(AlreadySettled | HoldLapsed | IdReused | UnknownHold) => {
                self.status.send_modify(|status| status.is_lost = true);
                None
            }
            // The store did not answer. The slots are possibly still held, so the task tries again.
            Err(_) => Some(Instant::now() + (self.lease() / 12).max(Duration::from_millis(1))),
        }
    }
}

/// Returns the time until which a holder may work, if it sent its hold or its renewal at `sent_at`.
/// The margin is a twentieth of the lease. It is for clocks that differ in speed, and for late
/// timers.
fn deadline(sent_at: Instant, lease: Duration) -> Instant {
    sent_at + lease - lease / 20
}

/// The task that renews the slots of the guards of a limiter.
struct Task<S: Store + 'static> {
    limiter: Limiter<S>,
    is_running: bool,
}

impl<S: Store> Task<S> {
    async fn run(mut self) {
        while let Some(next) = self.limiter.shared.renewals.next() {
            let _ = timeout_at(next, self.limiter.shared.renewals.added.notified()).await;
            let due = self.limiter.shared.renewals.take_due(Instant::now());
            if !due.is_empty() {
                self.renew(due).await;
            }
        }
        // Another task is possibly running already.
        self.is_running = false;
    }

    async fn renew(&self, due: Vec<Arc<Slots>>) {
        let sent_at = Instant::now();
        let mut in_flight = InFlight { renewals: &self.limiter.shared.renewals, slots: due };
        let mut answers = self.send(&in_flight.slots).await.into_iter();
        for slots in std::mem::take(&mut in_flight.slots) {
            let no_answer = || Err(Error::new(ErrorKind::Timeout, "the renewal was not answered"));
            let answer = answers.next().unwrap_or_else(no_answer);
            if let Some(next) = slots.learn(sent_at, &answer) {
                self.limiter.shared.renewals.add(next, &slots);
            }
        }
    }

    /// Sends the renewals in one batch. Returns no answers if the store does not answer in time.
    async fn send(&self, due: &[Arc<Slots>]) -> Vec<Result<Decision, Error>> {
        let charges: Vec<Vec<Charge<'_>>> = due.iter().map(|slots| slots.ticket.free()).collect();
        let calls: Vec<Call<'_>> = due
            .iter()
            .zip(&charges)
            .map(|(slots, charges)| {
                Call::new(Operation::Extend, charges).with_id(slots.ticket.call_id())
            })
            .collect();
        let shortest = due.iter().map(|slots| slots.lease()).min().unwrap_or_default();
        timeout(shortest / 3, self.limiter.store().decide_many(&calls)).await.unwrap_or_default()
    }
}

/// The slots whose renewals are in flight. If the runtime ends before the answers, these slots are
/// due again, so that the next task renews them.
struct InFlight<'r> {
    renewals: &'r Renewals,
    slots: Vec<Arc<Slots>>,
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        for slots in &self.slots {
            self.renewals.add(Instant::now(), slots);
        }
    }
}

impl<S: Store> Drop for Task<S> {
    /// If the runtime ends, the next guard starts another task on its own runtime.
    fn drop(&mut self) {
        if self.is_running {
            self.limiter.shared.renewals.lock().has_task = false;
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking, and so do its helpers")]
mod tests {
    use super::*;
    use crate::call::{CallId, Charges};
    use crate::{Outcome, Policy, Verdict};

    /// Guards against a defect: the queue kept the slots of a dropped guard for a third of the
    /// lease, so short holds with a long lease filled the memory.
    #[test]
    fn the_queue_forgets_the_slots_of_a_dropped_guard() {
        let policy: Policy = "slots: concurrent 9 lease 1h".parse().unwrap();
        let charges = [Charge::new(&policy, "a")];
        let decision = Decision::one(Verdict::new(Outcome::Allowed, 9));
        let id = CallId::new("id", Duration::from_secs(3_600));
        let ticket = Ticket::from_decision(&decision, Charges::from(&charges[..]), id).unwrap();
        let [kept, dropped] = [(); 2].map(|()| Slots::new(&ticket).unwrap());
        let (renewals, now) = (Renewals::default(), Instant::now());
        renewals.add(now, &dropped);
        renewals.add(now, &kept);
        renewals.add(now, &dropped); // after a renewal, which has removed the first entry
        renewals.lock().next.pop_first();
        renewals.remove(&dropped);
        assert_eq!(renewals.take_due(now).len(), 1);
        assert_eq!(renewals.lock().next.len(), 0);
        renewals.remove(&dropped);
        renewals.remove(&kept);
    }
}
