//! Tests of callers that wait for slots.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, and so do its helpers")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate_core::{Clock, ErrorKind, Limiter, MultiRequest, Store, StoreExt, Ticket, TokioClock};
use tidegate_memory::MemoryStore;
use tidegate_testkit::faults::{Fault, Faults};
use tokio::time::{Instant, sleep, timeout};

use crate::run;

const MILLI: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

fn store() -> MemoryStore<TokioClock> {
    MemoryStore::builder().clock(TokioClock::new()).build()
}

fn limiter<S: Store>(store: S, policies: &[&str]) -> Limiter<S> {
    Limiter::new(store, policies.iter().map(|text| text.parse().unwrap())).unwrap()
}

async fn wait<S: Store + 'static>(
    limiter: &Limiter<S>,
    id: &str,
    max_wait: Duration,
) -> Option<Ticket> {
    limiter.subject("a").hold_within(id, 10 * MINUTE, max_wait).await.unwrap().into_ticket().ok()
}

async fn free<S: Store>(limiter: &Limiter<S>) -> u64 {
    limiter.subject("a").cost(0).peek().await.unwrap().verdicts()[0].remaining()
}

/// Two limiters share a store, like two processes. The callers of both wait in one queue.
#[test]
fn callers_of_all_limiters_are_admitted_in_the_order_of_their_calls() {
    run(async {
        let store = Arc::new(store());
        let limiters = [(); 2].map(|()| {
            limiter(Arc::clone(&store), &["slots: concurrent 2 lease 30s"]).max_waiters(1_000)
        });
        let order = Arc::new(Mutex::new(vec![]));
        let callers: Vec<_> = (0..100)
            .map(|number| {
                let (limiter, order) = (limiters[number % 2].clone(), Arc::clone(&order));
                tokio::spawn(async move {
                    sleep(MILLI * u32::try_from(number).unwrap()).await;
                    let id = number.to_string();
                    let hold = limiter.subject("a").hold_within(&id, MINUTE, 100 * MINUTE);
                    let ticket = hold.await.unwrap().into_ticket().unwrap();
                    order.lock().unwrap().push((number, ticket.fence("slots").unwrap()));
                    sleep(SECOND).await;
                    limiter.settle(&ticket, []).await.unwrap();
                })
            })
            .collect();
        let started = Instant::now();
        for caller in callers {
            caller.await.unwrap();
        }
        let order = order.lock().unwrap();
        assert!(order.is_sorted(), "{order:?}");
        assert!(order.windows(2).all(|pair| pair[0].1 < pair[1].1), "{order:?}");
        // 100 callers work for a second each, two at a time.
        assert!(started.elapsed() < 55 * SECOND, "{:?}", started.elapsed());
    });
}

/// A settlement of the same limiter wakes the first caller. A settlement of another limiter is
/// noticed at the next call, after a sixteenth of the wait.
#[test]
fn a_slot_that_becomes_free_is_taken_soon() {
    run(async {
        let store = Arc::new(store());
        let policies = ["slots: concurrent 1 lease 30m"];
        let (own, other) = (limiter(Arc::clone(&store), &policies), limiter(store, &policies));
        for (frees, max) in [(&own, 0), (&other, 100)] {
            let ticket = wait(&own, "holder", SECOND).await.unwrap();
            let waiting = tokio::spawn({
                let own = own.clone();
                async move {
                    let ticket = wait(&own, "waiting", MINUTE).await;
                    (ticket, Instant::now())
                }
            });
            sleep(20 * SECOND).await;
            frees.settle(&ticket, []).await.unwrap();
            let freed_at = Instant::now();
            let (ticket, admitted_at) = waiting.await.unwrap();
            assert!(admitted_at - freed_at <= max * MILLI, "{:?}", admitted_at - freed_at);
            own.cancel(&ticket.unwrap()).await.unwrap();
            sleep(30 * MINUTE).await;
        }
    });
}

