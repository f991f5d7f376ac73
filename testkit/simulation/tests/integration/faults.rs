//! Tests of faults that begin or end while calls are in flight. The time of the fault determines
//! whether a call is executed, answered or lost.

use tidegate_core::{Call, Charge, Clock, Decision, Error, Operation, Store};
use tidegate_simulation::{Fate, Ledger, Link, LinkStore, Reply, Simulation, World};
use tokio::task::JoinSet;

use super::{Server, micros, millis, policy, server};

const LIMIT: &str = "p: fixed-window 10/1h";

/// Returns a link with a delay of 10 ms in each direction.
fn slow() -> Link {
    Link::new().delay(millis(10)..=millis(10)).timeout(millis(100))
}

fn plain<F: Future<Output = ()> + Send + 'static>(
    simulation: Simulation,
    scenario: impl FnOnce(World<Server, LinkStore>) -> F + Send,
) -> Ledger {
    simulation.run(server, |host| host.link(), scenario)
}

async fn acquire(world: &World<Server, LinkStore>, node: usize) -> Option<Result<Decision, Error>> {
    let policy = policy(LIMIT);
    world.nodes()[node].request(Call::acquire(&[Charge::new(&policy, "s")])).await
}

/// Starts a request at a node, in a new task.
fn start(world: &World<Server, LinkStore>, node: usize) -> tokio::task::JoinHandle<()> {
    let world = world.clone();
    tokio::spawn(async move {
        acquire(&world, node).await;
    })
}

#[test]
fn calls_of_the_same_time_arrive_in_the_order_in_which_they_were_sent() {
    let ledger = plain(Simulation::new(1).nodes(3).link(slow()), async |world| {
        let mut requests = JoinSet::new();
        for number in 0..30 {
            let world = world.clone();
            requests.spawn(async move { acquire(&world, number % 3).await });
        }
        requests.join_all().await;
    });
    let replies: Vec<_> = ledger.calls().iter().map(|call| call.executed.unwrap().reply).collect();
    assert_eq!(
        replies,
        [[Reply::Admitted; 10], [Reply::Refused; 10], [Reply::Refused; 10]].concat()
    );
    assert!(ledger.calls().iter().all(|call| call.fate == Fate::Answered(20_000)));
}

#[test]
fn each_direction_takes_a_time_of_its_own() {
    let link = Link::new().delay(micros(100)..=micros(200));
    let ledger = plain(Simulation::new(1).link(link), async |world| {
        for _ in 0..1_000 {
            acquire(&world, 0).await;
        }
    });
    let mut sums = [0; 2];
    let mut apart = 0;
    for call in ledger.calls() {
        let (executed, Fate::Answered(answered)) = (call.executed.unwrap().at, call.fate) else {
            panic!("nothing is lost")
        };
        let (there, back) = (executed - call.sent_at, answered - executed);
        assert!((100..=200).contains(&there) && (100..=200).contains(&back), "{there} {back}");
        sums = [sums[0] + there, sums[1] + back];
        apart += there.abs_diff(back);
    }
    assert!(sums.iter().all(|sum| (147_000..153_000).contains(sum)), "{sums:?}");
    // The delays of the two directions are independent random numbers from 100 to 200 µs. The
    // average difference of two such numbers is a third of this range.
    assert!((30_000..37_000).contains(&apart), "{apart}");
}

#[test]
fn a_batch_is_one_message_with_an_answer_to_each_call() {
    let ledger = plain(Simulation::new(1), async |world| {
        let policy = policy(LIMIT);
        let charges = [8, 2, 3].map(|cost| [Charge::new(&policy, "s").cost(cost)]);
        let calls: Vec<_> = charges.iter().map(|charge| Call::acquire(charge)).collect();
        let answers = world.nodes()[0].store().decide_many(&calls).await;
        let admitted: Vec<_> =
            answers.into_iter().map(|answer| answer.unwrap().is_allowed()).collect();
        assert_eq!(admitted, [true, true, false]);
    });
    let calls: Vec<_> = ledger
        .calls()
        .iter()
        .map(|call| (call.message, call.cost, call.executed.unwrap().reply))
        .collect();
    let (admitted, refused) = (Reply::Admitted, Reply::Refused);
    assert_eq!(calls, [(0, 8, admitted), (0, 2, admitted), (0, 3, refused)]);
    assert_eq!((ledger.messages(), ledger.requests().len()), (1, 0));
}

