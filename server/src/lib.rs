//! Envoy's rate-limit service on any store of Tidegate.
//!
#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod activity;
pub mod calls;
pub mod config;
pub mod debug;
pub mod decide;
pub mod health;
pub mod http;
pub mod json;
pub mod listener;
mod login;
pub mod page;
pub mod prometheus;
mod reflection;
pub mod reload;
pub mod request;
pub mod resp;
pub mod rls;
pub mod service;
mod stat_key;
pub mod stats;
pub mod store;
#[cfg(feature = "tls")]
#[cfg_attr(docsrs, doc(cfg(feature = "tls")))]
pub mod tls;
#[cfg(feature = "top")]
#[cfg_attr(docsrs, doc(cfg(feature = "top")))]
pub mod top;
mod tree;
mod unreadable;
pub mod v1;
pub mod xds;
