//! Tests of the whole service, from requests to responses.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot continue fails")]

mod alternatives;
mod any_bytes;
#[path = "../checks/mod.rs"]
mod checks;
mod config;
mod connections;
mod counting;
mod debug;
mod deny_cache;
mod deployment;
mod directory;
mod envoy_cases;
mod examples;
mod fair_pools;
mod grpc;
mod health;
mod hostile;
mod http;
mod json;
mod layers;
mod leases;
mod limit_set;
mod lists;
mod operation;
mod operators;
mod page;
mod policies;
mod program;
mod redis;
mod reflection;
mod reload;
mod resp;
mod scene;
mod settings;
mod slots;
mod stats;
mod store_errors;
mod tls;
mod unreadable;
mod v1;
mod xds;
