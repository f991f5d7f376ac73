//! Tests of leases with lost calls and answers, an unreachable store, and tasks that end early.

use std::time::Duration;

use tidegate_core::layers::{Layer, LeasedStore};
use tidegate_core::{
    Answer, Call, Charge, Decision, DegradedAnswer, Error, ErrorKind, Lease, ManualClock,
    Operation, Share, Store, StoreExt,
};
use tidegate_testkit::faults::{Fault, Faults, FaultyStore};
use tidegate_testkit::{ModelStore, decide_one_by_one};
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};

use super::chunks::{acquire, eager, load, policy};
use super::world::{Quality, Server, node};

/// While the store is unreachable, chunks are used until they are over. After that, the failure
/// policy answers. When the store is reachable again, the store decides and grants chunks.
#[test]
fn while_the_store_is_unreachable_chunks_are_used_until_they_are_over() {
    crate::run(async {
        let (server, policy) = (Server::new(), policy("p: fixed-window 1000000/1h"));
        let lease = eager().span(Duration::from_millis(500));
        let (store, link) = node(&server, lease, Quality::GOOD);
        load(&store, &policy, 1_000, Duration::from_secs(1)).await;
        link.set_away(true);
        let store = store.or_fail_closed();
        let charges = [Charge::new(&policy, "s")];
        let mut admitted = 0;
        let degraded = loop {
            let decision = store.decide(Call::acquire(&charges)).await.unwrap();
            if let Some(degraded) = decision.degraded() {
                break degraded.clone();
            }
            admitted += 1;
            sleep(Duration::from_millis(1)).await;
        };
        assert_eq!(degraded.answer, DegradedAnswer::FailedClosed);
        assert_eq!(degraded.reason, ErrorKind::Unavailable);
        // The node has one or two chunks. A new chunk suffices for half a span, which is 250 calls
        // here, so two chunks admit at most 500 calls. A partly spent chunk admits fewer calls. The
        // test expects at least 100 in total.
        assert!((100..=500).contains(&admitted), "{admitted}");
        sleep(Duration::from_secs(1)).await;
        assert!(store.inner().decide(Call::acquire(&charges)).await.is_err());
        link.set_away(false);
        assert!(load(store.inner(), &policy, 1_000, Duration::from_secs(1)).await > 500);
    });
}

/// To get a chunk, a node makes a hold in the store. If the answer to this hold is lost, the node
/// does not use the chunk, and cancels the hold. If the cancellation is lost too, the chunk stays
/// charged.
#[test]
fn a_chunk_whose_answer_is_lost_is_not_used() {
    for (cancelled, charged) in [(Fault::None, 2), (Fault::Before(ErrorKind::Timeout), 2 + 4)] {
        crate::run(async {
            let clock = ManualClock::default();
            let plan = vec![Fault::None, Fault::None, Fault::After(ErrorKind::Timeout), cancelled];
            let store = ModelStore::new(clock.clone()).layer(Faults::new(plan));
            let store = store.leased(eager().clock(clock));
            let policy = policy("p: fixed-window 1000/1h");
            let charges = [Charge::new(&policy, "s")];
            // After two calls for the subject, the node leases it. The third call to the store is
            // the hold of a chunk, and the fourth call is the settlement of this hold.
            for _ in 0..2 {
                assert!(store.decide(Call::acquire(&charges)).await.unwrap().is_allowed());
            }
            for _ in 0..20 {
                yield_now().await;
            }
            assert_eq!(store.inner().as_layer().calls(), 4);
            assert_eq!((store.stats().chunks(), store.stats().chunks_not_granted()), (0, 1));
            let peek = store.inner().decide(Call::new(Operation::Peek, &charges)).await.unwrap();
            assert_eq!(1_000 - peek.verdicts()[0].remaining(), charged);
            assert!(store.decide(Call::acquire(&charges)).await.unwrap().is_allowed());
            assert_eq!(store.stats().local(), 0);
        });
    }
}

/// If holds fail, the node rarely sends another hold, and the store decides each call.
#[test]
fn a_store_that_cannot_hold_receives_few_holds() {
    crate::run(async {
        let (server, policy) = (Server::new(), policy("p: fixed-window 1000000/1h"));
        let (store, link) = node(&server, eager(), Quality::GOOD);
        link.set_away(true);
        let charges = [Charge::new(&policy, "s")];
        for _ in 0..1_000 {
            assert!(store.decide(Call::acquire(&charges)).await.is_err());
            sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(store.stats().chunks_not_granted(), 0, "no call was admitted");
        link.set_away(false);
        let all_fail = ModelStore::new(ManualClock::default()).layer(Faults::new(vec![]));
        let store = all_fail.layer(WithoutIds).leased(eager());
        for _ in 0..1_000 {
            assert!(store.decide(Call::acquire(&charges)).await.unwrap().is_allowed());
            sleep(Duration::from_millis(1)).await;
        }
        assert_eq!((store.stats().chunks_not_granted(), store.stats().local()), (1, 0));
    });
}

/// A layer that rejects calls with an id.
#[derive(Debug)]
struct WithoutIds;

impl<S: Store> Layer<S> for WithoutIds {
    const MAY_WAIT: bool = false;

    fn decide<'a>(&'a self, inner: &'a S, call: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
        if call.id.is_some() {
            return Answer::ready(Err(Error::new(ErrorKind::Unsupported, "no ids")));
        }
        inner.decide(call)
    }

    fn decide_many<'a>(
        &'a self,
        inner: &'a S,
        calls: &'a [Call<'a>],
    ) -> Answer<'a, Vec<Result<Decision, Error>>> {
        decide_one_by_one(self, inner, calls)
    }
}

