//! A metrics recorder for tests.
//!
//! Not `metrics_util::debugging::DebuggingRecorder`: that one tells neither the labels of all series of a
//! metric, which tests bound, nor a series by its text, and its snapshot resets histograms.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use metrics::{Counter, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, SharedString, Unit};

/// Keeps all metrics that are recorded. Clones share them.
///
/// A series is written as Prometheus does, its labels in the order of their names.
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
    /// The bits of floating-point numbers.
    gauges: BTreeMap<String, Arc<AtomicU64>>,
    histograms: BTreeMap<String, Arc<Times>>,
    /// The names of the labels of each name.
    labels: BTreeMap<String, BTreeSet<String>>,
    help: BTreeMap<String, String>,
}

/// Number of recorded values.
#[derive(Debug, Default)]
struct Times(AtomicU64);

impl HistogramFn for Times {
    fn record(&self, _: f64) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Recorder {
    /// An empty recorder.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The value of a counter, if there is one of this series.
    #[must_use]
    pub fn counter(&self, series: &str) -> Option<u64> {
        self.kept().counters.get(series).map(|value| value.load(Ordering::Relaxed))
    }

    /// The value of a gauge, if there is one of this series.
    #[must_use]
    pub fn gauge(&self, series: &str) -> Option<f64> {
        self.kept().gauges.get(series).map(|bits| f64::from_bits(bits.load(Ordering::Relaxed)))
    }

    /// Number of values in a histogram, if there is one of this series.
    #[must_use]
    pub fn times(&self, series: &str) -> Option<u64> {
        self.kept().histograms.get(series).map(|times| times.0.load(Ordering::Relaxed))
    }

    /// All counters above 0, with their values.
    #[must_use]
    pub fn counted(&self) -> BTreeMap<String, u64> {
        let kept = self.kept();
        let read =
            kept.counters.iter().map(|(s, value)| (s.clone(), value.load(Ordering::Relaxed)));
        read.filter(|(_, value)| *value > 0).collect()
    }

    /// The names of all metrics that are in use, and the names of their labels.
    #[must_use]
    pub fn labels(&self) -> BTreeMap<String, BTreeSet<String>> {
        self.kept().labels.clone()
    }

    /// The description of each metric.
    #[must_use]
    pub fn help(&self) -> BTreeMap<String, String> {
        self.kept().help.clone()
    }

    fn kept(&self) -> MutexGuard<'_, Metrics> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn describe(&self, name: &KeyName, help: &SharedString) {
        self.kept().help.insert(name.as_str().to_owned(), help.to_string());
    }
}

impl Metrics {
    /// The series of a key, which is in use from now on.
    fn series(&mut self, key: &Key) -> String {
        let labels: BTreeMap<_, _> = key.labels().map(|l| (l.key(), l.value())).collect();
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
        let mut kept = self.kept();
        let series = kept.series(key);
        Counter::from_arc(Arc::clone(kept.counters.entry(series).or_default()))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        let mut kept = self.kept();
        let series = kept.series(key);
        Gauge::from_arc(Arc::clone(kept.gauges.entry(series).or_default()))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        let mut kept = self.kept();
        let series = kept.series(key);
        Histogram::from_arc(Arc::clone(kept.histograms.entry(series).or_default()))
    }
}
