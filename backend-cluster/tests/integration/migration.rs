//! Tests of slots that move while the store decides calls. No call is allowed to fail, every answer
//! must be right, and every admitted call must be charged.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of a test that fails panics, as the test does"
)]

use std::time::{Duration, Instant};

use crate::scene::{
    Event, Load, Outcome, acquire, policy, store, tenant_at, tenants_at, used, wide,
};
use tidegate_cluster::{
    Call, CallId, Charge, ErrorKind, ManualClock, Operation, Policy, Store, Timestamp,
};
use tidegate_test_servers::Cluster;
use tokio::task::JoinSet;

/// The limit of each policy under load. The callers reach the limit soon, so that denials are
/// tested too.
const LIMIT: u64 = 300;

/// Returns several policies. For one tenant, their states have different keys in the same slot.
fn policies() -> Vec<Policy> {
    let texts = [
        "window: fixed-window 300/10d anchored",
        "log: sliding-log 300/10d",
        "counter: sliding-counter 300/10d",
        "bucket: gcra 300/300d",
    ];
    texts.map(policy).to_vec()
}

/// Checks that each admitted call used one more unit of the limit, that no two calls used the same
/// unit, and that the limit was not exceeded.
fn assert_exact(events: &[Event], subjects: usize) {
    for subject in 0..subjects {
        let own = || events.iter().filter(|event| event.subject == subject);
        let errors: Vec<_> = own().filter_map(Event::error).collect();
        assert_eq!(errors, [], "errors among {} calls", own().count());
        let mut remaining: Vec<u64> = own()
            .filter_map(|event| match event.outcome {
                Outcome::Allowed { remaining } => Some(remaining),
                _ => None,
            })
            .collect();
        remaining.sort_unstable_by(|a, b| b.cmp(a));
        let admitted = LIMIT.min(u64::try_from(own().count()).unwrap());
        let expected: Vec<u64> = (LIMIT - admitted..LIMIT).rev().collect();
        assert_eq!(
            remaining, expected,
            "the remaining amounts after the admissions of subject {subject}"
        );
    }
}

/// Moves a slot through all nodes, one key at a time, while callers use the keys.
async fn move_slot_under_load(callers: usize) {
    let cluster = Cluster::start().await.unwrap();
    let store =
        crate::scene::builder(&cluster).response_timeout(Duration::from_secs(5)).build().unwrap();
    let tenant = "hot";
    let slot = Cluster::slot_of(tenant.as_bytes());
    let home = cluster.primary_of_slot(slot).await.unwrap();
    let subjects: Vec<_> =
        policies().into_iter().map(|policy| (policy, tenant.to_owned())).collect();
    let count = subjects.len();
    let load = Load::start(&store, subjects, callers).await;
    for step in 1..=3 {
        let to = (home + step) % 3;
        cluster.begin_moving_slot(slot, to).await.unwrap();
        load.wait_for_calls(40).await;
        while cluster.move_keys(slot, to, 1).await.unwrap() > 0 {
            load.wait_for_calls(40).await;
        }
        cluster.finish_moving_slot(slot, to).await.unwrap();
        load.wait_for_calls(40).await;
    }
    load.wait_for_calls(usize::try_from(LIMIT).unwrap() * count).await;
    let events = load.stop().await;
    assert_exact(&events, count);
    assert_eq!(cluster.primary_of_slot(slot).await.unwrap(), home);
}

#[tokio::test]
async fn a_slot_that_moves_under_one_caller_fails_and_forgets_nothing() {
    move_slot_under_load(1).await;
}

