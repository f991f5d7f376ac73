//! The messages of `ratelimit.config.ratelimit.v3`. A management server sends the limits of a
//! domain in these messages.
//!
//! The field numbers are the same as in envoyproxy/ratelimit. Unknown fields are ignored.

use envoy_types::pb::google::protobuf::Struct;

/// The type of a resource with limits.
pub const TYPE_URL: &str = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig";

/// The limits of a domain.
///
/// | field | number |
/// |---|---|
/// | `name` | 1 |
/// | `domain` | 2 |
/// | `descriptors` | 3 |
#[derive(Clone, PartialEq, prost::Message)]
pub struct RateLimitConfig {
    /// The name of the resource. Error messages about the resource begin with it.
    #[prost(string, tag = "1")]
    pub name: String,
    /// The domain.
    #[prost(string, tag = "2")]
    pub domain: String,
    /// The descriptors that are limited.
    #[prost(message, repeated, tag = "3")]
    pub descriptors: Vec<RateLimitDescriptor>,
}

/// An entry of a descriptor, its limit, and the entries that can follow it.
///
/// | field | number |
/// |---|---|
/// | `key` | 1 |
/// | `value` | 2 |
/// | `rate_limit` | 3 |
/// | `descriptors` | 4 |
/// | `shadow_mode` | 5 |
/// | `detailed_metric` | 6 |
/// | `quota_mode` | 7 |
/// | `metadata` | 8 |
#[derive(Clone, PartialEq, prost::Message)]
pub struct RateLimitDescriptor {
    /// The key of the entry.
    #[prost(string, tag = "1")]
    pub key: String,
    /// The value of the entry; empty for any value.
    #[prost(string, tag = "2")]
    pub value: String,
    /// The limit of descriptors that end with this entry.
    #[prost(message, optional, tag = "3")]
    pub rate_limit: Option<RateLimitPolicy>,
    /// The entries that can follow this entry.
    #[prost(message, repeated, tag = "4")]
    pub descriptors: Vec<Self>,
    /// Whether the limit refuses nothing.
    #[prost(bool, tag = "5")]
    pub shadow_mode: bool,
    /// Whether each value has its own statistics.
    #[prost(bool, tag = "6")]
    pub detailed_metric: bool,
    /// Whether the limit is a quota. Quotas refuse a request only if all of them are exceeded.
    #[prost(bool, tag = "7")]
    pub quota_mode: bool,
    /// Dynamic metadata for admitted requests.
    #[prost(message, optional, tag = "8")]
    pub metadata: Option<Struct>,
}

/// A number of requests in a unit of time.
///
/// | field | number |
/// |---|---|
/// | `unit` | 1 |
/// | `requests_per_unit` | 2 |
/// | `unlimited` | 3 |
/// | `name` | 4 |
/// | `replaces` | 5 |
#[derive(Clone, PartialEq, prost::Message)]
pub struct RateLimitPolicy {
    /// The [number](crate::limits::config::Unit::number) of the unit.
    #[prost(int32, tag = "1")]
    pub unit: i32,
    /// The number of requests.
    #[prost(uint32, tag = "2")]
    pub requests_per_unit: u32,
    /// Whether all requests are admitted.
    #[prost(bool, tag = "3")]
    pub unlimited: bool,
    /// The name by which other limits can replace this limit.
    #[prost(string, tag = "4")]
    pub name: String,
    /// The limits that this limit replaces if it applies to the same request.
    #[prost(message, repeated, tag = "5")]
    pub replaces: Vec<RateLimitReplace>,
}

/// A limit that is replaced.
///
/// | field | number |
/// |---|---|
/// | `name` | 1 |
#[derive(Clone, PartialEq, prost::Message)]
pub struct RateLimitReplace {
    /// The name of the limit.
    #[prost(string, tag = "1")]
    pub name: String,
}
