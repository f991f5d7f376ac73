use std::fmt;

use redis::aio::MultiplexedConnection;
use redis::{RedisError, Value};
use tidegate_redis::core::layers::CoalescedStore;
use tidegate_redis::protocol::{Batch, Keys, Reply, Request, Tier, no_reply, probable_time};
use tidegate_redis::{Call, Charge, Decision, Error, Policy, RedisStore, Store};

use super::peer::Peer;
use super::warmup::Warmup;
use crate::{Outcome, harness};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Name {
    Incr,
    ReturnOne,
    Floor,
    FixedWindow,
    Quota,
    RollingQuota,
    SlidingCounter,
    HashSlidingCounter,
    TokenBucket,
    IntervalBucket,
    HashTokenBucket,
    Gcra,
    Log100,
    SortedSet100,
    Log10000,
    SortedSet10000,
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Incr => "`INCR`",
            Self::ReturnOne => "`EVALSHA \"return 1\"`",
            Self::Floor => "`TIME`, `GET`, `SET KEEPTTL` in a script",
            Self::FixedWindow => "**fixed window**",
            Self::Quota => "**quota**",
            Self::RollingQuota => "**quota that rolls over**",
            Self::SlidingCounter => "**sliding counter**",
            Self::HashSlidingCounter => "sliding counter in a hash",
            Self::TokenBucket => "**token bucket**, GCRA",
            Self::IntervalBucket => "**token bucket by intervals**",
            Self::HashTokenBucket => "token bucket in a hash",
            Self::Gcra => "widely used GCRA script",
            Self::Log100 => "**sliding log** of 100",
            Self::SortedSet100 => "sorted set of 100",
            Self::Log10000 => "**sliding log** of 10,000",
            Self::SortedSet10000 => "sorted set of 10,000",
        })
    }
}

/// The outcome of most calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Answers {
    Allowed,
    Denied,
}

impl fmt::Display for Answers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Allowed => "allowed",
            Self::Denied => "denied",
        })
    }
}

/// The way in which decisions are sent to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Way {
    Single,
    /// Decisions of several callers are sent in batches.
    Coalesced,
    /// Decisions of one caller are sent in batches.
    Batch,
    /// Decisions of one caller are sent in batches to the general script, which decides calls of
    /// any kind.
    GeneralBatch,
}

impl Way {
    pub(crate) fn is_batch(self) -> bool {
        matches!(self, Self::Batch | Self::GeneralBatch)
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Single | Self::Batch => "",
            Self::Coalesced => ", coalesced",
            Self::GeneralBatch => ", by the general script",
        })
    }
}

/// The key of the samples: a contender, the outcome of most of its calls, and the way of sending
/// them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Id {
    pub(crate) name: Name,
    pub(crate) answers: Answers,
    pub(crate) way: Way,
}

/// The sender of the calls.
pub(crate) enum Form {
    /// A store, with one decision in each call.
    Store(RedisStore),
    /// Tidegate's script of a single charge, on the connection that the scripts of other projects
    /// use.
    Script(MultiplexedConnection),
    /// A store whose callers share batches.
    Coalesced(CoalescedStore<RedisStore>),
    /// A store, with this number of decisions in each call.
    Batch(RedisStore, usize),
    /// The general script, with this number of decisions in each call.
    GeneralBatch(MultiplexedConnection, usize),
    /// A command or a script of another project.
    Peer(Peer, MultiplexedConnection),
}

pub(crate) struct Contender {
    pub(crate) id: Id,
    pub(crate) form: Form,
    /// The policy, with a name and keys that no other contender has.
    pub(crate) policy: Policy,
    pub(crate) subjects: usize,
    /// The requests that create the state of each subject before the measurement.
    pub(crate) warmup: Warmup,
}

impl Contender {
    pub(crate) fn decisions(&self) -> usize {
        match self.form {
            Form::Batch(_, size) | Form::GeneralBatch(_, size) => size,
            _ => 1,
        }
    }

    /// Returns the subject of the call with this number. All subjects have the same length.
    pub(crate) fn subject(&self, number: usize) -> String {
        format!("user-{:06}", number % self.subjects)
    }

    pub(crate) fn key(&self, subject: &str) -> String {
        String::from_utf8_lossy(&Keys::new("tidegate").key(&Charge::new(&self.policy, subject)))
            .into_owned()
    }
}