#[tokio::test]
async fn a_slot_that_moves_under_16_callers_fails_and_forgets_nothing() {
    move_slot_under_load(16).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_moves_under_64_callers_fails_and_forgets_nothing() {
    move_slot_under_load(64).await;
}

/// While a slot moves, its new node serves a key only if the client sends ASKING before the call.
/// The store must decide each key on the node that has the key.
#[tokio::test]
async fn in_the_middle_of_a_move_each_key_is_decided_at_its_node() {
    let cluster = Cluster::start().await.unwrap();
    let store = store(&cluster);
    let tenant = tenant_at(&cluster, 0).await;
    let slot = Cluster::slot_of(tenant.as_bytes());
    let policies = policies();
    for policy in &policies {
        assert!(acquire(&store, policy, &tenant).await.unwrap().is_allowed());
    }
    cluster.begin_moving_slot(slot, 1).await.unwrap();
    for moved in 0..=policies.len() {
        for policy in &policies {
            assert!(acquire(&store, policy, &tenant).await.unwrap().is_allowed());
        }
        let new = policy(&format!("new{moved}: gcra 300/300d"));
        assert!(
            acquire(&store, &new, &tenant).await.unwrap().is_allowed(),
            "a key that exists on neither node"
        );
        cluster.move_keys(slot, 1, 1).await.unwrap();
    }
    let before = u64::try_from(policies.len()).unwrap() + 2;
    for policy in &policies {
        assert_eq!(used(&store, policy, &tenant).await, before, "{policy}");
    }
    cluster.finish_moving_slot(slot, 1).await.unwrap();
    for policy in &policies {
        assert_eq!(used(&store, policy, &tenant).await, before, "{policy}");
    }
}

/// A node replies TRYAGAIN to a call with two keys if it has only one of them. The call must fail
/// with `Busy`, or succeed if both keys are on the same node in time.
#[tokio::test]
async fn keys_on_two_nodes_in_the_middle_of_a_move_are_decided_when_they_are_together() {
    let cluster = Cluster::start().await.unwrap();
    let store = store(&cluster);
    let tenant = tenant_at(&cluster, 2).await;
    let slot = Cluster::slot_of(tenant.as_bytes());
    let (one, other) = (policy("one: gcra 9/300d"), policy("other: sliding-log 9/10d"));
    let both = [Charge::new(&one, "s").tenant(&tenant), Charge::new(&other, "s").tenant(&tenant)];
    assert!(store.decide(Call::acquire(&both)).await.unwrap().is_allowed());
    cluster.begin_moving_slot(slot, 0).await.unwrap();
    assert_eq!(cluster.move_keys(slot, 0, 1).await.unwrap(), 1);

    let start = Instant::now();
    let error = store.decide(Call::acquire(&both)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
    assert!(error.kind().is_definitely_not_charged());
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    assert_eq!(used(&store, &one, &tenant).await, 1);
    assert_eq!(used(&store, &other, &tenant).await, 1);

    // The call begins while its keys are on two nodes, and succeeds after the second key has moved.
    let (decision, moved) = tokio::join!(store.decide(Call::acquire(&both)), async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        cluster.finish_moving_slot(slot, 0).await
    });
    moved.unwrap();
    assert!(decision.unwrap().is_allowed());
    assert_eq!(used(&store, &one, &tenant).await, 2);
    assert_eq!(used(&store, &other, &tenant).await, 2);
}

#[tokio::test]
async fn a_node_that_joins_and_takes_slots_under_load_is_used_and_nothing_fails() {
    let mut cluster = Cluster::start().await.unwrap();
    let store =
        crate::scene::builder(&cluster).response_timeout(Duration::from_secs(5)).build().unwrap();
    let mut subjects = vec![];
    for node in 0..3 {
        let tenants = tenants_at(&cluster, node, 4).await;
        subjects.extend(tenants.into_iter().map(|tenant| (policies().remove(node), tenant)));
    }
    let count = subjects.len();
    let moving: Vec<String> =
        subjects.iter().step_by(2).map(|(_, tenant)| tenant.clone()).collect();
    let load = Load::start(&store, subjects, 16).await;
    let new = cluster.add_node().await.unwrap();
    for tenant in &moving {
        cluster.move_slot(Cluster::slot_of(tenant.as_bytes()), new).await.unwrap();
        load.wait_for_calls(100).await;
    }
    load.wait_for_calls(usize::try_from(LIMIT).unwrap() * count).await;
    assert_exact(&load.stop().await, count);
    let decided = crate::scene::command_count(cluster.node(new), "evalsha").await;
    assert!(decided > 100, "{decided} decisions at the new node");
}

/// Each call charges two tenants, whose states are in two slots. If only one slot admits its
/// charge, the store must undo this charge.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_across_tenants_charge_both_or_neither_while_one_slot_moves() {
    let cluster = Cluster::start().await.unwrap();
    let store =
        crate::scene::builder(&cluster).response_timeout(Duration::from_secs(5)).build().unwrap();
    let (moving, staying) = (tenant_at(&cluster, 0).await, tenant_at(&cluster, 2).await);
    let narrow = policy("narrow: fixed-window 200/10d anchored");
    let mut callers = JoinSet::new();
    for _ in 0..16 {
        let (store, narrow) = (store.clone(), narrow.clone());
        let (moving, staying) = (moving.clone(), staying.clone());
        callers.spawn(async move {
            let wide = wide();
            let charges = [
                Charge::new(&wide, "s").tenant(&moving),
                Charge::new(&narrow, "s").tenant(&staying),
            ];
            let mut allowed = 0;
            for _ in 0..30 {
                let decision = store.decide(Call::acquire(&charges)).await.unwrap();
                allowed += u64::from(decision.is_allowed());
            }
            allowed
        });
    }
    let slot = Cluster::slot_of(moving.as_bytes());
    let mut allowed = 0;
    while !callers.is_empty() {
        for to in [1, 0] {
            cluster.move_slot(slot, to).await.unwrap();
        }
        while let Some(caller) = callers.try_join_next() {
            allowed += caller.unwrap();
        }
    }
    assert_eq!(allowed, 200, "exactly the narrow limit");
    assert_eq!(used(&store, &wide(), &moving).await, 200, "refused calls are undone");
    assert_eq!(used(&store, &narrow, &staying).await, 200);
}

