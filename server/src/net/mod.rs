//! Connections of all protocols, within bounds: listeners, HTTP, encryption, logins and JSON.

pub mod access;
pub mod descriptors;
pub mod http;
pub mod listener;
pub mod login;
pub(crate) mod text;
pub(crate) mod timer;
pub mod tls;
pub(crate) mod tree;
pub mod watch;
