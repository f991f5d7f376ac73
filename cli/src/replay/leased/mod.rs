//! Replays requests on several nodes with leases, and compares them with a store without leases.
//!
//! Each node is a real [`LeasedStore`](tidegate_core::layers::LeasedStore). All nodes share one
//! store in memory. Clocks and timers are virtual: [`LogTime`] advances them to the time of each
//! record. If a timer of a lease fires before that time, its task runs at the time of the timer.
//! The store answers immediately, so the tasks of a request end before the next request.
//!
//! The hashes of the leases have a fixed seed, so that every replay of a log has the same result.

mod run;
mod shared_store;
mod time;

use tidegate_core::{Lease, Share, format_duration, parse_duration};

use std::time::Duration;

use self::run::Run;
use super::Error;
use crate::report::{LeasedReport, LeasedRun, Spread};
use crate::trace::Record;
use tidegate_core::Policy;

/// The settings of `--leased`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leasing {
    /// The number of nodes, at least 1.
    pub nodes: u16,
    /// The seed for spreading requests over the nodes at random. Without a seed, the nodes get the
    /// requests in turn.
    pub seed: Option<u64>,
    /// The maximum time between the charge of a chunk and its use.
    pub span: LeaseSpan,
    /// The maximum share of the remaining amount that the store grants in one chunk.
    pub share: Share,
    /// The number of requests of a subject that a node must admit within a span before it leases
    /// chunks for this subject.
    pub hot_after: u32,
    /// Whether the nodes also lease sliding logs and sliding counters.
    pub sliding: bool,
}

impl Leasing {
    /// Returns the configuration of each node.
    fn lease(&self) -> Lease {
        let lease = Lease::new().span(self.span.0).max_share(self.share);
        let lease = lease.hot_after(self.hot_after).max_leases(max_leases(self.nodes));
        if self.sliding { lease.sliding() } else { lease }
    }

    pub(super) fn report(&self, runs: Vec<LeasedRun>) -> LeasedReport {
        LeasedReport {
            nodes: self.nodes,
            spread: self.seed.map_or(Spread::InTurn, Spread::Seed),
            span: format_duration(self.span.0).to_string(),
            share: self.share.to_string(),
            hot_after: self.hot_after,
            sliding: self.sliding,
            runs,
        }
    }
}

/// The maximum number of leases of all nodes together. It bounds the memory, because each possible
/// lease takes 100 bytes in tables, even if it is unused.
const MAX_LEASES: usize = 1 << 18;

/// Returns the maximum number of leases of one node. With up to 64 nodes, it is 4,096, which is the
/// default of [`Lease`].
fn max_leases(nodes: u16) -> usize {
    (MAX_LEASES / usize::from(nodes.max(1))).min(4_096)
}

/// The span of a lease, from [`Lease::MIN_SPAN`] to [`Lease::MAX_SPAN`].
///
/// ```
/// use tidegate::replay::LeaseSpan;
///
/// assert!("250ms".parse::<LeaseSpan>().is_ok());
/// assert_eq!("2h".parse::<LeaseSpan>().unwrap_err(), "2h is above 1h, the maximum");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseSpan(Duration);

impl LeaseSpan {
    /// Returns the span as a duration.
    #[must_use]
    pub fn duration(self) -> Duration {
        self.0
    }
}

impl std::str::FromStr for LeaseSpan {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let span = parse_duration(text).map_err(|error| error.to_string())?;
        let (min, max) = (Lease::MIN_SPAN, Lease::MAX_SPAN);
        if span < min {
            return Err(format!("{text} is below {}, the minimum", format_duration(min)));
        }
        if span > max {
            return Err(format!("{text} is above {}, the maximum", format_duration(max)));
        }
        Ok(Self(span))
    }
}

/// The replay of one policy with leases. Its clock starts at the time of the first record.
#[derive(Debug)]
pub(super) struct Leased {
    settings: Leasing,
    run: Option<Run>,
}

impl Leased {
    pub(super) fn new(settings: Leasing) -> Self {
        Self { settings, run: None }
    }

    /// Decides a record with leases. `without` is `true` if the replay without leases admitted the
    /// record.
    #[inline]
    pub(super) fn decide(
        &mut self,
        policy: &Policy,
        record: Record,
        subject: &[u8],
        without: bool,
    ) -> Result<(), Error> {
        let run = match &mut self.run {
            Some(run) => run,
            none => none.insert(Run::new(&self.settings, record.time)?),
        };
        run.decide(policy, record, subject, without)
    }

    pub(super) fn restart(&mut self) {
        self.run = None;
    }

    /// Ends the leases, and returns their report.
    pub(super) fn report(&self, policy: &Policy) -> LeasedRun {
        let report = LeasedRun { policy: policy.to_string(), ..LeasedRun::default() };
        self.run.as_ref().map_or(report.clone(), |run| run.finish(report))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_of_all_nodes_are_bounded() {
        assert_eq!([0, 1, 64].map(max_leases), [4_096; 3]);
        assert_eq!([65, 1_000].map(max_leases), [4_032, 262]);
    }
}
