//! Properties of fair pools.

use std::time::Duration;

use proptest::prelude::*;
use tidegate_core::{CallId, Charge, Clock, ErrorKind, FairPool, Operation, Policy};

use super::fixture::Fixture;
use super::harness::{Harness, case, cases, policy};
use super::report::{check, check_eq};

const MINUTE: u64 = 60_000_000;

/// The start of a window.
const START: u64 = 1_790_000_040_000_000;

const MEMBERS: [&str; 4] = ["a", "b", "c", "d"];

const TTL: Duration = Duration::from_secs(60);

/// Sends `count` calls of cost 1, and returns the number of calls that were admitted.
async fn admitted<F: Fixture>(
    harness: &Harness<'_, F>,
    pool: &Policy,
    member: &str,
    count: usize,
) -> usize {
    let mut admitted = 0;
    for _ in 0..count {
        let decision = harness.ask(Operation::Acquire, &[Charge::new(pool, member)]).await;
        admitted += usize::from(decision.is_allowed());
    }
    admitted
}

/// The demands of the members of a pool in several windows.
#[derive(Debug, Clone)]
struct Demands {
    limit: u64,
    weights: Vec<u64>,
    /// For each window, the members that call, in the order of their calls.
    windows: Vec<Vec<usize>>,
}

fn demands() -> impl Strategy<Value = Demands> {
    let weights = prop::collection::vec(prop_oneof![2 => Just(1), 1 => 1..5_u64], 1..5);
    let window = |members: usize| {
        let demands = prop::collection::vec(prop_oneof![1 => Just(0), 6 => 0..9_usize], members);
        let calls = demands.prop_map(|demands| {
            let calls = demands.iter().enumerate();
            calls.flat_map(|(member, &demand)| vec![member; demand]).collect::<Vec<_>>()
        });
        // Often the demands stay the same for some windows, in another order.
        (calls, 1..4_usize).prop_flat_map(|(calls, times)| {
            prop::collection::vec(Just(calls).prop_shuffle(), times)
        })
    };
    (0..20_u64, weights).prop_flat_map(move |(limit, weights)| {
        let windows = prop::collection::vec(window(weights.len()), 1..4);
        (Just(limit), Just(weights), windows).prop_map(|(limit, weights, windows)| Demands {
            limit,
            weights,
            windows: windows.concat(),
        })
    })
}

/// Returns the max-min shares of `limit`, which are fractions with a common denominator.
fn max_min(limit: u64, demands: &[u64], weights: &[u64]) -> (Vec<u64>, u64) {
    let mut hungry: Vec<usize> = (0..demands.len()).collect();
    loop {
        let content: Vec<usize> =
            (0..demands.len()).filter(|member| !hungry.contains(member)).collect();
        let rest = limit - content.iter().map(|&member| demands[member]).sum::<u64>();
        let total = hungry.iter().map(|&member| weights[member]).sum::<u64>().max(1);
        let is_content = |&member: &usize| demands[member] * total <= weights[member] * rest;
        if !hungry.iter().any(is_content) {
            let share = |member: usize| match hungry.contains(&member) {
                true => weights[member] * rest,
                false => demands[member] * total,
            };
            return ((0..demands.len()).map(share).collect(), total);
        }
        hungry.retain(|member| !is_content(member));
    }
}

/// Checks that no window exceeds the limit, that each member gets its share, and that the
/// difference to the max-min shares of the window is at most 1, plus the change of the demands.
pub(super) fn the_unfairness_of_a_pool_is_bounded<F: Fixture>(fixture: &F) {
    cases(fixture, demands(), async |harness, Demands { limit, weights, windows }| {
        let pool = |weight| {
            Policy::new("pool", FairPool::new(*limit, Duration::from_secs(60)).weight(weight))
        };
        let pools: Vec<Policy> =
            weights.iter().map(|&weight| pool(weight).expect("within the bounds")).collect();
        pools.iter().for_each(|pool| harness.needs(pool));
        let mut before = vec![0; weights.len()];
        for (number, calls) in windows.iter().enumerate() {
            harness.set(START + MINUTE * number as u64);
            let (mut demands, mut got) = (vec![0; weights.len()], vec![0; weights.len()]);
            for &member in calls {
                harness.advance(Duration::from_micros(1));
                let charge = [Charge::new(&pools[member], MEMBERS[member])];
                demands[member] += 1;
                if harness.ask(Operation::Acquire, &charge).await.is_allowed() {
                    got[member] += 1;
                }
            }
            let shown = format!("window {number}: demands {demands:?}, got {got:?}");
            check!(got.iter().sum::<u64>() <= *limit, "{shown}");
            let change: u64 =
                demands.iter().zip(&before).map(|(a, b): (&u64, _)| a.abs_diff(*b)).sum();
            let (shares, whole) = max_min(*limit, &before, weights);
            for (member, share) in shares.iter().enumerate() {
                let least = demands[member].min(share / whole);
                check!(got[member] >= least, "{shown}: member {member} has a share of {least}");
            }
            let (fair, whole) = max_min(*limit, &demands, weights);
            for (member, fair) in fair.iter().enumerate() {
                let unfairness = (got[member] * whole).abs_diff(*fair);
                check!(unfairness <= (change + 1) * whole, "{shown}: {fair}/{whole} is fair");
            }
            before = demands;
        }
        Ok(())
    });
}

