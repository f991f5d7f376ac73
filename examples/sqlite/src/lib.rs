//! A store on SQLite, in one file: how to write a [`Store`] that keeps its states in a database.
//!
//! It uses the public API only: [`engine::decide`] decides, and [`Record::restore`](engine::Record::restore) makes a record of a
//! row. `tests/conformance.rs` runs the whole conformance suite on it.
//!
//! # Transactions
//!
//! A call is one transaction: its rows are read, decided on, and written back. `BEGIN IMMEDIATE` takes
//! the write lock before the first read. With a plain `BEGIN`, two processes would read the same state,
//! both admit, and the second write would fail (`SQLITE_BUSY_SNAPSHOT`). A peek only reads, and needs
//! no more than a plain `BEGIN`. A denial changes no row, and so writes nothing to the file.
//!
//! # Columns
//!
//! | column | holds |
//! |---|---|
//! | `state_name`, `tenant`, `subject` | the key of the state |
//! | `policy` | the policy that wrote the row, as text: what the numbers mean |
//! | `time` | `ends` of a window or a counter, `time` or `anchor` of a bucket, in microseconds since 1970; `NULL` for a log, or if nothing is taken |
//! | `used`, `used_before` | the count or the debt; for a counter, that of the window before too |
//! | `log` | the records of a log: time and cost of each, as 64-bit integers, little-endian |
//! | `blocked_until` | microseconds since 1970, or `NULL` |
//! | `recovers_at` | from when on the row is the same as none, in microseconds since 1970 |
//!
//! A row is deleted once it has recovered: each call that writes deletes up to 100 of those, so that no
//! background task is needed.
//!
//! # Blocking
//!
//! [`Store::decide`] answers at once, on the caller's thread: in WAL mode with `synchronous = NORMAL` an
//! admission takes about 100 µs and waits for no disk, and a refusal takes 10 µs. Other processes hold the
//! lock for as little; a call that does not get it within 50 ms fails with [`ErrorKind::Busy`]. A server
//! whose threads must never stop for so long would copy the call into `tokio::task::spawn_blocking`, which
//! costs about 10 µs more.
//!
//! # What it does not do
//!
//! * After a power failure, the last decisions may be lost: `synchronous = NORMAL`. After a crash of the
//!   process none are.
//! * Nothing bounds the file but the lives of its states.
//! * All calls of a process share one connection, and all processes one writer: this suits thousands of
//!   decisions a second on one machine. WAL does not work over a network file system.
//! * Processes read the clock of their machine. If it is set back, the states stand still meanwhile.

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
        recovers_at INTEGER NOT NULL,
        UNIQUE (state_name, tenant, subject)
    ) STRICT;
    CREATE INDEX IF NOT EXISTS states_by_recovery ON states (recovers_at);
";

/// A store on one SQLite file, which several processes of one machine may share.
pub struct SqliteStore<C = SystemClock> {
    connection: Mutex<Connection>,
    clock: C,
}

impl SqliteStore {
    /// Opens the file, and creates it if it does not exist.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`] if SQLite cannot open it.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::new(Connection::open(path).map_err(failed)?, SystemClock::new())
    }
}

impl<C: Clock> SqliteStore<C> {
    /// A store on an open database, by the time of `clock`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`] if SQLite cannot create the table.
    pub fn new(connection: Connection, clock: C) -> Result<Self, Error> {
        connection.busy_timeout(Duration::from_millis(50)).map_err(failed)?;
        connection.pragma_update(None, "journal_mode", "wal").map_err(failed)?;
        connection.pragma_update(None, "synchronous", "normal").map_err(failed)?;
        connection.execute_batch(SCHEMA).map_err(failed)?;
        Ok(Self { connection: Mutex::new(connection), clock })
    }

    /// The database, for backups and statistics. No call is decided meanwhile.
    pub fn connection(&self) -> MutexGuard<'_, Connection> {
        // A caller that panicked has left no transaction open: it was rolled back when it was dropped.
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
        // Read while the lock is held, so that times of one state are in the order of its writes.
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

/// An error of SQLite, by what a caller can do about it.
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
