//! Callers on one connection to each node, and what the nodes and the client spend on them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use tidegate_cluster::{Call, Charge, ClusterStore, Policy, Store};
use tidegate_test_servers::Cluster;
use tokio::task::JoinSet;

use super::Options;
use super::scenario::{Scenario, Sites};
use crate::Outcome;

/// One measurement. Times are nanoseconds for each decision.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample {
    pub(crate) per_second: u64,
    pub(crate) client: u64,
    /// Of all nodes together.
    pub(crate) nodes: u64,
    /// Thousandths of that which the busiest node takes.
    pub(crate) busiest: u64,
}

/// Measures one scenario once, after a tenth of it to warm up.
pub(crate) async fn sample(
    sites: &Sites,
    scenario: Scenario,
    options: &Options,
) -> Outcome<Sample> {
    let site = sites.of(scenario.nodes())?;
    let load = Load { scenario, policy: scenario.policy()?, tenants: options.tenants };
    let load = Arc::new(load);
    let calls = options.decisions.div_ceil(scenario.batch());
    drive(&site.store, &load, options.callers, calls.div_ceil(10)).await?;

    let nodes_before = cpu_times(&site.cluster).await?;
    let (client_before, started) = (own_cpu_time()?, Instant::now());
    drive(&site.store, &load, options.callers, calls).await?;
    let (took, client) = (started.elapsed(), own_cpu_time()?.saturating_sub(client_before));
    let nodes_after = cpu_times(&site.cluster).await?;

    let spent = nodes_before.iter().zip(nodes_after);
    let nodes: Vec<Duration> = spent.map(|(before, after)| after.saturating_sub(*before)).collect();
    let all: Duration = nodes.iter().sum();
    let busiest = nodes.into_iter().max().unwrap_or_default();
    let decisions = u128::try_from(calls * scenario.batch())?;
    let part = |part: u128, whole: u128| Outcome::Ok(u64::try_from(part / whole.max(1))?);
    Ok(Sample {
        per_second: part(decisions * 1_000_000_000, took.as_nanos())?,
        client: part(client.as_nanos(), decisions)?,
        nodes: part(all.as_nanos(), decisions)?,
        busiest: part(busiest.as_nanos() * 1_000, all.as_nanos())?,
    })
}

struct Load {
    scenario: Scenario,
    policy: Policy,
    tenants: usize,
}

/// Makes so many calls, each caller waiting for its answer before its next call.
async fn drive(
    store: &ClusterStore,
    load: &Arc<Load>,
    callers: usize,
    calls: usize,
) -> Outcome<()> {
    let next = Arc::new(AtomicUsize::new(0));
    let mut tasks = JoinSet::new();
    for _ in 0..callers {
        let (store, load, next) = (store.clone(), Arc::clone(load), Arc::clone(&next));
        tasks.spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= calls {
                    return Outcome::Ok(());
                }
                load.call(&store, number).await?;
            }
        });
    }
    while let Some(task) = tasks.join_next().await {
        task??;
    }
    Ok(())
}

impl Load {
    async fn call(&self, store: &ClusterStore, number: usize) -> Outcome<()> {
        let batch = self.scenario.batch();
        let tenant = |place| self.scenario.tenant(number * batch + place, self.tenants);
        let tenants: Vec<String> = (0..batch).map(tenant).collect::<Outcome<_>>()?;
        let subjects: Vec<String> = (0..batch).map(|place| self.scenario.subject(place)).collect();
        let charge = |(tenant, subject)| [Charge::new(&self.policy, subject).tenant(tenant)];
        let charges: Vec<_> = tenants.iter().zip(&subjects).map(charge).collect();
        let decisions = match &charges[..] {
            [charge] => vec![store.decide(Call::acquire(charge)).await],
            charges => {
                let calls: Vec<_> = charges.iter().map(|charge| Call::acquire(charge)).collect();
                store.decide_many(&calls).await
            }
        };
        for decision in decisions {
            // Figures of other answers than they are said to be of would mislead.
            if decision?.is_denied() {
                return Err("a limit that cannot be reached has denied".into());
            }
        }
        Ok(())
    }
}

async fn cpu_times(cluster: &Cluster) -> Outcome<Vec<Duration>> {
    let mut times = vec![];
    for node in cluster.nodes() {
        times.push(node.cpu_time().await?);
    }
    Ok(times)
}

/// What this thread, which is the whole client, has had of a processor.
fn own_cpu_time() -> Outcome<Duration> {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Ok(Duration::new(u64::try_from(time.tv_sec)?, u32::try_from(time.tv_nsec)?))
}
