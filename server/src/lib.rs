//! Envoy's rate-limit service on any store of Tidegate.
//!
#![doc = include_str!("../README.md")]

pub mod calls;
pub mod envoy;
pub mod limits;
pub mod net;
pub mod observe;
pub mod store;
