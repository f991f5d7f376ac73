//! A script call on its way to the node that has its slot.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use redis::cluster::NodeAddress;
use redis::cluster_routing::Slot;
use redis::{Cmd, RedisError, ServerErrorKind, Value, from_redis_value};
use smallvec::SmallVec;
use tidegate_core::{Call, Error, ErrorKind, Operation, Timestamp};
use tidegate_redis::connection::error::{self, printable};
use tidegate_redis::wire::{Batch, Keys, Request, Told};

use crate::node::Node;
use crate::place::slot_of_request;

/// What became of a call.
#[derive(Debug)]
pub(crate) struct Decided {
    pub(crate) told: Told,
    /// How many replicas had it when the node answered, if that was asked.
    pub(crate) replicas: Option<u64>,
}

/// Calls, each with its place among those that were asked.
pub(crate) type Calls<'a> = SmallVec<[(usize, Call<'a>); 1]>;

/// A script call: one or several calls whose keys lie in one slot.
#[derive(Debug)]
pub(crate) struct Errand<'a> {
    calls: Calls<'a>,
    request: Request<'a>,
    slot: Slot,
    /// Where to go next.
    pub(crate) target: Target,
    /// How long to rest before.
    pub(crate) rest: Duration,
    form: Form,
    /// How often it was sent away, without having been carried out.
    turns: u32,
}

/// Which node to go to.
#[derive(Debug, Clone)]
pub(crate) enum Target {
    /// The one that serves the slot, as far as is known.
    Primary,
    /// This one, to which another has referred.
    Node(Arc<Node>),
    /// This one, which is about to take the slot over, and has the keys already.
    Asking(Arc<Node>),
}

/// How the script is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// By its name.
    ByName,
    /// By its name, behind another call that brings it along, if there is one in the same pipeline.
    AfterAnother,
    /// With all its text.
    InFull,
}

/// What a node's answer means for an errand.
#[derive(Debug)]
pub(crate) enum Step {
    /// It is carried out, or has failed.
    Done(Result<Vec<Result<Told, Error>>, Error>),
    /// The slot has moved to the node at this address.
    Moved(String),
    /// The keys have moved to the node at this address, and the slot will.
    Ask(String),
    /// Some keys have moved, and some have not.
    TryAgain,
    /// The node does not know the script.
    NoScript,
}

/// So often an errand may be sent away before it fails.
const MOST_TURNS: u32 = 8;

/// The shortest rest and the longest before an errand that was sent away is sent again.
const SHORTEST_REST: Duration = Duration::from_millis(4);
const LONGEST_REST: Duration = Duration::from_millis(64);

impl<'a> Errand<'a> {
    /// # Errors
    ///
    /// As [`Call::check`]; [`ErrorKind::Protocol`] if the keys lie in several slots.
    pub(crate) fn new(
        keys: &Keys,
        time: Option<Timestamp>,
        calls: Calls<'a>,
    ) -> Result<Self, Error> {
        let request = match &calls[..] {
            [(_, call)] => Request::new(keys, call)?,
            calls => {
                let mut batch = Batch::new(keys);
                for (_, call) in calls {
                    batch.add_call(call)?;
                }
                batch.finish()
            }
        };
        Self::of(request, time, calls)
    }

