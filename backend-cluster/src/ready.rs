//! What a store needs of the nodes, tried when a program starts.

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

/// The most subjects that are looked through for one that each primary has: a node with a single slot has one
/// of 16,384.
const MAX_SUBJECTS: u32 = 1 << 18;

/// Checks all primaries, side by side.
pub(crate) async fn check(store: &Arc<Inner>) -> Result<(), Error> {
    check_runtime()?;
    let policies = probes();
    // Asks for the slots, if they are not known.
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

/// The primaries, each with a subject that it keeps.
fn subjects(store: &Inner, policies: &[Policy]) -> Vec<(Arc<Node>, String)> {
    let number = store.slot_map.primaries();
    let mut found: Vec<(Arc<Node>, String)> = vec![];
    for n in 0..MAX_SUBJECTS {
        if found.len() >= number {
            break;
        }
        let subject = format!("ready{n}");
        let node = store.slot_map.primary(slot_of_subject(store, policies, &subject));
        if let Some(node) = node.filter(|node| !found.iter().any(|(it, _)| Arc::ptr_eq(it, node))) {
            found.push((node, subject));
        }
    }
    found
}

/// All policies of a subject lie in one slot.
fn slot_of_subject(store: &Inner, policies: &[Policy], subject: &str) -> Slot {
    let slot = policies.first().map(|policy| slot_of(&store.keys, &Charge::new(policy, subject)));
    slot.unwrap_or_else(|| Slot::for_key(subject))
}
