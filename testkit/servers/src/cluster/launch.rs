//! The start of the nodes of a Redis Cluster.

use std::fs;
use std::path::{Path, PathBuf};

use tokio::task::JoinSet;

use crate::binary::Binary;
use crate::error::Error;
use crate::port::free_port;
use crate::redis::{Redis, RedisBuilder, Refusal};

/// The maximum number of attempts to start the nodes. Each attempt uses other ports.
const ATTEMPTS: u8 = 10;

/// The difference between the port of a node and the port of its cluster bus, over which the nodes
/// talk to each other. Up to Redis 6.2, the difference is fixed.
const BUS_DISTANCE: u16 = 10_000;

/// The maximum port of a node if the port of its cluster bus is greater by 10,000. The port of the
/// bus must also be below the ports that the system assigns to outgoing connections.
const LAST_WITH_BUS: u16 = 21_999;

/// The node timeout while the cluster is being formed, in milliseconds. It is longer than a slow
/// machine needs to start a cluster.
const PATIENT: &str = "15000";

#[derive(Debug)]
pub(super) struct Address {
    pub(super) id: String,
    pub(super) port: u16,
    pub(super) bus: u16,
}

/// A launcher, which starts nodes with the same settings.
#[derive(Debug)]
pub(super) struct Launcher {
    node: RedisBuilder,
    binary: Binary,
    /// The node timeout after the cluster was formed, in milliseconds.
    node_timeout: String,
}

impl Launcher {
    pub(super) fn new(node: RedisBuilder) -> Result<Self, Error> {
        let binary = Binary::find(node.binary_path())?;
        let node_timeout = node.setting("cluster-node-timeout").unwrap_or("1000").to_owned();
        let mut node =
            node.config("cluster-enabled", "yes").config("cluster-node-timeout", PATIENT);
        if node.setting("cluster-require-full-coverage").is_none() {
            node = node.config("cluster-require-full-coverage", "no");
        }
        if node.is_encrypted() {
            node = node.config("tls-cluster", "yes");
        }
        if let Some(password) = node.default_password().map(str::to_owned) {
            node = node.config("masterauth", &password);
        }
        Ok(Self { node: node.home(in_memory()), binary, node_timeout })
    }

    /// Starts `count` nodes on free ports, and returns when all of them answer. The function
    /// `tables` returns the initial `nodes.conf` of each node.
    pub(super) async fn launch(
        &self,
        tables: impl Fn(&[Address]) -> Vec<String>,
        count: usize,
    ) -> Result<Vec<Redis>, Error> {
        for _ in 1..ATTEMPTS {
            match self.try_to_launch(&tables, count).await {
                // The `nodes.conf` of each node contains the ports of all nodes. So if one port is
                // taken, all ports are picked again.
                Err(Refusal::PortTaken(_)) => {}
                result => return result.map_err(Error::from),
            }
        }
        self.try_to_launch(&tables, count).await.map_err(Error::from)
    }

    async fn try_to_launch(
        &self,
        tables: impl Fn(&[Address]) -> Vec<String>,
        count: usize,
    ) -> Result<Vec<Redis>, Refusal> {
        let nodes = self.prepare(tables, count).map_err(Refusal::Other)?;
        run(nodes).await
    }

    /// Creates the directories and settings of nodes, without starting the nodes.
    fn prepare(
        &self,
        tables: impl Fn(&[Address]) -> Vec<String>,
        count: usize,
    ) -> Result<Vec<Redis>, Error> {
        let addresses = (0..count).map(|_| self.address()).collect::<Result<Vec<_>, _>>()?;
        let prepare = |(address, table): (&Address, String)| {
            let mut builder = self.node.clone().port(address.port);
            if self.can_choose_bus() {
                builder = builder.config("cluster-port", &address.bus.to_string());
            }
            let node = Redis::prepare(&builder, &self.binary)?;
            let path = node.dir().join("nodes.conf");
            fs::write(&path, table)
                .map_err(|error| Error::io(format!("cannot write {}", path.display()), error))?;
            Ok(node)
        };
        addresses.iter().zip(tables(&addresses)).map(prepare).collect()
    }

    pub(super) fn password(&self) -> Option<&str> {
        self.node.default_password()
    }

    fn address(&self) -> Result<Address, Error> {
        let id = random_id();
        if self.can_choose_bus() {
            return Ok(Address { id, port: free_port()?, bus: free_port()? });
        }
        loop {
            let port = free_port()?;
            if port <= LAST_WITH_BUS {
                return Ok(Address { id, port, bus: port + BUS_DISTANCE });
            }
        }
    }

    fn can_choose_bus(&self) -> bool {
        self.binary.version.numbers() >= [7, 0, 0]
    }

    /// Sets the final node timeout on the nodes of a formed cluster. The timeout applies
    /// immediately and after restarts.
    pub(super) async fn settle(&self, nodes: &[Redis]) -> Result<(), Error> {
        for node in nodes {
            node.command(&["CONFIG", "SET", "cluster-node-timeout", &self.node_timeout]).await?;
            node.command(&["CONFIG", "REWRITE"]).await?;
        }
        Ok(())
    }
}

/// Returns a directory whose files are kept in memory, if the system has one.
///
/// A node saves its table of nodes to disk whenever the table changes, and answers no other node
/// until the table is saved. A busy disk would delay each answer by a quarter of a second or more.
fn in_memory() -> Option<PathBuf> {
    let shared = Path::new("/dev/shm");
    tempfile::tempdir_in(shared).is_ok().then(|| shared.to_owned())
}

async fn run(nodes: Vec<Redis>) -> Result<Vec<Redis>, Refusal> {
    let mut starts = JoinSet::new();
    for (number, node) in nodes.into_iter().enumerate() {
        starts.spawn(async move { node.run().await.map(|()| (number, node)) });
    }
    let mut running = vec![];
    while let Some(started) = starts.join_next().await {
        let failed = |error| Refusal::Other(Error::new(format!("cannot start a node: {error}")));
        running.push(started.map_err(failed)??);
    }
    running.sort_by_key(|&(number, _)| number);
    Ok(running.into_iter().map(|(_, node)| node).collect())
}

pub(super) fn random_id() -> String {
    use std::hash::{BuildHasher, RandomState};
    let word = || RandomState::new().hash_one(());
    let mut id = format!("{:016x}{:016x}{:016x}", word(), word(), word());
    id.truncate(40);
    id
}