    /// An errand that tells what a call would be answered, and writes nothing.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub(crate) fn look(
        keys: &Keys,
        time: Option<Timestamp>,
        place: usize,
        call: Call<'a>,
    ) -> Result<Self, Error> {
        let peek = Call { operation: Operation::Peek, ..call };
        let request = match call.operation {
            Operation::Reserve { .. } => {
                let mut batch = Batch::new(keys);
                batch.add_look(&call)?;
                batch.finish()
            }
            // The shortest script can do this.
            _ => Request::new(keys, &peek)?,
        };
        Self::of(request, time, Calls::from_buf([(place, peek)]))
    }

    fn of(request: Request<'a>, time: Option<Timestamp>, calls: Calls<'a>) -> Result<Self, Error> {
        let request = match time {
            Some(time) => request.at(time),
            None => request,
        };
        let slot = slot_of_request(&request)?;
        let (target, rest, form) = (Target::Primary, Duration::ZERO, Form::ByName);
        Ok(Self { calls, request, slot, target, rest, form, turns: 0 })
    }

    pub(crate) fn slot(&self) -> Slot {
        self.slot
    }

    pub(crate) fn request(&self) -> &Request<'a> {
        &self.request
    }

    /// Whether any of the calls may write what must not be lost. A lost undo lets nothing more pass.
    pub(crate) fn writes(&self) -> bool {
        let no_loss = |operation| matches!(operation, Operation::Peek | Operation::Undo { .. });
        self.calls.iter().any(|(_, call)| !no_loss(call.operation))
    }

    /// The command to send; `is_brought` tells whether one before it brings the script along.
    pub(crate) fn command(&mut self, is_brought: bool) -> Cmd {
        if self.form == Form::AfterAnother && !is_brought {
            self.form = Form::InFull;
        }
        match self.form {
            Form::InFull => self.request.in_full(),
            _ => self.request.by_name(),
        }
    }

    pub(crate) fn is_in_full(&self) -> bool {
        self.form == Form::InFull
    }

    /// What an answer means.
    pub(crate) fn step(&self, node: &NodeAddress, answer: Result<Value, RedisError>) -> Step {
        let answer = answer.and_then(|value| Ok(from_redis_value::<Vec<u8>>(value)?));
        let error = match answer {
            Ok(bytes) => {
                let read = self.request.read_told(&bytes);
                return Step::Done(read.map_err(|error| error.repeated(&format!("node {node}"))));
            }
            Err(error) => error,
        };
        let kind = |kind: ServerErrorKind| error.kind() == kind.into();
        let (is_moved, is_asked) = (kind(ServerErrorKind::Moved), kind(ServerErrorKind::Ask));
        let address = error.detail().and_then(|text| text.split_ascii_whitespace().nth(1));
        match address {
            Some(address) if is_moved => Step::Moved(address.to_owned()),
            Some(address) if is_asked => Step::Ask(address.to_owned()),
            _ if kind(ServerErrorKind::TryAgain) => Step::TryAgain,
            _ if kind(ServerErrorKind::NoScript) && self.form != Form::InFull => Step::NoScript,
            // Of what the store itself has to see to, the caller can do nothing about any.
            _ if error.is_cluster_error() && !kind(ServerErrorKind::ClusterDown)
                || kind(ServerErrorKind::CrossSlot) =>
            {
                let message = format!("node {node} refers to no other node, and does not serve");
                let error = Error::new(ErrorKind::Protocol, message).with_source(printable(&error));
                Step::Done(Err(error))
            }
            _ => Step::Done(Err(error::of_call(&node.to_string(), error))),
        }
    }

    /// The same errand, to a node that another has referred to.
    pub(crate) fn referred(self, target: Target) -> Result<Self, Failed<'a>> {
        // The first time there is nothing to wait for: usually that node has just what is wanted.
        let rest = if self.turns < 2 { Duration::ZERO } else { self.next_rest() };
        self.turned(target, rest)
    }

    /// The same errand, again, a little later.
    pub(crate) fn again(self) -> Result<Self, Failed<'a>> {
        let rest = self.next_rest();
        self.turned(Target::Primary, rest)
    }

    /// The same errand, to the same node, with the script if need be.
    pub(crate) fn with_script(self) -> Self {
        let form = match self.form {
            Form::ByName => Form::AfterAnother,
            _ => Form::InFull,
        };
        Self { form, rest: Duration::ZERO, ..self }
    }

    fn turned(self, target: Target, rest: Duration) -> Result<Self, Failed<'a>> {
        if self.turns == MOST_TURNS {
            let error = Error::new(
                ErrorKind::Busy,
                format!(
                    "{:?} is on the move: the nodes sent the call away {MOST_TURNS} times; nothing \
                     was charged",
                    self.slot
                ),
            );
            return Err(Failed { calls: self.calls, error });
        }
        Ok(Self { target, rest, turns: self.turns + 1, ..self })
    }

    fn next_rest(&self) -> Duration {
        let rest = SHORTEST_REST.saturating_mul(1 << self.turns.min(8)).min(LONGEST_REST);
        // The standard library's hasher is keyed at random: enough to scatter those who wait.
        let random = u32::try_from(RandomState::new().hash_one(()) % 1_024).unwrap_or(0);
        rest / 2 + rest * random / 2_048
    }

    /// How many charges the script decides on.
    pub(crate) fn charges(&self) -> usize {
        self.calls.iter().map(|(_, call)| call.charges.len()).sum()
    }

    pub(crate) fn calls(&self) -> &[(usize, Call<'a>)] {
        &self.calls
    }

    pub(crate) fn into_calls(self) -> Calls<'a> {
        self.calls
    }
}

/// Calls that were not carried out, and why not.
#[derive(Debug)]
pub(crate) struct Failed<'a> {
    pub(crate) calls: Calls<'a>,
    pub(crate) error: Error,
}
