//! Tests of the simulation: its time, its links, its ledger, and whether it finds the defects of a
//! layer.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod bounds;
mod broken;
mod faults;
mod leases;
mod ledger;
mod network;
mod processes;
mod randomness;
mod repeated;
mod slots;
mod zero_cost;

use std::time::Duration;

use tidegate_core::Policy;
use tidegate_memory::MemoryStore;
use tidegate_simulation::SimulatedClock;

fn policy(text: &str) -> Policy {
    text.parse().unwrap()
}

fn micros(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

type Server = MemoryStore<SimulatedClock>;

fn server(clock: SimulatedClock) -> Server {
    MemoryStore::builder().clock(clock).build()
}
