//! The Redis backend of Tidegate: exact rate limits that all processes share. Lua scripts decide
//! them by the server's clock, in one round trip.
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
//! crate. It makes the same decisions as `tidegate-memory`, to the microsecond.
//!
//! | to | look at |
//! |---|---|
//! | choose a server, a Sentinel group, a user, timeouts | [`RedisStoreBuilder`] |
//! | use tokens that expire, or passwords that change | [`RedisStoreBuilder::credentials`] |
//! | use a connection that the application has made | [`RedisStoreBuilder::connection`] |
//! | check the server when a program starts | [`RedisStore::ready`] |
//! | decide on many calls in one round trip | [`Store::decide_many`] |
//! | find the meaning of an error | [below](#errors) |
//! | see how connections are made and replaced | [below](#connections) |
//! | read the keys with `redis-cli` | [below](#keys) |
//! | use a server without scripts | [below](#without-scripts) |
//!
//! # The server
//!
//! The server is Redis 6.0 or later, or Valkey. The tests run on Redis 7.0.15, and have passed on
//! 6.0.9, 6.2.14, 8.2.3 and Valkey 9.1.2 (`.ci/newest-redis` fetches the newest version and tests
//! it). A call needs a Tokio runtime with its drivers for I/O and time (`enable_all`). Without a
//! runtime, it fails with `Unsupported`.
//!
//! A failover of Redis may lose the last writes, because replicas lag behind. The calls that these
//! writes admitted may be admitted again. This is the only bound on exactness that no client can
//! remove.
//!
//! # Connections
//!
//! The first call makes a connection, which all callers share. A lost connection is replaced. Tasks
//! make, watch and replace the connection, so callers may be cancelled at any time. The tasks run
//! on the runtime of the call that needed the connection. If that runtime ends, the next call
//! starts them on its own runtime.
//!
//! | event | effect on a call | duration |
//! |---|---|---|
//! | there is no connection yet | it waits for the current attempt | at most [`connect_timeout`](RedisStoreBuilder::connect_timeout), then `Unavailable` |
//! | an attempt has failed | `Unavailable` immediately | a pause of 20 ms, which doubles up to 500 ms; then the next attempt |
//! | the server does not reply, but the connection is open | `Timeout` | until a reply has been due for [`response_timeout`](RedisStoreBuilder::response_timeout); then the connection is replaced, and due replies are accepted for as long again |
//! | the connection is closed under load | `Unavailable` for the calls that may have been sent | until the next call, which makes a new connection |
//! | the connection is closed while it is idle: by the server's `timeout`, `CLIENT KILL` or a restart | none: the next call is sent on a new connection, because it was not sent on the closed one | |
//! | the host is lost without closing the connection | `Timeout` at first; after 30 s the connection counts as closed | TCP keepalive after 15 s, `TCP_USER_TIMEOUT` of 30 s on Linux |
//! | the server refuses writes (READONLY, NOREPLICAS) | `ReadOnly` | until a new connection is made, at most every 200 ms |
//! | a reply is longer than 16 MiB, or a line than 1 MiB | `Unavailable` | the connection is dropped; a script's reply has about 50 bytes per charge |
//!
//! So a call takes at most `connect_timeout` and `response_timeout` together, and twice that time
//! if its connection turns out to be closed. `.timeout(..)` around the store shortens this time.
//!
//! # Batches
//!
//! [`Store::decide_many`] makes one script call for up to 1,024 charges, which take a server about
//! 3 to 10 ms. A batch costs the server a fraction of the same number of single calls. A *usual
//! batch* costs least, because it has its own script. Its calls acquire a single charge each,
//! without a wait, a block or a log, and have at most 16 different combinations of cost and policy.
//! `docs/benchmarks.md` has the figures. Calls with an [id](CallId) are sent one by one.
//!
//! [`StoreExt::coalesced`] combines the calls of concurrent callers in batches.
//!
//! # Errors
//!
//! An error is never a denial. **A call is executed at most once.** If its reply is lost, it is not
//! known whether the call was charged, and the store does not send it again. There are two
//! exceptions in which the server has done nothing. A server that does not know the script
//! (`NOSCRIPT`) gets the call again with the script. A call that was not written, because the
//! connection had been closed before, is sent on a new connection. An application may repeat a call
//! with an [id](CallId), a [hold](Operation::Hold) and its settlement after any error. If it was
//! charged, the store returns the first decision.
//!
//! A message names the server as `host:port` or by its socket, and never a user or a password. The
//! text of the server or the system is the error's `source()` and not a part of the message; `{:#}`
//! prints both in one line. Control characters in the text of a server are escaped, and the text is
//! cut to 300 characters.
//!
//! | [`ErrorKind`] | cause | charged? |
//! |---|---|---|
//! | `Timeout` | no reply within [`response_timeout`](RedisStoreBuilder::response_timeout) | not known |
//! | `Unavailable` | no connection, a lost connection, or a server that is not Redis | not known; no, if there was no connection |
//! | `Misconfigured` | NOAUTH, WRONGPASS, NOPERM, DENIED: the user, the password or a permission; no such database; a certificate that is not trusted, or is for another name | no; not known if a script lacks a permission |
//! | `ReadOnly` | READONLY, MISCONF, NOREPLICAS: a replica, or a server that cannot save | no |
//! | `Busy` | BUSY, LOADING, TRYAGAIN | no |
//! | `OutOfMemory` | OOM: `maxmemory` is reached and nothing may be evicted | no |
//! | `ForeignValue` | the key of a state or of the call's id has a value that Tidegate cannot have written; it was not changed | no |
//! | `IdReused` | the id of the call was used for another call | no |
//! | `TooManyHolds` | the subject has the [maximum of open holds](Policy::max_open_holds_of) | no |
//! | `UnknownHold`, `HoldLapsed`, `AlreadySettled` | the hold can no longer be settled or extended: see [`Operation::Settle`] | no |
//! | `UnsupportedServer` | a server without scripts, or a cluster | no |
//! | `Protocol` | a reply that is not valid | not known |
//!
//! [`Error::is_definitely_not_charged`] reports for each error whether it was certainly not
//! charged. `Misconfigured` ends when the server or the settings are corrected, because the next
//! attempt uses them. A [`FallbackStore`](core::layers::FallbackStore) does not hide it unless
//! [`OnFailure::also_on`] includes it.
//!
//! A script makes all checks that can fail before its first write. It writes a state and its expiry
//! in one command.
//!
//! # Keys
//!
//! A state and its block are stored under one key: `prefix:policy:shape:{subject}`, or
//! `prefix:policy:shape:{tenant}:subject`. The shape is the algorithm and its window, such as
//! `log.15m` ([`Policy::state_name`]). For a policy without a name, its text replaces name and
//! shape. Bytes that are not visible ASCII, and `{`, `}`, `:` and `%`, are escaped as `%` and two
//! hexadecimal digits.
//!
//! A key lives at least until the state has recovered and the block is over, rounded up to a
//! millisecond. Windows, counters and new states live exactly this long. A bucket that is charged
//! again lives up to half longer, and a log up to an eighth of its remaining life, so that most
//! writes need not set the expiry, which is the most expensive part of a write.
//!
//! The record of a call with an [id](CallId) is stored under `prefix:%id:{subject}:id`, or
//! `prefix:%id:{tenant}:id`, with the subject or the tenant of the first charge. The script writes
//! it together with the states. It contains the decision and expires with the id. A call that was
//! denied or failed has no record. A server that evicts keys (`maxmemory-policy`) may forget ids
//! early, just as it may forget states.
//!
//! A [hold](Operation::Hold) also has such a record, with the held cost of each charge. It expires
//! after twice the time to live of its id. Until then, any process can settle the hold. A
//! settlement changes the states and the record in one script call. The key of a state with `%h` at
//! its end has the epoch of the holds on the state, by which a settlement recognizes a reset. It
//! expires after the last hold. If the server evicts it earlier, settlements refund nothing.
//!
//! The value of a policy that refunds lapsed holds ([`Policy::refund_lapsed`]) is a sorted set
//! while there are holds. It has the state and about 150 bytes per hold. A log with such a policy
//! may have at most 128 records; [`supports`](Store::supports) refuses other logs.
//!
//! This is layout 2. Keys of layout 1 contained no shape and are not read. When processes change
//! from layout 1 to layout 2, each limit starts from an empty state once, and the old keys expire.
//! While processes of both layouts run, they admit at most both limits together.
//!
//! The values are described in `src/scripts/README.md`.
//!
//! # Without scripts
//!
//! For a proxy that does not support scripts, [`script_free`](RedisStoreBuilder::script_free) uses
//! GET, INCRBY and PEXPIRE in MULTI and EXEC, in two or three round trips. It supports acquire,
//! peek and reset on fixed windows that are aligned or phased and do not block. Everything else
//! fails with [`ErrorKind::Unsupported`]; a [`Limiter`] with another policy cannot be built. The
//! limit is never exceeded, but if calls compete for the last unit, all of them may be refused. The
//! cost that a refused call has added is subtracted again even if its caller is cancelled. Each
//! window has its own key, which lives ten seconds longer than the window.
//!
//! # Crate features
//!
//! No feature is enabled by default.
//!
//! | feature | adds |
//! |---|---|
//! | `tls` | `rediss://` by rustls, root and client certificates |
//! | `metrics`, `tracing` | `StoreExt::observed`, the times of script calls, events of outages |
//! | `serde` | serialization of policies and shares as text |
//! | `uuid` | UUIDs as subjects |
//! | `virtual-time` | a clock that replaces the server's clock, for tests in virtual time |
#![cfg_attr(docsrs, feature(doc_cfg))]

mod builder;
// Only for `tidegate-cluster`; outside semantic versioning.
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
// Items that only `tidegate-cluster` and `tidegate plan` use. They are outside semantic versioning.
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
