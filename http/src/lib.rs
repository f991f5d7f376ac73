//! Rate limits over HTTP, for servers and for clients.
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "client")]
pub mod client;
pub mod fields;
#[cfg(feature = "server")]
pub mod server;
#[cfg(feature = "server")]
pub mod subject;
