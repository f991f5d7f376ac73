//! Tests of the virtual time, of links, and of the faults of links.

use std::time::Duration;

use tidegate_core::{Call, Charge, Clock, ErrorKind, Share, StoreExt};
use tidegate_simulation::{Fate, Ledger, Link, LinkStore, Load, Reply, Simulation, World};

use super::{Server, micros, millis, policy, server};

const LIMIT: &str = "p: fixed-window 1000000/1h";

fn exact(delay: u64) -> Link {
    Link::new().delay(micros(delay)..=micros(delay))
}

/// Runs a scenario on nodes without layers. The store of each node is the `LinkStore`.
fn plain<F: Future<Output = ()> + Send + 'static>(
    simulation: Simulation,
    scenario: impl FnOnce(World<Server, LinkStore>) -> F + Send,
) -> Ledger {
    simulation.run(server, |host| host.link(), scenario)
}

async fn acquire(world: &World<Server, LinkStore>, node: usize) {
    let policy = policy(LIMIT);
    world.nodes()[node].request(Call::acquire(&[Charge::new(&policy, "s")])).await;
}

#[test]
fn delays_are_exact_to_the_microsecond() {
    let ledger = plain(Simulation::new(1).link(exact(137)), async |world| {
        world.sleep(micros(1_001)).await;
        acquire(&world, 0).await;
        assert_eq!(world.elapsed(), micros(1_001 + 2 * 137));
    });
    let call = &ledger.calls()[0];
    assert_eq!((call.sent_at, call.fate), (1_001, Fate::Answered(1_275)));
    let request = &ledger.requests()[0];
    assert_eq!(request.reply, Some((1_275, Reply::Admitted)));
    assert_eq!((request.admitted_at, request.is_immediate), (Some(1_138), false));
}

/// Checks that a timer of Tokio ends at the next whole millisecond, even if no event of the
/// simulation happens at this time.
#[test]
fn timers_of_layers_end_in_time() {
    let simulation = Simulation::new(1).link(exact(40_000));
    let ledger = simulation.run(
        server,
        |host| host.link().timeout(Duration::from_millis(5)),
        async |world| {
            world.sleep(micros(300)).await;
            let policy = policy(LIMIT);
            world.nodes()[0].request(Call::acquire(&[Charge::new(&policy, "s")])).await;
            assert_eq!(world.elapsed(), micros(6_000));
            world.sleep(millis(100)).await;
        },
    );
    assert_eq!(ledger.requests()[0].reply, Some((6_000, Reply::Failed(ErrorKind::Timeout))));
    // The caller timed out before the call arrived at the server. The server still executed the
    // call.
    assert_eq!(ledger.calls()[0].executed.map(|executed| executed.at), Some(40_300));
    assert_eq!(ledger.calls()[0].fate, Fate::Answered(80_300));
}

#[test]
fn a_simulation_may_take_as_long_as_it_likes_in_virtual_time() {
    plain(Simulation::new(1).max_time(Duration::from_secs(700)), async |world| {
        world.sleep(Duration::from_secs(600)).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(world.elapsed(), Duration::from_secs(660));
    });
}

#[test]
#[should_panic(expected = "has not ended within 50ms")]
fn a_simulation_that_waits_forever_fails() {
    plain(Simulation::new(1).max_time(millis(50)), async |_| std::future::pending().await);
}

#[test]
#[should_panic(expected = "a failed expectation")]
fn a_panic_of_a_scenario_is_that_of_the_simulation() {
    plain(Simulation::new(1), async |_| panic!("a failed expectation"));
}

#[test]
fn clocks_of_nodes_are_slow_or_fast_and_show_any_time() {
    let ppms = std::sync::Mutex::new(vec![]);
    let simulation = Simulation::new(3).nodes(20).clock_error(1_000);
    let scenario = async |world: World<Server, LinkStore>| {
        let times = |world: &World<Server, LinkStore>| -> Vec<u64> {
            world.nodes().iter().map(|node| node.clock().now().as_micros()).collect()
        };
        let (before, server) = (times(&world), world.server_clock().now().as_micros());
        assert_eq!(server % (86_400 * 1_000_000), 0, "midnight");
        world.sleep(Duration::from_secs(10)).await;
        assert_eq!(world.server_clock().now().as_micros() - server, 10_000_000);
        for (node, (now, before)) in world.nodes().iter().zip(times(&world).iter().zip(&before)) {
            let expected = 10_000_000_i64 + node.clock().ppm() * 10;
            assert_eq!(i64::try_from(now - before).unwrap(), expected);
        }
        world.server_clock().step(-5);
        assert_eq!(world.server_clock().now().as_micros() - server, 9_999_995);
    };
    simulation.run(
        server,
        |host| {
            ppms.lock().unwrap().push(host.clock().ppm());
            host.link()
        },
        scenario,
    );
    let ppms = ppms.into_inner().unwrap();
    assert!(ppms.contains(&1_000) && ppms.contains(&-1_000), "{ppms:?}");
}

