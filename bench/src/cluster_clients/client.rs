//! The clients that are compared.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use redis::{AsyncConnectionConfig, Cmd, RedisError, RedisResult};
use tidegate_test_servers::Cluster;

use crate::Outcome;

#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    /// The cluster connection of the crate `redis` with its default settings: a call and its up to
    /// 16 retries have one response timeout.
    Cluster,
    /// The cluster connection of the crate `redis`, with this timeout for a call and its retries
    /// together.
    ClusterWithTime(Duration),
    /// The cluster connection without retries.
    ClusterWithoutRetries,
    /// One connection to each node, without the crate's cluster connection.
    PerNode,
}

impl Kind {
    pub(super) const ALL: [Self; 4] = [
        Self::Cluster,
        Self::ClusterWithTime(Duration::from_secs(3)),
        Self::ClusterWithoutRetries,
        Self::PerNode,
    ];

    /// Connects to a healthy cluster.
    pub(super) async fn connect(self, cluster: &Cluster, timeout: Duration) -> Outcome<Client> {
        let builder = ClusterClient::builder(cluster.urls());
        let builder = builder.connection_timeout(timeout).response_timeout(timeout);
        let builder = match self {
            Self::Cluster => builder,
            Self::ClusterWithTime(overall) => builder.overall_response_timeout(Some(overall)),
            Self::ClusterWithoutRetries => builder.retries(0),
            Self::PerNode => return PerNode::connect(cluster, timeout).await,
        };
        Ok(Client::Cluster(builder.build()?.get_async_connection().await?))
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cluster => f.write_str("cluster connection"),
            Self::ClusterWithTime(time) => write!(f, "the same, {time:?} for all tries"),
            Self::ClusterWithoutRetries => f.write_str("the same, no retries"),
            Self::PerNode => f.write_str("connection per node"),
        }
    }
}

/// A client that many callers share.
#[derive(Clone)]
pub(super) enum Client {
    Cluster(ClusterConnection),
    PerNode(Arc<PerNode>),
}

impl Client {
    pub(super) async fn increment(&self, key: &str) -> RedisResult<u64> {
        let mut command = redis::cmd("INCR");
        command.arg(key);
        match self {
            Self::Cluster(connection) => command.query_async(&mut connection.clone()).await,
            Self::PerNode(nodes) => nodes.send(key, &command).await,
        }
    }
}

/// The connections by the address of the node. `slots` has the address of the node of each slot.
pub(super) struct PerNode {
    connections: HashMap<String, MultiplexedConnection>,
    slots: Vec<String>,
}

impl PerNode {
    async fn connect(cluster: &Cluster, timeout: Duration) -> Outcome<Client> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(timeout))
            .set_response_timeout(Some(timeout));
        let mut connections = HashMap::new();
        let mut slots = vec![String::new(); 16_384];
        for (number, node) in cluster.nodes().iter().enumerate() {
            let address = format!("127.0.0.1:{}", node.port());
            for slot in cluster.slots_of(number).await?.into_iter().flatten() {
                address.clone_into(&mut slots[usize::from(slot)]);
            }
            let client = redis::Client::open(node.url())?;
            let connection = client.get_multiplexed_async_connection_with_config(&config).await?;
            connections.insert(address, connection);
        }
        Ok(Client::PerNode(Arc::new(Self { connections, slots })))
    }

    /// Sends a command to the node of its slot. If the node answers with a redirection, sends the
    /// command to the node that the redirection names.
    async fn send(&self, key: &str, command: &Cmd) -> RedisResult<u64> {
        let slot = Cluster::slot_of(key.as_bytes());
        let node = &self.slots[usize::from(slot)];
        let answer = command.query_async(&mut self.connection(node)?).await;
        let Err(error) = &answer else { return answer };
        let Some((other, _)) = error.redirect_node() else { return answer };
        let mut asking = redis::pipe();
        asking.cmd("ASKING").ignore().add_command(command.clone());
        asking.query_async(&mut self.connection(other)?).await.map(|(value,)| value)
    }

    fn connection(&self, node: &str) -> RedisResult<MultiplexedConnection> {
        let unknown = || RedisError::from((redis::ErrorKind::Client, "no such node"));
        self.connections.get(node).cloned().ok_or_else(unknown)
    }
}
