//! The program `tidegate` replays real traffic against rate-limit policies. With the feature
//! `redis`, it also replays on a server and plans the nodes of a deployment.
//!
//! ```sh
//! cargo install tidegate
//! tidegate --help
//! ```
//!
//! This library contains the parts of the program for its tests and benchmarks. It is not a public
//! API, and is outside semantic versioning. The library for limiters is `tidegate-core`.
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "redis")]
#[doc(hidden)]
pub mod plan;
#[doc(hidden)]
pub mod replay;
#[doc(hidden)]
pub mod report;
#[cfg(feature = "redis")]
#[doc(hidden)]
pub mod scripts;
#[doc(hidden)]
pub mod suggest;
#[doc(hidden)]
pub mod trace;
