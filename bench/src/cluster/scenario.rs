//! The scenarios: clusters, tenants and policies.

use std::fmt;
use std::time::Duration;

use tidegate_cluster::{ClusterStore, Policy};
use tidegate_test_servers::Cluster;

use crate::Outcome;
use crate::random::{random, zipf};

/// Clusters of one, two and three nodes.
pub(crate) struct Sites(Vec<Site>);

pub(crate) struct Site {
    pub(crate) cluster: Cluster,
    pub(crate) store: ClusterStore,
}

/// The response timeout, which is long enough for a busy machine.
const TIMEOUT: Duration = Duration::from_secs(30);

impl Sites {
    pub(crate) async fn start() -> Outcome<Self> {
        let mut sites = vec![];
        for nodes in 1..=MAX_NODES {
            let cluster = Cluster::builder().primaries(nodes).start().await?;
            let builder = ClusterStore::builder().urls(cluster.urls());
            let store = builder.response_timeout(TIMEOUT).build()?;
            sites.push(Site { cluster, store });
        }
        Ok(Self(sites))
    }

    pub(crate) fn site(&self, nodes: u16) -> Outcome<&Site> {
        let site = nodes.checked_sub(1).and_then(|place| self.0.get(usize::from(place)));
        site.ok_or_else(|| format!("there is no cluster of {nodes} nodes").into())
    }
}

const MAX_NODES: u16 = 3;

/// A row of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scenario {
    /// Many tenants on a cluster with `nodes` nodes.
    Tenants { nodes: u16, drawn: Drawn, batch: usize },
    /// One tenant with one limit in `shards` shards.
    Hot { shards: u32 },
}

/// The distribution of requests over tenants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Drawn {
    /// Each tenant has the same number of requests.
    Even,
    /// The n-th tenant has about one n-th of the requests of the first tenant.
    Zipf,
    /// All requests of a batch have the same tenant and different subjects.
    Batch,
}

impl fmt::Display for Drawn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Even => "even",
            Self::Zipf => "Zipf",
            Self::Batch => "one per batch",
        })
    }
}

pub(crate) const BATCH: usize = 64;

impl Scenario {
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        let kinds =
            [(Drawn::Even, 1), (Drawn::Zipf, 1), (Drawn::Even, BATCH), (Drawn::Batch, BATCH)];
        let tenants = kinds.into_iter().flat_map(|(drawn, batch)| {
            (1..=MAX_NODES).map(move |nodes| Self::Tenants { nodes, drawn, batch })
        });
        tenants.chain([1, 4, 16].map(|shards| Self::Hot { shards }))
    }

    pub(crate) fn nodes(self) -> u16 {
        match self {
            Self::Tenants { nodes, .. } => nodes,
            Self::Hot { .. } => MAX_NODES,
        }
    }

    pub(crate) fn batch(self) -> usize {
        match self {
            Self::Tenants { batch, .. } => batch,
            Self::Hot { .. } => 1,
        }
    }

    /// Returns a policy whose limit is never reached, so that each decision charges.
    pub(crate) fn policy(self) -> Outcome<Policy> {
        let shards = match self {
            Self::Hot { shards } if shards > 1 => format!(" shards {shards}"),
            _ => String::new(),
        };
        Ok(format!("bench: token-bucket 1000000/1s burst 10000000{shards}").parse()?)
    }

    pub(crate) fn tenant(self, number: usize, tenants: usize) -> Outcome<String> {
        let (number, tenants) = (u64::try_from(number)?, u64::try_from(tenants)?);
        let tenant = match self {
            Self::Tenants { drawn: Drawn::Even, .. } => number % tenants,
            Self::Tenants { drawn: Drawn::Zipf, .. } => zipf(random(number), tenants),
            Self::Tenants { drawn: Drawn::Batch, batch, .. } => {
                number / u64::try_from(batch)? % tenants
            }
            Self::Hot { .. } => 0,
        };
        Ok(format!("tenant-{tenant:08}"))
    }

    pub(crate) fn subject(self, place: usize) -> String {
        match self {
            Self::Tenants { drawn: Drawn::Batch, .. } => format!("subject-{place:02}"),
            _ => "all".to_owned(),
        }
    }
}
