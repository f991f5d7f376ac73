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
//! Each module has the rule, which holds the numbers of a policy, and the state, which a store keeps per subject. The
//! rule implements the same functions: `wait` (zero means admitted, and nothing else decides), `take`, `charge` (a take
//! beyond the limit, of what is `chargeable`), `give_back`, `take_back` (which undoes one take), `level`, and `recovers_at`, the time from which the state is
//! indistinguishable from none. Times are microseconds since 1970. None of them reads a clock, allocates (but for the
//! log, which grows) or panics, whatever the state: a state may come from elsewhere.
//!
//! **A clock that steps back.** Each state records the latest time (or window) in which it was written, and never goes
//! back behind it: the step mints nothing, and costs at most its own length.

mod check;
pub mod fixed_window;
pub mod interval_bucket;
pub(crate) mod rule;
pub(crate) mod shape;
pub mod sliding_counter;
pub mod sliding_log;
pub mod token_bucket;
pub(crate) mod traits;
pub(crate) mod unit;
