//! A store whose answers are controlled by the test. Each call or batch waits until the test lets
//! it pass, and the test chooses its fate, such as an error.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use tidegate_core::{Answer, Call, Decision, Error, ErrorKind, ManualClock, Store, Timestamp};
use tidegate_testkit::ModelStore;
use tokio::sync::{Mutex as Turns, mpsc};

/// The fate that the test chooses for a batch, or for a call that is not batched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Executed,
    /// The store does not execute the batch. Each call of the batch gets this error.
    Before(ErrorKind),
    /// The store executes the batch, but the answers are lost. Each call of the batch gets this
    /// error.
    After(ErrorKind),
    /// The store executes the batch, but returns no answer to the last call of the batch.
    OneTooFew,
    Panic,
}

/// The subject and the cost of a call.
pub(crate) type Sent = (String, u64);

/// A [`ModelStore`] at which calls wait until the test lets them pass. All clones use one
/// `ModelStore`.
#[derive(Debug, Clone)]
pub(crate) struct Gate(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    model: ModelStore,
    fates: mpsc::UnboundedSender<Fate>,
    next_fate: Turns<mpsc::UnboundedReceiver<Fate>>,
    sent: Mutex<Vec<Vec<Sent>>>,
    executed: Mutex<Vec<Sent>>,
    in_flight: AtomicUsize,
    max_in_flight: AtomicUsize,
}

impl Gate {
    pub(crate) fn new() -> Self {
        let (fates, receiver) = mpsc::unbounded_channel();
        Self(Arc::new(Inner {
            model: ModelStore::new(ManualClock::default()),
            fates,
            next_fate: Turns::new(receiver),
            sent: Mutex::default(),
            executed: Mutex::default(),
            in_flight: AtomicUsize::new(0),
            max_in_flight: AtomicUsize::new(0),
        }))
    }

    /// Lets the batch in flight pass. If no batch is in flight, lets the next batch pass.
    pub(crate) fn pass(&self, fate: Fate) {
        self.0.fates.send(fate).unwrap();
    }

    /// Returns the batches that were sent since this function was last called.
    pub(crate) fn sent(&self) -> Vec<Vec<Sent>> {
        std::mem::take(&mut self.0.sent.lock().unwrap())
    }

    /// Returns all calls that the store has executed, in the order of execution.
    pub(crate) fn executed(&self) -> Vec<Sent> {
        self.0.executed.lock().unwrap().clone()
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.0.in_flight.load(SeqCst)
    }

    pub(crate) fn max_in_flight(&self) -> usize {
        self.0.max_in_flight.load(SeqCst)
    }

    async fn answer(&self, calls: &[Call<'_>]) -> Vec<Result<Decision, Error>> {
        let shown: Vec<Sent> = calls.iter().map(show).collect();
        self.0.sent.lock().unwrap().push(shown.clone());
        let in_flight = self.0.in_flight.fetch_add(1, SeqCst) + 1;
        self.0.max_in_flight.fetch_max(in_flight, SeqCst);
        let _in_flight = InFlight(self);
        let fate = self.0.next_fate.lock().await.recv().await.unwrap();
        let failed = |kind| calls.iter().map(|_| Err(Error::new(kind, "planned"))).collect();
        match fate {
            Fate::Before(kind) => return failed(kind),
            Fate::Panic => panic!("planned"),
            _ => {}
        }
        self.0.executed.lock().unwrap().extend(shown);
        let mut answers = self.0.model.decide_many(calls).await;
        match fate {
            Fate::After(kind) => failed(kind),
            Fate::OneTooFew => {
                answers.pop();
                answers
            }
            _ => answers,
        }
    }
}

fn show(call: &Call<'_>) -> Sent {
    let charge = call.charges.get(0).unwrap();
    (String::from_utf8(charge.subject.to_vec()).unwrap(), charge.cost)
}

struct InFlight<'a>(&'a Gate);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.0.in_flight.fetch_sub(1, SeqCst);
    }
}

impl Store for Gate {
    fn decide<'a>(&'a self, call: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
        Answer::later(async move {
            let missing = || Err(Error::new(ErrorKind::Protocol, "missing"));
            self.answer(&[call]).await.pop().unwrap_or_else(missing)
        })
    }

    fn decide_many<'a>(
        &'a self,
        calls: &'a [Call<'a>],
    ) -> Answer<'a, Vec<Result<Decision, Error>>> {
        Answer::later(self.answer(calls))
    }

    fn now(&self) -> Answer<'_, Result<Timestamp, Error>> {
        self.0.model.now()
    }

    /// Returns a batch group for each tenant, by the first byte of the tenant. The store does not
    /// batch calls of the tenant `alone`.
    fn batch_group(&self, call: &Call<'_>) -> Option<u64> {
        match call.charges.get(0).map_or(&b""[..], |charge| charge.tenant) {
            b"alone" => None,
            b"" => Some(0),
            [first, ..] => Some(u64::from(*first)),
        }
    }
}
