//! Calls and answers that are lost, a store that is away, tasks that end.

use std::time::Duration;

use tidegate_core::layers::{Layer, LeasedStore};
use tidegate_core::{
    Answer, Call, Charge, Decision, DegradedAnswer, Error, ErrorKind, Lease, ManualClock,
    Operation, Share, Store, StoreExt,
};
use tidegate_testkit::faults::{Fault, Faults, FaultyStore};
use tidegate_testkit::{ModelStore, decide_one_by_one};
use tokio::task::yield_now;
use tokio::time::sleep;

use super::chunks::{acquire, eager, load, policy};
use super::world::{Quality, Server, node};

/// A lease goes on to its end; then the failure policy speaks; then the store is asked again.
#[test]
fn while_the_store_is_away_a_lease_goes_on_to_its_end() {
    crate::run(async {
        let (server, policy) = (Server::new(), policy("p: fixed-window 1000000/1h"));
        let lease = eager().span(Duration::from_millis(500));
        let (store, link) = node(&server, lease, Quality::GOOD);
        load(&store, &policy, 1_000, Duration::from_secs(1)).await;
        link.set_away(true);
        let store = store.or_fail_closed();
        let charges = [Charge::new(&policy, "s")];
        let mut went_on = 0;
        let degraded = loop {
            let decision = store.decide(Call::acquire(&charges)).await.unwrap();
            if let Some(degraded) = decision.degraded() {
                break degraded.clone();
            }
            went_on += 1;
            sleep(Duration::from_millis(1)).await;
        };
        assert_eq!(degraded.answer, DegradedAnswer::FailedClosed);
        assert_eq!(degraded.reason, ErrorKind::Unavailable);
        // Between a quarter and all of a span, as chunks last for half of one.
        assert!((100..=500).contains(&went_on), "{went_on}");
        sleep(Duration::from_secs(1)).await;
        assert!(store.inner().decide(Call::acquire(&charges)).await.is_err());
        link.set_away(false);
        assert!(load(store.inner(), &policy, 1_000, Duration::from_secs(1)).await > 500);
    });
}

/// A chunk whose answer is lost is not used. Here its hold is cancelled; if that is lost too, it stays charged.
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
            // Two calls make it hot; the third call to the store is the hold, and the fourth its settlement.
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

/// A store whose holds fail is asked for one now and then, and each call is decided by it.
#[test]
fn a_store_that_cannot_hold_is_not_asked_again_and_again() {
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

/// What a fallback store decides grants nothing.
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

/// Tasks end with their runtime, and the store goes on with another one.
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
    // Without a runtime nothing is leased, and nothing panics.
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
        assert!(acquire(&store, &policy, 1).await, "the chunk is still there");
    });
}

/// One that is answered late: what counts is when it was sent. The task that gives it back sleeps by another clock here, so
/// nothing but its deadline ends it.
#[test]
fn a_chunk_ends_a_span_or_a_window_after_it_was_sent() {
    let (second, long) = (Duration::from_secs(1), Duration::from_secs(10));
    // By a thousandth earlier, for clocks that are slow.
    let life = Duration::from_millis(999);
    let tick = Duration::from_micros(1);
    for (text, span) in
        [("p: fixed-window 1000/1h", second), ("p: fixed-window 1000/1s anchored", long)]
    {
        for (answered_after, is_used) in [(life - tick, true), (life, false)] {
            crate::run(async {
                let (store, clock) = with_late_hold(eager().span(span));
                let policy = policy(text);
                let charges = [Charge::new(&policy, "s")];
                make_hot(&store, &charges).await;
                clock.advance(answered_after);
                Faults::deliver(store.inner()).await;
                settle_down().await;
                // One that is over is given back at once.
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

/// A call that is refused because this node's own chunk is on its way waits for that.
#[test]
fn a_refused_call_waits_for_a_chunk_on_its_way() {
    crate::run(async {
        let (store, _clock) = with_late_hold(eager().max_share(Share::new(1, 1).unwrap()));
        let policy = policy("p: fixed-window 6/1h");
        let charges = [Charge::new(&policy, "s")];
        make_hot(&store, &charges).await;
        // 2 are used, and 4 are in the chunk.
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

type LateStore = LeasedStore<FaultyStore<ModelStore>, ManualClock>;

/// A store that answers its third call, which is the first hold, at the next delivery.
fn with_late_hold(lease: Lease) -> (LateStore, ManualClock) {
    let clock = ManualClock::default();
    let plan = vec![Fault::None, Fault::None, Fault::Late];
    let store = ModelStore::new(clock.clone()).layer(Faults::new(plan));
    (store.leased(lease.clock(clock.clone())), clock)
}

/// Two calls make it hot; the third one to the store is the hold.
async fn make_hot(store: &LateStore, charges: &[Charge<'_>]) {
    for _ in 0..2 {
        assert!(store.decide(Call::acquire(charges)).await.unwrap().is_allowed());
    }
    settle_down().await;
    assert_eq!((store.inner().as_layer().calls(), store.inner().as_layer().in_flight()), (3, 1));
}

async fn settle_down() {
    for _ in 0..20 {
        yield_now().await;
    }
}
