//! Making one cluster of nodes that have just started.
//!
//! The usual way (slots are assigned, nodes meet) takes more than 2 s, since a primary that has just booted
//! lets that time pass before it serves. A replica does not, nor when it is promoted. So each node starts
//! with a file that says: all know each other, the slots belong to stand-ins that do not exist, and we
//! are their replicas. Then some take over from the stand-ins, the others follow those, and the stand-ins
//! are forgotten. It takes a tenth of the time, and ends in the same state.

use super::launch::{Place, random_id};
use super::view::View;
use super::{Cluster, PATIENCE, SLOTS};
use crate::servers::{Error, Redis, eventually};

/// The role of each node.
#[derive(Debug)]
pub(super) struct Plan {
    /// The names of those that the primaries take over from.
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

    /// What each node is to know in the beginning, as its `nodes.conf`.
    pub(super) fn tables(&self, places: &[Place]) -> Vec<String> {
        let count = self.stand_ins.len();
        let table = |own: usize| {
            let mut table = String::new();
            for (number, place) in places.iter().enumerate() {
                let stand_in = &self.stand_ins[number % count];
                table.push_str(&replica(place, stand_in, number == own));
            }
            for (number, id) in self.stand_ins.iter().enumerate() {
                let first = |number| usize::from(SLOTS) * number / count;
                let (from, to) = (first(number), first(number + 1) - 1);
                table.push_str(&stand_in(id, &format!(" {from}-{to}")));
            }
            table + END
        };
        (0..places.len()).map(table).collect()
    }
}

/// The line of a replica in `nodes.conf`.
pub(super) fn replica(place: &Place, primary: &str, is_myself: bool) -> String {
    let Place { id, port, bus } = place;
    let myself = if is_myself { "myself," } else { "" };
    format!("{id} 127.0.0.1:{port}@{bus} {myself}slave {primary} 0 0 0 connected\n")
}

/// The line of a primary that does not exist.
pub(super) fn stand_in(id: &str, slots: &str) -> String {
    format!("{id} 127.0.0.1:1@1 master - 0 0 0 connected{slots}\n")
}

/// The line that ends `nodes.conf`. The epoch is the greatest of all nodes', if that is greater.
pub(super) const END: &str = "vars currentEpoch 0 lastVoteEpoch 0\n";

/// Has the nodes take the places of the stand-ins.
pub(super) async fn promote(cluster: &Cluster, plan: &Plan) -> Result<(), Error> {
    for node in cluster.nodes() {
        is_ready(node, cluster.nodes()).await?;
    }
    // One after the other: each then knows the epochs of those before, and takes the next for itself.
    for node in cluster.nodes().iter().take(plan.stand_ins.len()) {
        node.command(&["CLUSTER", "FAILOVER", "TAKEOVER"]).await?;
        let is_known = |view: &View| view.at_port(node.port()).is_some_and(|it| it.is_primary());
        all_see(cluster, "a node to be known as a primary", is_known).await?;
    }
    // Only now, as the stand-ins are silent; and no later, as it is also how often nodes tell of themselves.
    cluster.launcher.settle(cluster.nodes()).await?;
    let is_forgettable = |view: &View| {
        let follows = |id: &String| view.members().iter().any(|it| it.primary.as_ref() == Some(id));
        !plan.stand_ins.iter().any(follows)
    };
    all_see(cluster, "the replicas to follow", is_forgettable).await?;
    for node in cluster.nodes() {
        forget(node, &plan.stand_ins).await?;
    }
    Ok(())
}

/// Waits until a node serves, and is connected to the others.
pub(super) async fn is_ready(node: &Redis, others: &[Redis]) -> Result<(), Error> {
    eventually(PATIENCE, "a node to join the others", async || {
        let view = View::of(node).await.ok()?;
        let is_well = |other: &Redis| view.at_port(other.port()).is_some_and(|it| it.is_well());
        let info = node.command(&["CLUSTER", "INFO"]).await.ok()?.text();
        (info.contains("cluster_state:ok") && others.iter().all(is_well)).then_some(())
    })
    .await
}

/// Waits until `is_so` in the eyes of all nodes.
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

/// Has a node forget others.
pub(super) async fn forget(node: &Redis, ids: &[String]) -> Result<(), Error> {
    for id in ids {
        node.command(&["CLUSTER", "FORGET", id]).await?;
    }
    Ok(())
}
