//! The algorithms: pure integer functions of a state, a cost and a time.
//!
//! | module | admits a cost `c` if and only if |
//! |---|---|
//! | [`fixed_window`] | `count + c ≤ L` in the current window |
//! | [`sliding_log`] | the sum of the costs in the last `W`, plus `c`, is at most `L` |
//! | [`sliding_counter`] | `prev·(W − e) + (cur + c)·W ≤ L·W`, with `e` the time since the current window began |
//! | [`token_bucket`] | `debt(t) + c ≤ B`, with a debt that shrinks continuously (also GCRA) |
//! | [`interval_bucket`] | `debt(t) + c ≤ B`, with a debt that shrinks once per period |
//! | [`quota`] | `count + c ≤ L` in the current window of a calendar, such as a month |
//! | [`concurrent`] | `count + c ≤ L`, with `count` slots in use |
//! | [`fair_pool`] | the total in the current window, plus `c` and the unused shares of all other members, is at most `L` |
//!
//! `L` is the limit, `W` the window, `B` the capacity of a bucket, and `t` the time. Each module
//! contains a *rule* and a *state*. The rule has the numbers of a policy. A store keeps a state for
//! each subject. All rules have the same functions:
//!
//! | function | purpose |
//! |---|---|
//! | `wait` | returns the time until a cost is admitted; zero means that it is admitted now |
//! | `take` | charges an admitted cost |
//! | `chargeable`, `charge` | charge the part of a cost beyond the limit that the state can represent |
//! | `refund` | refunds a cost, regardless of the time at which it was charged |
//! | `undo` | reverts the part of an earlier charge that still counts |
//! | `level` | returns the remaining amount and the time of recovery |
//! | `recovers_at` | returns the time from which the state cannot be distinguished from no state |
//!
//! Times are in microseconds since 1970. The functions read no clock. They allocate nothing, except
//! when a log grows. They do not panic on any state, because a state can come from outside of the
//! process.
//!
//! **Clocks that step back.** Each state contains the latest time (or window) at which it was
//! written. A call with an earlier time never moves the state back to that time. So a step back of
//! the clock adds no quota, and delays a recovery by at most the length of the step.

pub mod calendar;
mod check;
pub mod concurrent;
pub mod fair_pool;
pub mod fixed_window;
pub mod interval_bucket;
pub mod quota;
pub(crate) mod rule;
pub(crate) mod shape;
pub mod sliding_counter;
pub mod sliding_log;
pub mod token_bucket;
pub(crate) mod traits;
pub(crate) mod unit;