impl harness::Load for Contender {
    async fn call(&self, number: usize) -> Outcome<usize> {
        match &self.form {
            Form::Store(store) => self.call_one(store, number).await,
            Form::Coalesced(store) => self.call_one(store, number).await,
            Form::Script(connection) => {
                let subject = self.subject(number);
                let charges = [Charge::new(&self.policy, &subject)];
                let request = Request::new(
                    &Keys::new("tidegate"),
                    &Call::acquire(&charges),
                    probable_time(),
                )?;
                execute(&request, &mut connection.clone()).await
            }
            Form::Batch(store, size) => {
                let subjects = self.subjects_of(number * size..(number + 1) * size);
                let charges = self.charges_of(&subjects);
                let calls: Vec<Call<'_>> =
                    charges.iter().map(|charges| Call::acquire(charges)).collect();
                allowed(store.decide_many(&calls).await)
            }
            Form::GeneralBatch(connection, size) => {
                let subjects = self.subjects_of(number * size..(number + 1) * size);
                self.call_general(&self.charges_of(&subjects), &mut connection.clone()).await
            }
            Form::Peer(peer, connection) => {
                let key = self.key(&self.subject(number));
                let answer = peer.command(&key).query_async(&mut connection.clone()).await;
                Ok(usize::from(self.allows(answer, peer, &key, connection).await?))
            }
        }
    }
}

impl Contender {
    async fn call_one(&self, store: &impl Store, number: usize) -> Outcome<usize> {
        let subject = self.subject(number);
        let charges = [Charge::new(&self.policy, &subject)];
        let decision = store.decide(Call::acquire(&charges)).await?;
        Ok(usize::from(decision.is_allowed()))
    }

    fn subjects_of(&self, numbers: std::ops::Range<usize>) -> Vec<String> {
        numbers.map(|number| self.subject(number)).collect()
    }

    fn charges_of<'c>(&'c self, subjects: &'c [String]) -> Vec<[Charge<'c>; 1]> {
        subjects.iter().map(|subject| [Charge::new(&self.policy, subject)]).collect()
    }

    async fn call_general(
        &self,
        charges: &[[Charge<'_>; 1]],
        connection: &mut MultiplexedConnection,
    ) -> Outcome<usize> {
        let keys = Keys::new("tidegate");
        let mut batch = Batch::new(&keys, Tier::General, probable_time());
        for charges in charges {
            batch.add_call(&Call::acquire(charges))?;
        }
        execute(&batch.finish(), connection).await
    }

    async fn allows(
        &self,
        answer: Result<Value, RedisError>,
        peer: &Peer,
        key: &str,
        connection: &MultiplexedConnection,
    ) -> Outcome<bool> {
        let answer = match answer {
            Err(error) if is_unknown(&error) => {
                peer.load(&mut connection.clone()).await?;
                peer.command(key).query_async(&mut connection.clone()).await?
            }
            answer => answer?,
        };
        match &answer {
            Value::Int(_) => Ok(true),
            Value::Array(parts) => match parts.first() {
                Some(Value::Int(allowed)) => Ok(*allowed > 0),
                _ => Err(format!("{}: an answer of no such form: {answer:?}", self.id.name).into()),
            },
            _ => Err(format!("{}: an answer of no such form: {answer:?}", self.id.name).into()),
        }
    }
}

/// Executes the script of a request. Returns the number of decisions that allow.
async fn execute(request: &Request<'_>, connection: &mut MultiplexedConnection) -> Outcome<usize> {
    let answer = match request.evalsha().query_async(connection).await {
        Err(error) if is_unknown(&error) => request.eval().query_async(connection).await,
        answer => answer,
    };
    let answer: Vec<u8> = answer?;
    let decision = |reply| match reply {
        Reply::Decided(reply) => reply.map(|reply| reply.decision),
        Reply::Undecided | Reply::OtherWindow(_) => Err(no_reply()),
    };
    allowed(request.read(&answer)?.into_iter().map(decision))
}

fn allowed(decisions: impl IntoIterator<Item = Result<Decision, Error>>) -> Outcome<usize> {
    let mut allowed = 0;
    for decision in decisions {
        allowed += usize::from(decision?.is_allowed());
    }
    Ok(allowed)
}

fn is_unknown(error: &RedisError) -> bool {
    error.kind() == redis::ServerErrorKind::NoScript.into()
}