#[test]
fn a_request_is_not_taken_for_a_call_of_a_layer_that_was_admitted_before() {
    let ledger = plain(Simulation::new(1).link(slow()), async |world| {
        let policy = policy(LIMIT);
        let charges = [Charge::new(&policy, "s")];
        assert!(world.nodes()[0].store().decide(Call::acquire(&charges)).await.is_ok());
        acquire(&world, 0).await;
    });
    assert_eq!(ledger.requests()[0].admitted_at, Some(30_000));
    assert_eq!((ledger.admitted(), ledger.executed()), (1, 2));
}

/// Checks that a killed node sends nothing, although the tasks of the node continue to run. Unlike
/// a killed process, a killed node does not stop its tasks.
#[test]
fn a_node_that_is_killed_sends_nothing() {
    let ledger = plain(Simulation::new(1).link(slow()), async |world| {
        let node = world.nodes()[0].clone();
        let task = tokio::spawn(async move {
            let policy = policy(LIMIT);
            for _ in 0..5 {
                let _ = node.store().decide(Call::acquire(&[Charge::new(&policy, "s")])).await;
            }
        });
        world.sleep(millis(30)).await;
        world.nodes()[0].kill();
        assert!(acquire(&world, 0).await.is_none());
        world.sleep(millis(200)).await;
        assert!(!task.is_finished());
        task.abort();
    });
    let calls: Vec<_> = ledger.calls().iter().map(|call| (call.sent_at, call.fate)).collect();
    assert_eq!(calls, [(0, Fate::Answered(20_000)), (20_000, Fate::Lost)]);
    assert_eq!(ledger.calls()[1].executed.unwrap().at, 30_000);
    assert_eq!((ledger.requests().len(), ledger.lost(), ledger.pending()), (0, 1, 0));
}

#[test]
fn a_message_in_flight_when_a_node_is_cut_off_is_lost() {
    let ledger = plain(Simulation::new(1).nodes(2).link(slow()), async |world| {
        let cut_off = |is_cut_off| world.nodes()[0].set_cut_off(is_cut_off);
        // A message is lost if the node is cut off when the message would arrive. In the first
        // round, the call is lost. In the second round, the answer is lost. In the third round, no
        // message is lost.
        for (from, until) in [(5, 15), (15, 25), (2, 8)] {
            let requests = [start(&world, 0), start(&world, 1)];
            world.sleep(millis(from)).await;
            cut_off(true);
            world.sleep(millis(until - from)).await;
            cut_off(false);
            for request in requests {
                request.await.unwrap();
            }
        }
    });
    let calls: Vec<_> = ledger.calls().iter().filter(|call| call.node == 0).collect();
    let fates: Vec<_> = calls.iter().map(|call| (call.executed.is_some(), call.fate)).collect();
    let answered = Fate::Answered(calls[2].sent_at + 20_000);
    assert_eq!(fates, [(false, Fate::Lost), (true, Fate::Lost), (true, answered)]);
    let mut others = ledger.calls().iter().filter(|call| call.node == 1);
    assert!(others.all(|call| call.fate == Fate::Answered(call.sent_at + 20_000)));
}

#[test]
fn a_server_that_is_away_executes_nothing_and_its_error_takes_time_too() {
    let ledger = plain(Simulation::new(1).link(slow()), async |world| {
        let request = start(&world, 0);
        world.sleep(millis(5)).await;
        world.set_server_away(true);
        world.sleep(millis(10)).await;
        world.set_server_away(false);
        request.await.unwrap();
        let policy = policy(LIMIT);
        let charges = [Charge::new(&policy, "s")];
        let peek = world.server().decide_now(&Call::new(Operation::Peek, &charges)).unwrap();
        assert_eq!(peek.verdicts()[0].remaining(), 10);
    });
    let call = &ledger.calls()[0];
    assert_eq!((call.executed, call.fate), (None, Fate::Answered(20_000)));
}

#[test]
fn each_clock_is_stepped_alone_and_the_server_decides_by_its_own() {
    let ledger = plain(Simulation::new(1).nodes(2).link(slow()), async |world| {
        let times = || {
            let nodes = world.nodes().iter().map(|node| node.clock().now().as_micros());
            nodes.chain([world.server_clock().now().as_micros()]).collect::<Vec<_>>()
        };
        let before = times();
        world.nodes()[0].clock().step(7);
        world.nodes()[0].clock().step(-3);
        world.server_clock().step(500);
        assert_eq!(times(), [before[0] + 4, before[1], before[2] + 500]);
        acquire(&world, 0).await;
        assert_eq!(times(), [before[0] + 20_004, before[1] + 20_000, before[2] + 20_500]);
    });
    let executed = ledger.calls()[0].executed.unwrap();
    let midnight = executed.server_time - 10_500;
    assert_eq!((executed.at, midnight % 86_400_000_000), (10_000, 0));
}
