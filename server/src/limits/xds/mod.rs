//! Limits from a management server, by xDS: as Envoy Gateway and others serve them to envoyproxy/ratelimit.
//!
//! The server asks for all resources of type [`TYPE_URL`](messages::TYPE_URL) over one aggregated stream (ADS, state of the
//! world). Each response is the whole set of limits: it is put in force as a whole and acknowledged, or refused as a whole
//! with the reason, while the limits stay as they were. They also stay while the management server is away.
//!
//! | bound | value |
//! |---|---|
//! | a response | [`XdsSettings::max_message_bytes`]: a larger one is refused, and one above 64 MiB ends the stream |
//! | time until the first response | [`XdsSettings::response_timeout`] |
//! | a resource | what a [file](crate::limits::config) may have: 64 levels, 500,000 values |
//! | connections | one; the next one after a [wait](BackoffSettings) |
//! | responses that are being read | one; after one that was refused, the next one waits from a hundredth to a half of [the first wait](BackoffSettings::initial) |

mod backoff;
mod client;
mod connect;
pub mod messages;
mod response;
mod settings;
#[cfg(feature = "tls")]
mod tls;

pub use backoff::BackoffSettings;
pub use client::{Event, follow};
pub use settings::{Header, XdsSettings};
#[cfg(feature = "tls")]
#[cfg_attr(docsrs, doc(cfg(feature = "tls")))]
pub use tls::XdsTls;
