//! The report about leases.

use serde::Serialize;

/// A replay on several nodes with leases.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct LeasedReport {
    /// The number of nodes.
    pub nodes: u16,
    /// The distribution of the requests over the nodes.
    #[serde(rename = "seed")]
    pub spread: Spread,
    /// The maximum time between the charge of a chunk and its use, such as `1s`.
    pub span: String,
    /// The maximum share of the remaining amount that the store grants in one chunk, such as
    /// `1/200`.
    pub share: String,
    /// The number of requests of a subject that a node must admit within a span before it leases
    /// chunks for this subject.
    pub hot_after: u32,
    /// Whether the nodes also lease sliding logs and sliding counters.
    pub sliding: bool,
    /// One entry for each policy, in the order of the policies.
    pub runs: Vec<LeasedRun>,
}

/// The distribution of requests over nodes. In JSON, it is the seed or `null`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Spread {
    /// The nodes get the requests in turn.
    #[default]
    InTurn,
    /// The nodes get the requests at random, from a seed.
    Seed(u64),
}

/// One policy with leases.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct LeasedRun {
    /// The policy as text.
    pub policy: String,
    /// The number of admitted requests.
    pub admitted: u64,
    /// The number of denied requests.
    pub denied: u64,
    /// The cost of the admitted requests.
    pub cost_admitted: u64,
    /// The cost of the denied requests.
    pub cost_denied: u64,
    /// The number of requests that the replay without leases denied.
    pub denied_without: u64,
    /// The number of requests that were denied with leases and admitted without leases.
    pub denied_too_early: u64,
    /// The cost of the requests that were denied with leases and admitted without leases.
    pub cost_denied_too_early: u64,
    /// The number of requests that were admitted with leases and denied without leases. With
    /// leases, they were admitted because earlier requests were denied too early.
    pub admitted_instead: u64,
    /// The number of requests that a node admitted from a chunk, without a call to the store.
    pub from_chunks: u64,
    /// The number of calls to the store: for requests, to fetch chunks, and to return chunks.
    pub store_calls: u64,
    /// The number of granted chunks.
    pub chunks: u64,
    /// The number of chunks that were requested and not granted.
    pub chunks_not_granted: u64,
    /// The cost of all granted chunks.
    pub granted: u64,
    /// The part of the granted cost that the nodes returned.
    pub given_back: u64,
    /// The part of the granted cost that the nodes neither used nor returned.
    pub stranded: u64,
}

impl LeasedRun {
    /// Returns the number of decided requests.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.admitted.saturating_add(self.denied)
    }
}
