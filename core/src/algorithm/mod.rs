//! The algorithms: pure integer functions of a state, a cost and a time.
//!
//! | module | admits a cost `c` iff |
//! |---|---|
//! | [`fixed_window`] | `count + c ≤ L` in the current window |
//! | [`sliding_log`] | the costs of the last `W`, `+ c ≤ L` |
//! | [`sliding_counter`] | `prev·(W − e) + (cur + c)·W ≤ L·W` |
//! | [`token_bucket`] | `debt(t) + c ≤ B`, the debt shrinking continuously (also GCRA) |
//! | [`interval_bucket`] | `debt(t) + c ≤ B`, the debt shrinking once per period |
//!
//! Each has the same six functions: `wait` (zero means admitted, and is the only place that
//! decides), `take`, `give_back`, `take_back` (which undoes one take, and nothing else), `level`, and
//! `recovers_at`, the time from which the state is indistinguishable from none. Times are microseconds since 1970. None reads a clock, allocates
//! (but for the log, which grows), or panics, whatever the state: a state may come from elsewhere.
//!
//! **A clock that steps back.** Each state remembers the latest time (or window) it was written
//! in, and never goes back behind it: the step mints nothing, and costs at most its own length.

pub mod fixed_window;
pub mod interval_bucket;
pub mod sliding_counter;
pub mod sliding_log;
pub mod token_bucket;
mod unit;

pub use unit::Unit;

/// How full a state is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Level {
    /// The largest cost that would be admitted now, rounded down.
    pub remaining: u64,
    /// When the state will have recovered fully, if nothing more is taken; microseconds since 1970.
    pub recovers_at: u64,
}
