//! Metrics of a deny cache. Without the feature `metrics`, all functions are empty.
//!
//! The meter creates its metrics at the first call to the store. So the application must install
//! its metrics recorder before that call.

#[cfg(feature = "metrics")]
use std::sync::OnceLock;

#[cfg(feature = "metrics")]
use crate::telemetry::names;

#[derive(Debug, Default)]
pub(super) struct CacheMeter {
    #[cfg(feature = "metrics")]
    counters: OnceLock<[metrics::Counter; 2]>,
}

impl CacheMeter {
    pub(super) fn hit(&self) {
        #[cfg(feature = "metrics")]
        self.counters()[0].increment(1);
    }

    pub(super) fn miss(&self) {
        #[cfg(feature = "metrics")]
        self.counters()[1].increment(1);
    }

    #[cfg(feature = "metrics")]
    fn counters(&self) -> &[metrics::Counter; 2] {
        self.counters.get_or_init(|| {
            names::DENY_CACHE.describe();
            ["hit", "miss"]
                .map(|answer| metrics::counter!(names::DENY_CACHE.name, "answer" => answer))
        })
    }
}

#[cfg(all(test, feature = "metrics"))]
mod tests {
    use tidegate_testkit::Recorder;

    use super::*;

    fn recorded(run: impl FnOnce(&Recorder)) {
        let recorder = Recorder::new();
        metrics::with_local_recorder(&recorder, || run(&recorder));
    }

    #[test]
    fn a_cache_counts_its_hits_and_its_misses() {
        recorded(|recorder| {
            let meter = CacheMeter::default();
            meter.miss();
            (0..3).for_each(|_| meter.hit());
            let count = |answer| {
                recorder.counter(&format!("tidegate_deny_cache_total{{answer={answer:?}}}"))
            };
            assert_eq!((count("hit"), count("miss")), (Some(3), Some(1)));
        });
    }
}
