//! The program `tidegate`: replays real traffic against rate-limit policies, and plans what they cost.
//!
//! ```sh
//! cargo install tidegate
//! tidegate --help
//! ```
//!
//! This library is the inside of the program, for its tests and benchmarks. It is not a public API: nothing
//! in it is subject to semantic versioning. The library for limiters is `tidegate-core`.
#![cfg_attr(docsrs, feature(doc_cfg))]

#[doc(hidden)]
pub mod plan;
#[doc(hidden)]
pub mod replay;
#[doc(hidden)]
pub mod report;
#[doc(hidden)]
pub mod sample;
#[doc(hidden)]
pub mod scripts;
#[doc(hidden)]
pub mod suggest;
#[doc(hidden)]
pub mod trace;
