//! A primary, its replicas, and the sentinels that watch them.

mod builder;
mod settings;

use std::time::Duration;

pub use builder::SentinelBuilder;

use super::{Error, Redis, Reply, eventually};

/// How long a group may take for anything.
const PATIENCE: Duration = Duration::from_secs(30);

/// How many sentinels there are.
const SENTINELS: usize = 3;

/// A primary, its replicas, and three sentinels, on 127.0.0.1. Dropping it kills them all.
///
/// ```no_run
/// use tidegate_testkit::servers::Sentinel;
///
/// # async fn run() {
/// let group = Sentinel::start().await.unwrap();
/// let dead = group.kill_primary().await.unwrap();
/// assert_ne!(group.primary_after(dead).await.unwrap(), dead);
/// # }
/// ```
#[derive(Debug)]
pub struct Sentinel {
    name: String,
    nodes: Vec<Redis>,
    sentinels: Vec<Redis>,
}

impl Sentinel {
    /// Starts a group with the usual settings: two replicas.
    ///
    /// # Errors
    /// As [`SentinelBuilder::start`].
    pub async fn start() -> Result<Self, Error> {
        Self::builder().start().await
    }

    /// Starts a group with other settings.
    pub fn builder() -> SentinelBuilder {
        SentinelBuilder::new()
    }

    /// What the sentinels call the primary.
    pub fn master_name(&self) -> &str {
        &self.name
    }

    /// Where the sentinels listen.
    pub fn sentinel_urls(&self) -> Vec<String> {
        self.sentinels.iter().map(Redis::url).collect()
    }

    /// The sentinels.
    pub fn sentinels(&self) -> &[Redis] {
        &self.sentinels
    }

    /// The primary and the replicas, whichever is which now.
    pub fn nodes(&self) -> &[Redis] {
        &self.nodes
    }

    /// The port of the primary, according to the first sentinel that answers.
    ///
    /// # Errors
    /// If none knows.
    pub async fn primary_port(&self) -> Result<u16, Error> {
        for sentinel in self.sentinels.iter().filter(|sentinel| sentinel.is_awake()) {
            if let Some(port) = self.primary_of(sentinel).await {
                return Ok(port);
            }
        }
        Err(Error::new(format!("no sentinel knows the primary of {:?}", self.name)))
    }

    /// The primary, as [`primary_port`](Self::primary_port) tells.
    ///
    /// # Errors
    /// If no sentinel knows it.
    pub async fn primary(&self) -> Result<&Redis, Error> {
        let port = self.primary_port().await?;
        let node = self.nodes.iter().find(|node| node.port() == port);
        node.ok_or_else(|| Error::new(format!("the primary at port {port} is none of ours")))
    }

    /// Has a replica promoted, as an operator would, and returns the port of the new primary when all
    /// sentinels know it and the old one has become a replica.
    ///
    /// # Errors
    /// If the sentinels do not do so in time.
    pub async fn failover(&self) -> Result<u16, Error> {
        let old = self.primary_port().await?;
        let sentinel = &self.sentinels[0];
        // It refuses as long as a failover is under way, and may give one up: then it is asked again.
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

    /// Kills the primary by SIGKILL, and returns its port. The sentinels notice later: see
    /// [`primary_after`](Self::primary_after).
    ///
    /// # Errors
    /// If no sentinel knows it, or it does not end.
    pub async fn kill_primary(&self) -> Result<u16, Error> {
        let primary = self.primary().await?;
        primary.kill().await?;
        Ok(primary.port())
    }

    /// Waits until another than `old` is the primary, says so itself, and all sentinels that run, and are
    /// not held, know it; returns its port.
    ///
    /// # Errors
    /// If that does not come to pass in time.
    pub async fn primary_after(&self, old: u16) -> Result<u16, Error> {
        eventually(PATIENCE, "another primary", async || {
            let port = self.agreed_port().await.filter(|&port| port != old)?;
            let node = self.nodes.iter().find(|node| node.port() == port)?;
            let role = node.command(&["ROLE"]).await.ok()?;
            (role.list().first()?.text() == "master").then_some(port)
        })
        .await
    }

    /// The port of the primary, if all sentinels that run, and are not held, name the same.
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

    /// Waits until all sentinels know each other and all running replicas, and all of these get what the
    /// primary writes.
    async fn settle(&self) -> Result<(), Error> {
        let what = "the sentinels to know each other and the replicas to follow";
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

/// A field of a reply that lists names and values by turns.
fn field(reply: &Reply, name: &str) -> String {
    let pairs = reply.list().chunks_exact(2);
    pairs.filter(|pair| pair[0].text() == name).map(|pair| pair[1].text()).collect()
}