/// If a fallback store admits a hold, the node does not use the hold as a chunk.
#[test]
fn a_degraded_decision_grants_no_chunk() {
    crate::run(async {
        let clock = ManualClock::default();
        let down = vec![Fault::Before(ErrorKind::Unavailable); 5_000];
        let store = ModelStore::new(clock.clone()).layer(Faults::new(down));
        let store =
            store.or_fall_back_to(ModelStore::new(clock.clone()), Share::new(1, 1).unwrap());
        let store = store.leased(eager().clock(clock));
        let policy = policy("p: fixed-window 100000/1h");
        let charges = [Charge::new(&policy, "s")];
        for _ in 0..1_000 {
            assert!(store.decide(Call::acquire(&charges)).await.unwrap().degraded().is_some());
            yield_now().await;
        }
        assert_eq!((store.stats().local(), store.stats().chunks()), (0, 0));
    });
}

/// The tasks of leases end with their runtime. The store continues to work in another runtime.
#[test]
fn a_runtime_that_ends_leaves_the_store_working() {
    let clock = ManualClock::default();
    let inner = ModelStore::new(clock.clone());
    let store = inner.leased(Lease::new().hot_after(2).clock(clock));
    let policy = policy("p: fixed-window 100000/1h");
    let ask = async |store: &LeasedStore<ModelStore, ManualClock>| {
        let charges = [Charge::new(&policy, "s")];
        for _ in 0..2_000 {
            assert!(store.decide(Call::acquire(&charges)).await.unwrap().is_allowed());
            yield_now().await;
        }
    };
    for round in 1..4 {
        let before = store.stats().chunks();
        crate::run(ask(&store));
        assert!(store.stats().chunks() > before, "round {round}");
    }
    // Without a runtime, no chunk is fetched, and nothing panics.
    let charges = [Charge::new(&policy, "t")];
    for _ in 0..100 {
        let answer = store.decide(Call::acquire(&charges)).into_ready().unwrap();
        assert!(answer.unwrap().is_allowed());
    }
    drop(store);
}

#[test]
fn a_cost_that_does_not_fit_in_a_chunk_goes_to_the_store() {
    crate::run(async {
        let (server, policy) = (Server::new(), policy("p: fixed-window 100000/1h"));
        let (store, _) = node(&server, eager(), Quality::GOOD);
        load(&store, &policy, 1_000, Duration::from_millis(200)).await;
        let local = store.stats().local();
        assert!(!acquire(&store, &policy, 50_000).await);
        assert_eq!(store.stats().local(), local);
        assert!(acquire(&store, &policy, 1).await, "the chunk stays");
    });
}

/// The time of a chunk starts when its hold is sent, even if the answer to the hold arrives late.
///
/// The leases use a manual clock, but the task that returns a chunk sleeps by Tokio's clock. So in
/// this test, only the deadline of the chunk ends its use.
#[test]
fn a_chunk_ends_a_span_or_a_window_after_it_was_sent() {
    let (second, long) = (Duration::from_secs(1), Duration::from_secs(10));
    // The node stops using a chunk 0.1 % earlier than the span, because its clock is possibly slow.
    let life = Duration::from_millis(999);
    let tick = Duration::from_micros(1);
    for (text, span) in [
        ("p: fixed-window 1000/1h", second),
        ("p: fixed-window 1000/1s anchored", long),
        // The clock of the test starts in 1970, a second before the next day of this quota.
        ("p: quota 1000/day in UTC at 00:00:01", long),
    ] {
        for (answered_after, is_used) in [(life - tick, true), (life, false)] {
            crate::run(async {
                let (store, clock) = with_late_hold(eager().span(span));
                let policy = policy(text);
                let charges = [Charge::new(&policy, "s")];
                make_hot(&store, &charges).await;
                clock.advance(answered_after);
                Faults::deliver(store.inner()).await;
                settle_down().await;
                // If the answer to the hold arrives after the deadline of the chunk, the node
                // returns the chunk immediately.
                let peek = store.inner().decide(Call::new(Operation::Peek, &charges)).await;
                let charged = 1_000 - peek.unwrap().verdicts()[0].remaining();
                assert_eq!(charged, if is_used { 2 + 4 } else { 2 }, "{text}");
                for (passes, local) in
                    [(Duration::ZERO, u64::from(is_used)), (tick, u64::from(is_used))]
                {
                    clock.advance(passes);
                    assert!(store.decide(Call::acquire(&charges)).await.unwrap().is_allowed());
                    assert_eq!(store.stats().local(), local, "{text}, {answered_after:?}");
                }
            });
        }
    }
}

