//! A script call to one slot: redirects, retries, and how its script is sent.

use std::sync::Arc;
use std::time::Duration;

use redis::cluster::NodeAddress;
use redis::cluster_routing::Slot;
use redis::{Cmd, RedisError, ServerErrorKind, Value, from_redis_value};
use smallvec::SmallVec;
use tidegate_core::{Call, Error, ErrorKind, Operation, Timestamp};
use tidegate_redis::connection::error::{self, printable};
use tidegate_redis::wire::{Batch, Keys, Request, ScriptReply};

use crate::routing::node::Node;
use crate::routing::slots::slot_of_request;

/// The answer to a call within one slot.
#[derive(Debug)]
pub(crate) struct SlotDecision {
    pub(crate) reply: ScriptReply,
    /// The number of replicas that had acknowledged it, if WAIT was sent.
    pub(crate) replicas: Option<u64>,
}

/// Calls, each with its index in the batch.
pub(crate) type Calls<'a> = SmallVec<[(usize, Call<'a>); 1]>;

/// The indices of calls in the batch.
pub(crate) type Places = SmallVec<[usize; 1]>;

/// A script call: one or several calls whose keys lie in one slot.
#[derive(Debug)]
pub(crate) struct SlotRequest<'a> {
    calls: Calls<'a>,
    script_call: Request<'a>,
    slot: Slot,
    /// The node to send it to.
    pub(crate) target: Target,
    /// The pause before it is sent.
    pub(crate) backoff: Duration,
    mode: EvalMode,
    /// The number of redirects so far.
    redirects: u32,
    /// Of a look, the call that it is for.
    looks_at: Option<Call<'a>>,
}

/// The node that a request goes to.
#[derive(Debug, Clone)]
pub(crate) enum Target {
    /// The primary of the slot, by the slot map.
    Primary,
    /// The node that a MOVED redirect named.
    Node(Arc<Node>),
    /// The node that an ASK redirect named, which is importing the slot and has the keys.
    Asking(Arc<Node>),
}

/// How the script is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EvalMode {
    /// EVALSHA.
    Sha,
    /// EVALSHA if an earlier command of the same write sends the script, else EVAL.
    ShaAfterEval,
    /// EVAL, with the whole script.
    Eval,
}

/// What a node's reply means for a request.
#[derive(Debug)]
pub(crate) enum Reply {
    /// It was carried out, or has failed.
    Done(Result<Vec<Result<ScriptReply, Error>>, Error>),
    /// MOVED: the slot is served by the node at this address.
    Moved(String),
    /// ASK: the keys are at the node at this address already, which is importing the slot.
    Ask(String),
    /// TRYAGAIN: some keys have moved, and some have not.
    TryAgain,
    /// NOSCRIPT.
    NoScript,
}

/// The number of redirects after which a request fails.
const MAX_REDIRECTS: u32 = 8;

/// The bounds of the pause before a redirected request is sent again.
const MIN_BACKOFF: Duration = Duration::from_millis(4);
const MAX_BACKOFF: Duration = Duration::from_millis(64);

impl<'a> SlotRequest<'a> {
    /// # Errors
    ///
    /// As [`Call::check`]; [`ErrorKind::Protocol`] if the keys lie in several slots.
    pub(crate) fn new(
        keys: &Keys,
        time: Option<Timestamp>,
        calls: Calls<'a>,
    ) -> Result<Self, Error> {
        let script_call = match &calls[..] {
            [(_, call)] => Request::new(keys, call)?,
            calls => {
                let mut batch = Batch::new(keys);
                for (_, call) in calls {
                    batch.add_call(call)?;
                }
                batch.finish()
            }
        };
        Self::of(script_call, time, calls)
    }

    /// The request for the call at `place` if [its states may have holds](Request::may_have_holds).
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub(crate) fn with_holds(
        &self,
        keys: &Keys,
        time: Option<Timestamp>,
        (place, call): (usize, Call<'a>),
    ) -> Result<Self, Error> {
        let script_call = match self.looks_at {
            Some(call) if matches!(call.operation, Operation::Reserve { .. }) => {
                let mut batch = Batch::with_holds(keys);
                batch.add_reserve_peek(&call)?;
                batch.finish()
            }
            _ => Request::with_holds(keys, &call)?,
        };
        let request = Self::of(script_call, time, Calls::from_buf([(place, call)]))?;
        Ok(Self { looks_at: self.looks_at, ..request })
    }

    /// A request for what a call would be answered, which writes nothing.
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
        let peek = Call::with_charges(Operation::Peek, call.charges);
        let script_call = match call.operation {
            Operation::Reserve { .. } => {
                let mut batch = Batch::new(keys);
                batch.add_reserve_peek(&call)?;
                batch.finish()
            }
            // The script for one charge can do this.
            _ => Request::new(keys, &peek)?,
        };
        let request = Self::of(script_call, time, Calls::from_buf([(place, peek)]))?;
        Ok(Self { looks_at: Some(call), ..request })
    }

    fn of(
        script_call: Request<'a>,
        time: Option<Timestamp>,
        calls: Calls<'a>,
    ) -> Result<Self, Error> {
        let script_call = match time {
            Some(time) => script_call.at(time),
            None => script_call,
        };
        let slot = slot_of_request(&script_call)?;
        let (target, backoff, mode) = (Target::Primary, Duration::ZERO, EvalMode::Sha);
        let (redirects, looks_at) = (0, None);
        Ok(Self { calls, script_call, slot, target, backoff, mode, redirects, looks_at })
    }

