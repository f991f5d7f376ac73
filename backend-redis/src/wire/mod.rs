//! The protocol between the stores and the scripts: keys, values, script calls and replies.
//!
//! Separate from connections, as the cluster store routes the same script calls by itself.
//!
//! # Values
//!
//! A value is a byte for its kind (hexadecimal here), and integers of seven bytes, little-endian; times are
//! microseconds since 1970. The numbers of the kinds are in `layout.rs`, the bytes of the log in a diagram in
//! `scripts/sliding_log.lua`.
//!
//! | kind | of | then |
//! |---|---|---|
//! | `90` | nothing but a block | |
//! | `91`, `92`, `93` | fixed window: aligned, phased, anchored | end of the current window, count |
//! | `94` | sliding log | total before the first record; for each record its time and the running total; then the total before the oldest record that counted at the last write, its place (two bytes), its time and total, number of elements before this one (four bytes), of records here (two), expires at, and the kind again |
//! | `95` | sliding counter | end of the current window, previous count, current count |
//! | `96` | token bucket, GCRA | time, debt, parts of a token that the debt is counted in, full again at, expires at |
//! | `97` | bucket by intervals | start of the current period, debt, full again at, expires at |
//! | `98` | id of a call | 20 bytes of SHA-1 of the call, time to live, whether the policy of a single charge is a shadow (a byte), when it was written, the reply |
//! | `99` | hold | 20 bytes of SHA-1 of the call without its costs, life, whether the policy of a single charge is a shadow (a byte), when it was made, the time until which it can be extended, size of the reply (two bytes); the minimum (0 for none), the costs; the held cost of each charge (2^53 for a shadow that refused); the spent cost of each; the epoch of each (16 bytes); the reply; once it is settled, the reply to that |
//! | `9b` | epoch of the holds on a state | its number (16 bytes), until when it lasts, the refunds since its first hold, the time of the last one |
//!
//! With a block the kind is greater by hexadecimal `20`, and the value ends in the time until which
//! it blocks. A state with holds that are refunded when they lapse is a sorted set, which
//! `scripts/state_holds.lua` describes. A log that may need more than 128 records is a list: its
//! last element is such a value with at most 14 records, and those before it have exactly 14 each,
//! after the total before them. So a decision reads and writes a few hundred bytes, however long
//! the log. In a string, expired records stay until they are half of it, so that a write at its end
//! is enough in between.
//!
//! # Foreign values
//!
//! A value is foreign if no call could have written it. `read.lua` checks the kind, the size and
//! the end of the block. Each rule checks the numbers that it has read (`check`), with the bounds
//! of [`Record::restore`](tidegate_core::engine::Record::restore):
//!
//! * A count, a debt and a sum are 1 to 2^52, and a time is before 2^52.
//! * A window ends where the policy's windows end.
//! * A bucket is full again after the time of its debt.
//!
//! A time in the future is valid, because the clock of a server may step back by any span.
//!
//! A script checks the foot of a log and the records that it reads. The script for a single charge
//! reads only the end of a string, so it learns the size of the string from its write at the end.
//! If the string is longer than its foot says, the call fails, and the written bytes stay.

mod answer;
mod bounds;
mod bytes;
mod key;
mod layout;
mod normalized;
mod numbers;
mod open_holds;
mod plan;
mod request;
pub mod scripts;
mod shard_tag;
mod single_charges;

pub use answer::ScriptReply;
pub use key::Keys;
pub(crate) use normalized::NormalizedCall;
pub use plan::{Places, Plan, PlannedRequest, in_a_batch, no_reply};
pub use request::{Batch, Reply, Request, Tier, supports};
