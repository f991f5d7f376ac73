//! Tests of batches that contain the calls of concurrent callers.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking, and so do its helpers"
)]

mod gate;
mod schedules;

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use gate::{Fate, Gate, Sent};
use tidegate_core::layers::CoalescedStore;
use tidegate_core::{
    Answer, Call, CallId, Charge, Decision, DenyCache, Error, ErrorKind, ManualClock, Operation,
    Policy, Store, StoreExt, Timestamp,
};
use tidegate_testkit::ModelStore;
use tokio::task::{JoinHandle, yield_now};

use crate::stubs::{Mood, Stub};

fn policy() -> Policy {
    "p: fixed-window 1000000/1h".parse().unwrap()
}

fn call(store: &CoalescedStore<Gate>, subject: &str) -> JoinHandle<Result<Decision, Error>> {
    call_for("", store, subject, 1)
}

fn call_for(
    tenant: &'static str,
    store: &CoalescedStore<Gate>,
    subject: &str,
    cost: u64,
) -> JoinHandle<Result<Decision, Error>> {
    let (store, subject) = (store.clone(), subject.to_owned());
    tokio::spawn(async move {
        let policy = policy();
        let charges = [Charge::new(&policy, &subject).cost(cost).tenant(tenant)];
        store.decide(Call::acquire(&charges)).await
    })
}

/// Lets all tasks run until each task waits for something.
async fn settle() {
    for _ in 0..20 {
        yield_now().await;
    }
}

fn subjects<'b>(batches: &'b [Vec<Sent>]) -> Vec<Vec<&'b str>> {
    let batch_subjects =
        |batch: &'b Vec<Sent>| batch.iter().map(|(subject, _)| &**subject).collect();
    batches.iter().map(batch_subjects).collect()
}

fn alive_tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

#[test]
fn calls_to_a_store_that_answers_immediately_are_not_batched() {
    let store = ModelStore::new(ManualClock::default()).coalesced();
    assert!(store.answers_immediately());
    let policy = policy();
    let charges = [Charge::new(&policy, "s")];
    // A call to a store that answers immediately also works without a runtime.
    let answer = store.decide(Call::acquire(&charges)).into_ready().unwrap();
    assert!(answer.unwrap().is_allowed());
}

/// A store that answers immediately although its calls have a batch group.
#[derive(Debug)]
struct Immediate(ModelStore);

impl Store for Immediate {
    fn decide<'a>(&'a self, call: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
        self.0.decide(call)
    }

    fn now(&self) -> Answer<'_, Result<Timestamp, Error>> {
        self.0.now()
    }

    fn answers_immediately(&self) -> bool {
        true
    }

    fn batch_group(&self, _: &Call<'_>) -> Option<u64> {
        Some(0)
    }
}

#[test]
fn a_batch_group_does_not_delay_a_store_that_answers_immediately() {
    let store = Immediate(ModelStore::new(ManualClock::default())).coalesced();
    let policy = policy();
    let charges = [Charge::new(&policy, "s")];
    let calls = [Call::acquire(&charges)];
    assert!(store.decide(calls[0]).into_ready().unwrap().is_ok());
    // The test has no runtime. If the call waited for a batch, it would fail.
    let mut answers = store.decide_many(&calls);
    let mut context = Context::from_waker(Waker::noop());
    let Poll::Ready(answers) = Pin::new(&mut answers).poll(&mut context) else {
        panic!("it must not wait")
    };
    assert!(answers.len() == 1 && answers[0].is_ok(), "{answers:?}");
}

#[test]
fn a_call_is_sent_immediately_if_none_is_in_flight_and_later_calls_are_batched() {
    crate::run(async {
        let gate = Gate::new();
        let store = gate.clone().coalesced();
        let first = call(&store, "a");
        settle().await;
        assert_eq!(subjects(&gate.sent()), [["a"]]);
        let others: Vec<_> = ["b", "c", "b"].iter().map(|subject| call(&store, subject)).collect();
        settle().await;
        assert_eq!(gate.sent(), [[]; 0], "the calls wait for the call in flight");
        gate.pass(Fate::Executed);
        assert!(first.await.unwrap().unwrap().is_allowed());
        settle().await;
        assert_eq!(subjects(&gate.sent()), [["b", "c", "b"]]);
        gate.pass(Fate::Executed);
        let mut remaining = vec![];
        for other in others {
            remaining.push(other.await.unwrap().unwrap().verdicts()[0].remaining());
        }
        assert_eq!(remaining, [999_999, 999_999, 999_998]);
        settle().await;
        assert_eq!(alive_tasks(), 0, "an idle store has no task");
    });
}

