//! Tests the page: its data, its access rules, and its view in a terminal.

mod access;
pub(crate) mod program;
mod rates;
mod sketch;
mod stores;
mod subjects;
mod top;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::Value;
use tidegate_core::{ManualClock, Operation, Store, Timestamp};
use tidegate_memory::MemoryStore;
use tidegate_server::calls::{CallRequest, Calls, ChargeRequest};
use tidegate_server::envoy::decide::{Behaviour, Decider};
use tidegate_server::envoy::service::Service;
use tidegate_server::limits::config::ConfigFile;
use tidegate_server::observe::activity::{Activity, ActivitySettings, LimitsQuery, Source};

use crate::scene::{START, descriptor, request};

const LIMITS: &str = "
domain: shop
descriptors:
  - key: user
    policy: fixed-window 3/1d
  - key: path
    rate_limit: { unit: day, requests_per_unit: 2 }
  - key: report
    shadow_mode: true
    rate_limit: { unit: day, requests_per_unit: 1 }
";

/// A service and a `Calls` on one store with a fixed clock, and the activity that records their
/// decisions.
struct Watched {
    activity: Arc<Activity>,
    service: Service,
    calls: Calls,
    now: Instant,
}

fn files(text: &str) -> Vec<ConfigFile> {
    vec![ConfigFile { name: "shop.yaml".into(), text: text.into() }]
}

impl Watched {
    fn new() -> Self {
        Self::with(ActivitySettings::default(), Behaviour::default())
    }

    fn with_subjects() -> Self {
        let mut settings = ActivitySettings::default();
        settings.shows_subjects = true;
        Self::with(settings, Behaviour::default())
    }

    fn with(settings: ActivitySettings, behaviour: Behaviour) -> Self {
        let clock = ManualClock::new(Timestamp::from_micros(START * 1_000_000));
        Self::on(Arc::new(MemoryStore::builder().clock(clock).build()), settings, behaviour)
    }

    fn on(store: Arc<dyn Store>, settings: ActivitySettings, behaviour: Behaviour) -> Self {
        let now = Instant::now();
        let activity = Arc::new(Activity::new(settings, Vec::new(), now));
        let decider = Decider::new(Arc::clone(&store), behaviour);
        let service = Service::new(decider).activity(Some(Arc::clone(&activity)));
        service.load(Ok(&files(LIMITS))).unwrap();
        let calls = Calls::new(store).activity(Source::Resp, Some(Arc::clone(&activity)));
        Self { activity, service, calls, now }
    }

    /// Sends requests one after another. Each has one descriptor and one hit.
    async fn ask(&self, key: &str, value: &str, times: usize) {
        for _ in 0..times {
            let request = request("shop", vec![descriptor(&[(key, value)])]);
            let _ = self.service.should_rate_limit(&request).await;
        }
    }

    fn charge(&self, policy: &str, subject: &[u8]) -> ChargeRequest {
        let policy = self.calls.policies().parse(policy).unwrap();
        ChargeRequest::new(policy, Bytes::copy_from_slice(subject))
    }

    async fn acquire(&self, policy: &str, subject: &[u8], times: usize) {
        for _ in 0..times {
            let charge = self.charge(policy, subject);
            let _ = self.calls.decide(&CallRequest::new(Operation::Acquire, [charge])).await;
        }
    }

    fn second(&mut self) {
        self.sample_after(Duration::from_secs(1));
    }

    fn sample_after(&mut self, span: Duration) {
        self.now += span;
        self.activity.sample(self.now);
    }

    fn snapshot(&self) -> Value {
        self.activity.snapshot(&LimitsQuery::default())
    }

    /// Returns the names of the limits that a query lists, and the number of limits that the list
    /// leaves out.
    fn listed(&self, query: &str) -> (Vec<String>, u64) {
        let snapshot = self.activity.snapshot(&query.parse().unwrap());
        let limits = snapshot["limits"].as_array().unwrap();
        let names = limits.iter().map(|limit| limit["limit"].as_str().unwrap().to_owned());
        (names.collect(), snapshot["other_limits"]["count"].as_u64().unwrap())
    }

    /// Returns the row of a limit in the snapshot, or null if there is none.
    fn limit(&self, name: &str) -> Value {
        let snapshot = self.snapshot();
        let limits = snapshot["limits"].as_array().unwrap();
        limits.iter().find(|limit| limit["limit"] == name).cloned().unwrap_or(Value::Null)
    }
}
