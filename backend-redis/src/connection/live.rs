//! An open connection to a server.

use std::fmt;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, FromRedisValue, RedisResult};
use tokio::time::Instant;

use super::given::{Channel, GivenConnection};
use super::stream::Activity;

/// The future that transfers the bytes of a connection, until the connection ends.
pub(super) type Driver = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A connection that was open when it was last used.
#[derive(Clone)]
pub struct LiveConnection {
    pub(super) connection: Channel,
    pub(super) activity: Arc<Activity>,
    pub(super) since: Instant,
    /// The time after which the store logs in again on the connection.
    pub(super) renew_after: Option<Duration>,
    pub(super) server: Arc<str>,
}

impl LiveConnection {
    pub(super) fn new(
        connection: MultiplexedConnection,
        activity: Arc<Activity>,
        server: Arc<str>,
        renew_after: Option<Duration>,
    ) -> Self {
        let (connection, since) = (Channel::Own(connection), Instant::now());
        Self { connection, activity, since, renew_after, server }
    }

    /// Wraps a connection that the application has made. The store cannot observe the bytes of such
    /// a connection.
    pub(super) fn existing(given: &GivenConnection) -> Self {
        let (activity, since) = (Arc::new(Activity::new()), Instant::now());
        let server = Arc::from("an unknown address (existing connection)");
        Self { connection: given.channel(), activity, since, renew_after: None, server }
    }

    pub(super) fn server(&self) -> &str {
        &self.server
    }

    /// Sends a command on a new connection for which no task runs the driver yet. While this
    /// function waits for the reply, it runs the driver itself.
    pub(super) async fn query<T: FromRedisValue>(
        &mut self,
        driver: &mut Driver,
        command: &Cmd,
    ) -> RedisResult<T> {
        // If the reply and the end of the connection arrive together, `select` returns the reply,
        // because it polls the command first.
        match select(pin!(command.query_async(&mut self.connection)), driver).await {
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
