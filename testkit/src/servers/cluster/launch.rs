//! Starting the nodes.

use std::fs;
use std::path::{Path, PathBuf};

use tokio::task::JoinSet;

use crate::servers::binary::Binary;
use crate::servers::redis::Refusal;
use crate::servers::{Error, Redis, RedisBuilder, free_port};

/// How often it is tried with other ports before it is taken for a fault.
const ATTEMPTS: u8 = 10;

/// Up to 6.2, a bus listens this far above its node; free ports end before outgoing connections begin.
const DISTANCE: u16 = 10_000;
const LAST_WITH_BUS: u16 = 21_999;

/// What a node that still looks for its place takes for a silence: longer than any start on a slow machine.
const PATIENT: &str = "15000";

/// Where a node is to be found, and what the others call it.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) id: String,
    pub(super) port: u16,
    pub(super) bus: u16,
}

/// Starts nodes, all with the same settings.
#[derive(Debug)]
pub(super) struct Launcher {
    node: RedisBuilder,
    binary: Binary,
    /// In milliseconds, as asked for.
    node_timeout: String,
}

impl Launcher {
    pub(super) fn new(node: RedisBuilder) -> Result<Self, Error> {
        let binary = Binary::find(node.binary_asked_for())?;
        let node_timeout = node.setting("cluster-node-timeout").unwrap_or("1000").to_owned();
        let mut node =
            node.config("cluster-enabled", "yes").config("cluster-node-timeout", PATIENT);
        if node.setting("cluster-require-full-coverage").is_none() {
            node = node.config("cluster-require-full-coverage", "no");
        }
        if node.is_encrypted() {
            node = node.config("tls-cluster", "yes");
        }
        if let Some(password) = node.password_of_default().map(str::to_owned) {
            node = node.config("masterauth", &password);
        }
        Ok(Self { node: node.home(in_memory()), binary, node_timeout })
    }

    /// Starts `count` nodes on free ports, each with what `tables` says that it knows of the cluster, and
    /// returns when all answer.
    pub(super) async fn launch(
        &self,
        tables: impl Fn(&[Place]) -> Vec<String>,
        count: usize,
    ) -> Result<Vec<Redis>, Error> {
        for _ in 1..ATTEMPTS {
            match self.try_to_launch(&tables, count).await {
                // Others know a node by its port: with one port, all are chosen anew.
                Err(Refusal::PortTaken(_)) => {}
                result => return result.map_err(Error::from),
            }
        }
        self.try_to_launch(&tables, count).await.map_err(Error::from)
    }

    async fn try_to_launch(
        &self,
        tables: impl Fn(&[Place]) -> Vec<String>,
        count: usize,
    ) -> Result<Vec<Redis>, Refusal> {
        let nodes = self.prepare(tables, count).map_err(Refusal::Other)?;
        run(nodes).await
    }

    /// Nodes that are ready to start.
    fn prepare(
        &self,
        tables: impl Fn(&[Place]) -> Vec<String>,
        count: usize,
    ) -> Result<Vec<Redis>, Error> {
        let places = (0..count).map(|_| self.place()).collect::<Result<Vec<_>, _>>()?;
        let prepare = |(place, table): (&Place, String)| {
            let mut builder = self.node.clone().port(place.port);
            if self.bus_is_free_to_choose() {
                builder = builder.config("cluster-port", &place.bus.to_string());
            }
            let node = Redis::prepare(&builder, &self.binary)?;
            let path = node.dir().join("nodes.conf");
            fs::write(&path, table)
                .map_err(|error| Error::io(format!("cannot write {}", path.display()), error))?;
            Ok(node)
        };
        places.iter().zip(tables(&places)).map(prepare).collect()
    }

    /// The password of the default user, if it has one.
    pub(super) fn password(&self) -> Option<&str> {
        self.node.password_of_default()
    }

    fn place(&self) -> Result<Place, Error> {
        let id = random_id();
        if self.bus_is_free_to_choose() {
            return Ok(Place { id, port: free_port()?, bus: free_port()? });
        }
        loop {
            let port = free_port()?;
            if port <= LAST_WITH_BUS {
                return Ok(Place { id, port, bus: port + DISTANCE });
            }
        }
    }

    fn bus_is_free_to_choose(&self) -> bool {
        self.binary.version.numbers() >= [7, 0, 0]
    }

    /// Ends the patience of nodes that have found their place, now and after a restart.
    pub(super) async fn settle(&self, nodes: &[Redis]) -> Result<(), Error> {
        for node in nodes {
            node.command(&["CONFIG", "SET", "cluster-node-timeout", &self.node_timeout]).await?;
            node.command(&["CONFIG", "REWRITE"]).await?;
        }
        Ok(())
    }
}

/// Where files are kept in memory, if there is such a place.
///
/// A node saves what it knows of the others whenever that changes, and replies to no node until it is on the
/// disk: a busy disk would make it late by a quarter of a second and more.
fn in_memory() -> Option<PathBuf> {
    let shared = Path::new("/dev/shm");
    tempfile::tempdir_in(shared).is_ok().then(|| shared.to_owned())
}

/// Runs all nodes at once.
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

/// A name that no other node has: 40 hexadecimal digits.
pub(super) fn random_id() -> String {
    use std::hash::{BuildHasher, RandomState};
    let word = || RandomState::new().hash_one(());
    let mut id = format!("{:016x}{:016x}{:016x}", word(), word(), word());
    id.truncate(40);
    id
}

#[cfg(test)]
mod tests {
    use std::cell::OnceCell;
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;
    use crate::servers::cluster::form::Plan;

    async fn start_although_another_process_takes(port: impl Fn(&Place) -> u16) {
        let launcher = Launcher::new(Redis::builder()).unwrap();
        let plan = Plan::new(2, 0);
        let faster = OnceCell::new();
        let tables = |places: &[Place]| {
            let taken = port(&places[1]);
            let _ = faster.get_or_init(|| TcpListener::bind((Ipv4Addr::LOCALHOST, taken)).unwrap());
            plan.tables(places)
        };
        let nodes = launcher.launch(tables, 2).await.unwrap();
        assert_eq!(nodes.len(), 2);
        let taken = faster.get().unwrap().local_addr().unwrap().port();
        assert!(nodes.iter().all(|node| node.is_awake() && node.port() != taken));
    }

    #[tokio::test]
    async fn a_port_taken_by_another_process_is_replaced() {
        start_although_another_process_takes(|place| place.port).await;
    }

    #[tokio::test]
    async fn a_port_of_the_bus_taken_by_another_process_is_replaced() {
        start_although_another_process_takes(|place| place.bus).await;
    }
}
