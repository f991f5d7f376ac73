//! A connection that is made when it is first needed, and made anew when it was lost.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, FromRedisValue, Pipeline, RedisError, ServerErrorKind};
use tidegate_core::{Error, Timestamp};
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::Instant;

use super::error;
use super::source::Source;

/// One multiplexed connection, shared by all callers.
#[derive(Debug)]
pub struct Link {
    source: Arc<Source>,
    live: Mutex<Option<Live>>,
    /// Held while connecting: everybody who needs the connection waits for one attempt.
    last_failure: AsyncMutex<Option<Failure>>,
}

/// A connection that was good when it was last used.
#[derive(Debug, Clone)]
pub struct Live {
    connection: MultiplexedConnection,
    since: Instant,
    /// How many calls in a row have had no answer in time.
    silent: Arc<AtomicU32>,
}

/// Why the last attempt to connect failed.
#[derive(Debug)]
struct Failure {
    error: RedisError,
    at: Instant,
    /// How long to leave the server alone.
    pause: Duration,
}

/// After so many calls in a row without an answer, the connection itself may be dead.
const MOST_SILENT: u32 = 3;

/// The pauses after failed attempts: the first, and the longest, to which they double.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// A server that takes no writes, as it is a replica or has lost its replicas, is left for another
/// connection (and so, with Sentinel or behind a name, for another server), but not at every call.
const LEAST_LIFE: Duration = Duration::from_millis(200);

impl Link {
    /// A connection to be made when it is needed.
    #[must_use]
    pub fn new(source: Arc<Source>) -> Self {
        Self { source, live: Mutex::new(None), last_failure: AsyncMutex::new(None) }
    }

    /// The connection.
    ///
    /// # Errors
    ///
    /// If there is none and none could be made just now, or a moment ago. Nothing was sent then.
    pub async fn connection(&self) -> Result<Live, Error> {
        if let Some(live) = self.live().clone() {
            return Ok(live);
        }
        let mut last_failure = self.last_failure.lock().await;
        // Somebody else may have connected, or failed to, in the meantime.
        if let Some(live) = self.live().clone() {
            return Ok(live);
        }
        if let Some(failure) = last_failure.as_ref().filter(|f| f.at.elapsed() < f.pause) {
            return Err(error::of_connecting(&failure.error));
        }
        match self.source.connect().await {
            Ok(connection) => {
                let live =
                    Live { connection, since: Instant::now(), silent: Arc::new(AtomicU32::new(0)) };
                *last_failure = None;
                *self.live() = Some(live.clone());
                Ok(live)
            }
            Err(error) => {
                let pause = last_failure.as_ref().map_or(FIRST_PAUSE, |last| last.pause * 2);
                let answer = error::of_connecting(&error);
                let pause = pause.min(LONGEST_PAUSE);
                *last_failure = Some(Failure { error, at: Instant::now(), pause });
                Err(answer)
            }
        }
    }

    /// Sends one command on a connection, once, and takes note of what its answer says about it.
    ///
    /// # Errors
    ///
    /// If the server refuses it, or does not answer, or not as expected.
    pub async fn send<T: FromRedisValue>(
        &self,
        live: &mut Live,
        command: &Cmd,
    ) -> Result<T, RedisError> {
        let answer = command.query_async(&mut live.connection).await;
        self.note(live, answer.as_ref().err());
        answer
    }

    /// Sends several commands on a connection, once, in one write.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send).
    pub async fn send_all<T: FromRedisValue>(
        &self,
        live: &mut Live,
        commands: &Pipeline,
    ) -> Result<T, RedisError> {
        let answer = commands.query_async(&mut live.connection).await;
        self.note(live, answer.as_ref().err());
        answer
    }

    /// The time by the server's clock.
    ///
    /// # Errors
    ///
    /// If the server cannot be reached, or does not tell.
    pub async fn time(&self) -> Result<Timestamp, Error> {
        let mut live = self.connection().await?;
        let (seconds, micros): (u64, u64) = self
            .send(&mut live, &Cmd::new().arg("TIME").to_owned())
            .await
            .map_err(error::of_call)?;
        Ok(Timestamp::from_micros(seconds.saturating_mul(1_000_000).saturating_add(micros)))
    }

    fn note(&self, live: &Live, error: Option<&RedisError>) {
        let Some(error) = error else {
            live.silent.store(0, Ordering::Relaxed);
            return;
        };
        let is_dead = if error.is_timeout() {
            live.silent.fetch_add(1, Ordering::Relaxed) + 1 >= MOST_SILENT
        } else {
            let is_read_only = matches!(error.code(), Some("READONLY" | "NOREPLICAS"));
            error.is_unrecoverable_error()
                || error.is_connection_dropped()
                || is_read_only && live.since.elapsed() > LEAST_LIFE
        };
        if is_dead {
            self.drop_connection(live);
        }
    }

    /// Lets go of a connection, unless there is a newer one already.
    fn drop_connection(&self, dead: &Live) {
        self.live().take_if(|live| Arc::ptr_eq(&live.silent, &dead.silent));
    }

    fn live(&self) -> MutexGuard<'_, Option<Live>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the server does not know the script: then nothing has been done.
#[must_use]
pub fn is_unknown_script(error: &RedisError) -> bool {
    error.kind() == ServerErrorKind::NoScript.into()
}
