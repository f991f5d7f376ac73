//! Tests of leases under difficult loads: a high rate after a low rate, resets, and a few
//! operations other than acquires.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use tidegate_core::layers::LeasedStore;
use tidegate_core::{Call, CallId, Charge, Lease, Operation, Policy, Share, Store, StoreExt};
use tidegate_simulation::{
    Ledger, Link, LinkStore, Load, Node, Reply, Request, SimulatedClock, Simulation,
};
use tokio::task::JoinSet;

use super::{Server, micros, millis, policy, server};

type LeasedNode = Node<LeasedStore<LinkStore, SimulatedClock>>;

/// Returns the settings of leases that begin after three calls. The span of these leases is longer
/// than the windows of these tests.
fn eager() -> Lease {
    Lease::new().hot_after(3).span(millis(700)).max_share(Share::new(1, 4).unwrap())
}

/// Checks that chunks end with their window. After a window with few requests, nodes have unused
/// chunks, and must not use them in the next window, in which the requests reach the limit.
#[test]
fn few_and_then_too_many_requests_keep_the_limit_of_each_window() {
    const LIMIT: u64 = 300;
    let policy = policy(&format!("p: fixed-window {LIMIT}/500ms"));
    let mut at_once = 0;
    for seed in 0..10 {
        let load = Load::new(&policy).per_second(400).alternating_with(3_000, millis(500));
        let link = Link::new().delay(micros(50)..=millis(4));
        let ledger = Simulation::new(seed).nodes(8).link(link).clock_error(999).run(
            server,
            |host| host.link().leased(eager().clock(host.clock())),
            async move |world| world.run(load.lasting(millis(3_000))).await,
        );
        for (window, admitted) in ledger.admissions().in_windows(millis(500)).iter().enumerate() {
            assert!(*admitted <= LIMIT, "seed {seed}: {admitted} in the window {window}");
        }
        at_once += ledger.admitted_at_once();
    }
    assert!(at_once > 1_000, "{at_once}");
}

/// Checks that a node admits at most the limit between two resets, because a reset ends all chunks.
/// Each node has its own limit, and repeatedly uses up and resets this limit.
#[test]
fn at_most_the_limit_is_admitted_between_two_resets() {
    const LIMIT: u64 = 40;
    const NODES: usize = 6;
    let (mut at_once, mut full) = (0, 0);
    for seed in 0..6 {
        let link = Link::new().delay(micros(50)..=millis(8));
        let ledger = Simulation::new(seed).nodes(NODES).link(link).clock_error(999).run(
            server,
            |host| host.link().leased(eager().clock(host.clock())),
            async move |world| {
                let mut loads = vec![];
                for node in 0..NODES {
                    // Each node has its own policy, so that each node has its own limit.
                    let policy = policy(&format!("p{node}: fixed-window {LIMIT}/1h"));
                    let load = Load::new(&policy).nodes(node..node + 1).lasting(millis(2_000));
                    let resets = load.clone().operation(Operation::Reset).per_second(15);
                    loads.extend([world.start(load.per_second(1_500)), world.start(resets)]);
                }
                for load in loads {
                    load.await;
                }
            },
        );
        at_once += ledger.admitted_at_once();
        for node in 0..NODES {
            for admitted in admitted_between_resets(&ledger, node) {
                assert!(admitted <= LIMIT, "seed {seed}, node {node}: {admitted} of {LIMIT}");
                full += u64::from(admitted == LIMIT);
            }
        }
    }
    assert!(at_once > 1_000 && full > 100, "{at_once} {full}");
}

/// Returns the cost that a node admitted between each reset and the next reset.
fn admitted_between_resets(ledger: &Ledger, node: usize) -> Vec<u64> {
    let calls = ledger.calls().iter();
    let resets = calls.filter(|call| call.node == node && call.operation == Operation::Reset);
    let mut times: Vec<u64> = resets.filter_map(|reset| Some(reset.executed?.at)).collect();
    times.push(u64::MAX);
    times.sort_unstable();
    let admitted = |(from, to): (u64, u64)| {
        let requests = ledger.requests().iter().filter(|request| request.node == node);
        // If a request was admitted in the same microsecond as a reset, the ledger does not show
        // which came first. The test ignores such a request.
        let inside = |at: u64| at > from && at < to;
        requests.filter(|one| one.admitted_at.is_some_and(inside)).map(|one| one.cost).sum()
    };
    times.iter().copied().zip(times[1..].iter().copied()).map(admitted).collect()
}

/// An operation other than the usual acquire. A test adds a few such operations to many usual
/// acquires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Other {
    AcquireUpTo,
    HoldUpTo,
    Hold,
    Reserve,
    AcquireOnce,
    Refund,
    Peek,
    Charge,
    Unblock,
    Reset,
    /// An acquire whose cost exceeds the remaining amount.
    Denied,
}

