//! The layer for clients of other services.
