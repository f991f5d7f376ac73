//! Tests that holders of slots are never more than the slots if they stop at their deadlines. Links
//! are slow, lose messages and are cut, and nodes are killed.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use proptest::prelude::*;
use tidegate_core::{Hold, HoldGuard, Limiter, OnDrop, Share};
use tidegate_simulation::{Link, LinkStore, Simulation};
use tokio::time::Instant;

use super::{micros, millis, policy, server};

const LEASE: Duration = Duration::from_millis(600);

#[derive(Debug, Clone)]
struct Scenario {
    seed: u64,
    nodes: usize,
    slots: u64,
    max_delay: u64,
    lost: u32,
    cut_off: usize,
    killed: usize,
    is_away: bool,
}

fn scenarios() -> impl Strategy<Value = Scenario> {
    let link = (prop_oneof![Just(200_u64), Just(5_000), Just(40_000)], 0..12_u32);
    let faults = (0..4_usize, 0..4_usize, any::<bool>());
    (any::<u64>(), 2..8_usize, 1..4_u64, link, faults).prop_map(
        |(seed, nodes, slots, (max_delay, lost), (cut_off, killed, is_away))| Scenario {
            seed,
            nodes,
            slots,
            max_delay,
            lost,
            cut_off,
            killed,
            is_away,
        },
    )
}

/// The work of a holder: its fence, and the times at which it got its slot and last worked.
#[derive(Debug, Clone, Copy)]
struct Work {
    fence: u64,
    granted_at: Instant,
    worked_until: Instant,
}

/// Records that a holder works. `place` is the place of its work in the list, or `None` for a new
/// work.
fn note(works: &Mutex<Vec<Work>>, place: &mut Option<usize>, work: Work) {
    let mut works = works.lock().unwrap();
    let place = *place.get_or_insert(works.len());
    match works.get_mut(place) {
        Some(known) => known.worked_until = work.worked_until,
        None => works.push(work),
    }
}

/// Waits for a slot, works for a while, and repeats this until `end`.
async fn work(
    limiter: Limiter<Arc<LinkStore>>,
    works: Arc<Mutex<Vec<Work>>>,
    name: String,
    end: Instant,
) {
    for job in 0.. {
        if Instant::now() >= end {
            return;
        }
        let id = format!("{name} {job}");
        let hold = limiter.subject("s").hold_within(&id, LEASE * 9, LEASE * 2).await;
        let Ok(Ok(ticket)) = hold.map(Hold::into_ticket) else {
            tokio::time::sleep(millis(20)).await;
            continue;
        };
        let fence = ticket.fence("slots").unwrap();
        let guard = HoldGuard::new(&limiter, ticket, OnDrop::Settle).unwrap();
        let started = Instant::now();
        let duration = millis(if job % 2 == 0 { 30 } else { 1_500 });
        let mut place = None;
        while started.elapsed() < duration && Instant::now() < end {
            let now = Instant::now();
            if now >= guard.deadline().unwrap() {
                break;
            }
            note(&works, &mut place, Work { fence, granted_at: now, worked_until: now });
            tokio::time::sleep(millis(7)).await;
        }
    }
}

/// Runs two workers per node.
/// Returns the works, and the number of free slots a lease and 50 ms after the last work.
fn play(scenario: &Scenario) -> (Vec<Work>, u64) {
    let works: Arc<Mutex<Vec<Work>>> = Arc::default();
    let free = Arc::new(Mutex::new(0));
    let lost = Share::new(scenario.lost, 100).unwrap();
    let link = Link::new().delay(micros(20)..=micros(scenario.max_delay)).lost(lost);
    let simulation = Simulation::new(scenario.seed).nodes(scenario.nodes).clock_error(999);
    let (scenario, results) = (scenario.clone(), (Arc::clone(&works), Arc::clone(&free)));
    let (works_of_all, free_at_end) = results;
    let _ = simulation.link(link.timeout(millis(100))).run(
        server,
        |host| Arc::new(host.link()),
        async move |world| {
            let slots = policy(&format!("slots: concurrent {} lease 600ms", scenario.slots));
            let end = Instant::now() + millis(6_000);
            let mut workers = vec![];
            for (number, node) in world.nodes().iter().enumerate() {
                let limiter = Limiter::new(Arc::clone(node.store()), [slots.clone()]).unwrap();
                for worker in 0..2 {
                    let (limiter, works) = (limiter.clone(), Arc::clone(&works_of_all));
                    let task = work(limiter, works, format!("{number} {worker}"), end);
                    workers.push((number, tokio::spawn(task)));
                }
            }
            for node in world.nodes().iter().take(scenario.cut_off) {
                world.sleep(millis(400)).await;
                node.set_cut_off(true);
            }
            if scenario.is_away {
                world.set_server_away(true);
                world.sleep(millis(900)).await;
                world.set_server_away(false);
            }
            world.sleep(millis(700)).await;
            world.nodes().iter().for_each(|node| node.set_cut_off(false));
            for killed in 0..scenario.killed.min(scenario.nodes) {
                world.sleep(millis(300)).await;
                world.nodes()[killed].kill();
                let killed = workers.iter().filter(|(number, _)| *number == killed);
                killed.for_each(|(_, worker)| worker.abort());
            }
            for (_, worker) in workers {
                // The workers of killed nodes end with an error.
                let _ = worker.await;
            }
            // A renewal that was sent before the end of its work can arrive 40 ms later.
            world.sleep(LEASE + millis(50)).await;
            let limiter = Limiter::new(world.server(), [slots]).unwrap();
            let peek = limiter.subject("s").cost(0).peek().await.unwrap();
            *free_at_end.lock().unwrap() = peek.verdicts()[0].remaining();
        },
    );
    let works = works.lock().unwrap().clone();
    let free = *free.lock().unwrap();
    (works, free)
}

/// Returns the maximum number of works at a time, which is reached when one of them begins.
fn max_at_once(works: &[Work]) -> usize {
    let works_at = |at| {
        let is_on = |work: &&Work| work.granted_at <= at && at < work.worked_until;
        works.iter().filter(is_on).count()
    };
    works.iter().map(|work| works_at(work.granted_at)).max().unwrap_or(0)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn never_more_holders_than_slots_work_until_their_deadlines(scenario in scenarios()) {
        let (works, free) = play(&scenario);
        prop_assert!(max_at_once(&works) <= usize::try_from(scenario.slots).unwrap(), "{works:?}");
        prop_assert_eq!(free, scenario.slots, "all slots are free one lease after the last work");
        let mut fences: Vec<u64> = works.iter().map(|work| work.fence).collect();
        fences.sort_unstable();
        fences.dedup();
        prop_assert_eq!(fences.len(), works.len(), "each grant has its own fence");
    }
}

/// Without faults, all slots are used, and no work ends early.
#[test]
fn all_slots_are_used() {
    let (cut_off, killed, is_away) = (0, 0, false);
    let scenario =
        Scenario { seed: 7, nodes: 6, slots: 3, max_delay: 500, lost: 0, cut_off, killed, is_away };
    let (works, free) = play(&scenario);
    assert_eq!((max_at_once(&works), free), (3, 3));
    let long = works.iter().filter(|work| work.worked_until - work.granted_at > millis(1_400));
    assert!(long.count() >= 6, "{works:?}");
}
