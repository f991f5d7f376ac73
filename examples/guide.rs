//! The guide, so that its code is compiled and run.

#[doc = include_str!("../docs/guide/beyond-the-limit.md")]
pub mod beyond_the_limit {}
