//! Envoy's rate-limit service on any store of Tidegate.
//!
#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod calls;
pub mod envoy;
pub mod limits;
pub mod net;
pub mod observe;
pub mod store;
