//! Replays real traffic against rate-limit policies.

pub mod replay;
pub mod report;
pub mod sample;
pub mod suggest;
pub mod trace;
