//! The settings of a Redis Cluster.

use super::form::{self, Plan};
use super::launch::Launcher;
use super::nodes::Cluster;
use crate::error::Error;
use crate::redis::{Redis, RedisBuilder};

/// The settings of a Redis Cluster that a test will start.
///
/// ```no_run
/// use tidegate_test_servers::Cluster;
///
/// # async fn start() {
/// let cluster =
///     Cluster::builder().replicas(1).config("cluster-node-timeout", "500").start().await.unwrap();
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct ClusterBuilder {
    node: RedisBuilder,
    primaries: u16,
    replicas: u16,
}

impl ClusterBuilder {
    pub(super) fn new() -> Self {
        Self { node: Redis::builder(), primaries: 3, replicas: 0 }
    }

    /// Sets the settings of each node.
    ///
    /// Two settings of a test node differ from the defaults of Redis. A node counts as dead after 1
    /// s without an answer (`cluster-node-timeout`). If some slots are not served, all other slots
    /// are still served (`cluster-require-full-coverage`).
    pub fn node(mut self, node: RedisBuilder) -> Self {
        self.node = node;
        self
    }

    /// Adds a line to the configuration file of each node, like [`RedisBuilder::config`].
    pub fn config(mut self, name: &str, value: &str) -> Self {
        self.node = self.node.config(name, value);
        self
    }

    /// Sets the number of primaries. The minimum is 1, and the default is 3. All primaries have
    /// equally many slots. With fewer than 3 primaries, the cluster does not replace a dead
    /// primary.
    pub fn primaries(mut self, primaries: u16) -> Self {
        self.primaries = primaries.max(1);
        self
    }

    /// Sets the number of replicas of each primary. The default is 0.
    pub fn replicas(mut self, replicas: u16) -> Self {
        self.replicas = replicas;
        self
    }

    /// Starts the nodes of the cluster. Returns when clients can connect and a failover would
    /// succeed.
    pub async fn start(self) -> Result<Cluster, Error> {
        let launcher = Launcher::new(self.node)?;
        let plan = Plan::new(self.primaries, self.replicas);
        let nodes = launcher.launch(|addresses| plan.tables(addresses), plan.nodes()).await?;
        let cluster = Cluster { launcher, nodes };
        form::promote(&cluster, &plan).await?;
        cluster.wait_until_ok().await?;
        Ok(cluster)
    }
}

impl Cluster {
    /// Starts a cluster with the default settings: three primaries without replicas.
    pub async fn start() -> Result<Self, Error> {
        Self::builder().start().await
    }

    /// Returns a builder for a cluster with other settings.
    pub fn builder() -> ClusterBuilder {
        ClusterBuilder::new()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::OnceCell;
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;
    use crate::cluster::launch::Address;

    async fn start_although_another_process_takes(port: impl Fn(&Address) -> u16) {
        let launcher = Launcher::new(Redis::builder()).unwrap();
        let plan = Plan::new(2, 0);
        let faster = OnceCell::new();
        let tables = |addresses: &[Address]| {
            let taken = port(&addresses[1]);
            let _ = faster.get_or_init(|| TcpListener::bind((Ipv4Addr::LOCALHOST, taken)).unwrap());
            plan.tables(addresses)
        };
        let nodes = launcher.launch(tables, 2).await.unwrap();
        assert_eq!(nodes.len(), 2);
        let taken = faster.get().unwrap().local_addr().unwrap().port();
        assert!(nodes.iter().all(|node| node.is_awake() && node.port() != taken));
    }

    #[tokio::test]
    async fn a_port_taken_by_another_process_is_replaced() {
        start_although_another_process_takes(|address| address.port).await;
    }

    #[tokio::test]
    async fn a_port_of_the_bus_taken_by_another_process_is_replaced() {
        start_although_another_process_takes(|address| address.bus).await;
    }
}
