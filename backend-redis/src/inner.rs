//! What a store and its clones share: the connections, and how scripts are called on them.

use std::fmt;
use std::sync::Arc;

use tidegate_core::{Clock, Decision, Error, Timestamp};

use crate::connection::error::is_unknown_script;
use crate::connection::{Connection, ConnectionPool, ScriptTimes, check_runtime};
use crate::wire::{Keys, Request};

pub(crate) struct Inner {
    pub(crate) keys: Keys,
    pub(crate) connections: ConnectionPool,
    /// Whether plain commands have to do.
    pub(crate) script_free: bool,
    pub(crate) script_times: ScriptTimes,
    /// Only in tests; else the server's clock counts.
    pub(crate) clock: Option<Arc<dyn Clock>>,
}

impl Inner {
    /// Sends a request once. Only if the server does not know the script, so that nothing has been
    /// done, it is sent again, with the script.
    pub(crate) async fn send(
        &self,
        request: &Request<'_>,
    ) -> Result<Vec<Result<Decision, Error>>, Error> {
        request.read(&self.call(request).await?)
    }

    /// The request with the time of the clock that replaces the server's, if there is one.
    pub(crate) fn timed<'a>(&self, request: Request<'a>) -> Request<'a> {
        match &self.clock {
            Some(clock) => request.at(clock.now()),
            None => request,
        }
    }

    /// The script's reply, to a request that is sent as by [`send`](Self::send).
    pub(crate) async fn call(&self, request: &Request<'_>) -> Result<Vec<u8>, Error> {
        let connection = self.connection();
        let mut live = connection.live().await?;
        let script = request.script();
        let evalsha = request.evalsha();
        let mut answer =
            self.script_times.of(script, connection.send::<Vec<u8>>(&mut live, &evalsha)).await;
        if answer.as_ref().is_err_and(is_unknown_script) {
            let eval = request.eval();
            answer = self.script_times.of(script, connection.send(&mut live, &eval)).await;
        }
        answer
    }

    /// The next of the connections, in turn.
    pub(crate) fn connection(&self) -> &Connection {
        self.connections.next()
    }

    pub(crate) async fn now(&self) -> Result<Timestamp, Error> {
        check_runtime()?;
        if let Some(clock) = &self.clock {
            return Ok(clock.now());
        }
        self.connection().time().await
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("connections", &self.connections)
            .field("script_free", &self.script_free)
            .field("clock", &self.clock)
            .finish_non_exhaustive()
    }
}
