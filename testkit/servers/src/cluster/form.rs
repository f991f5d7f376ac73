//! The formation of a Redis Cluster from nodes that have just started.
//!
//! Usually, the nodes of a new cluster first get their slots, and are then connected to each other.
//! This takes more than 2 s, because a node that starts as a primary serves no commands for 2 s. A
//! replica serves commands immediately, even when it is promoted. Therefore, each node of a test
//! starts as a replica.
//!
//! A replica needs a primary. So the initial `nodes.conf` of each node names primaries that do not
//! exist, the stand-ins, and assigns the slots to them. After the start, one node takes over the
//! slots of each stand-in. The other nodes become replicas of the new primaries, and all nodes
//! forget the stand-ins. The result is the same as with the usual procedure, but takes a tenth of
//! the time.

use super::launch::{Address, random_id};
use super::nodes::{Cluster, PATIENCE};
use super::slot::SLOTS;
use super::view::{Member, View};
use crate::error::Error;
use crate::redis::Redis;
use crate::wait::eventually;

/// The plan of a cluster: the number of nodes, and the ids of the stand-ins. A stand-in is a
/// primary that does not exist. The initial `nodes.conf` assigns slots to the stand-ins, so that
/// every real node can start as a replica of a stand-in.
#[derive(Debug)]
pub(super) struct Plan {
    stand_ins: Vec<String>,
    nodes: usize,
}

impl Plan {
    pub(super) fn new(primaries: u16, replicas: u16) -> Self {
        let nodes = usize::from(primaries) * (1 + usize::from(replicas));
        Self { stand_ins: (0..primaries).map(|_| random_id()).collect(), nodes }
    }

    pub(super) fn nodes(&self) -> usize {
        self.nodes
    }

    /// Returns the initial `nodes.conf` of each node.
    pub(super) fn tables(&self, addresses: &[Address]) -> Vec<String> {
        let count = self.stand_ins.len();
        let table = |own: usize| {
            let mut table = String::new();
            for (number, address) in addresses.iter().enumerate() {
                let stand_in = &self.stand_ins[number % count];
                table.push_str(&replica(address, stand_in, number == own));
            }
            for (number, id) in self.stand_ins.iter().enumerate() {
                let first = |number| usize::from(SLOTS) * number / count;
                let (from, to) = (first(number), first(number + 1) - 1);
                table.push_str(&stand_in(id, &format!(" {from}-{to}")));
            }
            table + END
        };
        (0..addresses.len()).map(table).collect()
    }
}

/// Returns the line of `nodes.conf` for a replica.
pub(super) fn replica(address: &Address, primary: &str, is_myself: bool) -> String {
    let Address { id, port, bus } = address;
    let myself = if is_myself { "myself," } else { "" };
    format!("{id} 127.0.0.1:{port}@{bus} {myself}slave {primary} 0 0 0 connected\n")
}

/// Returns the line of `nodes.conf` for a stand-in, a primary that does not exist.
pub(super) fn stand_in(id: &str, slots: &str) -> String {
    format!("{id} 127.0.0.1:1@1 master - 0 0 0 connected{slots}\n")
}

/// The last line of `nodes.conf`. The cluster epoch starts at 0, because each node later raises it
/// to the greatest epoch of all nodes.
pub(super) const END: &str = "vars currentEpoch 0 lastVoteEpoch 0\n";

/// Replaces the stand-ins (primaries that do not exist) with real primaries.
pub(super) async fn promote(cluster: &Cluster, plan: &Plan) -> Result<(), Error> {
    for node in cluster.nodes() {
        is_ready(node, cluster.nodes()).await?;
    }
    // The nodes take over the slots one after another. So each node knows the cluster epochs of the
    // previous nodes, and takes the next epoch for its slots.
    for node in cluster.nodes().iter().take(plan.stand_ins.len()) {
        node.command(&["CLUSTER", "FAILOVER", "TAKEOVER"]).await?;
        let is_known = |view: &View| view.at_port(node.port()).is_some_and(Member::is_primary);
        all_see(cluster, "a node to be known as a primary", is_known).await?;
    }
    // Only now, the node timeout can be short. Earlier, a short timeout would have made the
    // stand-ins (primaries that do not exist) count as dead, because they never answer. A long
    // timeout would delay the next steps, because nodes announce themselves at this period.
    cluster.launcher.settle(cluster.nodes()).await?;
    let is_forgettable = |view: &View| {
        let is_replica_of = |id: &String, member: &Member| member.primary.as_ref() == Some(id);
        let follows = |id: &String| view.members().iter().any(|member| is_replica_of(id, member));
        !plan.stand_ins.iter().any(follows)
    };
    all_see(cluster, "the replicas to follow", is_forgettable).await?;
    for node in cluster.nodes() {
        forget(node, &plan.stand_ins).await?;
    }
    Ok(())
}

/// Waits until `node` serves commands and is connected to the nodes `others`.
pub(super) async fn is_ready(node: &Redis, others: &[Redis]) -> Result<(), Error> {
    eventually(PATIENCE, "a node to connect to the others", async || {
        let view = View::query(node).await.ok()?;
        let is_well = |other: &Redis| view.at_port(other.port()).is_some_and(Member::is_well);
        let info = node.command(&["CLUSTER", "INFO"]).await.ok()?.text();
        (info.contains("cluster_state:ok") && others.iter().all(is_well)).then_some(())
    })
    .await
}

/// Waits until `is_so` returns `true` for the views of all nodes.
async fn all_see(
    cluster: &Cluster,
    what: &str,
    is_so: impl Fn(&View) -> bool,
) -> Result<(), Error> {
    eventually(PATIENCE, what, async || {
        let views = cluster.views().await;
        (views.len() == cluster.nodes().len() && views.iter().all(&is_so)).then_some(())
    })
    .await
}

pub(super) async fn forget(node: &Redis, ids: &[String]) -> Result<(), Error> {
    for id in ids {
        node.command(&["CLUSTER", "FORGET", id]).await?;
    }
    Ok(())
}
