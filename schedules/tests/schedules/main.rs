//! Tests of layers and of waiting in many interleavings of their tasks: see `docs/testing.md`.

mod breaker;
mod coalesced;
mod denied;
mod explore;
mod leased;
mod server;
mod waiting;
