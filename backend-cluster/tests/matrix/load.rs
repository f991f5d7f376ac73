//! Callers that do not stop calling.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tidegate_cluster::Store;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::ledger::{Ledger, Outcome};

const CALLERS: usize = 3;

/// One turn in `BATCHED` is a batch, of `BATCH` calls.
const BATCHED: usize = 4;
const BATCH: usize = 5;

/// How long a caller rests between its calls, as the machine has to run the servers too.
const REST: Duration = Duration::from_millis(6);

/// How often the account is looked at while something is waited for.
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
    gives_up: AtomicBool,
    in_flight: AtomicUsize,
}

impl Load {
    pub(crate) fn start(store: Arc<dyn Store>, ledger: Arc<Ledger>) -> Self {
        let shared = Arc::new(Shared {
            store,
            ledger,
            is_over: AtomicBool::new(false),
            is_idle: AtomicBool::new(false),
            gives_up: AtomicBool::new(false),
            in_flight: AtomicUsize::new(0),
        });
        let mut callers = JoinSet::new();
        for _ in 0..CALLERS {
            callers.spawn(call_again_and_again(Arc::clone(&shared)));
        }
        Self { callers, shared }
    }

    /// Lets the callers rest, and returns when no call is on its way.
    pub(crate) async fn rest(&self) {
        self.shared.is_idle.store(true, Ordering::SeqCst);
        while self.shared.in_flight.load(Ordering::SeqCst) > 0 {
            sleep(INTERVAL).await;
        }
    }

    pub(crate) fn go_on(&self) {
        self.shared.is_idle.store(false, Ordering::SeqCst);
    }

    /// Has the callers give their calls up after up to 9 ms, or be patient again.
    pub(crate) fn give_up(&self, gives_up: bool) {
        self.shared.gives_up.store(gives_up, Ordering::SeqCst);
    }

    /// Waits until a call that was made from then on is decided by the store, and returns how long that
    /// took; `None` if it takes longer than the bound.
    pub(crate) async fn until_decided(&self, from: Instant, bound: Duration) -> Option<Duration> {
        loop {
            let entries = self.shared.ledger.entries();
            let decided = entries.iter().filter(|it| it.asked >= from && it.outcome.is_decided());
            if let Some(first) = decided.map(|entry| entry.answered).min() {
                return Some(first - from).filter(|took| *took <= bound);
            }
            if from.elapsed() > bound {
                return None;
            }
            sleep(INTERVAL).await;
        }
    }

    /// Ends when all calls have.
    pub(crate) async fn stop(self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
        let _ = self.callers.join_all().await;
    }
}

async fn call_again_and_again(shared: Arc<Shared>) {
    let mut turn = 0;
    while !shared.is_over.load(Ordering::SeqCst) {
        shared.in_flight.fetch_add(1, Ordering::SeqCst);
        // A request to rest either sees this call in flight, or is seen here.
        if !shared.is_idle.load(Ordering::SeqCst) {
            turn = (turn + 1) % BATCHED;
            let numbers = shared.ledger.next(if turn == 0 { BATCH } else { 1 });
            let asked = Instant::now();
            let calls = shared.ledger.call(&*shared.store, numbers.clone());
            let answers = if shared.gives_up.load(Ordering::SeqCst) {
                let patience = Duration::from_millis(numbers.start as u64 % 10);
                timeout(patience, calls).await.ok()
            } else {
                Some(calls.await)
            };
            let mut answers = answers.into_iter().flatten();
            for number in numbers {
                shared.ledger.enter(number, asked, Outcome::of(answers.next()));
            }
        }
        shared.in_flight.fetch_sub(1, Ordering::SeqCst);
        sleep(REST).await;
    }
}
