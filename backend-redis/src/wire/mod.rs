//! What goes over the wire: keys, scripts, requests and answers.
//!
//! Apart from the connection, so that a store that routes its calls itself, as one over Redis
//! Cluster, sends the same requests. [`RedisStore`](crate::RedisStore) needs none of this.

mod answer;
mod bytes;
mod key;
mod normalized;
mod numbers;
mod request;
pub mod scripts;
mod shard_tag;

pub use answer::ScriptReply;
pub use key::Keys;
pub(crate) use normalized::NormalizedCall;
pub use request::{Batch, Request};
