//! Calculates the memory, the CPU time and the number of Redis nodes that a number of subjects
//! needs.
//!
//! The plan is computed from measurements on one machine, which `docs/scale.md` describes.

pub mod cost;
pub mod memory;
pub mod units;
mod write;

use std::time::Duration;

use tidegate_core::engine::Rule;
use tidegate_core::{Algorithm, Policy};

use memory::{Bytes, Entries, Names};
pub use write::write;

/// The percentage of the memory of a node that is used for states. The rest is for fragmentation,
/// for connections, and for the pages that a snapshot copies.
pub const MEMORY_PERCENT: u64 = 70;

/// The maximum percentage of a core that a plan lets a Redis server use for decisions. Above this
/// percentage, calls wait noticeably longer.
pub const CPU_PERCENT: u64 = 60;

/// The maximum number of nodes that is recommended for a Redis Cluster.
pub const MOST_NODES: u64 = 1_000;

/// The number of slots of a cluster. Each slot is on one node.
pub const SLOTS: u64 = 16_384;

/// The input of a plan.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// The policies. Each request is charged to all of them.
    pub policies: Vec<Policy>,
    /// The number of subjects that have a state at one time.
    pub subjects: u64,
    /// The number of requests per hour.
    pub rate_per_hour: u64,
    /// The memory of a node, in bytes.
    pub node_memory: u64,
    /// The maximum number of decisions per second of a node. If it is `None`, the plan calculates
    /// it from the measured CPU time of the policies.
    pub node_decisions: Option<u64>,
    /// Whether callers share batches.
    pub is_coalesced: bool,
    /// The percentage of the requests that leases or the deny cache decide without a call to a
    /// node; at most 99.
    pub local_percent: u8,
    /// The number of replicas of each primary.
    pub replicas: u64,
    /// The parts of the keys.
    pub names: Names,
    /// The number of records in the sliding log of a subject. If it is `None`, the log is full.
    pub log_records: Option<u64>,
    /// The number of holders of a subject at one time, for policies of slots. If it is `None`, all
    /// slots are in use.
    pub holders: Option<u64>,
    /// The number of open grants of a subject, for quotas and credits.
    pub grants: u64,
}

/// The needs of one policy.
#[derive(Debug, Clone)]
pub struct PerPolicy {
    /// The policy.
    pub policy: Policy,
    /// The bytes of a state.
    pub bytes: Bytes,
    /// The maximum bytes of the state of a subject that is always busy, or `None` if they cannot
    /// exceed `bytes`.
    pub busy: Option<Bytes>,
    /// The bytes of the epoch of a state, if the state has one.
    pub epoch: Option<Bytes>,
    /// The bytes of all states of the policy, on all primaries together.
    pub memory: u128,
    /// The CPU time of a decision, in hundredths of a microsecond.
    pub cost: u64,
    /// The maximum lifetime of a key after the last request of its subject.
    pub lives: Duration,
}

/// The needs of the holds, if a policy is of slots. Then each request is a hold.
#[derive(Debug, Clone)]
pub struct Holds {
    /// The maximum number of holders at one time.
    pub holders: u128,
    /// The shortest lease. A holder renews its hold at a third of this time.
    pub lease: Duration,
    /// The bytes of the record of a hold.
    pub record: Bytes,
    /// The bytes of the record of a hold after its settlement.
    pub settled: Bytes,
    /// The bytes of all records: one for each holder, and one for each request within two leases,
    /// because a store remembers a settled hold for at most that long.
    pub memory: u128,
    /// The number of renewals per hour.
    pub renewals_per_hour: u128,
    /// The CPU time of a renewal, in hundredths of a microsecond.
    pub renewal_cost: u64,
}

/// The result of a plan.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The input.
    pub wanted: Wanted,
    /// The needs of each policy.
    pub policies: Vec<PerPolicy>,
    /// The needs of the holds, or `None` if no policy is of slots.
    pub holds: Option<Holds>,
    /// The bytes of all states and records, on all primaries together.
    pub memory: u128,
    /// The part of the memory of a node that states can use, in bytes.
    pub memory_per_node: u128,
    /// The number of primaries that the memory requires.
    pub by_memory: u128,
    /// The CPU time of a request that a node decides, in hundredths of a microsecond.
    pub cost: u64,
    /// The maximum number of requests per second for each node. It includes the requests that
    /// leases or the deny cache decide without a call to the node.
    pub requests_per_node: u64,
    /// The number of requests per hour with the CPU time of the renewals.
    pub renewals: u128,
    /// The number of primaries that the CPU requires.
    pub by_cpu: u128,
}

impl Plan {
    /// Calculates the plan.
    #[must_use]
    pub fn new(wanted: Wanted) -> Self {
        let alone = Self::with_entries(wanted.clone(), false);
        // If one node is not sufficient, the plan is for a cluster, in which the entry of a key
        // takes more memory.
        if alone.primaries() > 1 { Self::with_entries(wanted, true) } else { alone }
    }