/// Checks that a member that is alone can use the whole pool, that a member that returns gets its
/// share in the next window, and that no member gets the share of another member.
pub(super) fn a_member_alone_can_use_the_whole_pool<F: Fixture>(fixture: &F) {
    case(fixture, async |harness| {
        let pool = policy("pool: fair-pool 10/1m");
        let expected = [
            (("a", 20), 10, ("b", 3), 0), // In the first window, the first member takes all.
            (("a", 20), 7, ("b", 9), 3),
            (("a", 20), 5, ("b", 9), 5),
            (("a", 20), 5, ("b", 0), 0), // The share of the member that is away stays unused.
            (("a", 20), 10, ("b", 9), 0),
            (("b", 20), 5, ("a", 20), 5),
        ];
        for (number, ((first, calls), got, (second, more), rest)) in
            expected.into_iter().enumerate()
        {
            harness.set(START + MINUTE * number as u64);
            check_eq!(admitted(harness, &pool, first, calls).await, got, "window {number}");
            check_eq!(admitted(harness, &pool, second, more).await, rest, "window {number}");
        }
        // After a window without calls, no member has a share.
        harness.set(START + 8 * MINUTE);
        check_eq!(admitted(harness, &pool, "c", 20).await, 10);
    });
}

/// Checks that members divide the pool by their weights.
pub(super) fn members_divide_a_pool_by_their_weights<F: Fixture>(fixture: &F) {
    case(fixture, async |harness| {
        let (light, heavy) =
            (policy("pool: fair-pool 12/1m"), policy("pool: fair-pool 12/1m weight 3"));
        for (number, got) in [(12, 0), (3, 9), (3, 9)].into_iter().enumerate() {
            harness.set(START + MINUTE * number as u64);
            let first = admitted(harness, &light, "a", 20).await;
            check_eq!((first, admitted(harness, &heavy, "b", 20).await), got, "window {number}");
        }
    });
}

/// Checks that each member of a pool with fewer units than members gets at most one unit.
pub(super) fn a_pool_with_fewer_units_than_members_admits_one_each<F: Fixture>(fixture: &F) {
    case(fixture, async |harness| {
        let pool = policy("pool: fair-pool 3/1m");
        let members = ["a", "b", "c", "d", "e"];
        for member in members {
            let _ = admitted(harness, &pool, member, 2).await;
        }
        for window in 1..4 {
            harness.set(harness.clock.now().as_micros() + MINUTE);
            let mut got = vec![];
            for member in members {
                got.push(admitted(harness, &pool, member, 2).await);
            }
            check_eq!(got, [1, 1, 1, 0, 0], "window {window}");
        }
    });
}

/// Checks that a call that another policy refuses does not count as a demand, and that the pool
/// then charges nothing.
pub(super) fn only_a_refusal_by_the_pool_is_a_demand<F: Fixture>(fixture: &F) {
    case(fixture, async |harness| {
        let pool = policy("pool: fair-pool 10/1m");
        let own = harness.hourly("own", 5, "");
        harness.set(START);
        let both = [Charge::new(&pool, "a").tenant("t"), Charge::new(&own, "a").tenant("t")];
        let b = [Charge::new(&pool, "b").tenant("t")];
        check!(harness.ask(Operation::Acquire, &[b[0].cost(2)]).await.is_allowed());
        // Five calls are admitted, and five are refused by the other policy.
        for n in 0..10 {
            check_eq!(harness.ask(Operation::Acquire, &both).await.is_allowed(), n < 5);
        }
        check_eq!(harness.ask(Operation::Peek, &b).await.verdicts()[0].remaining(), 3);
        // So the shares are 5 and 2, and 3 are free.
        harness.set(START + MINUTE);
        check_eq!(harness.ask(Operation::Peek, &b).await.verdicts()[0].remaining(), 5);
        check_eq!(harness.ask(Operation::Peek, &both[..1]).await.verdicts()[0].remaining(), 8);
    });
}

