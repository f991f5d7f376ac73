//! Statistics and, with the feature `metrics`, metrics of leases.
//!
//! The meter creates its metrics at the first call to the store. So the application must install
//! its metrics recorder before that call.

use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(feature = "metrics")]
use std::sync::OnceLock;

#[cfg(feature = "metrics")]
use crate::telemetry::names;

#[derive(Debug, Clone, Copy)]
pub(super) enum HoldOutcome {
    Granted,
    Refused,
    Failed,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum CostFate {
    Granted,
    GivenBack,
    Stranded,
}

#[derive(Debug, Default)]
pub(super) struct LeaseMeter {
    holds: [AtomicU64; 3],
    costs: [AtomicU64; 3],
    #[cfg(feature = "metrics")]
    counters: OnceLock<Box<Counters>>,
}

#[cfg(feature = "metrics")]
#[derive(Debug)]
struct Counters {
    calls: [metrics::Counter; 2],
    holds: [metrics::Counter; 3],
    costs: [metrics::Counter; 3],
}

impl LeaseMeter {
    /// Counts an acquire. If `is_local` is `true`, a chunk has admitted the acquire. If not, the
    /// acquire was sent to the store.
    #[inline]
    pub(super) fn call(&self, is_local: bool) {
        #[cfg(feature = "metrics")]
        self.counters().calls[usize::from(!is_local)].increment(1);
        #[cfg(not(feature = "metrics"))]
        let _ = is_local;
    }

    pub(super) fn hold(&self, outcome: HoldOutcome) {
        self.holds[outcome as usize].fetch_add(1, Ordering::Relaxed);
        #[cfg(feature = "metrics")]
        self.counters().holds[outcome as usize].increment(1);
    }

    pub(super) fn cost(&self, fate: CostFate, cost: u64) {
        self.costs[fate as usize].fetch_add(cost, Ordering::Relaxed);
        #[cfg(feature = "metrics")]
        self.counters().costs[fate as usize].increment(cost);
    }

    pub(super) fn holds(&self, outcome: HoldOutcome) -> u64 {
        self.holds[outcome as usize].load(Ordering::Relaxed)
    }

    pub(super) fn costs(&self, fate: CostFate) -> u64 {
        self.costs[fate as usize].load(Ordering::Relaxed)
    }

    #[cfg(feature = "metrics")]
    fn counters(&self) -> &Counters {
        self.counters.get_or_init(|| {
            for metric in [names::LEASE_CALLS, names::LEASES, names::LEASED_COST] {
                metric.describe();
            }
            let calls = |answer| metrics::counter!(names::LEASE_CALLS.name, "answer" => answer);
            let holds = |outcome| metrics::counter!(names::LEASES.name, "outcome" => outcome);
            let costs = |fate| metrics::counter!(names::LEASED_COST.name, "fate" => fate);
            Box::new(Counters {
                calls: ["local", "store"].map(calls),
                holds: ["granted", "refused", "failed"].map(holds),
                costs: ["granted", "given-back", "stranded"].map(costs),
            })
        })
    }
}

#[cfg(all(test, feature = "metrics"))]
mod tests {
    use tidegate_testkit::Recorder;

    use super::*;

    #[test]
    fn calls_holds_and_costs_are_counted_by_their_outcome() {
        let recorder = Recorder::new();
        metrics::with_local_recorder(&recorder, || {
            let meter = LeaseMeter::default();
            for is_local in [true, true, true, false] {
                meter.call(is_local);
            }
            meter.hold(HoldOutcome::Failed);
            meter.cost(CostFate::Granted, 9);
            meter.cost(CostFate::GivenBack, 2);
            meter.cost(CostFate::Stranded, 1);
        });
        for (name, value) in [
            ("tidegate_lease_calls_total{answer=\"local\"}", 3),
            ("tidegate_lease_calls_total{answer=\"store\"}", 1),
            ("tidegate_leases_total{outcome=\"granted\"}", 0),
            ("tidegate_leases_total{outcome=\"failed\"}", 1),
            ("tidegate_leased_cost_total{fate=\"granted\"}", 9),
            ("tidegate_leased_cost_total{fate=\"given-back\"}", 2),
            ("tidegate_leased_cost_total{fate=\"stranded\"}", 1),
        ] {
            assert_eq!(recorder.counter(name), Some(value), "{name}");
        }
    }
}