#[test]
fn a_cached_denial_does_not_wait_for_a_batch_and_a_miss_does() {
    crate::run(async {
        let gate = Gate::new();
        let cache = DenyCache::new().clock(ManualClock::default());
        let store = gate.clone().deny_cache(cache).coalesced();
        let stats = store.inner().stats();
        let policy: Policy = "p: fixed-window 1/1h".parse().unwrap();
        let [refused, other] = ["refused", "other"].map(|subject| [Charge::new(&policy, subject)]);
        for is_allowed in [true, false] {
            gate.pass(Fate::Executed);
            let decision = store.decide(Call::acquire(&refused)).await.unwrap();
            assert_eq!(decision.is_allowed(), is_allowed);
        }
        let mut in_flight = pin!(store.decide(Call::acquire(&other)));
        assert!(is_pending_now(&mut in_flight).await);
        settle().await;
        assert_eq!(gate.in_flight(), 1);
        let denial = store.decide(Call::acquire(&refused)).into_ready().unwrap().unwrap();
        assert!(denial.is_denied());
        assert!(store.decide(Call::acquire(&other)).into_ready().is_err(), "it waits for a batch");
        gate.pass(Fate::Executed);
        assert!(in_flight.await.unwrap().is_allowed());
        // The coalescing layer looks for a cached denial before it batches a call, and counts no
        // miss for this lookup. So the 3 misses are the 3 calls that were sent to the store.
        assert_eq!((stats.hits(), stats.misses()), (1, 3));
    });
}

/// Polls a future once, and returns `true` if it is not ready.
async fn is_pending_now(future: &mut (impl Future + Unpin)) -> bool {
    poll_fn(|context| Poll::Ready(pin!(&mut *future).poll(context).is_pending())).await
}

#[test]
fn the_next_calls_of_answered_callers_are_sent_in_one_batch() {
    crate::run(async {
        let stub = Stub::new(&ManualClock::default());
        stub.set(Mood::Slow);
        let store = stub.clone().coalesced();
        let callers = (0..64).map(|number| {
            let store = store.clone();
            tokio::spawn(async move {
                let (policy, subject) = (policy(), format!("{number}"));
                for _ in 0..10 {
                    let charges = [Charge::new(&policy, &subject)];
                    assert!(store.decide(Call::acquire(&charges)).await.unwrap().is_allowed());
                }
            })
        });
        for caller in callers.collect::<Vec<_>>() {
            caller.await.unwrap();
        }
        let sizes: Vec<_> = stub.take_calls().iter().map(Vec::len).collect();
        assert_eq!(sizes, [64; 10]);
    });
}

#[test]
fn a_call_that_is_cancelled_before_it_is_sent_is_not_sent() {
    crate::run(async {
        let gate = Gate::new();
        let store = gate.clone().coalesced();
        let first = call(&store, "a");
        settle().await;
        let (cancelled, stays) = (call(&store, "b"), call(&store, "c"));
        settle().await;
        cancelled.abort();
        settle().await;
        gate.pass(Fate::Executed);
        gate.pass(Fate::Executed);
        assert!(first.await.unwrap().is_ok() && stays.await.unwrap().is_ok());
        assert_eq!(subjects(&gate.sent()), [["a"], ["c"]]);
    });
}

#[test]
fn a_call_that_is_cancelled_in_flight_does_not_affect_other_callers() {
    crate::run(async {
        let gate = Gate::new();
        let store = gate.clone().coalesced();
        // All four calls are in one batch. Each case cancels a different caller of the batch.
        for cancelled in 0..4 {
            let mut calls: Vec<_> =
                ["a", "b", "c", "d"].map(|subject| call(&store, subject)).into();
            settle().await;
            let cancelled = calls.remove(cancelled);
            cancelled.abort();
            settle().await;
            gate.pass(Fate::Executed);
            for call in calls {
                assert!(call.await.unwrap().unwrap().is_allowed());
            }
        }
    });
}

