//! A connection that the application has made.

use std::fmt;
use std::sync::Arc;

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{Cmd, Pipeline, RedisFuture, Value};

type BoxedConnection = Box<dyn ConnectionLike + Send + Sync>;

/// A connection of the Redis client that the application has made. The store clones the connection
/// for each call.
#[derive(Clone)]
pub struct GivenConnection(Arc<dyn Fn() -> BoxedConnection + Send + Sync>);

impl GivenConnection {
    pub fn new(connection: impl ConnectionLike + Clone + Send + Sync + 'static) -> Self {
        Self(Arc::new(move || Box::new(connection.clone())))
    }

    pub(super) fn channel(&self) -> Channel {
        Channel::Given { source: self.clone(), connection: (self.0)() }
    }
}

impl fmt::Debug for GivenConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GivenConnection")
    }
}

/// A connection of the Redis client on which the store sends a call.
pub(super) enum Channel {
    /// A connection that the store has made.
    Own(MultiplexedConnection),
    Given {
        source: GivenConnection,
        connection: BoxedConnection,
    },
}

impl Clone for Channel {
    fn clone(&self) -> Self {
        match self {
            Self::Own(connection) => Self::Own(connection.clone()),
            Self::Given { source, .. } => source.channel(),
        }
    }
}

impl ConnectionLike for Channel {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        match self {
            Self::Own(connection) => connection.req_packed_command(command),
            Self::Given { connection, .. } => connection.req_packed_command(command),
        }
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        match self {
            Self::Own(connection) => connection.req_packed_commands(pipeline, offset, count),
            Self::Given { connection, .. } => {
                connection.req_packed_commands(pipeline, offset, count)
            }
        }
    }

    fn get_db(&self) -> i64 {
        match self {
            Self::Own(connection) => connection.get_db(),
            Self::Given { connection, .. } => connection.get_db(),
        }
    }
}
