//! The load of a test: callers that make calls until the load is stopped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tidegate_cluster::Store;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::ledger::{Ledger, Outcome};

const CALLERS: usize = 3;

/// Every `BATCHED`th turn of a caller is a batch of `BATCH` calls. The other turns are single
/// calls.
const BATCHED: usize = 4;
const BATCH: usize = 5;

/// The pause of a caller between two turns, so that the callers do not overload the servers.
const PAUSE: Duration = Duration::from_millis(6);

/// The interval at which the ledger is checked while a test waits.
const INTERVAL: Duration = Duration::from_millis(5);

pub(crate) struct Load {
    callers: JoinSet<()>,
    shared: Arc<Shared>,
}

struct Shared {
    store: Arc<dyn Store>,
    ledger: Arc<Ledger>,
    is_over: AtomicBool,
    is_idle: AtomicBool,
    is_impatient: AtomicBool,
    in_flight: AtomicUsize,
}

impl Load {
    pub(crate) fn start(store: Arc<dyn Store>, ledger: Arc<Ledger>) -> Self {
        let shared = Arc::new(Shared {
            store,
            ledger,
            is_over: AtomicBool::new(false),
            is_idle: AtomicBool::new(false),
            is_impatient: AtomicBool::new(false),
            in_flight: AtomicUsize::new(0),
        });
        let mut callers = JoinSet::new();
        for _ in 0..CALLERS {
            callers.spawn(call_again_and_again(Arc::clone(&shared)));
        }
        Self { callers, shared }
    }

    /// Pauses the callers, and returns when no call is in flight.
    pub(crate) async fn pause(&self) {
        self.shared.is_idle.store(true, Ordering::SeqCst);
        while self.shared.in_flight.load(Ordering::SeqCst) > 0 {
            sleep(INTERVAL).await;
        }
    }

    pub(crate) fn resume(&self) {
        self.shared.is_idle.store(false, Ordering::SeqCst);
    }

    /// Sets whether the callers are impatient. An impatient caller waits at most 9 ms for each
    /// answer.
    pub(crate) fn set_impatient(&self, is_impatient: bool) {
        self.shared.is_impatient.store(is_impatient, Ordering::SeqCst);
    }

    /// Waits until the store has decided a call that a caller made at or after `from`. Returns the
    /// time between `from` and this decision, or `None` if it is longer than `bound`.
    pub(crate) async fn until_decided(&self, from: Instant, bound: Duration) -> Option<Duration> {
        loop {
            let entries = self.shared.ledger.entries();
            let decided =
                entries.iter().filter(|entry| entry.started >= from && entry.outcome.is_decided());
            if let Some(first) = decided.map(|entry| entry.answered).min() {
                return Some(first - from).filter(|took| *took <= bound);
            }
            if from.elapsed() > bound {
                return None;
            }
            sleep(INTERVAL).await;
        }
    }

    /// Stops the callers, and returns when all calls have ended.
    pub(crate) async fn stop(self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
        let _ = self.callers.join_all().await;
    }
}

async fn call_again_and_again(shared: Arc<Shared>) {
    let mut turn = 0;
    while !shared.is_over.load(Ordering::SeqCst) {
        shared.in_flight.fetch_add(1, Ordering::SeqCst);
        // The task counts its next call as in flight before it reads `is_idle`. So either `pause`
        // waits for this call, or the task sees that it must not make the call.
        if !shared.is_idle.load(Ordering::SeqCst) {
            turn = (turn + 1) % BATCHED;
            let numbers = shared.ledger.next(if turn == 0 { BATCH } else { 1 });
            let started = Instant::now();
            let calls = shared.ledger.call(&*shared.store, numbers.clone());
            let answers = if shared.is_impatient.load(Ordering::SeqCst) {
                let patience = Duration::from_millis(numbers.start as u64 % 10);
                timeout(patience, calls).await.ok()
            } else {
                Some(calls.await)
            };
            let mut answers = answers.into_iter().flatten();
            for number in numbers {
                shared.ledger.enter(number, started, Outcome::from_answer(answers.next()));
            }
        }
        shared.in_flight.fetch_sub(1, Ordering::SeqCst);
        sleep(PAUSE).await;
    }
}
