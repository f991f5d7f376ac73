//! Tests of guards and of callers that wait.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::layers::{FallbackStore, Layered};
use tidegate_core::{
    Call, Charge, ErrorKind, HoldGuard, Limiter, OnDrop, OnFailure, Operation, Store, StoreExt,
    Ticket, TokioClock,
};
use tidegate_memory::MemoryStore;
use tokio::time::{Instant, sleep, timeout};

use super::{Cut, LEASE, Link, MINUTE, SECOND, SIX, THREE, free, half, hold, policy};
use crate::run;

struct Process {
    main: Arc<MemoryStore<TokioClock>>,
    spare: Arc<MemoryStore<TokioClock>>,
    limiter: Limiter<Arc<ProcessStore>>,
}

type ProcessStore = FallbackStore<Layered<Cut, Arc<MemoryStore<TokioClock>>>>;

impl Process {
    fn new(policies: &str) -> Self {
        let memory = || Arc::new(MemoryStore::builder().clock(TokioClock::new()).build());
        let (main, spare) = (memory(), memory());
        let on_failure =
            OnFailure::fall_back_to(Arc::clone(&spare), half()).clock(TokioClock::new());
        let store = Arc::clone(&main).layer(Cut::new()).on_failure(on_failure);
        let limiter = Limiter::new(Arc::new(store), [policy(policies)]).unwrap();
        Self { main, spare, limiter }
    }

    fn set(&self, link: Link) {
        self.limiter.store().inner().as_layer().set(link);
    }

    async fn guard(&self, id: &str) -> HoldGuard<Arc<ProcessStore>> {
        HoldGuard::new(&self.limiter, hold(&self.limiter, id).await.unwrap(), OnDrop::Settle)
            .unwrap()
    }
}

async fn is_lost<S: Store>(guard: &HoldGuard<S>) -> bool {
    timeout(Duration::from_millis(1), guard.lost()).await.is_ok()
}

#[test]
fn a_guard_renews_its_slots_on_the_store_that_has_them() {
    run(async {
        let process = Process::new(SIX);
        let on_store = process.guard("of the store").await;
        process.set(Link::Down);
        let on_fallback = process.guard("of the fallback").await;
        let started = Instant::now();
        let deadline = on_store.deadline().unwrap();
        sleep(20 * SECOND).await;
        // The holder of the store works until its deadline, and gets no answer until then.
        assert_eq!(on_store.deadline().unwrap(), deadline);
        assert!(!is_lost(&on_store).await);
        assert!(on_fallback.deadline().unwrap() >= started + 2 * LEASE - SECOND * 12);
        process.set(Link::Up);
        sleep(10 * MINUTE).await;
        for guard in [&on_store, &on_fallback] {
            assert!(!is_lost(guard).await);
            assert!(guard.deadline().unwrap() > Instant::now() + LEASE / 2);
        }
        let (six, three) = (policy(SIX), policy(THREE));
        assert_eq!((free(&process.main, &six).await, free(&process.spare, &three).await), (5, 2));
        drop((on_store, on_fallback));
        process.limiter.guards_settled().await;
        assert_eq!((free(&process.main, &six).await, free(&process.spare, &three).await), (6, 3));
    });
}

#[test]
fn a_guard_learns_that_its_slots_on_the_fallback_store_are_lost() {
    run(async {
        let process = Process::new(SIX);
        process.set(Link::Down);
        let guard = process.guard("id").await;
        let ticket = guard.ticket().unwrap();
        let form = serde_json::to_string(ticket).unwrap();
        assert_eq!(&serde_json::from_str::<Ticket>(&form).unwrap(), ticket);
        // Another process has another fallback store, which does not know the hold.
        let other = Process::new(SIX);
        let moved = serde_json::from_str(&form).unwrap();
        let moved = HoldGuard::new(&other.limiter, moved, OnDrop::Keep).unwrap();
        sleep(SECOND).await;
        assert!(is_lost(&moved).await);
        assert_eq!(
            other.limiter.extend(ticket, MINUTE).await.unwrap_err().kind(),
            ErrorKind::UnknownHold
        );

        process.set(Link::Up);
        let three = policy(THREE);
        let charges = [Charge::new(&three, "a")];
        let _ = process.spare.decide(Call::new(Operation::Reset, &charges)).await.unwrap();
        assert!(!is_lost(&guard).await);
        sleep(LEASE / 2).await;
        assert!(is_lost(&guard).await);
    });
}

/// Callers continue to wait when an outage begins or ends. They use the slots of both stores.
#[test]
fn callers_wait_across_an_outage() {
    run(async {
        let process = Process::new("slots: concurrent 2 lease 30m");
        let mut holders = vec![];
        for id in ["1", "2"] {
            holders.push(hold(&process.limiter, id).await.unwrap());
        }
        let waiting: Vec<_> = ["first", "second", "third"]
            .into_iter()
            .map(|id| {
                let limiter = process.limiter.clone();
                tokio::spawn(async move {
                    let hold = limiter.subject("a").hold_within(id, MINUTE, 10 * MINUTE);
                    (hold.await.unwrap().into_ticket().unwrap(), Instant::now())
                })
            })
            .collect();
        sleep(SECOND).await;
        process.set(Link::Down);
        sleep(10 * SECOND).await;
        process.set(Link::Up);
        sleep(10 * SECOND).await;
        let freed_at = Instant::now();
        for holder in &holders {
            process.limiter.settle(holder, []).await.unwrap();
        }
        let (mut on_fallback, mut on_store) = (0, 0);
        for waiting in waiting {
            let (ticket, admitted_at) = waiting.await.unwrap();
            match ticket.is_degraded() {
                true => on_fallback += 1,
                false => on_store += 1,
            }
            assert!(admitted_at < freed_at + SECOND);
            process.limiter.settle(&ticket, []).await.unwrap();
        }
        assert_eq!((on_fallback, on_store), (1, 2));
        assert_eq!(process.limiter.waiters(), 0);
    });
}

/// The store has admitted a caller, but the answer is lost, and the fallback store has no slot. If
/// the caller is cancelled, the slot of the store becomes free.
#[test]
fn a_cancelled_caller_frees_the_slot_that_it_does_not_know_of() {
    run(async {
        let process = Process::new("slots: concurrent 2 lease 30m");
        process.set(Link::Down);
        let _holder = hold(&process.limiter, "holder").await.unwrap();
        process.set(Link::Deaf);
        let hold = process.limiter.subject("a").hold_within("lost", MINUTE, MINUTE);
        let cut = async {
            sleep(Duration::from_millis(1)).await;
            process.set(Link::Down);
        };
        assert!(timeout(SECOND, async { tokio::join!(hold, cut) }).await.is_err());
        process.set(Link::Up);
        sleep(SECOND).await;
        assert_eq!(free(&process.main, &policy("slots: concurrent 2 lease 30m")).await, 2);
    });
}
