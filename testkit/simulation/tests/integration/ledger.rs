//! Tests that the ledger contains each request and each call, and that its counts add up.

use std::time::Duration;

use tidegate_core::{Call, Charge, Clock, Lease, Operation, Share, Store, StoreExt};
use tidegate_simulation::{Fate, Ledger, Link, LinkStore, Load, Reply, Simulation, World};

use super::{Server, micros, millis, policy, server};

/// Runs a simulation with all kinds of faults, and ends it while calls are in flight. Returns the
/// ledger.
fn with_faults(seed: u64) -> Ledger {
    let link = Link::new().delay(micros(50)..=millis(3)).lost(Share::new(1, 20).unwrap());
    Simulation::new(seed).nodes(6).link(link.timeout(millis(50))).clock_error(900).run(
        server,
        |host| host.link().coalesced().leased(Lease::new().hot_after(4).clock(host.clock())),
        async |world| {
            let policy = policy("p: fixed-window 700/1s");
            let load = Load::new(&policy).subjects(3).per_second(3_000).lasting(millis(1_200));
            let load = world.start(load.cost(1..=3));
            world.sleep(millis(300)).await;
            world.nodes()[0].kill();
            world.nodes()[1].set_cut_off(true);
            world.sleep(millis(300)).await;
            world.set_server_away(true);
            world.sleep(millis(100)).await;
            world.set_server_away(false);
            world.sleep(millis(400)).await;
            drop(load);
        },
    )
}

#[test]
fn each_request_and_each_call_is_counted_once() {
    for seed in 0..5 {
        let ledger = with_faults(seed);
        let requests = ledger.requests().len();
        let counted = [ledger.admitted(), ledger.refused(), ledger.failed(), ledger.unanswered()];
        assert_eq!(requests, counted.iter().sum::<usize>());
        assert!((2_600..3_700).contains(&requests), "{requests}");
        assert!(counted.iter().all(|count| *count > 0), "{counted:?}");
        let fates = [ledger.answered(), ledger.lost(), ledger.pending()];
        assert_eq!(ledger.sent(), fates.iter().sum::<usize>());
        assert!(fates.iter().all(|count| *count > 0), "{fates:?}");
        assert!(ledger.executed() < ledger.sent() && ledger.messages() < ledger.sent());
        let lines = ledger.to_string().lines().count();
        assert_eq!(lines, requests + ledger.sent());
        // The calls of one message are sent together and have the same fate.
        for two in ledger.calls().windows(2).filter(|two| two[0].message == two[1].message) {
            assert_eq!((two[0].sent_at, two[0].fate), (two[1].sent_at, two[1].fate));
        }
    }
}

/// Checks that the ledger matches each admission by the server with exactly one request.
#[test]
fn admissions_are_those_of_the_server_and_those_at_once() {
    let ledger = Simulation::new(4).nodes(3).run(
        server,
        |host| host.link().coalesced(),
        async |world| world.run(Load::new(&policy("p: fixed-window 500/1m")).cost(1..=2)).await,
    );
    assert_eq!(ledger.admitted_at_once(), 0);
    let mut by_server: Vec<_> = ledger.calls().iter().map(|call| call.executed.unwrap()).collect();
    by_server.retain(|executed| executed.reply == Reply::Admitted);
    let mut times: Vec<_> = by_server.iter().map(|executed| executed.at).collect();
    let mut admitted: Vec<_> =
        ledger.requests().iter().filter_map(|request| request.admitted_at).collect();
    admitted.sort_unstable();

    times.sort_unstable();
    assert_eq!(admitted, times);
    assert_eq!(ledger.admissions().total(), 500);
    assert_eq!(ledger.admissions().in_windows(Duration::from_secs(60)), [500]);
}

/// Checks that the ledger contains each call that a node without layers makes, with the operation,
/// the amount and the server's answer.
#[test]
fn operations_and_amounts_are_recorded() {
    let scenario = async |world: World<Server, LinkStore>| {
        let policy = policy("p: fixed-window 10/1m");
        let charges = [Charge::new(&policy, "alice").cost(7)];
        let node = &world.nodes()[0];
        for operation in [
            Operation::AcquireUpTo { min: 1 },
            Operation::AcquireUpTo { min: 1 },
            Operation::Peek,
            Operation::Refund,
        ] {
            let call = Call::new(operation, &charges);
            assert!(node.request(call).await.unwrap().is_ok());
        }
        let now = node.store().now().await.unwrap();
        assert_eq!(now, world.server_clock().now());
    };
    let ledger = Simulation::new(1).run(server, |host| host.link(), scenario);
    let amounts: Vec<_> = ledger.calls().iter().map(|call| call.executed.unwrap().amount).collect();
    assert_eq!(amounts, [Some(7), Some(3), None, Some(7)]);
    assert_eq!(ledger.admissions().total(), 10);
    assert_eq!(ledger.admissions_of("alice").all().len(), 2);
    assert_eq!(ledger.admissions_of("bob").total(), 0);
    assert_eq!(ledger.subject(ledger.requests()[0].subject), b"alice");
    assert!(ledger.calls().iter().all(|call| matches!(call.fate, Fate::Answered(_))));
}

/// Checks that a load makes the right number of requests at the right rate, and spreads the
/// requests over its nodes.
#[test]
fn a_load_has_its_rate_and_its_number_of_requests() {
    let ledger = Simulation::new(9).nodes(7).run(
        server,
        |host| host.link(),
        async |world| {
            let policy = policy("p: fixed-window 1000000/1m");
            let load = Load::new(&policy).nodes(0..3).per_second(20_000).requests(1_000);
            world.run(load.subjects(5).cost(2..=4)).await;
            assert!(world.elapsed() > millis(40) && world.elapsed() < millis(60));
            world.run(Load::new(&policy).nodes(3..9).per_second(20_000)).await;
        },
    );
    let count = |node| ledger.requests().iter().filter(|request| request.node == node).count();
    assert_eq!([count(0), count(1), count(2)], [334, 333, 333]);
    for node in 3..7 {
        assert!((4_700..5_300).contains(&count(node)), "{}", count(node));
    }
    let first = &ledger.requests()[..1_000];
    for subject in 0..5 {
        let count = first.iter().filter(|request| request.subject == subject).count();
        assert!((150..250).contains(&count), "{count}");
    }
    let costs: std::collections::BTreeSet<_> = first.iter().map(|request| request.cost).collect();
    assert_eq!(costs.into_iter().collect::<Vec<_>>(), [2, 3, 4]);
}