#[test]
fn a_caller_waits_for_slots_and_rates_and_is_charged_once() {
    run(async {
        let policies = ["slots: concurrent 1 lease 30s", "rate: fixed-window 2/1m anchored"];
        let limiter = limiter(store(), &policies);
        let first = wait(&limiter, "first", SECOND).await.unwrap();
        let started = Instant::now();
        let second = tokio::spawn({
            let limiter = limiter.clone();
            async move { wait(&limiter, "second", MINUTE).await.unwrap() }
        });
        sleep(5 * SECOND).await;
        limiter.settle(&first, []).await.unwrap();
        let second = second.await.unwrap();
        assert_eq!(started.elapsed().as_secs(), 5);
        limiter.settle(&second, []).await.unwrap();
        let rate = limiter.by("rate", "a").cost(0).peek().await.unwrap();
        assert_eq!(rate.verdicts()[0].remaining(), 0);
        // The rate admits the next call at the end of its window.
        let third = limiter.subject("a").hold_within("third", MINUTE, MINUTE).await.unwrap();
        assert_eq!(third.decision().wait().as_secs(), 55);
        assert_eq!(started.elapsed().as_secs(), 60);
    });
}

#[test]
fn a_caller_that_is_not_admitted_in_time_is_refused_and_leaves_the_queue() {
    run(async {
        let limiter = limiter(store(), &["slots: concurrent 1 lease 30m"]);
        let holder = wait(&limiter, "holder", SECOND).await.unwrap();
        let started = Instant::now();
        let refused = limiter.subject("a").hold_within("late", MINUTE, 3 * SECOND).await.unwrap();
        assert!(refused.decision().is_denied());
        assert_eq!(started.elapsed(), 3 * SECOND);
        assert_eq!(limiter.waiters(), 0);
        sleep(MILLI).await;
        limiter.settle(&holder, []).await.unwrap();
        // The place of the refused caller would hold back this call.
        let next = limiter.subject("a").hold("next", MINUTE).await.unwrap();
        assert!(next.decision().is_allowed());
        // A caller that can never be admitted does not wait.
        let never =
            limiter.subject("a").cost(2).hold_within("never", MINUTE, MINUTE).await.unwrap();
        assert!(never.decision().is_denied());
        assert_eq!(started.elapsed(), 3 * SECOND + MILLI);
    });
}

#[test]
fn a_caller_that_is_cancelled_leaves_the_queue_and_frees_what_it_got() {
    run(async {
        // The faults delay the answer to a call, so that the caller is cancelled while it is in
        // flight.
        for plan in [vec![], vec![Fault::None, Fault::Late], vec![Fault::None, Fault::Delayed]] {
            let late = plan.len() > 1;
            let store = Arc::new(store().layer(Faults::new(plan)));
            let limiter = limiter(Arc::clone(&store), &["slots: concurrent 2 lease 30m"]);
            let holder = wait(&limiter, "holder", SECOND).await.unwrap();
            let costly = limiter.subject("a").cost(if late { 1 } else { 2 });
            let cancelled = costly.hold_within("cancelled", MINUTE, MINUTE);
            assert!(timeout(SECOND, cancelled).await.is_err());
            Faults::deliver(&store).await;
            sleep(SECOND).await;
            assert_eq!(free(&limiter).await, 1);
            let next = limiter.subject("a").hold("next", MINUTE).await.unwrap();
            assert!(next.decision().is_allowed());
            limiter.settle(&holder, []).await.unwrap();
            assert_eq!(free(&limiter).await, 1);
        }
    });
}