impl Other {
    fn call<'a>(self, charges: &'a [Charge<'a>], id: CallId<'a>) -> Call<'a> {
        let call = |operation| Call::new(operation, charges);
        match self {
            Self::AcquireUpTo => call(Operation::AcquireUpTo { min: 1 }),
            Self::HoldUpTo => call(Operation::HoldUpTo { min: 1 }).with_id(id),
            Self::Hold => call(Operation::Hold).with_id(id),
            Self::Reserve => call(Operation::Reserve { max_wait: Duration::from_secs(1) }),
            Self::AcquireOnce => call(Operation::Acquire).with_id(id),
            Self::Refund => call(Operation::Refund),
            Self::Peek => call(Operation::Peek),
            Self::Charge => call(Operation::Charge),
            Self::Unblock => call(Operation::Block { span: Duration::ZERO }),
            Self::Reset => call(Operation::Reset),
            Self::Denied => call(Operation::Acquire),
        }
    }

    fn cost(self) -> u64 {
        if self == Self::Denied { BURST } else { 3 }
    }
}

const BURST: u64 = 1_000_000;

/// Makes a request, and updates `used`, the total cost that all requests have used.
async fn request(
    node: LeasedNode,
    policy: Policy,
    other: Option<Other>,
    number: u64,
    used: Arc<AtomicU64>,
) {
    let id = number.to_be_bytes();
    let id = CallId::new(&id, Duration::from_secs(60));
    let cost = other.map_or(1, Other::cost);
    let charges = [Charge::new(&policy, "s").cost(cost)];
    let call = other.map_or_else(|| Call::acquire(&charges), |other| other.call(&charges, id));
    let decision = node.request(call).await.unwrap().unwrap();
    match call.operation {
        Operation::Peek | Operation::Block { .. } => {}
        Operation::Reset => used.store(0, SeqCst),
        Operation::Refund => _ = used.fetch_sub(decision.amounts()[0], SeqCst),
        // A charge beyond the limit is always made, even if its decision is a denial.
        Operation::Charge => _ = used.fetch_add(decision.amounts()[0], SeqCst),
        _ if decision.is_denied() => {}
        Operation::AcquireUpTo { .. } => _ = used.fetch_add(decision.amounts()[0], SeqCst),
        Operation::Hold | Operation::HoldUpTo { .. } => {
            let spent = decision.amounts().first().map_or(cost - 1, |held| cost.min(*held) - 1);
            let charges = [Charge::new(&policy, "s").cost(spent)];
            let settle = Call::new(Operation::Settle, &charges).with_id(id);
            assert!(node.request(settle).await.unwrap().unwrap().is_allowed());
            used.fetch_add(spent, SeqCst);
        }
        _ => _ = used.fetch_add(cost, SeqCst),
    }
}

/// Returns the remaining amount of the subject `s` on the server.
fn remaining(server: &Server, policy: &Policy) -> u64 {
    let charges = [Charge::new(policy, "s").cost(0)];
    let peek = server.decide_now(&Call::new(Operation::Peek, &charges)).unwrap();
    peek.verdicts()[0].remaining()
}

/// Returns how many of 1,000 usual acquires one node admits from chunks. The node makes 20,000
/// requests in a second. On average, 6 of 1,000 requests have the operation `other`. All other
/// requests are usual acquires.
fn local_share(other: Other) -> usize {
    let policy = policy(&format!("p: gcra 1/10m burst {BURST}"));
    let ledger = Simulation::new(1).run(
        server,
        |host| host.link().leased(Lease::new().clock(host.clock())),
        async move |world| {
            let (node, used) = (world.nodes()[0].clone(), Arc::default());
            let (mut random, mut callers) = (world.random(1), JoinSet::new());
            for number in 0..20_000 {
                world.sleep(micros(50)).await;
                let other = (random.below(1_000) < 6).then_some(other);
                let (node, used) = (node.clone(), Arc::clone(&used));
                callers.spawn(request(node, policy.clone(), other, number, used));
            }
            callers.join_all().await;
            node.store().close().await;
            let (remaining, used) = (remaining(world.server(), &policy), used.load(SeqCst));
            // If a request is in flight during a reset, the store charges it before or after the
            // reset. So the test cannot compute the expected amount.
            if other != Other::Reset {
                assert_eq!(remaining, BURST - used, "{other:?}");
            }
        },
    );
    let is_usual =
        |request: &&Request| request.operation == Operation::Acquire && request.cost == 1;
    let is_admitted = |request: &&Request| matches!(request.reply, Some((_, Reply::Admitted)));
    let requests: Vec<_> = ledger.requests().iter().filter(is_usual).collect();
    assert!(requests.iter().all(is_admitted), "{other:?}");
    let local = requests.iter().filter(|request| request.is_immediate).count();
    println!("{other:?}: {local} of {} from chunks, {} calls", requests.len(), ledger.sent());
    local * 1_000 / requests.len()
}

