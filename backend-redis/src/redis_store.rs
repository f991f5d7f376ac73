use std::sync::Arc;

use tidegate_core::{Answer, Call, Charge, Decision, Error, ErrorKind, Policy, Store, Timestamp};

use crate::builder::RedisStoreBuilder;
use crate::connection::{PROBE_OPERATIONS, check_runtime, check_server, probes};
use crate::inner::Inner;
use crate::script_free;
use crate::wire::{self, Batch, Request, ScriptReply};

/// States on one Redis, or on the primary of a Sentinel group, decided on by scripts in one round
/// trip. See the [crate's front page](crate).
///
/// Cheap to clone: clones share the connections.
#[derive(Debug, Clone)]
pub struct RedisStore(pub(crate) Arc<Inner>);

impl RedisStore {
    /// A store on the server at `url`: `redis://[user:password@]host[:port][/database]`, `rediss://…`
    /// for TLS, or `redis+unix:///path/to/socket[?db=…&user=…&pass=…]`.
    ///
    /// Does not connect: the first call does, and the store reconnects when the connection is lost. See
    /// [connections](crate#connections).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`] if this is not such a URL.
    pub fn new(url: &str) -> Result<Self, Error> {
        Self::builder().url(url).build()
    }

    /// A store with settings of one's own.
    pub fn builder() -> RedisStoreBuilder {
        RedisStoreBuilder::new()
    }

    /// Checks when a program starts that the store can decide: connects and logs in, checks the server's
    /// version, loads and runs the scripts, and writes, reads and removes keys of its own below the prefix, which
    /// live for a second. Changes no subject's state.
    ///
    /// Without it a wrong password or a missing permission shows at the first call. A service that shall
    /// start while Redis is away may log the error and go on: the store keeps trying.
    ///
    /// ```no_run
    /// # async fn run() -> Result<(), tidegate_redis::Error> {
    /// use tidegate_redis::RedisStore;
    ///
    /// let store = RedisStore::new("redis://limiter:secret@127.0.0.1:6379")?;
    /// store.ready().await?; // fails on a typo in the password
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// The first that a call would meet, such as `Unavailable`, `Misconfigured`, `UnsupportedServer`, `ReadOnly`
    /// or `OutOfMemory`.
    pub async fn ready(&self) -> Result<(), Error> {
        check_runtime()?;
        check_server(self.0.connection()).await?;
        self.0.now().await?;
        for policy in probes().iter().filter(|policy| self.supports(policy).is_ok()) {
            let charges = [Charge::new(policy, "ready")];
            for operation in PROBE_OPERATIONS {
                let _ = self.decide_one(Call::new(operation, &charges)).await?;
            }
        }
        Ok(())
    }

    async fn decide_one(&self, call: Call<'_>) -> Result<Decision, Error> {
        check_runtime()?;
        if self.0.script_free {
            return script_free::decide(&self.0, &call).await;
        }
        let request = self.0.timed(Request::new(&self.0.keys, &call)?);
        let mut decisions = self.0.send(&request).await?;
        match decisions.pop() {
            Some(Err(error)) if request.may_have_holds(&error) => {
                self.decide_with_holds(call).await
            }
            Some(decision) => decision,
            None => Err(no_answer()),
        }
    }

    /// Decides on a call to states that may have holds, of which no policy of the call says that they will be given back.
    async fn decide_with_holds(&self, call: Call<'_>) -> Result<Decision, Error> {
        let request = self.0.timed(Request::with_holds(&self.0.keys, &call)?);
        let mut decisions = self.0.send(&request).await?;
        decisions.pop().unwrap_or_else(|| Err(no_answer()))
    }

