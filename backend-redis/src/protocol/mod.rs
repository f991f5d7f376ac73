//! The protocol between the stores and the scripts: keys, script calls and replies.
//!
//! This module does not use connections, because the cluster store sends the same script calls by
//! its own routing.
//!
//! `scripts/README.md` describes the layout of values. `values/mod.rs` describes when a value is
//! valid.

mod answer;
mod bounds;
mod key;
mod normalized;
mod numbers;
mod open_holds;
mod plan;
mod probable_time;
mod quota_value;
mod request;
mod shard_tag;
mod single_charges;

pub use crate::scripts;
use crate::values::{bytes, layout};
pub use answer::ScriptReply;
pub use key::Keys;
pub(crate) use normalized::NormalizedCall;
pub use plan::{Places, Plan, PlannedRequest, in_a_batch, no_reply};
pub use probable_time::probable_time;
pub use request::{Batch, Reply, Request, Tier, supports};
