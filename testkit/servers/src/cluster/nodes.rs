//! The nodes of a Redis Cluster, and queries of the cluster's state.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::launch::Launcher;
use super::slot::{self, SLOTS};
use super::view::{Member, View};
use crate::error::Error;
use crate::redis::Redis;
use crate::wait::eventually;

/// The maximum time of a wait for a change of a cluster.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// A Redis Cluster whose nodes run on 127.0.0.1. Dropping this value kills all nodes.
///
/// Each node has a number, which never changes. In a new cluster with `n` primaries, the first `n`
/// nodes are the primaries. Their ranges of slots are equally long, and follow the order of the
/// nodes. Each other node `i` is a replica of the node `i % n`. A change of roles does not change
/// the numbers: [`primary_of_slot`](Self::primary_of_slot) returns the number of the current
/// primary of a slot.
///
/// Each node is a [`Redis`], which a test can pause, kill and restart. A restarted node still
/// belongs to the cluster. If it is still a primary, it rejects all commands with `CLUSTERDOWN` in
/// the first 2 s after its start, like every primary of a Redis Cluster.
///
/// ```no_run
/// use tidegate_test_servers::Cluster;
///
/// # async fn run() {
/// let cluster = Cluster::builder().replicas(1).start().await.unwrap();
/// let slot = Cluster::slot_of(b"key");
/// let dead = cluster.primary_of_slot(slot).await.unwrap();
/// cluster.node(dead).kill().await.unwrap();
/// assert_ne!(cluster.primary_after(dead, slot).await.unwrap(), dead);
/// # }
/// ```
#[derive(Debug)]
pub struct Cluster {
    pub(super) launcher: Launcher,
    pub(super) nodes: Vec<Redis>,
}

impl Cluster {
    /// Returns the slot of a key, which is computed without the code of the client under test.
    #[must_use]
    pub fn slot_of(key: &[u8]) -> u16 {
        slot::slot_of(key)
    }

    /// Returns the URLs of the nodes, with the password of the default user if it has one.
    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(Redis::url).collect()
    }

    /// Returns all nodes, in the order of their numbers.
    pub fn nodes(&self) -> &[Redis] {
        &self.nodes
    }

    /// Returns the node with this number.
    pub fn node(&self, number: usize) -> &Redis {
        &self.nodes[number]
    }

    /// Returns the number of the node that owns a slot. This node is possibly dead. If the nodes
    /// disagree about the owner, returns the owner with the greatest cluster epoch.
    ///
    /// # Errors
    /// Returns an error if no node that answers knows the owner of the slot.
    pub async fn primary_of_slot(&self, slot: u16) -> Result<usize, Error> {
        let mut newest = None;
        for view in self.views().await {
            let claim = view.owner(slot).map(|owner| (owner.epoch, owner.port));
            newest = newest.max(claim);
        }
        let (_, port) =
            newest.ok_or_else(|| Error::new(format!("no node knows the owner of slot {slot}")))?;
        self.number_at(port)
    }

    /// Returns the slots of a node, according to the node itself. A replica has no slots.
    pub async fn slots_of(&self, number: usize) -> Result<Vec<RangeInclusive<u16>>, Error> {
        let view = View::query(self.node(number)).await?;
        Ok(view.myself().map(|member| member.slots.clone()).unwrap_or_default())
    }

    /// Returns the numbers of the running replicas of a node, according to the replicas.
    pub async fn replicas_of(&self, number: usize) -> Vec<usize> {
        let mut replicas = vec![];
        for (replica, node) in self.awake() {
            let Ok(view) = View::query(node).await else { continue };
            let primary = view.myself().and_then(|member| view.member(member.primary.as_deref()?));
            if primary.is_some_and(|primary| primary.port == self.node(number).port()) {
                replicas.push(replica);
            }
        }
        replicas
    }

    /// Waits until the cluster is well: all nodes are connected to each other and agree on the
    /// owner of each slot, every slot is served, and each replica receives the writes of its
    /// primary. Nodes that are paused or do not run are ignored.
    ///
    /// # Errors
    /// Returns an error if the cluster is not well within 30 s.
    pub async fn wait_until_ok(&self) -> Result<(), Error> {
        let is_ok = async || self.is_ok().await.ok().filter(|&is_ok| is_ok).map(drop);
        eventually(PATIENCE, "the cluster to be well", is_ok).await
    }

    async fn is_ok(&self) -> Result<bool, Error> {
        let all_served = format!("cluster_slots_ok:{SLOTS}");
        for (_, node) in self.awake() {
            let info = node.command(&["CLUSTER", "INFO"]).await?.text();
            let says = |wanted: &str| info.lines().any(|line| line == wanted);
            if !says("cluster_state:ok") || !says(&all_served) {
                return Ok(false);
            }
        }
        let views = self.views().await;
        let sees_all = |view: &View| {
            self.awake().all(|(_, node)| view.at_port(node.port()).is_some_and(Member::is_well))
        };
        Ok(agree(&views) && views.iter().all(sees_all) && self.replicas_follow(&views).await)
    }

    /// Returns `true` if each replica that answers receives the writes of its primary. Replicas of
    /// primaries that do not answer are ignored.
    async fn replicas_follow(&self, views: &[View]) -> bool {
        for view in views {
            let Some(replica) = view.myself() else { return false };
            let Some(primary) = replica.primary.as_deref() else { continue };
            let primary_port = view.member(primary).map(|primary| primary.port);
            let at = |port| self.awake().map(|(_, node)| node).find(|node| node.port() == port);
            if let (Some(primary), Some(replica)) = (primary_port.and_then(at), at(replica.port))
                && !primary.streams_to(replica).await
            {
                return false;
            }
        }
        true
    }

    pub(super) fn awake(&self) -> impl Iterator<Item = (usize, &Redis)> {
        self.nodes.iter().enumerate().filter(|(_, node)| node.is_awake())
    }

    /// Returns the view of each node that answers. A view is the cluster as one node knows it.
    pub(super) async fn views(&self) -> Vec<View> {
        let mut views = vec![];
        for (_, node) in self.awake() {
            views.extend(View::query(node).await);
        }
        views
    }

    fn number_at(&self, port: u16) -> Result<usize, Error> {
        let number = self.nodes.iter().position(|node| node.port() == port);
        number.ok_or_else(|| {
            Error::new(format!("the port {port} belongs to no node of this cluster"))
        })
    }
}

pub(super) fn agree(views: &[View]) -> bool {
    views.windows(2).all(|pair| pair[0].claims() == pair[1].claims())
}