/// A redirect shows that the slot map is outdated, and the store corrects the slot map from the
/// redirect.
#[tokio::test]
async fn a_moved_slot_costs_one_redirect() {
    let cluster = Cluster::start().await.unwrap();
    let store = store(&cluster);
    let tenant = tenant_at(&cluster, 0).await;
    assert!(acquire(&store, &wide(), &tenant).await.unwrap().is_allowed());
    cluster.move_slot(Cluster::slot_of(tenant.as_bytes()), 1).await.unwrap();
    for _ in 0..10 {
        assert!(acquire(&store, &wide(), &tenant).await.unwrap().is_allowed());
    }
    // Only Redis 6.2 and later count their error replies, such as MOVED.
    assert_eq!(crate::scene::error_count(cluster.node(0), "MOVED").await, 1);
    assert_eq!(used(&store, &wide(), &tenant).await, 11);
}

/// Slots have no epoch, so all keys of a renewal exist.
#[tokio::test]
async fn slots_are_renewed_before_and_after_the_keys_of_a_moving_slot_have_moved() {
    let cluster = Cluster::start().await.unwrap();
    let store = store(&cluster);
    let tenant = tenant_at(&cluster, 0).await;
    let slot = Cluster::slot_of(tenant.as_bytes());
    let slots = policy("jobs: concurrent 2 lease 1h");
    let id = CallId::new("id", Duration::from_secs(3_600));
    let held = [Charge::new(&slots, "s").tenant(&tenant)];
    let freed = [held[0].cost(0)];
    let decide = async |operation, charges| {
        let decision = store.decide(Call::new(operation, charges).with_id(id)).await;
        assert!(decision.unwrap().is_allowed(), "{operation:?}");
    };
    decide(Operation::Hold, &held).await;
    cluster.begin_moving_slot(slot, 1).await.unwrap();
    decide(Operation::Extend, &freed).await;
    while cluster.move_keys(slot, 1, 100).await.unwrap() > 0 {}
    decide(Operation::Extend, &freed).await;
    decide(Operation::Settle, &freed).await;
    cluster.finish_moving_slot(slot, 1).await.unwrap();
}

/// The first call of a window writes all members of a fair pool again.
#[tokio::test]
async fn a_fair_pool_keeps_its_demands_while_its_slot_moves() {
    let cluster = Cluster::start().await.unwrap();
    let clock = ManualClock::new(Timestamp::from_micros(1_790_000_000_000_000));
    let store = crate::scene::builder(&cluster).clock(clock.clone()).build().unwrap();
    let tenant = tenant_at(&cluster, 0).await;
    let slot = Cluster::slot_of(tenant.as_bytes());
    let pool = policy("pool: fair-pool 10/1m");
    let used = async |subject: &str, cost| {
        let charge = [Charge::new(&pool, subject).tenant(&tenant).cost(cost)];
        store.decide(Call::acquire(&charge)).await.unwrap().is_allowed()
    };
    assert!(used("a", 5).await && used("b", 5).await && used("gone", 0).await);
    cluster.begin_moving_slot(slot, 1).await.unwrap();
    clock.advance(Duration::from_secs(60));
    // `a` gets nothing of the share of `b`, which has called in the previous window.
    assert!(used("a", 5).await && !used("a", 1).await && used("b", 5).await);
    cluster.finish_moving_slot(slot, 1).await.unwrap();
}