#[test]
fn a_lost_message_is_an_error_after_the_timeout() {
    let link = exact(100).lost(Share::new(1, 4).unwrap()).timeout(millis(20));
    let ledger = plain(Simulation::new(5).link(link), async |world| {
        world.run(Load::new(&policy(LIMIT)).requests(1_000).lasting(Duration::from_secs(9))).await;
    });
    let lost: Vec<_> = ledger.calls().iter().filter(|call| call.fate == Fate::Lost).collect();
    let lost_calls = lost.iter().filter(|call| call.executed.is_none()).count();
    // A quarter of the calls is lost. For the other calls, a quarter of the answers is lost.
    assert!((190..310).contains(&lost_calls), "{lost_calls}");
    assert!((380..500).contains(&ledger.lost()), "{}", ledger.lost());
    assert_eq!(ledger.failed(), ledger.lost());
    assert_eq!(ledger.executed(), 1_000 - lost_calls);
    for request in ledger.requests() {
        let (at, reply) = request.reply.unwrap();
        let after = if reply == Reply::Admitted { 200 } else { 20_000 };
        assert_eq!(at - request.made_at, after, "{reply:?}");
    }
}

/// Checks that an answer after the timeout counts as lost, and is not also counted as answered.
#[test]
fn a_late_answer_is_lost() {
    let ledger = plain(Simulation::new(5).link(exact(3_000).timeout(millis(5))), async |world| {
        acquire(&world, 0).await;
        world.sleep(millis(20)).await;
    });
    assert_eq!((ledger.lost(), ledger.answered(), ledger.executed()), (1, 0, 1));
    assert_eq!(ledger.requests()[0].reply, Some((5_000, Reply::Failed(ErrorKind::Timeout))));
}

#[test]
fn some_messages_take_longer() {
    let link = exact(100).tail(Share::new(1, 10).unwrap(), millis(100));
    let ledger = plain(Simulation::new(5).link(link), async |world| {
        world.run(Load::new(&policy(LIMIT)).requests(1_000).lasting(Duration::from_secs(9))).await;
    });
    let times = ledger.requests().iter();
    let times: Vec<_> = times.map(|request| request.reply.unwrap().0 - request.made_at).collect();
    let slow = times.iter().filter(|time| **time > 200).count();
    assert!((150..230).contains(&slow), "{slow}");
    assert!(times.iter().all(|time| *time <= 200_000));
}

/// Checks that a killed node sends no call and receives no answer. A call that was in flight when
/// the node was killed can still be executed.
#[test]
fn a_killed_node_sends_and_receives_nothing() {
    let ledger = plain(Simulation::new(1).nodes(2).link(exact(10_000)), async |world| {
        let load = world.start(Load::new(&policy(LIMIT)).lasting(millis(100)));
        world.sleep(millis(50)).await;
        world.nodes()[0].kill();
        assert!(world.nodes()[0].is_killed() && !world.nodes()[1].is_killed());
        load.await;
        assert!(world.elapsed() > millis(100) && world.elapsed() < millis(120));
    });
    let (mut killed, mut other) = (0, 0);
    for request in ledger.requests() {
        if request.node == 1 {
            other += u64::from(request.made_at > 90_000);
            assert!(request.reply.is_some());
            continue;
        }
        assert!(request.made_at <= 50_000);
        assert_eq!(request.reply.is_some(), request.made_at <= 30_000, "{request:?}");
        killed += 1;
    }
    assert!(killed > 10 && other > 2, "{killed} {other}");
    for call in ledger.calls().iter().filter(|call| call.node == 0) {
        assert_eq!(call.fate == Fate::Lost, call.sent_at > 30_000, "{call:?}");
        assert_eq!(call.executed.map(|executed| executed.at), Some(call.sent_at + 10_000));
    }
}

#[test]
fn a_server_that_is_away_returns_an_error_and_a_node_that_is_cut_off_receives_nothing() {
    let link = exact(100).timeout(millis(2));
    let ledger = plain(Simulation::new(1).nodes(2).link(link), async |world| {
        for (away, cut_off) in [(true, false), (false, true), (false, false)] {
            world.set_server_away(away);
            world.nodes()[0].set_cut_off(cut_off);
            acquire(&world, 0).await;
            acquire(&world, 1).await;
        }
        world.nodes()[1].set_link(exact(500));
        acquire(&world, 1).await;
    });
    let replies: Vec<_> =
        ledger.requests().iter().map(|request| request.reply.unwrap().1).collect();
    let unavailable = Reply::Failed(ErrorKind::Unavailable);
    let (timeout, admitted) = (Reply::Failed(ErrorKind::Timeout), Reply::Admitted);
    assert_eq!(
        replies,
        [unavailable, unavailable, timeout, admitted, admitted, admitted, admitted]
    );
    let last = ledger.requests().last().unwrap();
    assert_eq!(last.reply.unwrap().0 - last.made_at, 1_000);
    assert_eq!(ledger.executed(), 4);
}
