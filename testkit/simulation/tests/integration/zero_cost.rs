//! Tests of requests with a cost of 0, which charge nothing. A node with leases may admit such a
//! request by itself only if the store would have admitted a cost of 0 at some time within the last
//! span.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate_core::layers::Layer;
use tidegate_core::{
    Answer, Call, Charge, Clock, Decision, Error, Lease, Operation, Policy, Share, StoreExt,
    Timestamp,
};
use tidegate_simulation::{Ledger, Link, Load, Random, Reply, Request, SimulatedClock, Simulation};
use tidegate_testkit::decide_one_by_one;

use super::{Server, micros, millis, policy, server};

const POLICY: &str = "p: fixed-window 400/1h";

/// The store's decisions on a cost of 0 for the subject `s0`. Each entry has a time, in
/// microseconds since the start, and is `true` if the store admitted a cost of 0 at this time.
type Changes = Arc<Mutex<Vec<(u64, bool)>>>;

/// A layer that records after each call whether the store admits a cost of 0.
#[derive(Debug)]
struct Watch {
    clock: SimulatedClock,
    start: Timestamp,
    policy: Policy,
    changes: Changes,
}

impl Watch {
    fn new(clock: SimulatedClock, changes: Changes) -> Self {
        let start = clock.now();
        Self { clock, start, policy: policy(POLICY), changes }
    }
}

impl Layer<Server> for Watch {
    const MAY_WAIT: bool = false;

    fn decide<'a>(
        &'a self,
        inner: &'a Server,
        call: Call<'a>,
    ) -> Answer<'a, Result<Decision, Error>> {
        let answer = inner.decide_now(&call);
        let free = [Charge::new(&self.policy, "s0").cost(0)];
        let peek = inner.decide_now(&Call::new(Operation::Peek, &free)).unwrap();
        let at = self.clock.now().as_micros() - self.start.as_micros();
        self.changes.lock().unwrap().push((at, peek.is_allowed()));
        Answer::ready(answer)
    }

    fn decide_many<'a>(
        &'a self,
        inner: &'a Server,
        calls: &'a [Call<'a>],
    ) -> Answer<'a, Vec<Result<Decision, Error>>> {
        decide_one_by_one(self, inner, calls)
    }
}

/// Runs a simulation. A third of the requests have a cost of 0, while other callers charge beyond
/// the limit and refund. Returns the ledger and the store's decisions on a cost of 0.
fn play(index: usize, span: Duration) -> (Ledger, Vec<(u64, bool)>) {
    let changes = Changes::default();
    let mut random = Random::new(index as u64);
    let link = Link::new().delay(micros(50)..=micros([200, 3_000, 20_000][index % 3]));
    let simulation = Simulation::new(index as u64).nodes(1 + index % 4).clock_error(999).link(link);
    let (rate, server_changes) = (random.within(500, 4_000), Arc::clone(&changes));
    let ledger = simulation.run(
        move |clock| server(clock.clone()).layer(Watch::new(clock, server_changes)),
        |host| {
            let share = Share::new(1, 4).unwrap();
            let lease = Lease::new().span(span).hot_after(2).max_share(share);
            host.link().leased(lease.clock(host.clock()))
        },
        async move |world| {
            let lasting = millis(1_000);
            let load = Load::new(&policy(POLICY)).lasting(lasting);
            let others = [(Operation::Charge, 20, 1..=200), (Operation::Refund, 20, 100..=400)];
            let mut loads = vec![world.start(load.clone().per_second(rate).cost(0..=2))];
            for (operation, rate, cost) in others {
                let load = load.clone().operation(operation);
                loads.push(world.start(load.per_second(rate).cost(cost)));
            }
            for load in loads {
                load.await;
            }
        },
    );
    let changes = std::mem::take(&mut *changes.lock().unwrap());
    (ledger, changes)
}

/// Returns `true` if the store admitted a cost of 0 at any time between `from` and `to`.
fn admits_within(changes: &[(u64, bool)], from: u64, to: u64) -> bool {
    let first = changes.partition_point(|(at, _)| *at <= from);
    let before = first.checked_sub(1).is_none_or(|last| changes[last].1);
    before || changes[first..].iter().take_while(|(at, _)| *at <= to).any(|(_, admits)| *admits)
}

#[test]
fn a_cost_of_0_is_admitted_as_the_store_would_have_within_the_last_span() {
    let (mut from_chunks, mut refused, mut late) = (0, 0, 0);
    for index in 0..24 {
        let span = millis([20, 150, 600][index / 3 % 3]);
        let (ledger, changes) = play(index, span);
        let is_free =
            |request: &&Request| request.operation == Operation::Acquire && request.cost == 0;
        for request in ledger.requests().iter().filter(is_free) {
            let Some((at, reply)) = request.reply else { continue };
            refused += u64::from(reply == Reply::Refused);
            let admitted_at = request.admitted_at.filter(|_| request.is_immediate);
            let Some(admitted_at) = admitted_at else { continue };
            from_chunks += 1;
            late += u64::from(!admits_within(&changes, at, at));
            let from = admitted_at.saturating_sub(u64::try_from(span.as_micros()).unwrap());
            assert!(admits_within(&changes, from, admitted_at), "seed {index}: {request:?}");
        }
        // A node fetches a chunk with a hold. A request with a cost of 0 fetches no chunk, so no
        // hold has a cost of 0.
        let fetched = ledger.calls().iter().filter(|call| call.operation == Operation::Hold);
        assert!(fetched.into_iter().all(|call| call.cost > 0), "seed {index}");
    }
    println!("{from_chunks} from chunks, {late} of them only by the bound; {refused} refused");
    assert!(from_chunks > 1_000 && late > 10 && refused > 100, "{from_chunks} {late} {refused}");
}
