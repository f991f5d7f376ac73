//! The layer for servers.
