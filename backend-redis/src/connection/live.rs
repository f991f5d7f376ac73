//! A connection that has been made.

use std::fmt;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;

use futures_util::future::{Either, select};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, FromRedisValue, RedisResult};
use tokio::time::Instant;

use super::stream::Activity;

/// What carries the bytes of a connection. It ends when the connection does.
pub(super) type Driver = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A connection that was good when it was last used.
#[derive(Clone)]
pub struct LiveConnection {
    pub(super) connection: MultiplexedConnection,
    pub(super) activity: Arc<Activity>,
    pub(super) since: Instant,
    /// Where the server is, for errors.
    pub(super) server: Arc<str>,
}

impl LiveConnection {
    pub(super) fn new(
        connection: MultiplexedConnection,
        activity: Arc<Activity>,
        server: Arc<str>,
    ) -> Self {
        Self { connection, activity, since: Instant::now(), server }
    }

    /// Where the server is, for errors.
    pub(super) fn server(&self) -> &str {
        &self.server
    }

    /// Asks on a connection that is not driven yet.
    pub(super) async fn ask<T: FromRedisValue>(
        &mut self,
        driver: &mut Driver,
        question: &Cmd,
    ) -> RedisResult<T> {
        // The answer is looked for first, as the end may come with it.
        match select(pin!(question.query_async(&mut self.connection)), driver).await {
            Either::Left((answer, _)) => answer,
            Either::Right(_) => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
        }
    }
}

impl fmt::Debug for LiveConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LiveConnection").field("activity", &self.activity).finish_non_exhaustive()
    }
}
