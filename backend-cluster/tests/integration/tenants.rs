//! Tests of tenants, batches and calls across slots on a real cluster.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of a test that fails panics, as the test does"
)]

use std::time::Duration;

use tidegate_cluster::{
    Call, Charge, ClusterStore, ErrorKind, ManualClock, Operation, Policy, Store, Timestamp,
};
use tidegate_redis::protocol::Keys;
use tidegate_test_servers::Cluster;

use crate::common::{builder, cluster, fresh_prefix, patient, policy, store_at, subject_on, used};

/// Returns the number of script calls (EVALSHA and EVAL) that each node has executed.
async fn script_calls(cluster: &Cluster) -> Vec<u64> {
    let mut calls = vec![];
    for node in cluster.nodes() {
        let stats = node.command(&["INFO", "commandstats"]).await.unwrap().text();
        let count = |name: &str| {
            let line = stats.lines().find_map(|line| line.strip_prefix(name));
            let count = line.and_then(|line| line.split(',').next()?.parse::<u64>().ok());
            count.unwrap_or(0)
        };
        calls.push(count("cmdstat_evalsha:calls=") + count("cmdstat_eval:calls="));
    }
    calls
}

#[tokio::test]
async fn the_limits_of_a_tenant_are_decided_together_in_one_script_call() {
    let cluster = Cluster::start().await.unwrap();
    let store = patient(&cluster).build().unwrap();
    let policies = ["user: gcra 9/1h", "address: sliding-log 9/1h", "tenant: fixed-window 3/1d"];
    let policies = policies.map(policy);
    let subjects = ["alice", "10.0.0.1", "{all}"];
    let charges = policies.iter().zip(subjects).map(|(p, s)| Charge::new(p, s).tenant("acme"));
    let charges: Vec<_> = charges.collect();
    // The first call loads the script.
    assert!(store.decide(Call::acquire(&charges)).await.unwrap().is_allowed());
    let before = script_calls(&cluster).await;
    for round in 2..=5 {
        let decision = store.decide(Call::acquire(&charges)).await.unwrap();
        assert_eq!(decision.is_allowed(), round <= 3);
        assert_eq!(
            decision.refused_by().collect::<Vec<_>>(),
            if round <= 3 { vec![] } else { vec![2] }
        );
    }
    let after = script_calls(&cluster).await;
    assert_eq!(after.iter().sum::<u64>(), before.iter().sum::<u64>() + 4);
    for charge in charges {
        assert_eq!(used(&store, charge).await, 3, "a refusal charges no limit");
    }
}

#[tokio::test]
async fn a_batch_for_many_tenants_is_one_script_call_for_each() {
    let cluster = Cluster::start().await.unwrap();
    let store = patient(&cluster).build().unwrap();
    let bucket = policy("p: gcra 3/1h");
    let tenants: Vec<String> = (0..300).map(|n| format!("tenant-{n}")).collect();
    let charges: Vec<_> = (0..3)
        .flat_map(|n| tenants.iter().map(move |tenant| (n, tenant)))
        .map(|(n, tenant)| [Charge::new(&bucket, if n < 2 { "a" } else { "b" }).tenant(tenant)])
        .collect();
    let calls: Vec<_> = charges.iter().map(|charge| Call::acquire(charge)).collect();
    for round in 0..2 {
        let before = script_calls(&cluster).await;
        let answers = store.decide_many(&calls).await;
        for (index, answer) in answers.into_iter().enumerate() {
            let remaining = answer.unwrap().verdicts()[0].remaining();
            let used = if index < 600 { 2 * round + 1 + index as u64 / 300 } else { round + 1 };
            assert_eq!(remaining, 3_u64.saturating_sub(used), "{index}");
        }
        let after = script_calls(&cluster).await;
        let slots: std::collections::HashSet<_> =
            tenants.iter().map(|tenant| Cluster::slot_of(tenant.as_bytes())).collect();
        let made = after.iter().sum::<u64>() - before.iter().sum::<u64>();
        if round > 0 {
            assert_eq!(made, slots.len() as u64, "one script call for each slot");
        }
    }
}

/// Returns a store, two policies, and two subjects with states on different nodes. The second
/// policy admits only two calls.
async fn wide_and_narrow(clock: &ManualClock) -> (ClusterStore, [Policy; 2], [String; 2]) {
    let store = store_at(clock).await;
    let cluster = cluster().await;
    let subjects = [subject_on(cluster, 0, 0).await, subject_on(cluster, 1, 0).await];
    let policies = [policy("wide: token-bucket 5/1h"), policy("narrow: fixed-window 2/1d")];
    (store, policies, subjects)
}

#[tokio::test]
async fn a_call_across_slots_charges_all_or_none() {
    let clock = ManualClock::new(Timestamp::from_micros(1_790_000_000_000_123));
    let (store, policies, subjects) = wide_and_narrow(&clock).await;
    let charges: Vec<_> = policies.iter().zip(&subjects).map(|(p, s)| Charge::new(p, s)).collect();
    for round in 1..=4 {
        let decision = store.decide(Call::acquire(&charges)).await.unwrap();
        assert_eq!(decision.is_allowed(), round <= 2);
        let remaining: Vec<_> = decision.verdicts().iter().map(|v| v.remaining()).collect();
        assert_eq!(
            remaining,
            [5 - round.min(2), 2 - round.min(2)],
            "the remaining amounts after the call"
        );
    }
    assert_eq!(used(&store, charges[0]).await, 2);
    assert_eq!(used(&store, charges[1]).await, 2);
}