    async fn decide_each(&self, calls: &[Call<'_>]) -> Vec<Result<Decision, Error>> {
        let mut answers = Vec::with_capacity(calls.len());
        if let Err(error) = check_runtime() {
            return calls.iter().map(|_| Err(in_a_batch(&error))).collect();
        }
        if self.0.script_free {
            for call in calls {
                answers.push(self.decide_one(*call).await);
            }
            return answers;
        }
        let mut rest = calls;
        while let Some((first, others)) = rest.split_first() {
            if first.id.is_some() || others.is_empty() {
                answers.push(self.decide_one(*first).await);
                rest = others;
            } else if let Some(usual) = Request::of_single_charges(&self.0.keys, rest) {
                let (calls, others) = rest.split_at(usual.len());
                answers.extend(self.decide_usual(calls, usual).await);
                rest = others;
            } else {
                rest = self.decide_some(rest, &mut answers).await;
            }
        }
        answers
    }

    /// Decides on single charges, and on those that have something unusual under their key by the general script.
    async fn decide_usual(
        &self,
        calls: &[Call<'_>],
        request: Request<'_>,
    ) -> Vec<Result<Decision, Error>> {
        let request = self.0.timed(request);
        let replies = match self.0.call(&request).await {
            Ok(answer) => request.read_some(&answer),
            Err(error) => Err(error),
        };
        let replies = match replies {
            Ok(replies) => replies,
            Err(error) => return calls.iter().map(|_| Err(in_a_batch(&error))).collect(),
        };
        // All of a key are decided, or none: calls of one key stay in order.
        let others = calls.iter().zip(&replies).filter(|(_, reply)| reply.is_none());
        let others: Vec<Call<'_>> = others.map(|(call, _)| *call).collect();
        let mut others_decided = vec![];
        let mut rest = &others[..];
        while !rest.is_empty() {
            rest = self.decide_some(rest, &mut others_decided).await;
        }
        let mut others_decided = others_decided.into_iter();
        let decision = |reply: Option<Result<ScriptReply, Error>>| match reply {
            Some(reply) => reply.map(|reply| reply.decision),
            None => others_decided.next().unwrap_or_else(|| Err(no_answer())),
        };
        replies.into_iter().map(decision).collect()
    }

    /// Decides on the first calls, as many as fit in one script call, up to the first one with an id, and gives back the
    /// others.
    async fn decide_some<'c, 'a>(
        &self,
        calls: &'c [Call<'a>],
        answers: &mut Vec<Result<Decision, Error>>,
    ) -> &'c [Call<'a>] {
        let mut batch = Batch::new(&self.0.keys);
        let mut wrong = vec![];
        for call in calls {
            if batch.is_full() || call.id.is_some() {
                break;
            }
            wrong.push(batch.add_call(call).err());
        }
        let (now, rest) = calls.split_at(wrong.len());
        let request = self.0.timed(batch.finish());
        let decided = if request.is_empty() { Ok(vec![]) } else { self.0.send(&request).await };
        let mut decided = decided.map(Vec::into_iter);
        for (call, wrong) in now.iter().zip(wrong) {
            answers.push(match (wrong, &mut decided) {
                (Some(error), _) => Err(error),
                (None, Ok(decided)) => match decided.next() {
                    Some(Err(error)) if request.may_have_holds(&error) => {
                        self.decide_with_holds(*call).await
                    }
                    Some(decision) => decision,
                    None => Err(no_answer()),
                },
                // The error of the whole is that of each.
                (None, Err(error)) => Err(in_a_batch(error)),
            });
        }
        rest
    }
}

fn in_a_batch(error: &Error) -> Error {
    error.clone().with_context("in a batch")
}

fn no_answer() -> Error {
    Error::new(ErrorKind::Protocol, "the script left out a call")
}

impl Store for RedisStore {
    fn decide<'a>(&'a self, call: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
        Answer::later(self.decide_one(call))
    }

    fn decide_many<'a>(
        &'a self,
        calls: &'a [Call<'a>],
    ) -> Answer<'a, Vec<Result<Decision, Error>>> {
        Answer::later(self.decide_each(calls))
    }

    fn now(&self) -> Answer<'_, Result<Timestamp, Error>> {
        Answer::later(self.0.now())
    }

    fn ready(&self) -> Answer<'_, Result<(), Error>> {
        Answer::later(Self::ready(self))
    }

    /// A batch is one script call, on one of the connections. A call with an id takes a script call of its own.
    fn batch_group(&self, call: &Call<'_>) -> Option<u64> {
        if self.0.script_free || call.id.is_some() {
            return None;
        }
        Some(self.0.connections.share(|| call.charges.get(0).map(|charge| charge.slot_key())))
    }

    fn supports(&self, policy: &Policy) -> Result<(), Error> {
        if self.0.script_free { script_free::supports(policy) } else { wire::supports(policy) }
    }
}
