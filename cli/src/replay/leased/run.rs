//! Replays one policy on several nodes with leases.

use std::sync::Arc;

use tidegate_core::layers::{LeaseStats, LeasedStore};
use tidegate_core::no_semver::{seed_hashes, split_mix};
use tidegate_core::{Call, Charge, Policy, Store, StoreExt};
use tokio::runtime::{Builder, Runtime};
use tokio::task::yield_now;

use super::Leasing;
use super::shared_store::{CallCounter, SharedStore};
use super::time::LogTime;
use crate::replay::Error;
use crate::replay::stores::{memory, no_runtime};
use crate::replay::tally::would_admit;
use crate::report::LeasedRun;
use crate::trace::Record;

const HASH_SEED: u64 = 1;

/// The maximum number of chunks that the store remembers. It must be large, because the store also
/// remembers settled chunks for some time.
const MAX_CHUNKS: usize = 1 << 22;

pub(super) struct Run {
    nodes: Vec<LeasedStore<SharedStore, LogTime>>,
    store: SharedStore,
    time: LogTime,
    /// The runtime, with one thread and paused time.
    runtime: Runtime,
    spread: Spread,
    counts: LeasedRun,
}

/// The rule that selects the node of each request: in turn or at random.
#[derive(Debug)]
enum Spread {
    InTurn(usize),
    /// The state of a random number generator that returns the same numbers on every machine.
    AtRandom(u64),
}

impl Spread {
    fn next(&mut self, nodes: usize) -> usize {
        match self {
            Self::InTurn(next) => {
                let node = *next;
                *next = (node + 1) % nodes;
                node
            }
            Self::AtRandom(state) => {
                let scaled = u128::from(split_mix(state)) * nodes as u128;
                usize::try_from(scaled >> 64).unwrap_or(0)
            }
        }
    }
}

impl Run {
    /// Creates the nodes and their common store. Their clocks start at `time`.
    pub(super) fn new(settings: &Leasing, time: u64) -> Result<Self, Error> {
        let mut builder = Builder::new_current_thread();
        // With the maximum event interval, the runtime runs all ready tasks before it advances the
        // time.
        builder.enable_time().start_paused(true).event_interval(u32::MAX);
        let runtime = builder.build().map_err(no_runtime)?;
        let guard = runtime.enter();
        let time = LogTime::new(time);
        let store = Arc::new(memory(time.clone(), MAX_CHUNKS).layer(CallCounter::default()));
        seed_hashes(HASH_SEED);
        let node = |_| store.clone().leased(settings.lease().clock(time.clone()));
        let nodes = (0..settings.nodes.max(1)).map(node).collect();
        let spread = match settings.seed {
            Some(seed) => Spread::AtRandom(seed),
            None => Spread::InTurn(0),
        };
        drop(guard);
        Ok(Self { nodes, store, time, runtime, spread, counts: LeasedRun::default() })
    }

    pub(super) fn decide(
        &mut self,
        policy: &Policy,
        record: Record,
        subject: &[u8],
        without: bool,
    ) -> Result<(), Error> {
        let node = &self.nodes[self.spread.next(self.nodes.len())];
        let charge = [Charge::new(policy, subject).cost(record.cost)];
        let decision = self.runtime.block_on(async {
            self.time.move_to(record.time).await;
            let decision = node.decide(Call::acquire(&charge)).await;
            // The store answers immediately. So if this task yields once, all tasks that the
            // decision started run to their end.
            yield_now().await;
            decision
        })?;
        let counts = &mut self.counts;
        let admitted = would_admit(&decision);
        if admitted {
            counts.admitted += 1;
            counts.cost_admitted = counts.cost_admitted.saturating_add(record.cost);
        } else {
            counts.denied += 1;
            counts.cost_denied = counts.cost_denied.saturating_add(record.cost);
        }
        match (without, admitted) {
            (true, false) => {
                counts.denied_too_early += 1;
                counts.cost_denied_too_early =
                    counts.cost_denied_too_early.saturating_add(record.cost);
            }
            (false, true) => counts.admitted_instead += 1,
            (true, true) | (false, false) => {}
        }
        counts.denied_without += u64::from(!without);
        Ok(())
    }

    /// Closes all nodes, which return the unused parts of their chunks to the store. Then returns
    /// the report.
    pub(super) fn finish(&self, report: LeasedRun) -> LeasedRun {
        self.runtime.block_on(async {
            for node in &self.nodes {
                node.close().await;
            }
        });
        let stats: Vec<LeaseStats> = self.nodes.iter().map(LeasedStore::stats).collect();
        let sum = |of: fn(&LeaseStats) -> u64| stats.iter().map(of).fold(0, u64::saturating_add);
        LeasedRun {
            policy: report.policy,
            store_calls: self.store.as_layer().calls(),
            from_chunks: sum(LeaseStats::local),
            chunks: sum(LeaseStats::chunks),
            chunks_not_granted: sum(LeaseStats::chunks_not_granted),
            granted: sum(LeaseStats::granted),
            given_back: sum(LeaseStats::given_back),
            stranded: sum(LeaseStats::stranded),
            ..self.counts.clone()
        }
    }
}

impl std::fmt::Debug for Run {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Run")
            .field("nodes", &self.nodes.len())
            .field("counts", &self.counts)
            .finish_non_exhaustive()
    }
}
