//! The part of a Redis store that all clones of the store share: the connections, and the functions
//! that call scripts on the connections.

use std::fmt;
use std::sync::Arc;

use tidegate_core::{Clock, Decision, Error, Timestamp};

use crate::connection::error::is_unknown_script;
use crate::connection::{Connection, ConnectionPool, ScriptTimes, check_runtime};
use crate::protocol::{Keys, Plan, Request, ScriptReply};

pub(crate) struct Inner {
    pub(crate) keys: Keys,
    pub(crate) connections: ConnectionPool,
    pub(crate) script_free: bool,
    pub(crate) script_times: ScriptTimes,
    pub(crate) clock: Option<Arc<dyn Clock>>,
}

impl Inner {
    /// Sends the requests of a plan, one after the other, and passes each decision to `decided`.
    pub(crate) async fn execute(
        &self,
        mut plan: Plan<'_, '_>,
        mut decided: impl FnMut(usize, Result<Decision, Error>) + Send,
    ) {
        let mut decided = |place: usize, reply: Result<ScriptReply, Error>| {
            decided(place, reply.map(|reply| reply.decision));
        };
        loop {
            let now = self.clock.as_ref().map(|clock| clock.now());
            let Some(planned) = plan.next_request(now, &mut decided) else { return };
            let reply = self.send(&planned.request).await;
            let replies = reply.and_then(|reply| planned.request.read(&reply));
            plan.take_replies(planned, replies, &mut decided);
        }
    }

    /// Sends a request once and returns the script's reply.
    ///
    /// A server that does not know the script has executed nothing. In this case, the store sends
    /// the request again with the whole script.
    async fn send(&self, request: &Request<'_>) -> Result<Vec<u8>, Error> {
        let connection = self.connection();
        let mut live = connection.live().await?;
        let script = request.script();
        let evalsha = request.evalsha();
        let mut reply = self
            .script_times
            .measure(script, connection.send::<Vec<u8>>(&mut live, &evalsha))
            .await;
        if reply.as_ref().is_err_and(is_unknown_script) {
            let eval = request.eval();
            reply = self.script_times.measure(script, connection.send(&mut live, &eval)).await;
        }
        reply
    }

    /// Returns the next connection. All connections are used in turn.
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
