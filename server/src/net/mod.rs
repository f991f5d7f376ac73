//! Connections of all protocols, within bounds: listeners, HTTP, encryption, logins and JSON.

pub mod http;
pub mod listener;
pub(crate) mod login;
#[cfg(feature = "tls")]
#[cfg_attr(docsrs, doc(cfg(feature = "tls")))]
pub mod tls;
pub(crate) mod tree;
