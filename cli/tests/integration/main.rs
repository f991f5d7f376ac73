//! The tests of the program and its library. They are one program, because linking one program
//! takes much less time than linking ten.
//!
//! `real_traces.rs` is not part of this program, because it needs traffic that is not part of the
//! repository.

mod grants;
mod leased;
mod plan;
mod plan_memory;
mod program;
mod report_suite;
mod scripts;
mod settling;
mod shares;
mod slots;
mod store_on_cluster;
mod store_on_redis;
mod trace_reading;
mod trace_suggest;
