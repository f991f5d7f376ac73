//! The settings of a Sentinel group: a primary, its replicas and three sentinels.

use std::time::Duration;

use super::group::{SENTINELS, Sentinel};
use super::settings::{self, Watched};
use crate::error::Error;
use crate::redis::{Redis, RedisBuilder};

/// The settings of a Sentinel group that a test will start.
#[derive(Debug, Clone)]
#[must_use]
pub struct SentinelBuilder {
    node: RedisBuilder,
    replicas: usize,
    name: String,
    down_after: Duration,
}

impl SentinelBuilder {
    pub(super) fn new() -> Self {
        Self {
            node: Redis::builder(),
            replicas: 2,
            name: "tidegate".to_owned(),
            down_after: Duration::from_millis(500),
        }
    }

    /// Sets the settings of the primary and the replicas.
    pub fn node(mut self, node: RedisBuilder) -> Self {
        self.node = node;
        self
    }

    /// Sets the number of replicas. The minimum is 1, and the default is 2.
    pub fn replicas(mut self, replicas: usize) -> Self {
        self.replicas = replicas;
        self
    }

    /// Sets the name under which the sentinels know the primary. The default is `tidegate`.
    pub fn master_name(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    /// Sets the time after which a primary that does not answer counts as dead. Default: 500 ms.
    pub fn down_after(mut self, down_after: Duration) -> Self {
        self.down_after = down_after;
        self
    }

    /// Starts the servers and sentinels. Returns when clients can connect and a failover would
    /// succeed.
    pub async fn start(self) -> Result<Sentinel, Error> {
        let password = self.node.default_password().map(str::to_owned);
        let node = match &password {
            // After a failover, any node can be a replica of any other node. A replica needs the
            // password of its primary, so all nodes get the password.
            Some(password) => self.node.clone().config("masterauth", password),
            None => self.node.clone(),
        };
        let primary = node.clone().start().await?;
        let mut nodes = vec![primary];
        for _ in 0..self.replicas.max(1) {
            let replica = node.clone().start().await?;
            replica.replica_of(&nodes[0]).await?;
            nodes.push(replica);
        }
        let mut sentinels = vec![];
        for _ in 0..SENTINELS {
            sentinels.push(self.node.clone().into_sentinel().start().await?);
        }
        let watched = Watched {
            name: &self.name,
            port: nodes[0].port(),
            down_after: self.down_after,
            password: password.as_deref(),
        };
        for sentinel in &sentinels {
            settings::watch(sentinel, &watched).await?;
        }
        let group = Sentinel { name: self.name, nodes, sentinels };
        group.settle().await?;
        for sentinel in &group.sentinels {
            settings::calm(sentinel).await?;
        }
        Ok(group)
    }
}

impl Sentinel {
    /// Starts a Sentinel group with the default settings: a primary with two replicas.
    pub async fn start() -> Result<Self, Error> {
        Self::builder().start().await
    }

    /// Returns a builder for a group with other settings.
    pub fn builder() -> SentinelBuilder {
        SentinelBuilder::new()
    }
}
