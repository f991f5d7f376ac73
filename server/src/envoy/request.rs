//! The request message of Envoy's rate-limit service. Its texts can contain any bytes.
//!
//! The messages have the fields and the wire format of `envoy.service.ratelimit.v3`. The protocol
//! declares the domain, keys and values as `string`, but Envoy copies the bytes of HTTP header
//! fields into them. Such bytes can be invalid UTF-8. If the server rejected such a request, Envoy
//! would admit it without counting it.
//!
//! ```
//! use prost::Message;
//! use tidegate_server::envoy::request::RateLimitRequest;
//!
//! let request = RateLimitRequest::decode(&b"\x0a\x01d\x12\x0c\x0a\x0a\x0a\x01k\x12\x05dave\xff"[..])?;
//! assert_eq!(request.descriptors[0].entries[0].value, &b"dave\xff"[..]);
//! # Ok::<(), prost::DecodeError>(())
//! ```

use bytes::Bytes;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::RateLimitOverride;
use envoy_types::pb::google::protobuf::UInt64Value;

/// A request to decide on the descriptors of a domain.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RateLimitRequest {
    /// The domain, which selects the limits.
    #[prost(bytes = "bytes", tag = "1")]
    pub domain: Bytes,
    /// The descriptors. At most one limit applies to each descriptor.
    #[prost(message, repeated, tag = "2")]
    pub descriptors: Vec<RateLimitDescriptor>,
    /// The number of hits for each descriptor that does not have its own `hits_addend`; 0 counts as
    /// 1.
    #[prost(uint32, tag = "3")]
    pub hits_addend: u32,
}

/// The entries that select a limit, and the number of hits.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RateLimitDescriptor {
    /// The entries. Their order must be the order of the nested descriptors in the configuration.
    #[prost(message, repeated, tag = "1")]
    pub entries: Vec<Entry>,
    /// A limit that replaces the configured limit.
    #[prost(message, optional, tag = "2")]
    pub limit: Option<RateLimitOverride>,
    /// The number of hits of this descriptor.
    #[prost(message, optional, tag = "3")]
    pub hits_addend: Option<UInt64Value>,
    /// Whether the hits are refunded instead of counted.
    #[prost(bool, tag = "4")]
    pub is_negative_hits: bool,
}

/// An entry of a descriptor.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Entry {
    /// The key.
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    /// The value; it may be empty.
    #[prost(bytes = "bytes", tag = "2")]
    pub value: Bytes,
}
