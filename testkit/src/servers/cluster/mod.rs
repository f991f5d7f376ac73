//! A Redis Cluster.

mod builder;
mod failover;
mod form;
mod launch;
mod membership;
mod moving;
mod slot;
mod view;

use std::ops::RangeInclusive;
use std::time::Duration;

pub use builder::ClusterBuilder;
use launch::Launcher;
use slot::SLOTS;
use view::View;

use super::{Error, Redis, eventually};

/// How long a cluster may take for anything.
const PATIENCE: Duration = Duration::from_secs(30);

/// The nodes of a Redis Cluster on 127.0.0.1. Dropping it kills them all.
///
/// A node is named by its number. In the beginning, the first ones are the primaries, with their shares of
/// the slots in order, and of `n` primaries the one of node `i` is node `i % n`. Nodes keep their numbers
/// whatever becomes of them: see [`primary_of_slot`](Self::primary_of_slot) for the present roles.
///
/// Each node is a [`Redis`], and can be paused, killed and restarted as one. A restarted node knows that it
/// belongs to the cluster. If it was and still is a primary, it refuses all commands with `CLUSTERDOWN` for
/// 2 s more, as every server does.
///
/// ```no_run
/// use tidegate_testkit::servers::Cluster;
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
    launcher: Launcher,
    nodes: Vec<Redis>,
}

impl Cluster {
    /// Starts a cluster with the usual settings: three primaries and no replicas.
    ///
    /// # Errors
    /// As [`ClusterBuilder::start`].
    pub async fn start() -> Result<Self, Error> {
        Self::builder().start().await
    }

    /// Starts a cluster with other settings.
    pub fn builder() -> ClusterBuilder {
        ClusterBuilder::new()
    }

    /// The slot of a key, by a reckoning of its own.
    #[must_use]
    pub fn slot_of(key: &[u8]) -> u16 {
        slot::slot_of(key)
    }

    /// Where the nodes listen, each with the password of the default user if there is one.
    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(Redis::url).collect()
    }

    /// All nodes, in the order of their numbers.
    pub fn nodes(&self) -> &[Redis] {
        &self.nodes
    }

    /// A node, by its number.
    ///
    /// # Panics
    /// If there is no such node.
    pub fn node(&self, number: usize) -> &Redis {
        &self.nodes[number]
    }

    /// The number of the node that has a slot: of those that claim it, by their own word or by that of
    /// another node that answers, the one that came to it last. It may be dead.
    ///
    /// # Errors
    /// If no node knows.
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

    /// The slots that a node has, according to itself: none if it is a replica.
    ///
    /// # Errors
    /// If it does not answer.
    pub async fn slots_of(&self, number: usize) -> Result<Vec<RangeInclusive<u16>>, Error> {
        let view = View::of(self.node(number)).await?;
        Ok(view.myself().map(|member| member.slots.clone()).unwrap_or_default())
    }

    /// The numbers of the replicas of a node that run, according to themselves.
    pub async fn replicas_of(&self, number: usize) -> Vec<usize> {
        let mut replicas = vec![];
        for (replica, node) in self.awake() {
            let Ok(view) = View::of(node).await else { continue };
            let primary = view.myself().and_then(|member| view.member(member.primary.as_deref()?));
            if primary.is_some_and(|primary| primary.port == self.node(number).port()) {
                replicas.push(replica);
            }
        }
        replicas
    }

    /// Waits until the nodes that run and are not held find each other and the cluster well, each slot is
    /// served, they agree by whom, and the replicas among them get what their primaries write.
    ///
    /// # Errors
    /// If that does not come to pass within 30 s.
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
            self.awake().all(|(_, node)| view.at_port(node.port()).is_some_and(|it| it.is_well()))
        };
        Ok(agree(&views) && views.iter().all(sees_all) && self.replicas_follow(&views).await)
    }

    /// Whether each replica that is awake gets what its primary writes, if that is awake too.
    async fn replicas_follow(&self, views: &[View]) -> bool {
        for view in views {
            let Some(replica) = view.myself() else { return false };
            let Some(primary) = replica.primary.as_deref() else { continue };
            let port_of_primary = view.member(primary).map(|primary| primary.port);
            let at = |port| self.awake().map(|(_, node)| node).find(|node| node.port() == port);
            if let (Some(primary), Some(replica)) = (port_of_primary.and_then(at), at(replica.port))
                && !primary.streams_to(replica).await
            {
                return false;
            }
        }
        true
    }

    /// The nodes that can answer, with their numbers.
    fn awake(&self) -> impl Iterator<Item = (usize, &Redis)> {
        self.nodes.iter().enumerate().filter(|(_, node)| node.is_awake())
    }

    /// What the nodes that answer say.
    async fn views(&self) -> Vec<View> {
        let mut views = vec![];
        for (_, node) in self.awake() {
            views.extend(View::of(node).await);
        }
        views
    }

    fn number_at(&self, port: u16) -> Result<usize, Error> {
        let number = self.nodes.iter().position(|node| node.port() == port);
        number.ok_or_else(|| Error::new(format!("the node at port {port} is none of ours")))
    }
}

/// Whether they name the same owner for each slot.
fn agree(views: &[View]) -> bool {
    views.windows(2).all(|pair| pair[0].claims() == pair[1].claims())
}
