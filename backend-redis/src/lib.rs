//! The Redis backend of Tidegate: exact rate limits that all processes share, decided on in Lua by the
//! server's own clock, in one round trip.
//!
//! ```no_run
//! use tidegate_redis::{Limiter, RedisStore};
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let store = RedisStore::new("redis://127.0.0.1:6379")?; // connects at the first call
//! let limiter = Limiter::new(
//!     store,
//!     ["burst: token-bucket 10/1s burst 20".parse()?, "day: sliding-counter 10000/1d".parse()?],
//! )?;
//! let decision = limiter.acquire("alice").await?; // one script call, both or none
//! if decision.is_denied() {
//!     println!("429, Retry-After: {:?}", decision.retry_after_secs()); // none if no wait helps
//! }
//! # Ok(())
//! # }
//! ```
//!
//! All items of `tidegate-core` are re-exported, so an application depends on this crate only. The
//! decisions are those of `tidegate-memory`, to the microsecond.
//!
//! | to | look at |
//! |---|---|
//! | choose a server, a Sentinel group, a user, timeouts | [`RedisStoreBuilder`] |
//! | use tokens that expire, or passwords that change | [`RedisStoreBuilder::credentials`] |
//! | use a connection that the application has made | [`RedisStoreBuilder::connection`] |
//! | check the server when a program starts | [`RedisStore::ready`] |
//! | decide on many calls in one round trip | [`Store::decide_many`] |
//! | know what an error means | [below](#errors) |
//! | know what happens to connections | [below](#connections) |
//! | read the keys with `redis-cli` | [below](#keys) |
//! | do without scripts | [below](#without-scripts) |
//!
//! # The server
//!
//! Redis from 6.0 on, or Valkey: it is tested on 7.0.15, and was tried on 6.0.9, 6.2.14 and 8.2.3, and on
//! Valkey 9.1.2 (`.ci/newest-redis` fetches the newest and tries it). A call needs a tokio runtime
//! with its drivers for I/O and time (`enable_all`); without a runtime it fails with `Unsupported`.
//!
//! A failover of Redis may lose the last writes, as replicas lag behind: what was admitted in that
//! moment may be admitted again. That is the one bound on exactness that no client can lift.
//!
//! # Connections
//!
//! A connection is made at the first call, shared by all callers, and made anew when it was lost. Tasks of its
//! own make, watch and replace it, so callers may give up at any time. They run on the runtime of the call
//! that needed the connection; when that runtime ends, the next call starts them on its own.
//!
//! | what happens | what a call gets | for how long |
//! |---|---|---|
//! | there is no connection yet | it waits for the one attempt that is under way | [`connect_timeout`](RedisStoreBuilder::connect_timeout) at most, then `Unavailable` |
//! | an attempt has failed | `Unavailable`, at once | a pause of 20 ms, doubling up to 500 ms; then the next attempt |
//! | the connection falls silent, although nothing is closed | `Timeout` | until an answer is owed for [`response_timeout`](RedisStoreBuilder::response_timeout), then it is replaced; what is owed on it may still come for as long again |
//! | the connection is closed under load | `Unavailable` for the calls that may have been sent | until the next call, which makes a new one |
//! | the connection is closed while nothing is under way: by the server's `timeout`, `CLIENT KILL`, a restart | nothing: it was not sent, and is sent on a new connection | |
//! | the host is gone without a word | the same, 30 s later; `Timeout` before | TCP keepalive after 15 s, `TCP_USER_TIMEOUT` of 30 s on Linux |
//! | the server takes no writes (READONLY, NOREPLICAS) | `ReadOnly` | it is left for another connection, every 200 ms at most |
//! | an answer has more than 16 MiB, or a line of 1 MiB | `Unavailable` | the connection is dropped: the scripts' answers have some 50 bytes per charge |
//!
//! So a call takes at most `connect_timeout` and `response_timeout` together, and twice that if the
//! connection turns out to have been closed. `.timeout(..)` around the store bounds that to what you like.
//!
//! # Batches
//!
//! [`Store::decide_many`] makes one script call for up to 1,024 charges, which take a server some 3 to 10 ms. A batch
//! costs the server a fraction of as many single calls, and least if each of its calls acquires a single charge, at no
//! more than 16 different costs and policies, without a wait, a block or a log: such a batch has a script of its own.
//! `docs/benchmarks.md` has the figures. Calls with an [id](CallId) are sent one by one.
//!
//! [`StoreExt::coalesced`] makes batches of the calls of concurrent callers.
//!
//! # Errors
//!
//! An error is never a denial. **A call is sent once.** If its answer is lost, whether it was charged is
//! not known, and it is not sent again: at most one charge per call. Only a server that does not know
//! the script (`NOSCRIPT`) gets the call again, with the script: it has done nothing. And a call of which
//! not a byte was sent, as the connection had been closed before, is sent on a new one. A call with an
//! [id](CallId) may be made again after any error: if it was charged, it is answered as the first time. So are a
//! [hold](Operation::Hold) and its settlement.
//!
//! A message names the server, as `host:port` or by its socket, and never a user or a password. What the
//! server or the system reported is the error's `source()`, and no part of the message; `{:#}` prints both in
//! one line. The text of a server is shown with its control characters escaped, and cut to 300 characters.
//!
//! | [`ErrorKind`] | what happened | charged? |
//! |---|---|---|
//! | `Timeout` | no answer within [`response_timeout`](RedisStoreBuilder::response_timeout) | not known |
//! | `Unavailable` | no connection, or it was lost, or what answers is not Redis | not known; no, if there was no connection |
//! | `Misconfigured` | NOAUTH, WRONGPASS, NOPERM, DENIED: the user, the password or a permission; no such database; a certificate that is not trusted, or is for another name | no; not known if a script lacks a permission |
//! | `ReadOnly` | READONLY, MISCONF, NOREPLICAS: a replica, or a server that cannot save | no |
//! | `Busy` | BUSY, LOADING, TRYAGAIN | no |
//! | `OutOfMemory` | OOM: `maxmemory` is reached and nothing may be evicted | no |
//! | `ForeignValue` | no call can have written the value under the key, or under the key of the call's id; it was not changed | no |
//! | `IdReused` | the id of the call was used for another one | no |
//! | `TooManyHolds` | the subject has the [maximum of open holds](Policy::max_open_holds_of) | no |
//! | `UnknownHold`, `HoldLapsed`, `AlreadySettled` | the hold cannot be settled or extended any more: see [`Operation::Settle`] | no |
//! | `UnsupportedServer` | no scripts, a cluster | no |
//! | `Protocol` | a reply that is not valid | not known |
//!
//! [`Error::is_definitely_not_charged`] tells for each error. `Misconfigured` ends as soon as the server or the
//! settings are put right: the next attempt finds out. A [`FallbackStore`](core::layers::FallbackStore) does not
//! hide it, unless [`OnFailure::also_on`] includes it.
//!
//! A script checks all that can fail before its first write, and writes a state and its expiry in one
//! step.
//!
//! # Keys
//!
//! A state, with its block, lies under one key: `prefix:policy:shape:{subject}`, or
//! `prefix:policy:shape:{tenant}:subject`. The shape is the algorithm and its window, such as `log.15m`
//! ([`Policy::state_name`]); a policy without a name has its text instead of both. Bytes that are not visible
//! ASCII, and `{`, `}`, `:` and `%`, are escaped as `%` and two hexadecimal digits.
//!
//! A key lives at least until the state has recovered and the block is over, rounded up to a millisecond:
//! a window, a counter, and what is written for the first time exactly that long. A bucket or a log that is
//! charged again lives longer (a bucket by up to half, a log by up to an eighth of its remaining life), so
//! that most writes need not set the expiry again, which is the most expensive part of a write.
//!
//! The record of a call with an [id](CallId) lies under `prefix:%id:{subject}:id`, or
//! `prefix:%id:{tenant}:id`, with the subject or the tenant of the first charge. It is written in
//! the same step as the states, holds the answer, and expires with the id. A call that was denied
//! or failed has no record. A server that evicts keys (`maxmemory-policy`) may forget ids early, as
//! it may forget states. A [hold](Operation::Hold) also has such a record, with the held cost of
//! each charge. It expires after twice the time to live of its id. Until then any process can
//! settle the hold. A settlement changes the states and the record in one step. The key of
//! a state with `%h` at its end has the epoch of the holds on the state, by which a settlement
//! recognizes a reset. It expires after the last hold. If it is evicted before, settlements give
//! nothing back.
//!
//! The key of a policy that refunds lapsed holds ([`Policy::refund_lapsed`]) is a sorted set while
//! there are holds: the state, and about 150 bytes per hold. A log with such a policy may have at
//! most 128 records; [`supports`](Store::supports) refuses others.
//!
//! This is layout 2. Keys of layout 1 had no shape in them and are not read: when processes change from one
//! to the other each limit begins anew once, those of the older layout expire by themselves, and while both
//! run at most both limits together are admitted.
//!
//! The values are described in `src/scripts/README.md`.
//!
//! # Without scripts
//!
//! Behind a proxy that passes no scripts, [`script_free`](RedisStoreBuilder::script_free) does with GET,
//! INCRBY and PEXPIRE in MULTI and EXEC, in two or three round trips: fixed windows only, aligned or
//! phased, that do not block; acquire, peek and reset only. Everything else is
//! [`ErrorKind::Unsupported`], policies already when a [`Limiter`] is built. Never more than the limit is
//! admitted; of calls that race for the last of it, each may be refused. What a refused call has added is
//! taken off again even if its caller goes away meanwhile. Each window has a key of its own, which
//! lives ten seconds longer than the window.
//!
//! # Crate features
//!
//! None is on by default.
//!
//! | feature | what it adds |
//! |---|---|
//! | `tls` | `rediss://`, by rustls; root and client certificates |
//! | `metrics`, `tracing` | `StoreExt::observed`, the times of scripts, events of outages |
//! | `serde` | policies and shares as their text |
//! | `uuid` | UUIDs as subjects |
//! | `virtual-time` | a clock of your own in place of the server's, for tests in virtual time |
#![cfg_attr(docsrs, feature(doc_cfg))]

mod builder;
// For `tidegate-cluster` alone: no semantic versioning.
#[doc(hidden)]
pub mod connection;
mod inner;
#[cfg(feature = "metrics")]
pub mod names;
mod redis_store;
mod script_free;
// Only for `tidegate scripts`; outside semantic versioning.
#[doc(hidden)]
pub mod scripts;
mod values;
// For `tidegate-cluster` and `tidegate plan` alone: no semantic versioning.
#[doc(hidden)]
pub mod wire;

pub use builder::RedisStoreBuilder;
pub use connection::{Credentials, ProvidedCredentials};
/// The client, because [`RedisStoreBuilder::connection`] accepts its connections.
pub use redis;
pub use redis_store::RedisStore;
pub use tidegate_core as core;
// Everything is re-exported, so that the backends cannot differ in what they re-export.
#[doc(no_inline)]
pub use tidegate_core::*;
