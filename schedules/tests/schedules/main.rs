//! Layers and waiting in many interleavings of their tasks: see `docs/testing.md`, section
//! "Schedules".

mod breaker;
mod coalesced;
mod denied;
mod explore;
mod leased;
mod server;
mod waiting;
