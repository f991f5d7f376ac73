//! The parts that the benchmarks share.

mod calls;
mod figures;
mod noise;
mod row;
mod samples;
mod server;
mod verdict;

pub(crate) use calls::{Cost, Load, drive, measure};
pub(crate) use figures::{Thousandths, middle, nanos, percentile, thread_time};
pub(crate) use noise::Noise;
pub(crate) use row::Row;
pub(crate) use samples::{Samples, rounds};
pub(crate) use server::{Server, TIMEOUT};
pub(crate) use verdict::{Verdict, finish};
