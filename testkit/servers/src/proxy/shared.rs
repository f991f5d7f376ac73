//! The state that a proxy shares with its connections.

use std::net::SocketAddr;
use std::sync::atomic::AtomicU64;

use tokio::sync::watch;

use super::mode::{End, Mode};

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) mode: watch::Sender<Mode>,
    pub(super) target: watch::Sender<SocketAddr>,
    /// The way in which all open connections end. Sending a value ends the connections.
    pub(super) cut: watch::Sender<End>,
    pub(super) listening: watch::Sender<bool>,
    pub(super) connections: AtomicU64,
    pub(super) commands: AtomicU64,
    pub(super) to_server: AtomicU64,
    pub(super) to_client: AtomicU64,
}