/// The store refuses a call if the rest of the limit is charged for a chunk of this node. If this
/// chunk is still in flight to the node, the call waits for the chunk.
#[test]
fn a_refused_call_waits_for_a_chunk_in_flight() {
    crate::run(async {
        let (store, _clock) = with_late_hold(eager().max_share(Share::new(1, 1).unwrap()));
        let policy = policy("p: fixed-window 6/1h");
        let charges = [Charge::new(&policy, "s")];
        make_hot(&store, &charges).await;
        // The limit is 6. A cost of 2 is used, and a cost of 4 is charged for the chunk.
        let waits = store.decide(Call::acquire(&charges));
        let deliver = async {
            settle_down().await;
            Faults::deliver(store.inner()).await;
        };
        let (answer, ()) = tokio::join!(waits, deliver);
        assert!(answer.unwrap().is_allowed());
        assert_eq!(store.stats().local(), 1);
    });
}

/// While a reset is in flight, the node fetches no chunk, even if the caller is cancelled.
/// Otherwise the reset could remove the charge of a chunk.
#[test]
fn no_chunk_is_fetched_while_the_reset_of_a_cancelled_caller_is_in_flight() {
    let policy = policy("p: fixed-window 1000/1h");
    let charges = [Charge::new(&policy, "s")];
    let other = [Charge::new(&policy, "t")];
    let reset = Call::new(Operation::Reset, &charges);
    for calls in [&[reset][..], &[reset, Call::acquire(&other)]] {
        crate::run(async {
            let clock = ManualClock::default();
            // The calls to the store are two acquires, the hold of a chunk, the settlement of the
            // chunk, and the reset, which is delayed.
            let mut plan = vec![Fault::None; 4];
            plan.push(Fault::Delayed);
            let store = ModelStore::new(clock.clone()).layer(Faults::new(plan));
            let store = store.leased(eager().clock(clock.clone()));
            let acquire = async || {
                assert!(store.decide(Call::acquire(&charges)).await.unwrap().is_allowed());
                settle_down().await;
            };
            acquire().await;
            acquire().await;
            assert_eq!(store.stats().chunks(), 1);
            let is_answered = timeout(Duration::from_millis(1), store.decide_many(calls)).await;
            assert!(is_answered.is_err());
            assert_eq!(store.inner().as_layer().in_flight(), 1);
            // After the return of an unused chunk, the node fetches no chunk for a quarter of a
            // span. The test skips this pause, so that only the reset in flight prevents a fetch.
            clock.advance(Duration::from_secs(1));
            for _ in 0..20 {
                acquire().await;
            }
            assert_eq!((store.stats().chunks(), store.stats().local()), (1, 0));
            Faults::deliver(store.inner()).await;
            for _ in 0..20 {
                acquire().await;
            }
            assert!(store.stats().chunks() > 1, "the pause has ended");
            store.close().await;
            let peek = store.inner().decide(Call::new(Operation::Peek, &charges)).await.unwrap();
            assert_eq!(peek.verdicts()[0].remaining(), 1_000 - 20);
        });
    }
}

type LateStore = LeasedStore<FaultyStore<ModelStore>, ManualClock>;

/// Creates a store with leases. The answer to its third call, which is the first hold, arrives when
/// the test delivers it.
fn with_late_hold(lease: Lease) -> (LateStore, ManualClock) {
    let clock = ManualClock::default();
    let plan = vec![Fault::None, Fault::None, Fault::Late];
    let store = ModelStore::new(clock.clone()).layer(Faults::new(plan));
    (store.leased(lease.clock(clock.clone())), clock)
}

/// Makes two calls for a subject, so that the node leases it. The third call to the store is then
/// the hold of a chunk.
async fn make_hot(store: &LateStore, charges: &[Charge<'_>]) {
    for _ in 0..2 {
        assert!(store.decide(Call::acquire(charges)).await.unwrap().is_allowed());
    }
    settle_down().await;
    assert_eq!((store.inner().as_layer().calls(), store.inner().as_layer().in_flight()), (3, 1));
}

/// Lets all tasks run until they wait.
async fn settle_down() {
    for _ in 0..20 {
        yield_now().await;
    }
}
