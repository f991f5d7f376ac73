//! What so many subjects take: memory, nodes, CPU.
//!
//! All of it is arithmetic on what was measured; `docs/scale.md` says on what, and how far it holds.

pub mod cost;
pub mod memory;
pub mod units;
mod write;

use std::time::Duration;

use tidegate_core::Policy;
use tidegate_core::engine::Rule;

use memory::{Bytes, Names};
pub use write::write;

/// Of the memory of a node, so much is for states, in percent: the rest is for what the allocator
/// leaves unused, connections, and the pages that a snapshot copies.
pub const MEMORY_PERCENT: u64 = 70;

/// Of a core, so much is for decisions, in percent: above that, waiting grows.
pub const CPU_PERCENT: u64 = 60;

/// The most nodes that a Redis Cluster is recommended to have.
pub const MOST_NODES: u64 = 1_000;

/// The slots of a cluster, each of which is on one node.
pub const SLOTS: u64 = 16_384;

/// What is to be planned for.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// The policies, all of which each request is charged to.
    pub policies: Vec<Policy>,
    /// Subjects with a state at one time.
    pub subjects: u64,
    /// Requests per hour.
    pub rate_per_hour: u64,
    /// Bytes of memory of a node.
    pub node_memory: u64,
    /// Decisions per second that a node makes at most; as measured, if not said.
    pub node_decisions: Option<u64>,
    /// Whether callers share batches.
    pub is_coalesced: bool,
    /// Of a hundred requests, those that are decided without a node. Less than 100.
    pub local_percent: u8,
    /// Replicas of each primary.
    pub replicas: u64,
    /// What keys are made of.
    pub names: Names,
    /// Records in the log of a subject; the most there may be, if not said.
    pub log_records: Option<u64>,
}

/// What one policy takes.
#[derive(Debug, Clone)]
pub struct PerPolicy {
    /// The policy.
    pub policy: Policy,
    /// Bytes of a state.
    pub bytes: Bytes,
    /// Bytes of the state of a subject that is busy all the time, where that may be more.
    pub busy: Option<Bytes>,
    /// Bytes of all states, on the primaries.
    pub memory: u128,
    /// CPU time of a decision, in hundredths of a microsecond.
    pub cost: u64,
    /// For how long a key may live after its subject's last request.
    pub lives: Duration,
}

/// What all of it takes.
#[derive(Debug, Clone)]
pub struct Plan {
    /// What it is for.
    pub wanted: Wanted,
    /// Policy by policy.
    pub policies: Vec<PerPolicy>,
    /// Bytes of all states, on the primaries.
    pub memory: u128,
    /// Bytes of a node that are for states.
    pub memory_per_node: u128,
    /// Primaries that the memory takes.
    pub by_memory: u128,
    /// CPU time of a request that a node decides on, in hundredths of a microsecond.
    pub cost: u64,
    /// Requests per second for each node, with those that are decided without it.
    pub requests_per_node: u64,
    /// Primaries that the CPU takes.
    pub by_cpu: u128,
}

impl Plan {
    /// Works it out.
    #[must_use]
    pub fn new(wanted: Wanted) -> Self {
        let alone = Self::with_entries(wanted.clone(), false);
        // In a cluster an entry takes more.
        if alone.primaries() > 1 { Self::with_entries(wanted, true) } else { alone }
    }

    fn with_entries(wanted: Wanted, in_cluster: bool) -> Self {
        let per_policy = |policy: &Policy| {
            let bytes = memory::of_state(policy, &wanted.names, wanted.log_records, in_cluster);
            PerPolicy {
                policy: policy.clone(),
                bytes,
                busy: memory::of_busy_log(policy, &wanted.names, wanted.log_records, in_cluster),
                memory: u128::from(bytes.total()) * states(policy, &wanted),
                cost: cost::of_decision(policy),
                lives: lives(policy),
            }
        };
        let policies: Vec<_> = wanted.policies.iter().map(per_policy).collect();
        let memory = policies.iter().map(|policy| policy.memory).sum();
        let memory_per_node = u128::from(wanted.node_memory) * u128::from(MEMORY_PERCENT) / 100;
        let single = policies.iter().map(|policy| policy.cost).sum::<u64>();
        let percent = if wanted.is_coalesced { cost::PERCENT_IN_BATCHES } else { 100 };
        let cost = (single * percent / 100).max(1);
        let decisions = wanted.node_decisions.unwrap_or(100_000_000 * CPU_PERCENT / 100 / cost);
        let passed_percent = 100_u64.saturating_sub(wanted.local_percent.into()).max(1);
        let requests_per_node = decisions.saturating_mul(100).checked_div(passed_percent);
        let requests_per_node = requests_per_node.unwrap_or(decisions).max(1);
        let per_hour = u128::from(requests_per_node) * 3_600;
        Self {
            memory,
            memory_per_node,
            by_memory: u128::div_ceil(memory, memory_per_node.max(1)).max(1),
            cost,
            requests_per_node,
            by_cpu: u128::from(wanted.rate_per_hour).div_ceil(per_hour).max(1),
            policies,
            wanted,
        }
    }

    /// Primaries that it takes.
    #[must_use]
    pub fn primaries(&self) -> u128 {
        self.by_memory.max(self.by_cpu)
    }

    /// Nodes, the replicas among them.
    #[must_use]
    pub fn nodes(&self) -> u128 {
        self.primaries() * (1 + u128::from(self.wanted.replicas))
    }
}

/// How many states there are at most: a subject's limit in shards has one in each.
fn states(policy: &Policy, wanted: &Wanted) -> u128 {
    let subjects = u128::from(wanted.subjects);
    let shares = u128::try_from(policy.shares().len().max(1)).unwrap_or(1);
    match policy.shards() {
        // The tenant's, for all of its subjects: of one tenant, as there is no telling how many.
        Some(_) if policy.is_per_tenant() => shares,
        Some(shards) if shards.split() => subjects * shares,
        _ => subjects,
    }
}

/// A state that is taken from again is given more time than it needs, so that its expiry need not be
/// written each time: a bucket half as much again, a log an eighth.
fn lives(policy: &Policy) -> Duration {
    let memory = policy.max_retention();
    match policy.rule() {
        Rule::TokenBucket(_) | Rule::IntervalBucket(_) => memory + memory / 2,
        Rule::SlidingLog(_) => memory + memory / 8,
        _ => memory,
    }
}
