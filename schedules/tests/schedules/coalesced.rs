//! Tests of coalescing: the store executes each call once and in order, and each caller receives
//! the answer to its own call, even if other callers are cancelled.

use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

use shuttle::future::{JoinHandle, spawn, yield_now};
use tidegate_core::layers::CoalescedStore;
use tidegate_core::{
    Answer, Call, Charge, Decision, Error, ErrorKind, Outcome, Policy, Store, StoreExt, Timestamp,
    Verdict, scheduled,
};

use crate::explore::{Seen, cancel, explore, idle, join, some_time};

/// A store whose answer to a call contains the cost of the call. Calls have different costs, and so
/// different answers. All clones are the same store.
#[derive(Debug, Clone, Default)]
struct Echo(Arc<Mutex<Ledger>>);

#[derive(Debug, Default)]
struct Ledger {
    /// The costs of the calls in each executed batch.
    batches: Vec<Vec<u64>>,
    is_sending: bool,
    /// While this is `true`, the store executes no batch.
    is_closed: bool,
    at_gate: Option<Waker>,
}

impl Echo {
    fn ledger<T>(&self, run: impl FnOnce(&mut Ledger) -> T) -> T {
        run(&mut self.0.lock().expect("no step panics that holds it"))
    }

    /// Returns the costs of all executed calls, in order.
    fn carried_out(&self) -> Vec<u64> {
        self.ledger(|ledger| ledger.batches.concat())
    }

    fn sorted(&self) -> Vec<u64> {
        let mut costs = self.carried_out();
        costs.sort_unstable();
        costs
    }

    fn close_gate(&self) {
        self.ledger(|ledger| ledger.is_closed = true);
    }

    fn open_gate(&self) {
        let waiting = self.ledger(|ledger| {
            ledger.is_closed = false;
            ledger.at_gate.take()
        });
        waiting.inspect(Waker::wake_by_ref);
    }

    async fn send(&self, calls: &[Call<'_>]) -> Vec<Result<Decision, Error>> {
        let was_sending = self.ledger(|ledger| std::mem::replace(&mut ledger.is_sending, true));
        assert!(!was_sending, "one batch is in flight at a time");
        let _sending = Sending(self);
        yield_now().await;
        let gate = std::future::poll_fn(|context| {
            self.ledger(|ledger| {
                if ledger.is_closed {
                    ledger.at_gate = Some(context.waker().clone());
                    return Poll::Pending;
                }
                Poll::Ready(())
            })
        });
        gate.await;
        let costs: Vec<_> =
            calls.iter().filter_map(|call| call.charges.get(0)).map(|charge| charge.cost).collect();
        self.ledger(|ledger| ledger.batches.push(costs.clone()));
        yield_now().await;
        costs.into_iter().map(|cost| Ok(echo(cost))).collect()
    }
}

/// A guard for a batch in flight, until the batch is answered or cancelled.
struct Sending<'a>(&'a Echo);

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        self.0.ledger(|ledger| ledger.is_sending = false);
    }
}

fn echo(cost: u64) -> Decision {
    Decision::one(Verdict::new(Outcome::Allowed, u64::MAX).with_remaining(cost))
}

impl Store for Echo {
    fn decide<'a>(&'a self, call: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
        Answer::later(async move { self.send(&[call]).await.remove(0) })
    }

    fn decide_many<'a>(
        &'a self,
        calls: &'a [Call<'a>],
    ) -> Answer<'a, Vec<Result<Decision, Error>>> {
        Answer::later(self.send(calls))
    }

    fn now(&self) -> Answer<'_, Result<Timestamp, Error>> {
        Answer::ready(Ok(Timestamp::from_micros(0)))
    }
}

/// Makes a call with this cost, and checks that the answer contains the cost.
async fn ask(store: CoalescedStore<Echo>, cost: u64) -> Result<u64, Error> {
    let policy: Policy = "fixed-window 1000000/1h".parse().expect("a policy");
    let charges = [Charge::new(&policy, "key").cost(cost)];
    let decision = store.decide(Call::acquire(&charges)).await?;
    assert_eq!(decision, echo(cost), "a call has its own answer");
    Ok(cost)
}

fn caller(store: &CoalescedStore<Echo>, cost: u64) -> JoinHandle<Result<u64, Error>> {
    spawn(ask(store.clone(), cost))
}

fn is_too_many(answer: &Result<u64, Error>) -> bool {
    answer.as_ref().is_err_and(|error| error.kind() == ErrorKind::TooManyWaiters)
}

#[test]
fn each_call_is_carried_out_once_and_has_its_own_answer() {
    static BATCHED: Seen = Seen::new();
    explore(|| async {
        let echo = Echo::default();
        let store = echo.clone().coalesced().max_batch(2);
        let callers = (0..3).map(|caller| {
            let store = store.clone();
            spawn(async move {
                for call in 1..3 {
                    ask(store.clone(), 10 * caller + call).await.expect("an answer");
                }
            })
        });
        join(callers.collect::<Vec<_>>()).await;
        assert_eq!(echo.sorted(), [1, 2, 11, 12, 21, 22]);
        let sizes: Vec<_> = echo.ledger(|ledger| ledger.batches.iter().map(Vec::len).collect());
        assert!(sizes.iter().all(|size| *size <= 2), "a batch has at most two charges: {sizes:?}");
        BATCHED.record(sizes.contains(&2));
    });
    BATCHED.assert("a batch of several calls");
}