/// Checks that a settlement and an undo give back what a member was charged in this window, and
/// that the demand shrinks too.
pub(super) fn a_hold_of_a_member_is_settled_in_the_pool<F: Fixture>(fixture: &F) {
    case(fixture, async |harness| {
        let pool = policy("pool: fair-pool 10/1m");
        harness.set(START);
        let (a, b) = (Charge::new(&pool, "a"), Charge::new(&pool, "b"));
        let id = CallId::new("hold", TTL);
        check!(harness.must(id, Operation::Hold, &[a.cost(8)]).await.is_allowed());
        check_eq!(harness.ask(Operation::Peek, &[b]).await.verdicts()[0].remaining(), 2);
        let settled = harness.must(id, Operation::Settle, &[a.cost(3)]).await;
        check_eq!(settled.amounts(), [5]);
        let at = harness.clock.now();
        check!(harness.ask(Operation::Acquire, &[b.cost(6)]).await.is_allowed());
        let undone = harness.ask(Operation::Undo { at }, &[b.cost(6)]).await;
        check_eq!(undone.amounts(), [6]);
        check!(harness.ask(Operation::Acquire, &[b.cost(2)]).await.is_allowed());
        // The demands are 3 and 2.
        harness.set(START + MINUTE);
        check_eq!(harness.ask(Operation::Peek, &[a]).await.verdicts()[0].remaining(), 8);
        check_eq!(harness.ask(Operation::Undo { at }, &[b.cost(2)]).await.amounts(), [0]);
    });
}

/// Checks that a refund of a member is deducted from the later refund of its own hold, and not from
/// the refund of a hold of another member.
pub(super) fn a_refund_of_a_member_changes_no_hold_of_another_member<F: Fixture>(fixture: &F) {
    case(fixture, async |harness| {
        let pool = policy("pool: fair-pool 20/1m");
        harness.set(START);
        let (a, b) = (Charge::new(&pool, "a"), Charge::new(&pool, "b"));
        let (of_a, of_b) = (CallId::new("of a", TTL), CallId::new("of b", TTL));
        check!(harness.must(of_a, Operation::Hold, &[a.cost(6)]).await.is_allowed());
        check!(harness.must(of_b, Operation::Hold, &[b.cost(6)]).await.is_allowed());
        check_eq!(harness.ask(Operation::Refund, &[a.cost(4)]).await.amounts(), [4]);
        let settled = harness.must(of_b, Operation::Settle, &[b.cost(1)]).await;
        check_eq!(settled.amounts(), [5]);
        check_eq!(harness.ask(Operation::Peek, &[a]).await.verdicts()[0].remaining(), 17);
        // The refund has given back the 4 units that the hold of the member did not use.
        let settled = harness.must(of_a, Operation::Settle, &[a.cost(2)]).await;
        check_eq!(settled.amounts(), [0]);
        check_eq!(harness.ask(Operation::Peek, &[a]).await.verdicts()[0].remaining(), 17);
    });
}

/// Checks that each tenant has its own pool.
pub(super) fn two_tenants_have_two_pools<F: Fixture>(fixture: &F) {
    case(fixture, async |harness| {
        let pool = policy("pool: fair-pool 4/1m");
        for tenant in ["", "t", "u"] {
            let charge = [Charge::new(&pool, "a").tenant(tenant).cost(4)];
            check!(harness.ask(Operation::Acquire, &charge).await.is_allowed(), "{tenant}");
            let other = [Charge::new(&pool, "b").tenant(tenant)];
            check!(harness.ask(Operation::Acquire, &other).await.is_denied(), "{tenant}");
        }
    });
}

/// Checks that a call cannot block or reset a member, charge two members of one pool, or check a
/// member without a charge.
pub(super) fn calls_that_make_no_sense_for_a_pool_are_errors<F: Fixture>(fixture: &F) {
    case(fixture, async |harness| {
        let pool = policy("pool: fair-pool 4/1m");
        let (a, b) = (Charge::new(&pool, "a"), Charge::new(&pool, "b"));
        let calls: [(Operation, &[Charge<'_>]); 5] = [
            (Operation::Reset, &[a]),
            (Operation::Block { span: TTL }, &[a]),
            (Operation::BlockAtLeast { span: TTL }, &[a]),
            (Operation::Acquire, &[a, b]),
            (Operation::Acquire, &[a.check_only()]),
        ];
        for (operation, charges) in calls {
            let answer = harness.try_ask(operation, charges).await;
            let kind = answer.map_err(|error| error.kind());
            check_eq!(kind, Err(ErrorKind::InvalidCall), "{operation:?}");
        }
        check!(harness.ask(Operation::Acquire, &[a.cost(4)]).await.is_allowed());
    });
}
