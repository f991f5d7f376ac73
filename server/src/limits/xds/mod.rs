//! Receives limits from a management server over xDS, as envoyproxy/ratelimit does. Envoy Gateway
//! is such a management server.
//!
//! The client requests all resources of type [`TYPE_URL`](messages::TYPE_URL) over one aggregated
//! stream (ADS, state of the world). Each response contains all limits. If the limits are valid,
//! the client applies and acknowledges them. If not, it refuses all of them with a reason. After a
//! refusal, and while the management server is unavailable, the previous limits stay in force.
//!
//! | bound | value |
//! |---|---|
//! | a response | [`XdsSettings::max_message_bytes`]; a larger response is refused, and a response above 64 MiB ends the stream |
//! | time until the first response | [`XdsSettings::response_timeout`] |
//! | a resource | the bounds of a [file](crate::limits::config): 64 levels, 500,000 values |
//! | connections | one; a [wait](BackoffSettings) precedes the next connection |
//! | responses that are read concurrently | one; after a refused response, the client pauses for a hundredth to a half of [the first wait](BackoffSettings::initial) |

mod backoff;
mod client;
mod connect;
pub mod messages;
mod response;
mod settings;
mod tls;

pub use backoff::BackoffSettings;
pub use client::{Event, follow};
pub use settings::{Header, XdsSettings};
pub use tls::XdsTls;
