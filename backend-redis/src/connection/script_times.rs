//! The times of script calls. Without the feature `metrics`, the store does not read the clock.

#[cfg(feature = "metrics")]
pub use measured::ScriptTimes;

#[cfg(feature = "metrics")]
mod measured {
    use std::sync::OnceLock;
    use std::time::Instant;

    use metrics::{Histogram, histogram};

    use crate::names::SCRIPT_SECONDS;
    use crate::protocol::scripts::Script;

    /// The histograms of one store, which the store looks up at its first script call.
    #[derive(Debug, Default)]
    pub struct ScriptTimes(OnceLock<[Histogram; Script::NAMES.len()]>);

    impl ScriptTimes {
        /// Executes a script call and records its time, regardless of whether the call succeeds.
        pub async fn measure<T>(&self, script: &Script, call: impl Future<Output = T>) -> T {
            let started = Instant::now();
            let answer = call.await;
            let histograms = self.0.get_or_init(|| {
                SCRIPT_SECONDS.describe();
                Script::NAMES.map(|name| histogram!(SCRIPT_SECONDS.name, "script" => name))
            });
            let place = Script::NAMES.iter().position(|name| *name == script.name());
            if let Some(histogram) = place.and_then(|place| histograms.get(place)) {
                histogram.record(started.elapsed());
            }
            answer
        }
    }
}

/// A replacement for builds without the feature `metrics`, which records no times.
#[cfg(not(feature = "metrics"))]
#[derive(Debug, Default, Clone, Copy)]
pub struct ScriptTimes(());

#[cfg(not(feature = "metrics"))]
impl ScriptTimes {
    pub async fn measure<T>(
        &self,
        _: &crate::protocol::scripts::Script,
        call: impl Future<Output = T>,
    ) -> T {
        call.await
    }
}
