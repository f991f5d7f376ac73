//! How a group is set up.

use std::time::Duration;

use super::settings::{self, Watched};
use super::{SENTINELS, Sentinel};
use crate::servers::{Error, Redis, RedisBuilder};

/// The choices for a group that is about to start.
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

    /// How the primary and the replicas are set up.
    pub fn node(mut self, node: RedisBuilder) -> Self {
        self.node = node;
        self
    }

    /// How many replicas there are: at least 1, and 2 by default.
    pub fn replicas(mut self, replicas: usize) -> Self {
        self.replicas = replicas;
        self
    }

    /// What the sentinels call the primary: `tidegate` by default.
    pub fn master_name(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    /// How long a primary must be silent to be taken for dead: 500 ms by default.
    pub fn down_after(mut self, down_after: Duration) -> Self {
        self.down_after = down_after;
        self
    }

    /// Starts all of it, and returns when clients may come and a failover would succeed.
    ///
    /// # Errors
    /// If a server does not start, or the group does not find itself.
    pub async fn start(self) -> Result<Sentinel, Error> {
        let password = self.node.password_of_default().map(str::to_owned);
        let node = match &password {
            // Each of them may be a replica of each other one day.
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