#[test]
fn calls_are_carried_out_in_the_order_in_which_they_arrive() {
    explore(|| async {
        let echo = Echo::default();
        let store = echo.clone().coalesced().max_batch(2);
        let caller = |first: u64| {
            let store = store.clone();
            spawn(async move {
                // The first poll of a call submits the call. The task submits all three calls
                // before it awaits an answer.
                let mut calls: Vec<_> =
                    (first..first + 3).map(|cost| Box::pin(ask(store.clone(), cost))).collect();
                for call in &mut calls {
                    let is_ready = std::future::poll_fn(|context| {
                        Poll::Ready(call.as_mut().poll(context).is_ready())
                    });
                    assert!(!is_ready.await, "a call waits for its batch");
                }
                for call in calls {
                    call.await.expect("an answer");
                }
            })
        };
        join([caller(1), caller(11)]).await;
        let all = echo.carried_out();
        for first in [1, 11] {
            let caller_costs: Vec<_> =
                all.iter().copied().filter(|cost| (first..first + 3).contains(cost)).collect();
            assert_eq!(caller_costs, [first, first + 1, first + 2]);
        }
    });
}

#[test]
fn a_caller_that_gives_up_costs_no_other_its_answer() {
    static GAVE_UP: Seen = Seen::new();
    explore(|| async {
        let echo = Echo::default();
        let store = echo.clone().coalesced();
        let [one, two, three] = [1, 2, 3].map(|cost| caller(&store, cost));
        GAVE_UP.record(cancel(one).await.is_none());
        assert!(join([two, three]).await.iter().all(Result::is_ok));
        assert_eq!(ask(store, 4).await.expect("an answer"), 4);
        let carried_out = echo.sorted();
        let others = carried_out.strip_prefix(&[1]).unwrap_or(&carried_out);
        assert_eq!(others, [2, 3, 4], "each is carried out once");
    });
    GAVE_UP.assert("a caller that gives up");
}

#[test]
fn a_call_that_is_given_up_before_it_is_sent_is_not_made_and_takes_no_place() {
    explore(|| async {
        let echo = Echo::default();
        let store = echo.clone().coalesced().max_waiting(1);
        echo.close_gate();
        let sent = caller(&store, 1);
        idle().await;
        let given_up = caller(&store, 2);
        assert_eq!(cancel(given_up).await.map(drop), None);
        // Only one call may wait. The cancelled call does not count, so `next` can wait, regardless
        // of the time at which the gate opens.
        let next = caller(&store, 3);
        some_time().await;
        echo.open_gate();
        let answers = join([sent, next]).await;
        assert!(answers.iter().all(Result::is_ok), "{answers:?}");
        assert_eq!(echo.carried_out(), [1, 3]);
    });
}

#[test]
fn no_more_calls_wait_than_may() {
    explore(|| async {
        let echo = Echo::default();
        let store = echo.clone().coalesced().max_waiting(1);
        echo.close_gate();
        let sent = caller(&store, 1);
        idle().await;
        let others: Vec<_> = (2..5).map(|cost| caller(&store, cost)).collect();
        idle().await;
        echo.open_gate();
        assert!(join([sent]).await[0].is_ok());
        let answers = join(others).await;
        assert_eq!(answers.iter().filter(|answer| is_too_many(answer)).count(), 2, "{answers:?}");
        let answered: Vec<_> =
            answers.iter().filter_map(|answer| answer.as_ref().ok().copied()).collect();
        assert_eq!(echo.carried_out(), [&[1], &answered[..]].concat());
    });
}

#[test]
fn when_the_task_is_dropped_each_call_ends_and_only_those_not_made_are_surely_not_charged() {
    static SENT: Seen = Seen::new();
    static WAITING: Seen = Seen::new();
    explore(|| async {
        let echo = Echo::default();
        let store = echo.clone().coalesced().max_batch(1);
        let callers: Vec<_> = (1..4).map(|cost| caller(&store, cost)).collect();
        some_time().await;
        scheduled::cancel_tasks();
        for (answer, cost) in join(callers).await.into_iter().zip(1..) {
            let Err(error) = answer else { continue };
            assert_eq!(error.kind(), ErrorKind::Unavailable);
            let is_made = echo.carried_out().contains(&cost);
            assert!(!(is_made && error.is_definitely_not_charged()), "{cost}: {error}");
            SENT.record(!error.is_definitely_not_charged());
            WAITING.record(error.is_definitely_not_charged());
        }
        // The runtime drops the cancelled task of the store while this test waits.
        idle().await;
        assert_eq!(ask(store, 4).await.expect("another task sends it"), 4);
    });
    SENT.assert("a call in flight when the task is dropped");
    WAITING.assert("a call that waits when the task is dropped");
}
