//! What leases would have done.

use serde::Serialize;

/// A replay on several nodes with leases.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct LeasedReport {
    /// The number of nodes.
    pub nodes: u16,
    /// How requests were spread over them.
    #[serde(rename = "seed")]
    pub spread: Spread,
    /// The maximum time between the charge of a chunk and its use, such as `1s`.
    pub span: String,
    /// The maximum share of what remains in one chunk, such as `1/200`.
    pub share: String,
    /// How many requests have to be admitted on a node within a span before they are leased.
    pub hot_after: u32,
    /// Whether sliding logs and counters are leased.
    pub sliding: bool,
    /// One entry for each policy, in the order of the policies.
    pub runs: Vec<LeasedRun>,
}

/// How requests are spread over nodes. As JSON, the seed, or `null`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Spread {
    /// One after another.
    #[default]
    InTurn,
    /// At random, by a seed.
    Seed(u64),
}

/// One policy with leases.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct LeasedRun {
    /// The policy as text.
    pub policy: String,
    /// Requests admitted.
    pub admitted: u64,
    /// Requests denied.
    pub denied: u64,
    /// The cost of the requests admitted.
    pub cost_admitted: u64,
    /// The cost of the requests denied.
    pub cost_denied: u64,
    /// Requests denied without leases.
    pub denied_without: u64,
    /// Requests denied that are admitted without leases.
    pub denied_too_early: u64,
    /// The cost of these.
    pub cost_denied_too_early: u64,
    /// Requests admitted that are denied without leases, as others before them were not admitted.
    pub admitted_instead: u64,
    /// Requests admitted from a chunk.
    pub from_chunks: u64,
    /// Calls to the store: of requests, for chunks, and to give back.
    pub store_calls: u64,
    /// Chunks granted.
    pub chunks: u64,
    /// Chunks that were asked for and not granted.
    pub chunks_not_granted: u64,
    /// The cost in all chunks granted.
    pub granted: u64,
    /// How much of it was given back.
    pub given_back: u64,
    /// How much of it was neither used nor given back.
    pub stranded: u64,
}

impl LeasedRun {
    /// Requests decided.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.admitted.saturating_add(self.denied)
    }
}
