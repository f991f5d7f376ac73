//! The servers for the rows of the matrix (combinations of layers, store and fault), and the stores
//! that connect to these servers.

use std::time::Duration;

use tidegate_cluster::{ClusterStore, Store};
use tidegate_redis::RedisStore;
use tidegate_test_servers::{Cluster, Proxy, Redis, Sentinel, eventually};

/// The kind of store under test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Backend {
    Redis,
    Sentinel,
    Cluster,
}

/// The servers for some rows of the matrix. The store under test reaches one of the servers through
/// a proxy.
pub(crate) struct Place {
    servers: Servers,
    pub(crate) proxy: Proxy,
    /// The tenant of the calls. In a cluster, the node behind the proxy serves the slot of this
    /// tenant.
    pub(crate) tenant: String,
    /// A second tenant on another node, if the store is a cluster.
    pub(crate) other_tenant: Option<String>,
}

enum Servers {
    Redis(Redis),
    Sentinel(Sentinel),
    Cluster(Cluster),
}

/// The name of the Sentinel group whose primary is the proxy.
const GROUP: &str = "behind-the-proxy";

const PATIENCE: Duration = Duration::from_secs(30);

impl Place {
    pub(crate) async fn start(backend: Backend) -> Self {
        let servers = match backend {
            Backend::Redis => Servers::Redis(Redis::start().await.unwrap()),
            Backend::Sentinel => {
                Servers::Sentinel(Sentinel::builder().replicas(1).start().await.unwrap())
            }
            Backend::Cluster => {
                // The timeout is long, so that the other nodes do not react to a temporary fault of
                // the node behind the proxy.
                let cluster = Cluster::builder().config("cluster-node-timeout", "5000");
                Servers::Cluster(cluster.start().await.unwrap())
            }
        };
        let proxy = Proxy::start(servers.node().port()).await.unwrap();
        let (tenant, other_tenant) = match &servers {
            Servers::Cluster(cluster) => {
                (tenant_at(cluster, 0).await, Some(tenant_at(cluster, 1).await))
            }
            _ => ("t".to_owned(), None),
        };
        let place = Self { servers, proxy, tenant, other_tenant };
        // With an append-only file, a server that is killed and restarted still has all writes that
        // it has acknowledged.
        place.set("appendonly", "yes").await;
        place.set("appendfsync", "no").await;
        place.lead_through_the_proxy().await;
        place.node().command(&["CONFIG", "REWRITE"]).await.unwrap();
        place
    }

    async fn set(&self, name: &str, value: &str) {
        self.node().command(&["CONFIG", "SET", name, value]).await.unwrap();
    }

    /// Makes the Sentinels or the cluster nodes announce the address of the proxy instead of the
    /// address of the server.
    async fn lead_through_the_proxy(&self) {
        let port = self.proxy.port().to_string();
        match &self.servers {
            Servers::Redis(_) => {}
            Servers::Sentinel(group) => {
                // The replica is killed, so that the Sentinels do not fail over to it. Then each
                // Sentinel removes the original group, and monitors the proxy as the primary of a
                // new group.
                group.nodes()[1].kill().await.unwrap();
                for sentinel in group.sentinels() {
                    let remove = ["SENTINEL", "REMOVE", group.master_name()];
                    sentinel.command(&remove).await.unwrap();
                    let monitor = ["SENTINEL", "MONITOR", GROUP, "127.0.0.1", &port, "2"];
                    sentinel.command(&monitor).await.unwrap();
                    let patient = ["SENTINEL", "SET", GROUP, "down-after-milliseconds", "600000"];
                    sentinel.command(&patient).await.unwrap();
                }
            }
            Servers::Cluster(cluster) => {
                self.set("cluster-announce-port", &port).await;
                eventually(PATIENCE, "the nodes to name the proxy", async || {
                    for node in cluster.nodes() {
                        let slots = node.command(&["CLUSTER", "NODES"]).await.unwrap().text();
                        if !slots.contains(&format!(":{port}@")) {
                            return None;
                        }
                    }
                    Some(())
                })
                .await
                .unwrap();
            }
        }
    }

    /// Returns the server behind the proxy.
    pub(crate) fn node(&self) -> &Redis {
        self.servers.node()
    }

    pub(crate) fn sentinels(&self) -> &[Redis] {
        match &self.servers {
            Servers::Sentinel(group) => group.sentinels(),
            _ => &[],
        }
    }

    /// Returns the number of connections that were made through the proxy.
    pub(crate) fn connections(&self) -> u64 {
        self.proxy.counts().connections
    }

    /// Returns a new store under test, which has not connected yet.
    pub(crate) fn store(&self, prefix: &str) -> Box<dyn Store> {
        match &self.servers {
            Servers::Redis(_) => {
                let builder = RedisStore::builder().url(self.proxy.url());
                Box::new(builder.prefix(prefix).build().unwrap())
            }
            Servers::Sentinel(group) => {
                let builder = RedisStore::builder().sentinel(group.sentinel_urls(), GROUP);
                Box::new(builder.prefix(prefix).build().unwrap())
            }
            Servers::Cluster(cluster) => {
                let others = cluster.nodes()[1..].iter().map(Redis::url);
                let builder =
                    ClusterStore::builder().urls([self.proxy.url()].into_iter().chain(others));
                Box::new(builder.prefix(prefix).build().unwrap())
            }
        }
    }

    /// Returns one store for each tenant. These stores read the states of the store under test, and
    /// do not connect through the proxy.
    pub(crate) fn observers(&self, prefix: &str) -> Vec<Box<dyn Store>> {
        let mut nodes = vec![self.node()];
        if let Servers::Cluster(cluster) = &self.servers {
            nodes.push(cluster.node(1));
        }
        let observer = |node: &Redis| -> Box<dyn Store> {
            let builder = RedisStore::builder().url(node.url()).prefix(prefix);
            let builder = builder.response_timeout(PATIENCE).connect_timeout(PATIENCE);
            Box::new(builder.build().unwrap())
        };
        nodes.into_iter().map(observer).collect()
    }

    /// Waits until the server accepts writes. A restarted node of a cluster rejects writes for some
    /// time.
    pub(crate) async fn until_it_writes(&self) {
        let key = format!("{{{}}}", self.tenant);
        eventually(PATIENCE, "the server to take writes", async || {
            let reply = self.node().command(&["SET", &key, "1"]).await.ok()?;
            (reply.text() == "OK").then_some(())
        })
        .await
        .unwrap();
    }
}

impl Servers {
    fn node(&self) -> &Redis {
        match self {
            Self::Redis(redis) => redis,
            Self::Sentinel(group) => &group.nodes()[0],
            Self::Cluster(cluster) => cluster.node(0),
        }
    }
}

async fn tenant_at(cluster: &Cluster, node: usize) -> String {
    let slots = cluster.slots_of(node).await.unwrap();
    let is_there = |tenant: &String| {
        let slot = Cluster::slot_of(tenant.as_bytes());
        slots.iter().any(|range| range.contains(&slot))
    };
    (0..).map(|number| format!("t{number}")).find(is_there).unwrap()
}
