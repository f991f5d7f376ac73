//! A small application that limits its requests with Redis and serves its metrics over HTTP.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tidegate_redis::core::telemetry::names::SECONDS_BUCKETS;
use tidegate_redis::{Breaker, Limiter, RedisStore, Store, StoreExt};
use tidegate_test_servers::eventually;
use tokio::task::JoinSet;

use super::http;

/// The metrics recorder. A process can have only one, so all tests share it.
static METRICS: LazyLock<PrometheusHandle> = LazyLock::new(|| {
    let times = Matcher::Suffix("_seconds".to_owned());
    let recorder = PrometheusBuilder::new()
        .set_buckets_for_metric(times, &SECONDS_BUCKETS)
        .unwrap()
        .build_recorder();
    let handle = recorder.handle();
    metrics::set_global_recorder(recorder).unwrap();
    handle
});

pub(crate) struct Application {
    port: u16,
    answers: Arc<Answers>,
    _tasks: JoinSet<()>,
}

#[derive(Default)]
struct Answers {
    passed: AtomicU64,
    others: AtomicU64,
}

impl Application {
    pub(crate) async fn start(redis: &str) -> Self {
        LazyLock::force(&METRICS);
        let store = with_layers(RedisStore::new(redis).unwrap());
        let policy = "api: token-bucket 1000000/1s".parse().unwrap();
        let limiter = Limiter::new(store, [policy]).unwrap();
        let answers = Arc::new(Answers::default());
        let mut tasks = JoinSet::new();
        let (port, serving) = http::serve(|| METRICS.render()).await;
        tasks.spawn(serving);
        tasks.spawn(requests(limiter, Arc::clone(&answers)));
        Self { port, answers, _tasks: tasks }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Returns the number of requests that passed, and the number of requests that were refused or
    /// failed.
    pub(crate) fn answers(&self) -> (u64, u64) {
        let Answers { passed, others } = &*self.answers;
        (passed.load(Ordering::Relaxed), others.load(Ordering::Relaxed))
    }

    pub(crate) async fn wait_for_answers(&self, number: u64) {
        let enough = async || (self.answers().0 >= number).then_some(());
        eventually(Duration::from_secs(10), "answers", enough).await.unwrap();
    }

    /// Returns the text that Prometheus scrapes.
    pub(crate) fn page(&self) -> String {
        METRICS.render()
    }
}

/// Adds the layers of a typical application to the store.
fn with_layers(store: RedisStore) -> impl Store + 'static {
    let breaker = Breaker::new().failures(5).open_for(Duration::from_millis(500));
    store.timeout(Duration::from_millis(50)).breaker(breaker).or_fail_open().observed()
}

/// Sends 100 requests per second, or fewer if a request takes longer.
async fn requests(limiter: Limiter<impl Store>, answers: Arc<Answers>) {
    let mut ticks = tokio::time::interval(Duration::from_millis(10));
    loop {
        ticks.tick().await;
        let passes = limiter.acquire("alice").await.is_ok_and(|decision| decision.is_allowed());
        let counter = if passes { &answers.passed } else { &answers.others };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}