#[test]
fn a_batch_whose_callers_are_cancelled_delays_no_other_batch() {
    crate::run(async {
        let gate = Gate::new();
        let store = gate.clone().coalesced();
        let cancelled = [call(&store, "a"), call(&store, "b")];
        settle().await;
        let next = call(&store, "c");
        settle().await;
        assert_eq!((gate.in_flight(), gate.sent().len()), (1, 1));
        for call in cancelled {
            call.abort();
        }
        settle().await;
        assert_eq!(subjects(&gate.sent()), [["c"]], "the cancelled batch has not been answered");
        gate.pass(Fate::Executed);
        assert!(next.await.unwrap().is_ok());
        assert_eq!((gate.in_flight(), gate.max_in_flight()), (0, 1));
    });
}

/// A caller is polled once. After that, its future is neither polled nor dropped for a while, as in
/// a loop around `select!`. Other callers must not wait for this caller.
#[test]
fn a_caller_that_is_not_polled_delays_no_other() {
    crate::run(async {
        let gate = Gate::new();
        let store = gate.clone().coalesced();
        let policy = policy();
        let charges = [Charge::new(&policy, "still")];
        let mut idle = pin!(store.decide(Call::acquire(&charges)));
        let once = poll_fn(|context| Poll::Ready(idle.as_mut().poll(context))).await;
        assert!(once.is_pending());
        for subject in ["a", "b"] {
            gate.pass(Fate::Executed);
            gate.pass(Fate::Executed);
            assert!(call(&store, subject).await.unwrap().unwrap().is_allowed());
        }
        assert!(idle.await.unwrap().is_allowed());
    });
}

#[test]
fn each_caller_of_a_failed_batch_gets_the_error() {
    crate::run(async {
        let gate = Gate::new();
        let store = gate.clone().coalesced();
        for kind in [ErrorKind::Timeout, ErrorKind::Busy, ErrorKind::Unavailable] {
            let calls = ["a", "b", "c"].map(|subject| call(&store, subject));
            settle().await;
            gate.pass(Fate::Before(kind));
            for call in calls {
                let error = call.await.unwrap().unwrap_err();
                assert_eq!(error.kind(), kind);
                let is_known = kind.is_definitely_not_charged();
                assert_eq!(error.is_definitely_not_charged(), is_known, "{kind}");
            }
        }
    });
}

#[test]
fn an_error_of_one_call_of_a_batch_affects_only_that_call() {
    crate::run(async {
        let gate = Gate::new();
        let store = gate.clone().coalesced();
        let first = call(&store, "a");
        settle().await;
        let reserves = {
            let store = store.clone();
            tokio::spawn(async move {
                let policy = policy();
                let charges = [Charge::new(&policy, "b")];
                let operation = Operation::Reserve { max_wait: Duration::from_secs(1) };
                store.decide(Call::new(operation, &charges)).await
            })
        };
        // A fixed window supports no reservations, so the layer rejects this call before sending
        // it.
        assert_eq!(reserves.await.unwrap().unwrap_err().kind(), ErrorKind::Unsupported);
        let (second, third) = (call(&store, "c"), call(&store, "d"));
        gate.pass(Fate::Executed);
        gate.pass(Fate::OneTooFew);
        assert!(first.await.unwrap().is_ok() && second.await.unwrap().is_ok());
        assert_eq!(third.await.unwrap().unwrap_err().kind(), ErrorKind::Protocol);
    });
}