    pub(crate) fn slot(&self) -> Slot {
        self.slot
    }

    pub(crate) fn script_call(&self) -> &Request<'a> {
        &self.script_call
    }

    /// Whether any of the calls may write what must not be lost. A lost undo admits nothing more.
    pub(crate) fn writes(&self) -> bool {
        let no_loss = |operation| matches!(operation, Operation::Peek | Operation::Undo { .. });
        self.calls.iter().any(|(_, call)| !no_loss(call.operation))
    }

    /// The command to send; `is_loaded` is whether an earlier command of the same write has the script.
    pub(crate) fn command(&mut self, is_loaded: bool) -> Cmd {
        if self.mode == EvalMode::ShaAfterEval && !is_loaded {
            self.mode = EvalMode::Eval;
        }
        match self.mode {
            EvalMode::Eval => self.script_call.eval(),
            _ => self.script_call.evalsha(),
        }
    }

    pub(crate) fn is_eval(&self) -> bool {
        self.mode == EvalMode::Eval
    }

    /// Reads a reply.
    pub(crate) fn read_reply(
        &self,
        node: &NodeAddress,
        answer: Result<Value, RedisError>,
    ) -> Reply {
        let answer = answer.and_then(|value| Ok(from_redis_value::<Vec<u8>>(value)?));
        let error = match answer {
            Ok(bytes) => {
                let read = self.script_call.parse_reply(&bytes);
                return Reply::Done(
                    read.map_err(|error| error.with_context(format_args!("node {node}"))),
                );
            }
            Err(error) => error,
        };
        let kind = |kind: ServerErrorKind| error.kind() == kind.into();
        let (is_moved, is_asked) = (kind(ServerErrorKind::Moved), kind(ServerErrorKind::Ask));
        let address = error.detail().and_then(|text| text.split_ascii_whitespace().nth(1));
        match address {
            Some(address) if is_moved => Reply::Moved(address.to_owned()),
            Some(address) if is_asked => Reply::Ask(address.to_owned()),
            _ if kind(ServerErrorKind::TryAgain) => Reply::TryAgain,
            _ if kind(ServerErrorKind::NoScript) && self.mode != EvalMode::Eval => Reply::NoScript,
            // Other errors of the cluster protocol: nothing that a caller could handle.
            _ if error.is_cluster_error() && !kind(ServerErrorKind::ClusterDown)
                || kind(ServerErrorKind::CrossSlot) =>
            {
                let message =
                    format!("node {node} does not serve the slot, and names no other node");
                let error = Error::new(ErrorKind::Protocol, message).with_source(printable(&error));
                Reply::Done(Err(error))
            }
            _ => Reply::Done(Err(error::of_call(&node.to_string(), error))),
        }
    }

    /// The same request, redirected.
    pub(crate) fn redirected(self, target: Target) -> Result<Self, Failed> {
        // The first redirects are followed immediately: usually the named node has the slot.
        let backoff = if self.redirects < 2 { Duration::ZERO } else { self.next_backoff() };
        self.redirect(target, backoff)
    }

    /// The same request, after a pause.
    pub(crate) fn again(self) -> Result<Self, Failed> {
        let backoff = self.next_backoff();
        self.redirect(Target::Primary, backoff)
    }

    /// The same request to the same node, with the script.
    pub(crate) fn with_eval(self) -> Self {
        let mode = match self.mode {
            EvalMode::Sha => EvalMode::ShaAfterEval,
            _ => EvalMode::Eval,
        };
        Self { mode, backoff: Duration::ZERO, ..self }
    }

    fn redirect(self, target: Target, backoff: Duration) -> Result<Self, Failed> {
        if self.redirects == MAX_REDIRECTS {
            let error = Error::new(
                ErrorKind::Busy,
                format!(
                    "{:?} is moving: the nodes redirected the call {MAX_REDIRECTS} times; nothing \
                     was charged",
                    self.slot
                ),
            );
            return Err(Failed { places: self.into_places(), error });
        }
        Ok(Self { target, backoff, redirects: self.redirects + 1, ..self })
    }

    fn next_backoff(&self) -> Duration {
        let backoff = MIN_BACKOFF.saturating_mul(1 << self.redirects.min(8)).min(MAX_BACKOFF);
        // Half of it is jitter, so that callers do not retry together.
        backoff / 2 + (backoff / 2).mul_f64(fastrand::f64())
    }

    /// The number of charges.
    pub(crate) fn charges(&self) -> usize {
        self.calls.iter().map(|(_, call)| call.charges.len()).sum()
    }

    pub(crate) fn calls(&self) -> &[(usize, Call<'a>)] {
        &self.calls
    }

    pub(crate) fn into_calls(self) -> Calls<'a> {
        self.calls
    }

    /// The indices of the calls in the batch.
    pub(crate) fn into_places(self) -> Places {
        self.calls.into_iter().map(|(place, _)| place).collect()
    }
}

/// Calls that were not carried out, and the reason.
#[derive(Debug)]
pub(crate) struct Failed {
    /// Their indices in the batch.
    pub(crate) places: Places,
    pub(crate) error: Error,
}
