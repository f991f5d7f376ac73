//! The Redis backend of Tidegate: exact rate limits that all processes share. Lua scripts decide
//! each call by the server's clock, in one round trip.
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
//! let decision = limiter.acquire("alice").await?; // one script call: both policies or none
//! if decision.is_denied() {
//!     println!("429, Retry-After: {:?}", decision.retry_after_secs()); // none if no wait helps
//! }
//! # Ok(())
//! # }
//! ```
//!
//! This crate re-exports all items of `tidegate-core`, so an application depends only on this
//! crate. The Redis store makes the same decisions as the store of `tidegate-memory`, to the
//! microsecond.
//!
//! | to | look at |
//! |---|---|
//! | choose a server, a Sentinel group, a user, timeouts | [`RedisStoreBuilder`] |
//! | use tokens that expire, or passwords that change | [`RedisStoreBuilder::credentials`] |
//! | use a connection that the application has made | [`RedisStoreBuilder::connection`] |
//! | check the server when a program starts | [`RedisStore::ready`] |
//! | decide many calls in one round trip | [`Store::decide_many`] |
//! | find the meaning of an error | [below](#errors) |
//! | see how connections are made and replaced | [below](#connections) |
//! | see how calls that wait for slots are woken | [below](#wake-ups) |
//! | read the keys with `redis-cli` | [below](#keys) |
//! | use a server without scripts | [below](#without-scripts) |
//!
//! # The server
//!
//! The server must be Redis 6.0 or later, or Valkey. The tests run on Redis 7.0.15. The tests have
//! also passed on 6.0.9, 6.2.14, 8.2.3 and Valkey 9.1.2 (`.ci/newest-redis` fetches the newest
//! version of Redis and runs the tests on it). A call needs a Tokio runtime with its drivers for
//! I/O and time (`enable_all`). Without a runtime, the call fails with `Unsupported`.
//!
//! A failover of Redis can lose the last writes, because replicas lag behind. The new primary does
//! not know the calls of these writes, so it can admit the same amount again. This is the only loss
//! of exactness that no client can prevent. Redis 6 has another: it replicates the lives of keys as
//! spans. If the clock of the new primary is earlier, its keys expire early by the difference.
//!
//! # Connections
//!
//! The first call makes a connection, which all callers share. A lost connection is replaced.
//! Background tasks make, watch and replace the connection, so a caller can be cancelled at any
//! time. The tasks run on the runtime of the call that needed the connection. If that runtime ends,
//! the next call starts the tasks on its own runtime.
//!
//! | event | effect on a call | end of the effect |
//! |---|---|---|
//! | there is no connection yet | the call waits for the current attempt to connect | after at most [`connect_timeout`](RedisStoreBuilder::connect_timeout), when the call fails with `Unavailable` |
//! | an attempt to connect has failed | the call fails with `Unavailable` immediately | after a pause of 20 ms, which doubles with each failure up to 500 ms; then the next attempt starts |
//! | the server does not reply, but the connection is open | the call fails with `Timeout` | when a reply has been due for [`response_timeout`](RedisStoreBuilder::response_timeout): the store makes a new connection, and accepts late replies on the old connection for the same time again |
//! | the connection is closed while calls are in flight | each call that was possibly sent fails with `Unavailable` | at the next call, which makes a new connection |
//! | the connection is closed while it is idle: by the server's `timeout`, `CLIENT KILL` or a restart | none: the store sends the next call on a new connection, because the call was not sent on the closed connection | |
//! | the host fails and does not close the connection | the call fails with `Timeout` | after 30 s, when the system closes the connection: TCP keepalive begins after 15 s, and `TCP_USER_TIMEOUT` is 30 s on Linux |
//! | the server refuses writes (READONLY, NOREPLICAS) | the call fails with `ReadOnly` | when the store has made a new connection to a server that accepts writes; it tries at most every 200 ms |
//! | a reply is longer than 16 MiB, or a line of a reply is longer than 1 MiB | the call fails with `Unavailable` | at the next call, because the store drops the connection; a script's reply has only about 50 bytes per charge |
//!
//! A call takes at most the sum of `connect_timeout` and `response_timeout`. If the store finds the
//! connection closed and sends the call on a new connection, the call takes at most twice this sum.
//! A layer `.timeout(..)` around the store shortens the time of a call.
//!
//! # Wake-ups
//!
//! While calls [wait for slots](Request::hold_within), the store has an extra
//! connection, on which the server wakes the calls whose turn it is. The store subscribes to one
//! shard channel per subject that calls wait for. Five seconds after the last of these calls, the
//! store closes the connection. With a Sentinel group, the connection is to the primary. A store
//! with an [existing connection](RedisStoreBuilder::connection) has no wake-ups.
//!
//! A wake-up is only a hint, so no call fails because of this connection. While the connection is
//! lost, the calls are sent again at short intervals. The same applies to a server without shard
//! channels (before Redis 7) or without RESP3, and to a user without the
//! [permissions](RedisStoreBuilder::user).
//!
//! # Batches
//!
//! [`Store::decide_many`] makes one script call for up to 1,024 charges. A server executes such a
//! script call in about 3 to 10 ms, a fraction of the time for the same number of single calls. A
//! *usual batch* costs least, because it has its own script. Each call of a usual batch acquires a
//! single charge, without a wait, a block or a log. The calls have at most 16 different
//! combinations of cost and policy. `docs/benchmarks.md` has the figures. Calls with an
//! [id](CallId) are sent one by one.
//!
//! [`StoreExt::coalesced`] combines the calls of concurrent callers in batches.
//!
//! # Errors
//!
//! An error is never a denial. **A call is executed at most once.** If the reply to a call is lost,
//! it is not known whether the call was charged, and the store does not send the call again.
//!
//! The store sends a call again in two cases, in which the server has executed nothing. In the
//! first case, the server replies that it does not know the script (`NOSCRIPT`); the store sends
//! the call again with the script. In the second case, the connection was closed before the call
//! was written; the store sends the call on a new connection.
//!
//! After any error, an application is allowed to repeat a call with an [id](CallId), a
//! [hold](Operation::Hold), and the settlement of a hold. If the call was charged before, the store
//! returns the first decision.
//!
//! The message of an error names the server as `host:port` or by its socket, and never a user or a
//! password. The text of the server or the system is the error's `source()` and not a part of the
//! message; `{:#}` prints both in one line. Control characters in the text of a server are escaped,
//! and the text is cut to 300 characters.
//!
//! | [`ErrorKind`] | cause | charged? |
//! |---|---|---|
//! | `Timeout` | no reply within [`response_timeout`](RedisStoreBuilder::response_timeout) | not known |
//! | `Unavailable` | no connection, a lost connection, or a server that is not Redis | no, if there was no connection; otherwise not known |
//! | `Misconfigured` | the user, the password or a permission is wrong (NOAUTH, WRONGPASS, NOPERM, DENIED); the database does not exist; a certificate is not trusted or is for another name | not known, if the script lacks a permission; otherwise no |
//! | `ReadOnly` | the server is a replica or cannot save (READONLY, MISCONF, NOREPLICAS) | no |
//! | `Busy` | the server replies BUSY, LOADING or TRYAGAIN | no |
//! | `OutOfMemory` | `maxmemory` is reached and the server is not allowed to evict anything (OOM) | no |
//! | `ForeignValue` | the key of a state or of the call's id has a value that Tidegate cannot have written; the value was not changed | no |
//! | `IdReused` | the id of the call was used for another call | no |
//! | `TooManyHolds` | the subject has the [maximum of open holds](Policy::max_open_holds_of) | no |
//! | `UnknownHold`, `HoldLapsed`, `AlreadySettled` | the hold can no longer be settled or extended: see [`Operation::Settle`] | no |
//! | `UnsupportedServer` | a server without scripts, or a cluster | no |
//! | `Protocol` | a reply that is not valid | not known |
//!
//! [`Error::is_definitely_not_charged`] reports whether the call of an error was certainly not
//! charged. The error `Misconfigured` ends when the server or the settings are corrected, because
//! the next attempt to connect uses the new settings. A
//! [`FallbackStore`](core::layers::FallbackStore) returns `Misconfigured` to the caller. If
//! [`OnFailure::also_on`] includes this kind, the layer decides the call without the store instead.
//!
//! A script makes all checks that can fail before its first write. The script writes a state and
//! its expiry in one command.
//!
//! # Keys
//!
//! A state and its block are stored under one key: `prefix:policy:shape:{subject}`, or
//! `prefix:policy:shape:{tenant}:subject`. The shape is the algorithm and its window, such as
//! `log.15m` ([`Policy::state_name`]). If a policy has no name, its key contains the text of the
//! policy instead of name and shape. Bytes that are not visible ASCII, and `{`, `}`, `:` and `%`,
//! are escaped as `%` and two hexadecimal digits.
//!
//! A key lives at least until the state has recovered and the block is over, rounded up to a
//! millisecond. The keys of windows, counters and new states live exactly this long. The key of a
//! bucket that is charged again lives up to 50 % longer. The key of a log lives longer by up to an
//! eighth of its remaining life. Because of the additional life, most writes need not set the
//! expiry again. To set the expiry is the most expensive part of a write.
//!
//! A call with an [id](CallId) has a record under the key `prefix:%id:{subject}:id` or
//! `prefix:%id:{tenant}:id`. The subject or tenant is from the first charge of the call. The script
//! writes the record together with the states. The record contains the decision and expires with
//! the id. A call that was denied or failed has no record. A server that evicts keys
//! (`maxmemory-policy`) can forget ids early, just as it can forget states.
//!
//! A [hold](Operation::Hold) has a record under its id, which contains the held cost of each
//! charge. The record expires after twice the time to live of the id. Until then, any process can
//! settle the hold. A settlement changes the states and the record in one script call.
//!
//! The holds on a state have an epoch, the time between two resets of the state. By the epoch, a
//! settlement recognizes that the state was reset after the hold was made. The key of the epoch is
//! the key of the state with `%h` at its end. Each member of a fair pool has its own epoch, whose
//! key also contains the subject. The epoch expires after the last hold. If the server evicts the
//! epoch earlier, settlements refund nothing and charge the whole actual cost again.
//!
//! While a state has holds and its policy refunds lapsed holds ([`Policy::refund_lapsed`]), the
//! state is stored in a sorted set. The set contains the state and about 150 bytes per hold. A log
//! with such a policy can have at most 128 records; [`supports`](Store::supports) refuses other
//! logs.
//!
//! Since layout 2, a key contains the shape of the policy. Keys of layout 1 contained no shape and
//! are not read. When processes change from layout 1 to layout 2, each limit starts from an empty
//! state once, and the old keys expire. While processes of both layouts run, together they admit at
//! most the limit of each layout, which is twice the limit.
//!
//! `src/scripts/README.md` describes the values of the keys.
//!
//! # Without scripts
//!
//! For a proxy that does not support scripts, [`script_free`](RedisStoreBuilder::script_free) uses
//! GET, INCRBY and PEXPIRE in MULTI and EXEC, in two or three round trips. Such a store supports
//! acquire, peek and reset on fixed windows that are aligned or phased and do not block. All other
//! operations fail with [`ErrorKind::Unsupported`], and a [`Limiter`] with another policy cannot be
//! built.
//!
//! The admitted total never exceeds the limit. But if several calls compete for the last unit, it
//! is possible that all of them are refused. If a refused call has added its cost, the store
//! subtracts the cost again even if the caller is cancelled. Each window has its own key, which
//! lives ten seconds longer than the window.
//!
//! # Crate features
//!
//! No feature is enabled by default.
//!
//! | feature | adds |
//! |---|---|
//! | `tls` | support for `rediss://` URLs (TLS, by the library rustls), and settings for root certificates and client certificates |
//! | `metrics`, `tracing` | `StoreExt::observed`; `metrics` also the times of script calls, `tracing` also events of outages |
//! | `serde` | serialization of policies and shares as text |
//! | `uuid` | UUIDs as subjects |
//! | `virtual-time` | a clock that replaces the server's clock, for tests in virtual time |
#![cfg_attr(docsrs, feature(doc_cfg))]

mod builder;
// Only `tidegate-cluster` uses `connection`. The module is outside semantic versioning.
#[doc(hidden)]
pub mod connection;
mod inner;
mod limit_book;
#[cfg(feature = "metrics")]
pub mod names;
mod redis_store;
mod script_free;
// Only the command `tidegate scripts` uses `scripts`. The module is outside semantic versioning.
#[doc(hidden)]
pub mod scripts;
mod values;
// Only `tidegate-cluster` and `tidegate plan` use `protocol`. The module is outside semantic
// versioning.
#[doc(hidden)]
pub mod protocol;

pub use builder::RedisStoreBuilder;
pub use connection::{Credentials, ProvidedCredentials};
#[doc(hidden)]
pub use limit_book::Run;
pub use limit_book::{KeptLimits, LimitBook, LimitBookError, LimitChange, LimitsEvent};
/// The Redis client. It is re-exported because [`RedisStoreBuilder::connection`] accepts its
/// connections.
pub use redis;
pub use redis_store::RedisStore;
pub use tidegate_core as core;
// The crate re-exports all items of the core, so that every backend offers the same items.
#[doc(no_inline)]
pub use tidegate_core::*;
