//! A store on SQLite, in one file. It shows how to write a [`Store`] that keeps its states in a
//! database.
//!
//! The store uses only the public API. [`engine::decide`] decides, and
//! [`Record::restore`](engine::Record::restore) creates a record from a row. `tests/conformance.rs`
//! runs the whole conformance suite on the store.
//!
//! # Transactions
//!
//! Each call is one transaction, which reads its rows, decides, and writes the rows. `BEGIN
//! IMMEDIATE` takes the write lock before the first read. With a plain `BEGIN`, two processes would
//! read the same state and would both admit. Then the second write would fail
//! (`SQLITE_BUSY_SNAPSHOT`). A peek only reads, so a plain `BEGIN` is sufficient. A denial changes
//! no row and therefore writes nothing to the file.
//!
//! # Columns
//!
//! | column | content |
//! |---|---|
//! | `state_name`, `tenant`, `subject` | the key of the state |
//! | `policy` | the text of the policy that wrote the row, which determines the meaning of the numbers |
//! | `time` | `ends` of a window or a counter, `time` or `anchor` of a bucket, in microseconds since 1970; `NULL` for a log, or if nothing is charged |
//! | `used`, `used_before` | the count or the debt; for a counter, also the count of the previous window |
//! | `log` | the records of a log: the time and cost of each, as 64-bit integers, little-endian |
//! | `blocked_until` | microseconds since 1970, or `NULL` |
//! | `block_level`, `forgotten_at` | the number of offenses, and the time at which they are forgotten, in microseconds since 1970, or `NULL` |
//! | `recovers_at` | the time from which the row is equivalent to no row, in microseconds since 1970 |
//!
//! A row is deleted after it has recovered. Each call that writes deletes up to 100 such rows, so
//! that no background task is needed.
//!
//! # Blocking
//!
//! [`Store::decide`] answers immediately, on the thread of the caller. In WAL mode with
//! `synchronous = NORMAL`, an admission takes about 100 µs and does not wait for a disk, and a
//! refusal takes 10 µs. During this time, the call holds the write lock, and calls of other
//! processes wait for it. A call that does not get the lock within 50 ms fails with
//! [`ErrorKind::Busy`]. If the threads of a server must never block this long, the server can
//! execute the call in `tokio::task::spawn_blocking`, which costs about 10 µs more.
//!
//! # Limitations
//!
//! * After a power failure, the last decisions can be lost, because of `synchronous = NORMAL`.
//!   After a crash of the process, no decision is lost.
//! * The file has no maximum size: each state stays in the file until it has recovered.
//! * All calls of a process share one connection, and all processes share one writer. This is
//!   sufficient for thousands of decisions per second on one machine. WAL does not work over a
//!   network file system.
//! * Each process reads the clock of its machine. If the clock is set back, no state recovers until
//!   the clock has caught up.

mod row;

use std::fmt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use row::Rows;
use rusqlite::{Connection, ErrorCode, TransactionBehavior};
use tidegate_core::engine;
use tidegate_core::{
    Answer, Call, Clock, Decision, Error, ErrorKind, Operation, Store, SystemClock, Timestamp,
};

const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS states (
        state_name TEXT NOT NULL,
        tenant BLOB NOT NULL,
        subject BLOB NOT NULL,
        policy TEXT NOT NULL,
        time INTEGER,
        used INTEGER,
        used_before INTEGER,
        log BLOB,
        blocked_until INTEGER,
        block_level INTEGER,
        forgotten_at INTEGER,
        recovers_at INTEGER NOT NULL,
        UNIQUE (state_name, tenant, subject)
    ) STRICT;
    CREATE INDEX IF NOT EXISTS states_by_recovery ON states (recovers_at);
";

/// A store on one SQLite file. Several processes of one machine can share the file.
pub struct SqliteStore<C = SystemClock> {
    connection: Mutex<Connection>,
    clock: C,
}

impl SqliteStore {
    /// Opens the file, and creates it if it does not exist.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Unavailable`] if SQLite cannot open the file.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::new(Connection::open(path).map_err(failed)?, SystemClock::new())
    }
}

impl<C: Clock> SqliteStore<C> {
    /// Creates a store on an open database. The store reads the time from `clock`.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Unavailable`] if SQLite cannot create the table.
    pub fn new(connection: Connection, clock: C) -> Result<Self, Error> {
        connection.busy_timeout(Duration::from_millis(50)).map_err(failed)?;
        connection.pragma_update(None, "journal_mode", "wal").map_err(failed)?;
        connection.pragma_update(None, "synchronous", "normal").map_err(failed)?;
        connection.execute_batch(SCHEMA).map_err(failed)?;
        Ok(Self { connection: Mutex::new(connection), clock })
    }

    /// Returns the connection to the database, for backups and statistics. While the caller holds
    /// the returned guard, the store decides no call.
    pub fn connection(&self) -> MutexGuard<'_, Connection> {
        // The lock is poisoned if a thread panicked while it held the lock. No transaction is open
        // then, because the drop of a transaction rolls it back.
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn decide_now(&self, call: &Call<'_>) -> Result<Decision, Error> {
        call.check()?;
        let mut connection = self.connection();
        let behavior = match call.operation {
            Operation::Peek => TransactionBehavior::Deferred,
            _ => TransactionBehavior::Immediate,
        };
        let transaction = connection.transaction_with_behavior(behavior).map_err(failed)?;
        // The store reads the clock while it holds the write lock, so that a later write of a state
        // never has an earlier time.
        let now = self.clock.now();
        let mut rows = Rows::read(&transaction, call.charges)?;
        let decision = engine::decide(call, now, &mut rows)?;
        rows.write(&transaction, now).map_err(failed)?;
        transaction.commit().map_err(failed)?;
        Ok(decision)
    }
}

impl<C: Clock> Store for SqliteStore<C> {
    fn decide<'a>(&'a self, call: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
        Answer::ready(self.decide_now(&call))
    }

    fn now(&self) -> Answer<'_, Result<Timestamp, Error>> {
        Answer::ready(Ok(self.clock.now()))
    }
}

impl<C: fmt::Debug> fmt::Debug for SqliteStore<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore").field("clock", &self.clock).finish_non_exhaustive()
    }
}

/// Converts an error of SQLite to an [`Error`], whose kind tells the caller how to react.
#[expect(clippy::needless_pass_by_value, reason = "as `map_err` hands it over")]
fn failed(error: rusqlite::Error) -> Error {
    let kind = match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => ErrorKind::Busy,
        Some(ErrorCode::DiskFull) => ErrorKind::OutOfMemory,
        Some(ErrorCode::ReadOnly) => ErrorKind::ReadOnly,
        _ => ErrorKind::Unavailable,
    };
    Error::new(kind, format!("SQLite: {error}"))
}
