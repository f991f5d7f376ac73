//! Provides limits on a memory store with a fixed clock, and functions that send requests to them.

use std::sync::Arc;
use std::time::Duration;

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::RateLimitOverride;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::{Code, DescriptorStatus};
use envoy_types::pb::envoy::service::ratelimit::v3::{
    RateLimitRequest as Message, RateLimitResponse,
};
use envoy_types::pb::google::protobuf::UInt64Value;
use prost::Message as _;
use tidegate_core::{ManualClock, Store, Timestamp};
use tidegate_memory::MemoryStore;
use tidegate_server::envoy::decide::{Behaviour, DecideError, Decided, Decider, Tally};
use tidegate_server::envoy::request::{Entry, RateLimitDescriptor, RateLimitRequest};
use tidegate_server::limits::config::{Config, ConfigError, ConfigFile, SameDomain};

/// The time of the clock: 2024-01-01T00:00:48Z, a Monday, 12 s before the end of a minute.
pub(crate) const START: u64 = 1_704_067_248;

pub(crate) struct Scene {
    pub(crate) clock: ManualClock,
    pub(crate) decider: Decider,
}

impl Scene {
    pub(crate) fn new(config: &str) -> Self {
        Self::with(config, Behaviour::default())
    }

    pub(crate) fn with(config: &str, behaviour: Behaviour) -> Self {
        let clock = ManualClock::new(Timestamp::from_micros(START * 1_000_000));
        let store = MemoryStore::builder().clock(clock.clone()).build();
        Self { decider: decider(Arc::new(store), config, behaviour), clock }
    }

    pub(crate) fn advance(&self, seconds: u64) {
        self.clock.advance(Duration::from_secs(seconds));
    }

    pub(crate) fn decided(&self, request: &RateLimitRequest) -> Result<Decided, DecideError> {
        block_on(self.decider.decide(request))
    }

    pub(crate) fn ask(&self, request: &RateLimitRequest) -> RateLimitResponse {
        self.decided(request).unwrap().response
    }

    /// Returns `true` if a request with one hit per descriptor is admitted.
    pub(crate) fn passes(&self, domain: &str, descriptors: &[&[(&str, &str)]]) -> bool {
        let descriptors = descriptors.iter().map(|entries| descriptor(entries)).collect();
        is_ok(&self.ask(&request(domain, descriptors)))
    }

    /// Returns the status of a request with one descriptor and one hit.
    pub(crate) fn status(&self, domain: &str, entries: &[(&str, &str)]) -> DescriptorStatus {
        self.status_of(domain, descriptor(entries))
    }

    pub(crate) fn status_of(
        &self,
        domain: &str,
        descriptor: RateLimitDescriptor,
    ) -> DescriptorStatus {
        self.ask(&request(domain, vec![descriptor])).statuses.remove(0)
    }

    pub(crate) fn tally(&self, domain: &str, entries: &[(&str, &str)]) -> Tally {
        let decided = self.decided(&request(domain, vec![descriptor(entries)])).unwrap();
        decided.tallies.into_iter().next().unwrap()
    }
}

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

pub(crate) fn decider(store: Arc<dyn Store>, config: &str, behaviour: Behaviour) -> Decider {
    let decider = Decider::new(store, behaviour);
    decider.set_config(read(config).unwrap()).unwrap();
    decider
}

/// Reads limits. The separator `---` divides the text into files.
pub(crate) fn read(text: &str) -> Result<Config, ConfigError> {
    let files: Vec<ConfigFile> = text
        .split("\n---\n")
        .map(|text| ConfigFile { name: "limits.yaml".into(), text: text.into() })
        .collect();
    Config::from_files(&files, SameDomain::Refuse)
}

pub(crate) fn request(domain: &str, descriptors: Vec<RateLimitDescriptor>) -> RateLimitRequest {
    RateLimitRequest { domain: domain.to_owned().into(), descriptors, hits_addend: 0 }
}

/// Converts a request to the message type of a generated client.
pub(crate) fn message(request: &RateLimitRequest) -> Message {
    Message::decode(&*request.encode_to_vec()).unwrap()
}

pub(crate) fn descriptor(entries: &[(&str, &str)]) -> RateLimitDescriptor {
    let entry = |(key, value): &(&str, &str)| Entry {
        key: (*key).to_owned().into(),
        value: (*value).to_owned().into(),
    };
    RateLimitDescriptor { entries: entries.iter().map(entry).collect(), ..Default::default() }
}

pub(crate) fn hits(entries: &[(&str, &str)], hits: u64) -> RateLimitDescriptor {
    RateLimitDescriptor { hits_addend: Some(UInt64Value { value: hits }), ..descriptor(entries) }
}

pub(crate) fn refund(entries: &[(&str, &str)], amount: u64) -> RateLimitDescriptor {
    RateLimitDescriptor { is_negative_hits: true, ..hits(entries, amount) }
}

pub(crate) fn with_limit(
    entries: &[(&str, &str)],
    requests_per_unit: u32,
    unit: i32,
) -> RateLimitDescriptor {
    let limit = RateLimitOverride { requests_per_unit, unit };
    RateLimitDescriptor { limit: Some(limit), ..descriptor(entries) }
}

pub(crate) fn is_ok(response: &RateLimitResponse) -> bool {
    match response.overall_code() {
        Code::Ok => true,
        Code::OverLimit => false,
        Code::Unknown => panic!("no code"),
    }
}

pub(crate) fn is_over(status: &DescriptorStatus) -> bool {
    status.code() == Code::OverLimit
}

/// Returns a limit as a text such as `4/MINUTE`, or an empty text if there is no limit.
pub(crate) fn limit(status: &DescriptorStatus) -> String {
    let limit = status.current_limit.as_ref();
    limit.map_or(String::new(), |limit| {
        format!("{}/{}", limit.requests_per_unit, limit.unit().as_str_name())
    })
}

pub(crate) fn reset(status: &DescriptorStatus) -> i64 {
    status.duration_until_reset.as_ref().map_or(0, |span| span.seconds)
}
