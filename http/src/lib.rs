//! Rate limits over HTTP, for servers and for clients.
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "client")]
pub mod client;
pub mod fields;
#[cfg(feature = "server")]
pub mod server;
pub mod subject;

/// The guide for clients, so that its code is compiled and run.
#[cfg(all(doctest, feature = "client"))]
#[doc = include_str!("../../docs/guide/http-clients.md")]
mod guide {}
