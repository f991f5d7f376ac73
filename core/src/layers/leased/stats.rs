//! The public statistics of leases.

use std::fmt;
use std::sync::Arc;

use super::meter::{CostFate, HoldOutcome};
use super::table::LeaseTable;

/// A handle to the statistics of [leases](super::Lease).
#[derive(Clone)]
pub struct LeaseStats(pub(super) Arc<LeaseTable>);

impl LeaseStats {
    /// Returns the number of calls that were admitted from a chunk.
    #[must_use]
    pub fn local(&self) -> u64 {
        self.0.local()
    }

    /// Returns the number of acquires that were sent to the store.
    #[must_use]
    pub fn passed(&self) -> u64 {
        self.0.passed()
    }

    /// Returns the number of leases, including leases without a chunk.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns `true` if there are no leases.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of chunks that the store has granted.
    #[must_use]
    pub fn chunks(&self) -> u64 {
        self.0.meter.holds(HoldOutcome::Granted)
    }

    /// Returns the number of chunks that the store refused, or for which the store returned no
    /// answer.
    #[must_use]
    pub fn chunks_not_granted(&self) -> u64 {
        self.0.meter.holds(HoldOutcome::Refused) + self.0.meter.holds(HoldOutcome::Failed)
    }

    /// Returns the sum of the costs in all granted chunks.
    #[must_use]
    pub fn granted(&self) -> u64 {
        self.0.meter.costs(CostFate::Granted)
    }

    /// Returns the part of the granted cost that was returned to the store.
    #[must_use]
    pub fn given_back(&self) -> u64 {
        self.0.meter.costs(CostFate::GivenBack)
    }

    /// Returns the part of the granted cost that was neither used nor returned. This cost stays
    /// charged until the state recovers.
    #[must_use]
    pub fn stranded(&self) -> u64 {
        self.0.meter.costs(CostFate::Stranded)
    }
}

impl fmt::Debug for LeaseStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseStats")
            .field("local", &self.local())
            .field("passed", &self.passed())
            .field("len", &self.len())
            .field("chunks", &self.chunks())
            .field("chunks_not_granted", &self.chunks_not_granted())
            .field("granted", &self.granted())
            .field("given_back", &self.given_back())
            .field("stranded", &self.stranded())
            .finish()
    }
}