/// The answer to a call is lost after the store has admitted it. The limiter returns the error. If
/// the caller sends the call again, it gets the hold, and no task cancels it.
#[test]
fn a_call_whose_answer_was_lost_is_repeated_under_its_id() {
    run(async {
        let plan = vec![Fault::None, Fault::After(ErrorKind::Timeout)];
        let store = Arc::new(store().layer(Faults::new(plan)));
        let limiter = limiter(store, &["slots: concurrent 2 lease 30m"]);
        wait(&limiter, "holder", SECOND).await.unwrap();
        let error = limiter.subject("a").hold_within("lost", MINUTE, MINUTE).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout);
        let ticket = wait(&limiter, "lost", MINUTE).await.unwrap();
        sleep(SECOND).await;
        assert_eq!(free(&limiter).await, 0);
        limiter.settle(&ticket, []).await.unwrap();
        assert_eq!(free(&limiter).await, 1);
    });
}

#[test]
fn at_most_the_maximum_number_of_callers_waits() {
    run(async {
        let limiter = limiter(store(), &["slots: concurrent 1 lease 30m"]).max_waiters(1);
        let _holder = wait(&limiter, "holder", SECOND).await.unwrap();
        let waiting = tokio::spawn({
            let limiter = limiter.clone();
            async move { wait(&limiter, "waiting", MINUTE).await }
        });
        sleep(SECOND).await;
        assert_eq!(limiter.waiters(), 1);
        let error = limiter.subject("a").hold_within("more", MINUTE, MINUTE).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooManyWaiters);
        assert!(waiting.await.unwrap().is_none());
    });
}

/// A caller that lacks slots of one subject holds back later callers of this subject only.
#[test]
fn a_caller_of_two_subjects_holds_back_callers_only_where_it_lacks_slots() {
    run(async {
        let limiter =
            limiter(store(), &["user: concurrent 1 lease 30m", "all: concurrent 5 lease 30m"]);
        let request = |user| -> MultiRequest<'_, _> { limiter.by("user", user).by("all", "all") };
        let holder = request("alice").hold("1", MINUTE).await.unwrap();
        let waiting = request("alice");
        let waiting = waiting.hold_within("2", MINUTE, MINUTE);
        let others = async {
            sleep(SECOND).await;
            assert!(request("bob").hold("3", MINUTE).await.unwrap().decision().is_allowed());
            limiter.cancel(holder.ticket().unwrap()).await.unwrap();
        };
        let (waiting, ()) = tokio::join!(waiting, others);
        let waited = waiting.unwrap().decision().wait();
        assert!(waited >= SECOND && waited <= SECOND + MILLI, "{waited:?}");
    });
}

/// The store's clock is the clock of the queue, so a limiter needs no clock of its own.
#[test]
fn places_are_times_of_the_store() {
    run(async {
        let clock = TokioClock::new();
        let store = MemoryStore::builder().clock(clock.clone()).build();
        let limiter = limiter(store, &["slots: concurrent 1 lease 30s"]);
        let ticket = wait(&limiter, "id", SECOND).await.unwrap();
        assert_eq!(ticket.fence("slots"), Some(clock.now().as_micros()));
    });
}

/// The future of a waiting caller can be dropped outside of a runtime. A task of the runtime in
/// which the caller waited gives up the place.
#[test]
fn b51_a_waiting_hold_may_be_dropped_outside_of_the_runtime() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().worker_threads(1).build().unwrap();
    let limiter = limiter(MemoryStore::new(), &["slots: concurrent 1 lease 30m"]);
    let hold = |id: &'static str| limiter.subject("a").hold_within(id, 10 * MINUTE, MINUTE);
    let first = runtime.block_on(hold("first")).unwrap().into_ticket().unwrap();
    let mut waiting = Box::pin(hold("second"));
    runtime.block_on(async { timeout(200 * MILLI, &mut waiting).await }).unwrap_err();
    drop(waiting);
    runtime.block_on(async {
        limiter.settle(&first, []).await.unwrap();
        // A hold that does not wait is refused while another call waits.
        timeout(30 * SECOND, async {
            while hold("third").await.unwrap().into_ticket().is_err() {
                sleep(MILLI).await;
            }
        })
        .await
        .unwrap();
    });
}