#[test]
fn batches_are_bounded() {
    crate::run(async {
        let gate = Gate::new();
        let store = gate.clone().coalesced().max_batch(3);
        let calls: Vec<_> = (0..8).map(|number| call(&store, &number.to_string())).collect();
        for _ in 0..3 {
            gate.pass(Fate::Executed);
        }
        for call in calls {
            assert!(call.await.unwrap().is_ok());
        }
        let sizes: Vec<_> = gate.sent().iter().map(Vec::len).collect();
        assert_eq!(sizes, [3, 3, 2]);
        // A batch also has a maximum number of bytes. Each subject has 400,000 bytes, so only two
        // calls fit into a batch.
        let store = gate.clone().coalesced();
        let large: Vec<_> =
            (0..4).map(|number| call(&store, &number.to_string().repeat(400_000))).collect();
        for call in large {
            gate.pass(Fate::Executed);
            assert!(call.await.unwrap().is_ok());
        }
        let sizes: Vec<_> = gate.sent().iter().map(Vec::len).collect();
        assert_eq!(sizes, [2, 2]);
    });
}

#[test]
fn waiting_calls_are_bounded_and_a_cancelled_call_frees_its_place() {
    crate::run(async {
        let gate = Gate::new();
        let store = gate.clone().coalesced().max_waiting(2);
        let first = call(&store, "a");
        settle().await;
        let (second, third) = (call(&store, "b"), call(&store, "c"));
        settle().await;
        let error = call(&store, "d").await.unwrap().unwrap_err();
        assert_eq!(error.to_string(), "too-many-waiters: 2 calls already wait for a batch");
        assert!(error.is_definitely_not_charged());
        // The call `e` belongs to another batch group, so it does not count against the maximum of
        // two waiting calls.
        let other = call_for("t", &store, "e", 1);
        settle().await;
        second.abort();
        settle().await;
        let fourth = call(&store, "f");
        settle().await;
        for _ in 0..3 {
            gate.pass(Fate::Executed);
        }
        for call in [first, third, other, fourth] {
            assert!(call.await.unwrap().is_ok());
        }
        assert_eq!(subjects(&gate.sent()), [vec!["a"], vec!["e"], vec!["c", "f"]]);
    });
}

#[test]
fn groups_do_not_wait_for_each_other_and_calls_without_a_group_are_not_batched() {
    crate::run(async {
        let gate = Gate::new();
        let store = gate.clone().coalesced();
        let calls =
            [("x", "a"), ("y", "b"), ("x", "c"), ("alone", "d"), ("alone", "e"), ("y", "f")]
                .map(|(tenant, subject)| call_for(tenant, &store, subject, 1));
        settle().await;
        // The tenant `alone` has no batch group, so its callers send the calls `d` and `e`
        // themselves. The other calls are sent later, by a task for each batch group.
        let sent = gate.sent();
        assert_eq!(subjects(&sent), [vec!["d"], vec!["e"], vec!["a", "c"], vec!["b", "f"]]);
        for _ in 0..4 {
            gate.pass(Fate::Executed);
        }
        for call in calls {
            assert!(call.await.unwrap().is_ok());
        }
    });
}

/// Makes a batch of calls as one caller, one call for each pair of a tenant and a subject.
fn batch(
    store: &CoalescedStore<Gate>,
    subjects: &[(&'static str, &'static str)],
) -> JoinHandle<Vec<Result<Decision, Error>>> {
    let (store, subjects) = (store.clone(), subjects.to_vec());
    tokio::spawn(async move {
        let policy = policy();
        let charges: Vec<_> = subjects
            .iter()
            .map(|(tenant, subject)| [Charge::new(&policy, *subject).tenant(*tenant)])
            .collect();
        let calls: Vec<_> = charges.iter().map(|charge| Call::acquire(charge)).collect();
        store.decide_many(&calls).await
    })
}

#[test]
fn the_calls_of_a_small_batch_join_the_calls_of_other_callers() {
    crate::run(async {
        let gate = Gate::new();
        let store = gate.clone().coalesced();
        let first = call(&store, "first");
        settle().await;
        let small = batch(&store, &[("", "a"), ("x", "b"), ("", "a")]);
        let other = call(&store, "other");
        let cancelled = batch(&store, &[("", "c"), ("", "d")]);
        settle().await;
        cancelled.abort();
        settle().await;
        assert_eq!(subjects(&gate.sent()), [vec!["first"], vec!["b"]]);
        for _ in 0..3 {
            gate.pass(Fate::Executed);
        }
        let answers = small.await.unwrap();
        let remaining = answers.iter().map(|answer| answer.as_ref().unwrap());
        let remaining: Vec<_> =
            remaining.map(|decision| decision.verdicts()[0].remaining()).collect();
        assert_eq!(remaining, [999_999, 999_999, 999_998], "each answer belongs to its call");
        assert!(other.await.unwrap().is_ok() && first.await.unwrap().is_ok());
        assert_eq!(subjects(&gate.sent()), [["a", "a", "other"]]);
        settle().await;
        assert_eq!(alive_tasks(), 0, "an idle store has no task");
    });
}