#[test]
fn a_small_share_of_other_operations_does_not_switch_leases_off() {
    for (other, min) in [
        (Other::AcquireUpTo, 990),
        (Other::HoldUpTo, 990),
        (Other::Hold, 990),
        (Other::Reserve, 990),
        (Other::AcquireOnce, 990),
        (Other::Peek, 990),
        (Other::Charge, 990),
        (Other::Denied, 990),
        // A node returns its chunks before it sends a refund, a block or a reset.
        (Other::Refund, 750),
        (Other::Unblock, 750),
        (Other::Reset, 750),
    ] {
        let share = local_share(other);
        assert!(share >= min, "{other:?}: {share} of 1,000 are admitted from chunks");
    }
}

/// Checks that the amount that the store has charged equals the cost that all callers have used.
/// One node makes requests of many operations, before and after the limit is reached. Refunds and
/// holds are tested with different seeds, because a settlement refunds less if another caller has
/// made a refund.
#[test]
fn the_store_has_charged_the_cost_that_all_callers_have_used() {
    const LIMIT: u64 = 2_000;
    use Other::{AcquireOnce, AcquireUpTo, Denied, Hold, HoldUpTo, Peek, Refund, Unblock};
    const WITH_HOLDS: [Other; 7] =
        [AcquireUpTo, HoldUpTo, Hold, AcquireOnce, Peek, Unblock, Denied];
    const WITH_REFUNDS: [Other; 6] = [AcquireUpTo, AcquireOnce, Refund, Peek, Unblock, Denied];
    let (mut at_once, mut refused) = (0, 0);
    for seed in 0..8 {
        let policy = policy(&format!("p: fixed-window {LIMIT}/1d"));
        let link = Link::new().delay(micros(50)..=millis(if seed % 2 == 0 { 1 } else { 8 }));
        let ledger = Simulation::new(seed).link(link).run(
            server,
            |host| host.link().leased(eager().clock(host.clock())),
            async move |world| {
                let (node, used) = (world.nodes()[0].clone(), Arc::default());
                let (mut random, mut callers) = (world.random(1), JoinSet::new());
                for number in 0..4_000 {
                    world.sleep(micros(random.below(400))).await;
                    let index = usize::try_from(random.below(100)).unwrap();
                    let others = if seed < 4 { &WITH_HOLDS[..] } else { &WITH_REFUNDS[..] };
                    let other = others.get(index).copied();
                    let (node, used) = (node.clone(), Arc::clone(&used));
                    callers.spawn(request(node, policy.clone(), other, number, used));
                }
                callers.join_all().await;
                node.store().close().await;
                let remaining = remaining(world.server(), &policy);
                let used = used.load(SeqCst);
                assert_eq!(Some(remaining), LIMIT.checked_sub(used), "seed {seed}: {used} used");
            },
        );
        at_once += ledger.admitted_at_once();
        refused += ledger.refused();
    }
    assert!(at_once > 3_000 && refused > 5_000, "{at_once} {refused}");
}

/// Runs a load with many requests for one subject, and a load with few requests for each of a
/// thousand other subjects.
fn hot_and_cold<D: Store + 'static>(
    layers: impl Fn(LinkStore, Lease<SimulatedClock>) -> D + Send,
) -> Ledger {
    let policy = policy("p: fixed-window 1000000/1h");
    Simulation::new(1).run(
        server,
        move |host| layers(host.link(), Lease::new().clock(host.clock())),
        async move |world| {
            let load = Load::new(&policy).per_second(20_000).lasting(millis(500));
            let cold = world.start(load.clone().subjects(1_000));
            world.run(load).await;
            cold.await;
        },
    )
}

#[test]
fn coalescing_outside_of_leases_is_as_good_as_inside() {
    let right = hot_and_cold(|link, lease| link.coalesced().leased(lease));
    let wrong = hot_and_cold(|link, lease| link.leased(lease).coalesced());
    for (order, ledger) in [("right", &right), ("wrong", &wrong)] {
        let (at_once, messages) = (ledger.admitted_at_once(), ledger.messages());
        println!("{order}: {at_once} at once, {messages} messages");
        assert!(at_once > 9_500, "{order}: {at_once} at once");
        assert!(messages < 2_500, "{order}: {messages} messages");
    }
}
