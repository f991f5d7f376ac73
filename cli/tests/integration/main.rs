//! The tests of the program and its library, in one program: to link one takes much less time than
//! ten.
//!
//! Not among them: `real_traces.rs`, which needs traffic that is not part of the repository.

mod leased;
mod plan;
mod plan_memory;
mod program;
mod report_suite;
mod scripts;
mod settling;
mod store_on_cluster;
mod store_on_redis;
mod trace_reading;
mod trace_suggest;