#[tokio::test]
async fn a_reservation_across_slots_waits_for_the_last_and_books_in_all_or_none() {
    let clock = ManualClock::new(Timestamp::from_micros(1_790_000_000_000_123));
    let (store, _, subjects) = wide_and_narrow(&clock).await;
    let buckets = [policy("fast: token-bucket 1/1s"), policy("slow: token-bucket 1/10s")];
    let charges: Vec<_> = buckets.iter().zip(&subjects).map(|(p, s)| Charge::new(p, s)).collect();
    let reserve = |max_wait| Operation::Reserve { max_wait: Duration::from_secs(max_wait) };
    let mut waits = vec![];
    for max_wait in [0, 10, 19, 20] {
        let decision = store.decide(Call::new(reserve(max_wait), &charges)).await.unwrap();
        waits.push(decision.is_allowed().then_some(decision.wait().as_secs()));
    }
    assert_eq!(waits, [Some(0), Some(10), None, Some(20)]);
    // The refused reservation got no place in the queue of the first bucket, so this queue has only
    // three reserved places.
    let next = store.decide(Call::new(reserve(100), &charges[..1])).await.unwrap();
    assert_eq!(next.wait(), Duration::from_secs(3));
}

#[tokio::test]
async fn an_error_in_one_slot_leaves_nothing_charged_in_the_others() {
    let (cluster, prefix) = (cluster().await, fresh_prefix());
    let store = patient(cluster).prefix(&prefix).build().unwrap();
    let subjects = [subject_on(cluster, 0, 0).await, subject_on(cluster, 1, 0).await];
    let bucket = policy("p: gcra 5/1h");
    let charges = subjects.each_ref().map(|subject| Charge::new(&bucket, subject));
    let key = Keys::new(&prefix).key(&charges[1]);
    cluster.node(1).command(&[&b"SET"[..], &key, b"foreign"]).await.unwrap();
    let error = store.decide(Call::acquire(&charges)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ForeignValue, "{error}");
    assert_eq!(used(&store, charges[0]).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn callers_that_charge_two_tenants_never_exceed_either_limit() {
    let store = builder().await.build().unwrap();
    let cluster = cluster().await;
    for text in ["p: fixed-window 40/1d anchored", "p: sliding-log 40/1d", "p: gcra 40/1d"] {
        let policy = policy(text);
        let mut subjects = vec![];
        for node in 0..3 {
            subjects.push(subject_on(cluster, node, 1).await);
        }
        let mut tasks = tokio::task::JoinSet::new();
        for n in 0..60 {
            let (store, policy, subjects) = (store.clone(), policy.clone(), subjects.clone());
            tasks.spawn(async move {
                let mut admitted = [0; 3];
                for m in 0..10 {
                    let pair = [n % 3, (n + 1 + m % 2) % 3];
                    let charges = pair.map(|at| Charge::new(&policy, &subjects[at]));
                    if store.decide(Call::acquire(&charges)).await.unwrap().is_allowed() {
                        pair.iter().for_each(|&at| admitted[at] += 1);
                    }
                }
                admitted
            });
        }
        let mut admitted = [0; 3];
        for own in tasks.join_all().await {
            admitted.iter_mut().zip(own).for_each(|(all, own)| *all += own);
        }
        for (subject, admitted) in subjects.iter().zip(admitted) {
            let used = used(&store, Charge::new(&policy, subject)).await;
            assert!(admitted <= 40, "{text}: {admitted}");
            assert!(used >= admitted, "{text}: {admitted} admitted, {used} used");
        }
        assert!(admitted.iter().sum::<u64>() >= 60, "{text}: {admitted:?}");
        let reset = subjects.iter().map(|subject| Charge::new(&policy, subject));
        let _ =
            store.decide(Call::new(Operation::Reset, &reset.collect::<Vec<_>>())).await.unwrap();
    }
}

/// A call that is cancelled, for example by a timeout, must not remain charged in only one of its
/// two slots.
#[tokio::test]
async fn a_cancelled_call_across_slots_is_completed() {
    let store = builder().await.build().unwrap();
    let cluster = cluster().await;
    let subjects = [subject_on(cluster, 0, 0).await, subject_on(cluster, 1, 0).await];
    let policy = policy("wide: fixed-window 1000/10d anchored");
    let charges: Vec<_> = subjects.iter().map(|s| Charge::new(&policy, s)).collect();
    for polls in 0..200 {
        let mut call = std::pin::pin!(store.decide(Call::acquire(&charges)));
        for _ in 0..polls % 8 {
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            if call.as_mut().poll(&mut context).is_ready() {
                break;
            }
            tokio::task::yield_now().await;
        }
    }
    // Some calls were dropped before the store sent them. Each call that was sent must charge both
    // subjects.
    let in_both = async || {
        let (one, other) = (used(&store, charges[0]).await, used(&store, charges[1]).await);
        (one == other && one > 0).then_some(())
    };
    let within = Duration::from_secs(10);
    tidegate_test_servers::eventually(within, "all calls to end", in_both).await.unwrap();
}

#[tokio::test]
async fn b22_flushed_scripts_cause_no_error_and_no_wrong_count() {
    let store = builder().await.build().unwrap();
    let cluster = cluster().await;
    let policies = [policy("w: fixed-window 1000/1d"), policy("b: gcra 1000/1d")];
    let mut subjects = vec![];
    for node in 0..3 {
        subjects.push(subject_on(cluster, node, 2).await);
    }
    for round in 1..=10 {
        for node in cluster.nodes() {
            node.command(&["SCRIPT", "FLUSH"]).await.unwrap();
        }
        for subject in &subjects {
            let charges = policies.each_ref().map(|policy| Charge::new(policy, subject));
            let decision = store.decide(Call::acquire(&charges)).await.unwrap();
            assert_eq!(decision.verdicts()[0].remaining(), 1_000 - round);
        }
    }
}
