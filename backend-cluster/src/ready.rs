//! Checks that all primaries of the cluster can decide calls. A program can run this check when it
//! starts.

use std::sync::Arc;

use futures_util::future::try_join_all;
use redis::cluster_routing::Slot;
use tidegate_core::{Call, Charge, Error, Policy};
use tidegate_redis::connection::{PROBE_OPERATIONS, check_runtime, check_server, probes};

use crate::dispatch::single;
use crate::inner::Inner;
use crate::routing::node::Node;
use crate::routing::refresh::unserved;
use crate::routing::slots::slot_of;

/// The maximum number of subjects that [`subjects`] tries until it has found one subject for each
/// primary. A node with a single slot serves only one of 16,384 subjects.
const MAX_SUBJECTS: u32 = 1 << 18;

pub(crate) async fn check(store: &Arc<Inner>) -> Result<(), Error> {
    check_runtime()?;
    let policies = probes();
    // The first call of the check loads the slot map if the store has not loaded it yet.
    store.topology.primary(slot_of_subject(store, &policies, "ready")).await?;
    if let Some(slot) = store.slot_map.first_unserved() {
        return Err(unserved(slot));
    }
    let subjects = subjects(store, &policies);
    try_join_all(
        subjects.iter().map(|(node, subject)| check_node(store, node, subject, &policies)),
    )
    .await?;
    Ok(())
}

async fn check_node(
    store: &Arc<Inner>,
    node: &Node,
    subject: &str,
    policies: &[Policy],
) -> Result<(), Error> {
    check_server(node.connections.next()).await?;
    for policy in policies {
        let charges = [Charge::new(policy, subject)];
        for operation in PROBE_OPERATIONS {
            let _ = single::decide(store, Call::new(operation, &charges)).await?;
        }
    }
    Ok(())
}

/// Returns all primaries, and for each primary a subject in one of the primary's slots.
fn subjects(store: &Inner, policies: &[Policy]) -> Vec<(Arc<Node>, String)> {
    let number = store.slot_map.primaries();
    let mut found: Vec<(Arc<Node>, String)> = vec![];
    for n in 0..MAX_SUBJECTS {
        if found.len() >= number {
            break;
        }
        let subject = format!("ready{n}");
        let node = store.slot_map.primary(slot_of_subject(store, policies, &subject));
        if let Some(node) =
            node.filter(|node| !found.iter().any(|(other, _)| Arc::ptr_eq(other, node)))
        {
            found.push((node, subject));
        }
    }
    found
}

/// Returns the slot of a subject without a tenant. The slot is the same for all policies.
fn slot_of_subject(store: &Inner, policies: &[Policy], subject: &str) -> Slot {
    let slot = policies.first().map(|policy| slot_of(&store.keys, &Charge::new(policy, subject)));
    slot.unwrap_or_else(|| Slot::for_key(subject))
}
