//! A running Sentinel group.

use std::time::Duration;

use crate::error::Error;
use crate::redis::Redis;
use crate::resp::Reply;
use crate::wait::eventually;

/// The maximum time of a wait for a change of a Sentinel group.
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) const SENTINELS: usize = 3;

/// A primary, its replicas and three sentinels, all on 127.0.0.1. Dropping this value kills all of
/// these servers.
///
/// ```no_run
/// use tidegate_test_servers::Sentinel;
///
/// # async fn run() {
/// let group = Sentinel::start().await.unwrap();
/// let dead = group.kill_primary().await.unwrap();
/// assert_ne!(group.primary_after(dead).await.unwrap(), dead);
/// # }
/// ```
#[derive(Debug)]
pub struct Sentinel {
    pub(super) name: String,
    pub(super) nodes: Vec<Redis>,
    pub(super) sentinels: Vec<Redis>,
}

impl Sentinel {
    /// Returns the name under which the sentinels know the primary.
    pub fn master_name(&self) -> &str {
        &self.name
    }

    /// Returns the URLs of the sentinels.
    pub fn sentinel_urls(&self) -> Vec<String> {
        self.sentinels.iter().map(Redis::url).collect()
    }

    /// Returns the sentinels.
    pub fn sentinels(&self) -> &[Redis] {
        &self.sentinels
    }

    /// Returns the primary and the replicas. The order of these servers never changes, even if
    /// their roles change.
    pub fn nodes(&self) -> &[Redis] {
        &self.nodes
    }

    /// Returns the port of the primary, according to the first sentinel that answers.
    ///
    /// # Errors
    /// Returns an error if no sentinel knows the primary.
    pub async fn primary_port(&self) -> Result<u16, Error> {
        for sentinel in self.sentinels.iter().filter(|sentinel| sentinel.is_awake()) {
            if let Some(port) = self.primary_of(sentinel).await {
                return Ok(port);
            }
        }
        Err(Error::new(format!("no sentinel knows the primary of {:?}", self.name)))
    }

    /// Returns the server with the port that [`primary_port`](Self::primary_port) returns.
    pub async fn primary(&self) -> Result<&Redis, Error> {
        let port = self.primary_port().await?;
        let node = self.nodes.iter().find(|node| node.port() == port);
        node.ok_or_else(|| {
            Error::new(format!("the primary has port {port}; no server of this group has it"))
        })
    }

    /// Promotes a replica, like an operator. Returns the port of the new primary, when all
    /// sentinels know the new primary and the old primary has become a replica.
    pub async fn failover(&self) -> Result<u16, Error> {
        let old = self.primary_port().await?;
        let sentinel = &self.sentinels[0];
        // A sentinel refuses the command while a failover is in progress, and can abandon a
        // failover. So the command is repeated until the primary has changed.
        eventually(PATIENCE, "the sentinels to replace the primary", async || {
            if self.primary_of(sentinel).await? != old {
                return Some(());
            }
            let _ = sentinel.command(&["SENTINEL", "FAILOVER", &self.name]).await;
            None
        })
        .await?;
        let new = self.primary_after(old).await?;
        self.settle().await?;
        Ok(new)
    }

    /// Kills the primary with SIGKILL, and returns its port. To wait until the sentinels have
    /// replaced the primary, call [`primary_after`](Self::primary_after).
    pub async fn kill_primary(&self) -> Result<u16, Error> {
        let primary = self.primary().await?;
        primary.kill().await?;
        Ok(primary.port())
    }

    /// Waits until a server other than `old` is the primary, according to the new primary and to
    /// all sentinels that run and are not paused. Returns the port of the new primary.
    pub async fn primary_after(&self, old: u16) -> Result<u16, Error> {
        eventually(PATIENCE, "another primary", async || {
            let port = self.agreed_port().await.filter(|&port| port != old)?;
            let node = self.nodes.iter().find(|node| node.port() == port)?;
            let role = node.command(&["ROLE"]).await.ok()?;
            (role.list().first()?.text() == "master").then_some(port)
        })
        .await
    }

    /// Returns the port of the primary, or `None` if the sentinels disagree. Sentinels that are
    /// paused or do not run are ignored.
    async fn agreed_port(&self) -> Option<u16> {
        let mut agreed = None;
        for sentinel in self.sentinels.iter().filter(|sentinel| sentinel.is_awake()) {
            let port = self.primary_of(sentinel).await?;
            if *agreed.get_or_insert(port) != port {
                return None;
            }
        }
        agreed
    }

    async fn primary_of(&self, sentinel: &Redis) -> Option<u16> {
        let command = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", &self.name];
        sentinel.command(&command).await.ok()?.list().get(1)?.text().parse().ok()
    }

    /// Waits until the group is complete: all sentinels know each other and all running replicas,
    /// and each running replica receives the writes of the primary.
    pub(super) async fn settle(&self) -> Result<(), Error> {
        let what = "the sentinels to know each other and the replicas to be in sync";
        eventually(PATIENCE, what, async || {
            for sentinel in &self.sentinels {
                self.is_settled(sentinel).await.ok().filter(|settled| *settled)?;
            }
            let primary = self.primary().await.ok()?;
            let others = self.nodes.iter().filter(|node| node.port() != primary.port());
            for replica in others.filter(|node| node.pid().is_some()) {
                primary.streams_to(replica).await.then_some(())?;
            }
            Some(())
        })
        .await
    }

    async fn is_settled(&self, sentinel: &Redis) -> Result<bool, Error> {
        let name = self.name.as_str();
        sentinel.command(&["SENTINEL", "CKQUORUM", name]).await?;
        let peers = sentinel.command(&["SENTINEL", "SENTINELS", name]).await?;
        let replicas = sentinel.command(&["SENTINEL", "REPLICAS", name]).await?;
        let is_linked = |replica: &&Reply| {
            field(replica, "flags") == "slave" && field(replica, "master-link-status") == "ok"
        };
        let linked = replicas.list().iter().filter(is_linked).count();
        let running = self.nodes.iter().filter(|node| node.pid().is_some()).count();
        Ok(peers.list().len() + 1 == SENTINELS && linked + 1 == running)
    }
}

/// Returns a field of a reply that lists names and values alternately.
fn field(reply: &Reply, name: &str) -> String {
    let pairs = reply.list().chunks_exact(2);
    pairs.filter(|pair| pair[0].text() == name).map(|pair| pair[1].text()).collect()
}
