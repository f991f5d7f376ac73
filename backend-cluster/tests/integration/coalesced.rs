//! Tests of coalesced calls on a cluster. The calls to each node form separate batches.
#![allow(clippy::unwrap_used, reason = "a helper of a test that fails panics, as the test does")]

use tidegate_cluster::{Call, Charge, ClusterStore, Error, Policy, Store, StoreExt};
use tidegate_test_servers::Cluster;
use tokio::task::{JoinHandle, JoinSet};

use crate::common::{builder, patient, policy};
use crate::scene::tenants_at;

type Coalesced = tidegate_cluster::core::layers::CoalescedStore<ClusterStore>;

fn acquire(store: &Coalesced, policy: &Policy, tenant: &str) -> JoinHandle<Result<bool, Error>> {
    let (store, policy, tenant) = (store.clone(), policy.clone(), tenant.to_owned());
    tokio::spawn(async move {
        let charges = [Charge::new(&policy, "s").tenant(&tenant)];
        Ok(store.decide(Call::acquire(&charges)).await?.is_allowed())
    })
}

#[tokio::test]
async fn a_hanging_node_does_not_delay_calls_to_other_nodes() {
    let cluster = Cluster::start().await.unwrap();
    let store = patient(&cluster).build().unwrap().coalesced();
    let policy = policy("p: fixed-window 1000/10d anchored");
    let tenants = [tenants_at(&cluster, 0, 3).await, tenants_at(&cluster, 1, 3).await];
    // The first calls load the slot map, so that the store knows the node of each tenant.
    for tenant in tenants.iter().flatten() {
        assert!(acquire(&store, &policy, tenant).await.unwrap().unwrap());
    }
    cluster.nodes()[0].pause().await.unwrap();
    let held = tenants[0].iter().map(|tenant| acquire(&store, &policy, tenant));
    let held: Vec<_> = held.collect();
    for _ in 0..10 {
        let others = tenants[1].iter().map(|tenant| acquire(&store, &policy, tenant));
        for other in others.collect::<Vec<_>>() {
            assert!(other.await.unwrap().unwrap());
        }
    }
    assert!(held.iter().all(|held| !held.is_finished()));
    cluster.nodes()[0].resume().await.unwrap();
    for held in held {
        assert!(held.await.unwrap().unwrap());
    }
}

#[tokio::test]
async fn calls_of_many_slots_are_counted_exactly() {
    let store = builder().await.build().unwrap().coalesced();
    let (user, all) = (policy("user: sliding-counter 7/10d"), policy("all: gcra 1/10d burst 100"));
    let mut callers = JoinSet::new();
    for caller in 0..40 {
        let (store, user, all) = (store.clone(), user.clone(), all.clone());
        callers.spawn(async move {
            let (mut single, mut across) = (0, 0);
            let tenant = format!("t{}", caller % 20);
            for _ in 0..5 {
                let charges = [Charge::new(&user, "s").tenant(&tenant)];
                let decision = store.decide(Call::acquire(&charges)).await.unwrap();
                single += usize::from(decision.is_allowed());
                // The two charges are in two slots, so the store sends this call alone and not in a
                // batch.
                let charges = [Charge::new(&all, &tenant), Charge::new(&all, "everybody")];
                let decision = store.decide(Call::acquire(&charges)).await.unwrap();
                across += usize::from(decision.is_allowed());
            }
            (single, across)
        });
    }
    let (mut singles, mut across) = (0, 0);
    while let Some(admitted) = callers.join_next().await {
        let (caller_single, caller_across) = admitted.unwrap();
        (singles, across) = (singles + caller_single, across + caller_across);
    }
    assert_eq!((singles, across), (20 * 7, 100));
}
