//! Makes calls on one connection to each node. Measures the CPU time of the nodes and of the
//! client.

use std::sync::Arc;
use std::time::Duration;

use tidegate_cluster::{Call, Charge, ClusterStore, Policy, Store};
use tidegate_test_servers::Cluster;

use super::Options;
use super::scenario::{Scenario, Sites};
use crate::Outcome;
use crate::harness::{self, drive, nanos, thread_time};

/// One measurement. Times are in nanoseconds per decision.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample {
    pub(crate) per_second: u64,
    pub(crate) client: u64,
    pub(crate) nodes: u64,
    /// The share of the busiest node in the CPU time of all nodes, in thousandths.
    pub(crate) busiest: u64,
}

/// Measures a scenario once, after a tenth of its calls to warm up.
pub(crate) async fn sample(
    sites: &Sites,
    scenario: Scenario,
    options: &Options,
) -> Outcome<Sample> {
    let site = sites.site(scenario.nodes())?;
    let (store, policy) = (site.store.clone(), scenario.policy()?);
    let load = Arc::new(Load { store, scenario, policy, tenants: options.tenants });
    let calls = options.decisions.div_ceil(scenario.batch());
    drive(&load, options.callers, 0..calls.div_ceil(10)).await?;

    let (nodes_before, client_before) = (cpu_times(&site.cluster).await?, thread_time());
    let run = drive(&load, options.callers, 0..calls).await?;
    let client = thread_time().saturating_sub(client_before);
    let nodes_after = cpu_times(&site.cluster).await?;

    let nodes = nodes_before.iter().zip(nodes_after);
    let nodes: Vec<Duration> = nodes.map(|(before, after)| after.saturating_sub(*before)).collect();
    let all = nanos(nodes.iter().sum())?;
    let busiest = nanos(nodes.into_iter().max().unwrap_or_default())?;
    let decisions = u64::try_from(calls * scenario.batch())?;
    Ok(Sample {
        per_second: decisions * 1_000_000_000 / nanos(run.took)?.max(1),
        client: nanos(client)? / decisions,
        nodes: all / decisions,
        busiest: busiest * 1_000 / all.max(1),
    })
}

struct Load {
    store: ClusterStore,
    scenario: Scenario,
    policy: Policy,
    tenants: usize,
}

impl harness::Load for Load {
    async fn call(&self, number: usize) -> Outcome<usize> {
        let batch = self.scenario.batch();
        let tenant = |place| self.scenario.tenant(number * batch + place, self.tenants);
        let tenants: Vec<String> = (0..batch).map(tenant).collect::<Outcome<_>>()?;
        let subjects: Vec<String> = (0..batch).map(|place| self.scenario.subject(place)).collect();
        let charge = |(tenant, subject)| [Charge::new(&self.policy, subject).tenant(tenant)];
        let charges: Vec<_> = tenants.iter().zip(&subjects).map(charge).collect();
        let decisions = match &charges[..] {
            [charge] => vec![self.store.decide(Call::acquire(charge)).await],
            charges => {
                let calls: Vec<_> = charges.iter().map(|charge| Call::acquire(charge)).collect();
                self.store.decide_many(&calls).await
            }
        };
        for decision in decisions {
            if decision?.is_denied() {
                return Err("a call was denied; the limit must never be reached".into());
            }
        }
        Ok(batch)
    }
}

async fn cpu_times(cluster: &Cluster) -> Outcome<Vec<Duration>> {
    let mut times = vec![];
    for node in cluster.nodes() {
        times.push(node.cpu_time().await?);
    }
    Ok(times)
}