#[test]
fn a_large_batch_and_a_batch_with_a_call_without_a_group_are_sent_as_they_are() {
    crate::run(async {
        let gate = Gate::new();
        let store = gate.clone().coalesced();
        let first = call(&store, "first");
        settle().await;
        let large = batch(&store, &[("", "a"); 9]);
        let with_single = batch(&store, &[("", "b"), ("alone", "c")]);
        settle().await;
        assert_eq!(subjects(&gate.sent()), [vec!["first"], vec!["a"; 9], vec!["b", "c"]]);
        for _ in 0..3 {
            gate.pass(Fate::Executed);
        }
        assert_eq!(large.await.unwrap().len(), 9);
        assert_eq!(with_single.await.unwrap().len(), 2);
        assert!(first.await.unwrap().is_ok());
    });
}

#[test]
fn a_store_that_panics_strands_no_caller() {
    crate::run(async {
        let gate = Gate::new();
        let store = gate.clone().coalesced();
        let first = [call(&store, "a"), call(&store, "b")];
        settle().await;
        let waits = call(&store, "c");
        settle().await;
        gate.pass(Fate::Panic);
        for call in first {
            let error = call.await.unwrap().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable);
            assert!(!error.is_definitely_not_charged(), "the call was in flight");
        }
        let error = waits.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.is_definitely_not_charged(), "the call was not sent");
        gate.pass(Fate::Executed);
        assert!(call(&store, "d").await.unwrap().unwrap().is_allowed(), "the next call is sent");
        assert_eq!(gate.executed(), [("d".to_owned(), 1)]);
    });
}

#[test]
fn the_end_of_a_runtime_is_an_error_for_callers_of_another_runtime() {
    let gate = Gate::new();
    let store = gate.clone().coalesced();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        drop(call(&store, "a"));
        settle().await;
    });
    let policy = policy();
    let charges = [Charge::new(&policy, "b")];
    let waits: Answer<'_, _> = store.decide(Call::acquire(&charges));
    crate::run(async {
        let mut waits = pin!(waits);
        assert!(poll_fn(|context| Poll::Ready(waits.as_mut().poll(context))).await.is_pending());
        runtime.shutdown_background();
        let error = waits.await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.is_definitely_not_charged());
        gate.pass(Fate::Executed);
        assert!(call(&store, "c").await.unwrap().unwrap().is_allowed());
    });
}

#[test]
fn without_a_runtime_a_call_is_an_error() {
    let store = Gate::new().coalesced();
    let policy = policy();
    let charges = [Charge::new(&policy, "s")];
    let mut answer = pin!(store.decide(Call::acquire(&charges)));
    let mut context = Context::from_waker(Waker::noop());
    let Poll::Ready(Err(error)) = answer.as_mut().poll(&mut context) else {
        panic!("the call must fail immediately");
    };
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}

#[test]
fn the_id_of_a_call_is_sent_with_it() {
    crate::run(async {
        let stub = Stub::new(&ManualClock::default());
        stub.set(Mood::Slow);
        let store = stub.coalesced();
        let policy = policy();
        let charges = [Charge::new(&policy, "s").cost(3)];
        let call = Call::acquire(&charges).with_id(CallId::new("job", Duration::from_secs(60)));
        let first = store.decide(call).await.unwrap();
        assert_eq!(store.decide(call).await.unwrap(), first);
        let peek = Call::new(Operation::Peek, &charges);
        assert_eq!(store.decide(peek).await.unwrap().verdicts()[0].remaining(), 999_997);
    });
}