    fn with_entries(wanted: Wanted, in_cluster: bool) -> Self {
        let holds = Holds::new(&wanted, in_cluster);
        let per_policy = |policy: &Policy| {
            let names = &wanted.names;
            let is_held = holds.is_some();
            let has_holds = is_held && policy.stores_holds();
            let entries = Entries {
                log_records: wanted.log_records,
                holds: has_holds.then(|| holders(&wanted)),
                grants: wanted.grants,
                members: wanted.subjects,
            };
            let bytes = memory::state_bytes(policy, names, entries, in_cluster);
            let epoch =
                (is_held && !has_holds).then(|| memory::epoch_bytes(policy, names, in_cluster));
            let total = bytes.total() + epoch.map_or(0, |epoch| epoch.total());
            PerPolicy {
                policy: policy.clone(),
                bytes,
                busy: memory::busy_log(policy, names, entries, in_cluster),
                epoch,
                memory: u128::from(total) * states(policy, &wanted),
                cost: cost::decision(policy, wanted.policies.len() == 1, wanted.grants),
                lives: lives(policy),
            }
        };
        let policies: Vec<_> = wanted.policies.iter().map(per_policy).collect();
        let records = holds.as_ref().map_or(0, |holds| holds.memory);
        let memory = policies.iter().map(|policy| policy.memory).sum::<u128>() + records;
        let memory_per_node = u128::from(wanted.node_memory) * u128::from(MEMORY_PERCENT) / 100;
        let single = policies.iter().map(|policy| policy.cost).sum::<u64>();
        let percent = if wanted.is_coalesced { cost::PERCENT_IN_BATCHES } else { 100 };
        let cost = (single * percent / 100).max(1);
        // A hold and its settlement are two decisions.
        let calls = if holds.is_some() { 2 } else { 1 };
        let decisions = match wanted.node_decisions {
            Some(decisions) => (decisions / calls).max(1),
            None => 100_000_000 * CPU_PERCENT / 100 / cost,
        };
        let passed_percent = 100_u64.saturating_sub(wanted.local_percent.into()).max(1);
        let requests_per_node = decisions.saturating_mul(100).checked_div(passed_percent);
        let requests_per_node = requests_per_node.unwrap_or(decisions).max(1);
        let per_hour = u128::from(requests_per_node) * 3_600;
        let renewals = holds.as_ref().map_or(0, |holds| {
            let (renewal, request) = match wanted.node_decisions {
                Some(_) => (1, calls),
                None => (holds.renewal_cost, cost),
            };
            (holds.renewals_per_hour * u128::from(renewal)).div_ceil(request.into())
        });
        Self {
            memory,
            memory_per_node,
            by_memory: u128::div_ceil(memory, memory_per_node.max(1)).max(1),
            cost,
            requests_per_node,
            renewals,
            by_cpu: (u128::from(wanted.rate_per_hour) + renewals).div_ceil(per_hour).max(1),
            policies,
            holds,
            wanted,
        }
    }

    /// Returns the number of primaries.
    #[must_use]
    pub fn primaries(&self) -> u128 {
        self.by_memory.max(self.by_cpu)
    }

    /// Returns the number of nodes, including replicas.
    #[must_use]
    pub fn nodes(&self) -> u128 {
        self.primaries() * (1 + u128::from(self.wanted.replicas))
    }
}

impl Holds {
    fn new(wanted: &Wanted, in_cluster: bool) -> Option<Self> {
        let leases = wanted.policies.iter().filter_map(|policy| match policy.algorithm() {
            Algorithm::Concurrent(slots) => Some(slots.lease()),
            _ => None,
        });
        let (lease, first) = (leases.min()?, wanted.policies.first()?);
        let charges = u64::try_from(wanted.policies.len()).unwrap_or(u64::MAX);
        let record = |is_settled| {
            memory::record_bytes(first, charges, is_settled, &wanted.names, in_cluster)
        };
        let (record, settled) = (record(false), record(true));
        let holders = u128::from(wanted.subjects) * u128::from(holders(wanted));
        let in_two_leases = 2 * u128::from(wanted.rate_per_hour) * lease.as_micros();
        let settled_holds = in_two_leases.div_ceil(HOUR_MICROS);
        Some(Self {
            holders,
            lease,
            record,
            settled,
            memory: holders * u128::from(record.total())
                + settled_holds * u128::from(settled.total()),
            renewals_per_hour: (3 * HOUR_MICROS * holders).div_ceil(lease.as_micros().max(1)),
            renewal_cost: cost::renewal(wanted.policies.len() == 1),
        })
    }
}

const HOUR_MICROS: u128 = 3_600_000_000;

/// Returns the number of holders of a subject at one time. A hold takes slots of all policies of
/// slots, so the policy with the fewest slots determines the maximum.
fn holders(wanted: &Wanted) -> u64 {
    let slots = wanted.policies.iter().filter(|policy| policy.is_concurrent());
    let max = slots.map(Policy::limit).min().unwrap_or(0);
    wanted.holders.unwrap_or(max).min(max)
}

/// Returns the maximum number of states of a policy. If the shards of a policy split its limit,
/// each subject has a state in each shard.
fn states(policy: &Policy, wanted: &Wanted) -> u128 {
    let subjects = u128::from(wanted.subjects);
    let shares = u128::try_from(policy.shares().len().max(1)).unwrap_or(1);
    match policy.shards() {
        // The states belong to a tenant. The number of tenants is not known, so the plan assumes
        // one.
        _ if policy.is_per_tenant() => shares,
        Some(shards) if shards.split() => subjects * shares,
        _ => subjects,
    }
}

/// Returns the maximum lifetime of a key. A store sets a longer expiry than the state needs, so
/// that it does not have to write the expiry for each request. The expiry is longer by half for a
/// bucket, and by an eighth for a log. The state of slots is needed for two leases, because a
/// holder that has crashed can be settled for a lease after its lapse, and lives a quarter longer.
fn lives(policy: &Policy) -> Duration {
    let memory = policy.max_retention();
    match policy.rule() {
        Rule::TokenBucket(_) | Rule::IntervalBucket(_) => memory + memory / 2,
        Rule::SlidingLog(_) => memory + memory / 8,
        Rule::Concurrent(rule) => Duration::from_micros(rule.lease_micros() * 5 / 2),
        _ => memory,
    }
}
