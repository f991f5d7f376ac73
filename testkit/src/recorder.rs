//! A metrics recorder for tests.
//!
//! The recorder `metrics_util::debugging::DebuggingRecorder` does not fit these tests. It cannot
//! find a series by the text of the series, and cannot list the labels of a metric. Its snapshot
//! also resets histograms.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use metrics::{Counter, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, SharedString, Unit};

/// A recorder that keeps all metrics in memory. Clones share the metrics.
///
/// A series is a metric with the values of its labels. The text of a series has the format of
/// Prometheus, with labels ordered by name.
///
/// ```
/// use tidegate_testkit::Recorder;
///
/// let recorder = Recorder::new();
/// metrics::with_local_recorder(&recorder, || {
///     metrics::counter!("dogs_total", "colour" => "brown", "age" => "3").increment(2);
/// });
/// assert_eq!(recorder.counter(r#"dogs_total{age="3",colour="brown"}"#), Some(2));
/// assert_eq!(recorder.counter("cats_total"), None);
/// ```
#[derive(Debug, Clone, Default)]
pub struct Recorder(Arc<Mutex<Metrics>>);

#[derive(Debug, Default)]
struct Metrics {
    counters: BTreeMap<String, Arc<AtomicU64>>,
    /// The values of the gauges, as the bits of floating-point numbers.
    gauges: BTreeMap<String, Arc<AtomicU64>>,
    histograms: BTreeMap<String, Arc<Times>>,
    labels: BTreeMap<String, BTreeSet<String>>,
    help: BTreeMap<String, String>,
}

/// The number of values that a histogram has recorded.
#[derive(Debug, Default)]
struct Times(AtomicU64);

impl HistogramFn for Times {
    fn record(&self, _: f64) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Recorder {
    /// Creates an empty recorder.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the value of a counter, or `None` if the series does not exist.
    #[must_use]
    pub fn counter(&self, series: &str) -> Option<u64> {
        self.metrics().counters.get(series).map(|value| value.load(Ordering::Relaxed))
    }

    /// Returns the value of a gauge, or `None` if the series does not exist.
    #[must_use]
    pub fn gauge(&self, series: &str) -> Option<f64> {
        self.metrics().gauges.get(series).map(|bits| f64::from_bits(bits.load(Ordering::Relaxed)))
    }

    /// Returns the number of values in a histogram, or `None` if the series does not exist.
    #[must_use]
    pub fn times(&self, series: &str) -> Option<u64> {
        self.metrics().histograms.get(series).map(|times| times.0.load(Ordering::Relaxed))
    }

    /// Returns all counters above 0, with their values.
    #[must_use]
    pub fn counted(&self) -> BTreeMap<String, u64> {
        let metrics = self.metrics();
        let read =
            metrics.counters.iter().map(|(s, value)| (s.clone(), value.load(Ordering::Relaxed)));
        read.filter(|(_, value)| *value > 0).collect()
    }

    /// Returns the names of all registered metrics, and the names of their labels.
    #[must_use]
    pub fn labels(&self) -> BTreeMap<String, BTreeSet<String>> {
        self.metrics().labels.clone()
    }

    /// Returns the description of each metric.
    #[must_use]
    pub fn help(&self) -> BTreeMap<String, String> {
        self.metrics().help.clone()
    }

    fn metrics(&self) -> MutexGuard<'_, Metrics> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn describe(&self, name: &KeyName, help: &SharedString) {
        self.metrics().help.insert(name.as_str().to_owned(), help.to_string());
    }
}

impl Metrics {
    /// Records the names of a metric's labels, and returns the text of the series.
    fn series(&mut self, key: &Key) -> String {
        let labels: BTreeMap<_, _> =
            key.labels().map(|label| (label.key(), label.value())).collect();
        let names = labels.keys().map(|&name| name.to_owned());
        self.labels.entry(key.name().to_owned()).or_default().extend(names);
        let mut series = key.name().to_owned();
        for (place, (name, value)) in labels.iter().enumerate() {
            let before = if place == 0 { '{' } else { ',' };
            let _ = write!(series, "{before}{name}={value:?}");
        }
        if !labels.is_empty() {
            series.push('}');
        }
        series
    }
}

impl metrics::Recorder for Recorder {
    fn describe_counter(&self, name: KeyName, _: Option<Unit>, help: SharedString) {
        self.describe(&name, &help);
    }

    fn describe_gauge(&self, name: KeyName, _: Option<Unit>, help: SharedString) {
        self.describe(&name, &help);
    }

    fn describe_histogram(&self, name: KeyName, _: Option<Unit>, help: SharedString) {
        self.describe(&name, &help);
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        let mut metrics = self.metrics();
        let series = metrics.series(key);
        Counter::from_arc(Arc::clone(metrics.counters.entry(series).or_default()))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        let mut metrics = self.metrics();
        let series = metrics.series(key);
        Gauge::from_arc(Arc::clone(metrics.gauges.entry(series).or_default()))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        let mut metrics = self.metrics();
        let series = metrics.series(key);
        Histogram::from_arc(Arc::clone(metrics.histograms.entry(series).or_default()))
    }
}
