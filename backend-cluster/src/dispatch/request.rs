//! A request to one slot, with its redirects and retries, and the way in which its script is sent.

use std::sync::Arc;
use std::time::Duration;

use redis::cluster::NodeAddress;
use redis::cluster_routing::Slot;
use redis::{Cmd, RedisError, ServerErrorKind, Value, from_redis_value};
use tidegate_core::{Error, ErrorKind, Operation, Timestamp};
use tidegate_redis::connection::error::{self, printable};
use tidegate_redis::wire::{self, Plan, PlannedRequest, Request, ScriptReply};

use crate::routing::node::Node;
use crate::routing::slots::slot_of_request;

/// The decision on a call within one slot.
#[derive(Debug)]
pub(crate) struct SlotDecision {
    pub(crate) reply: ScriptReply,
    /// The number of replicas that had acknowledged it, if WAIT was sent.
    pub(crate) replicas: Option<u64>,
}

/// The next request of a plan whose calls have their keys in one slot.
#[derive(Debug)]
pub(crate) struct SlotRequest<'c, 'a> {
    /// The plan of the calls that follow this request.
    plan: Plan<'c, 'a>,
    planned: PlannedRequest<'a>,
    slot: Slot,
    /// The node to which the request is sent.
    pub(crate) target: Target,
    /// The pause before the request is sent.
    pub(crate) backoff: Duration,
    mode: EvalMode,
    /// The number of redirects so far.
    redirects: u32,
}

/// The node to which a request is sent.
#[derive(Debug, Clone)]
pub(crate) enum Target {
    /// The primary of the slot, according to the slot map.
    Primary,
    /// The node that a MOVED redirect named.
    Node(Arc<Node>),
    /// The node that an ASK redirect named. It imports the slot and already has the keys.
    Asking(Arc<Node>),
}

/// The command that calls the script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EvalMode {
    /// EVALSHA.
    Sha,
    /// EVALSHA if an earlier command of the same write contains the script, else EVAL.
    ShaAfterEval,
    /// EVAL, with the whole script.
    Eval,
}

/// A node's reply to a request.
#[derive(Debug)]
pub(crate) enum NodeReply {
    /// The node executed the request, or the request failed.
    Done(Result<Vec<wire::Reply>, Error>),
    /// MOVED: the node at this address serves the slot.
    Moved(String),
    /// ASK: the node at this address imports the slot and already has the keys.
    Ask(String),
    /// TRYAGAIN: only some of the keys have moved.
    TryAgain,
    /// NOSCRIPT.
    NoScript,
}

/// The number of redirects after which a request fails.
const MAX_REDIRECTS: u32 = 8;

/// The bounds of the pause before a redirected request is sent again.
const MIN_BACKOFF: Duration = Duration::from_millis(4);
const MAX_BACKOFF: Duration = Duration::from_millis(64);

impl<'c, 'a> SlotRequest<'c, 'a> {
    /// Creates the next request of a plan. Returns `None` if the plan has no further request.
    ///
    /// The script uses the time `now` instead of the node's clock if it is set. Calls that fail
    /// before they are sent are passed to `decided`.
    pub(crate) fn next(
        mut plan: Plan<'c, 'a>,
        now: Option<Timestamp>,
        decided: &mut impl FnMut(usize, Result<ScriptReply, Error>),
    ) -> Option<Self> {
        loop {
            let planned = plan.next_request(now, decided)?;
            let slot = match slot_of_request(&planned.request) {
                Ok(slot) => slot,
                Err(error) => {
                    plan.take_replies(planned, Err(error), decided);
                    continue;
                }
            };
            let (target, backoff, mode) = (Target::Primary, Duration::ZERO, EvalMode::Sha);
            return Some(Self { plan, planned, slot, target, backoff, mode, redirects: 0 });
        }
    }

    /// Passes the calls that the replies decide to `decided`, and returns the plan for the other
    /// calls.
    pub(crate) fn finish(
        self,
        replies: Result<Vec<wire::Reply>, Error>,
        decided: &mut impl FnMut(usize, Result<ScriptReply, Error>),
    ) -> Plan<'c, 'a> {
        let Self { mut plan, planned, .. } = self;
        plan.take_replies(planned, replies, decided);
        plan
    }

    /// Splits a request that was not executed into a plan for each of its calls. The last plan is
    /// the plan of the calls that follow the request.
    pub(crate) fn split(self) -> impl Iterator<Item = Plan<'c, 'a>> {
        let calls: Vec<_> = self.plan.split(self.planned).collect();
        calls.into_iter().chain([self.plan])
    }

    pub(crate) fn slot(&self) -> Slot {
        self.slot
    }

    pub(crate) fn request(&self) -> &Request<'a> {
        &self.planned.request
    }

    /// Returns `true` if one of the calls may write something that must not be lost. A lost undo
    /// admits nothing more.
    pub(crate) fn writes(&self) -> bool {
        let may_be_lost = |operation| matches!(operation, Operation::Peek | Operation::Undo { .. });
        !self.plan.is_peek()
            && self.plan.calls_of(&self.planned).any(|call| !may_be_lost(call.operation))
    }

    /// Returns the command to send. `is_loaded` is whether an earlier command of the same write
    /// contains the script.
    pub(crate) fn command(&mut self, is_loaded: bool) -> Cmd {
        if self.mode == EvalMode::ShaAfterEval && !is_loaded {
            self.mode = EvalMode::Eval;
        }
        match self.mode {
            EvalMode::Eval => self.request().eval(),
            _ => self.request().evalsha(),
        }
    }

    pub(crate) fn is_eval(&self) -> bool {
        self.mode == EvalMode::Eval
    }

    /// Reads the reply of a node.
    pub(crate) fn read_reply(
        &self,
        node: &NodeAddress,
        answer: Result<Value, RedisError>,
    ) -> NodeReply {
        let answer = answer.and_then(|value| Ok(from_redis_value::<Vec<u8>>(value)?));
        let error = match answer {
            Ok(bytes) => {
                let replies = self.request().read(&bytes);
                return NodeReply::Done(
                    replies.map_err(|error| error.with_context(format_args!("node {node}"))),
                );
            }
            Err(error) => error,
        };
        let kind = |kind: ServerErrorKind| error.kind() == kind.into();
        let (is_moved, is_asked) = (kind(ServerErrorKind::Moved), kind(ServerErrorKind::Ask));
        let address = error.detail().and_then(|text| text.split_ascii_whitespace().nth(1));
        match address {
            Some(address) if is_moved => NodeReply::Moved(address.to_owned()),
            Some(address) if is_asked => NodeReply::Ask(address.to_owned()),
            _ if kind(ServerErrorKind::TryAgain) => NodeReply::TryAgain,
            _ if kind(ServerErrorKind::NoScript) && self.mode != EvalMode::Eval => {
                NodeReply::NoScript
            }
            // A caller cannot handle the other errors of the cluster protocol.
            _ if error.is_cluster_error() && !kind(ServerErrorKind::ClusterDown)
                || kind(ServerErrorKind::CrossSlot) =>
            {
                let message =
                    format!("node {node} does not serve the slot and names no other node");
                let error = Error::new(ErrorKind::Protocol, message).with_source(printable(&error));
                NodeReply::Done(Err(error))
            }
            _ => NodeReply::Done(Err(error::call_error(&node.to_string(), error))),
        }
    }

    /// Redirects the request to a node.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Busy`] if the request was redirected too often.
    pub(crate) fn redirect(&mut self, target: Target) -> Result<(), Error> {
        // The first redirects are followed immediately, because the named node usually has the
        // slot.
        let backoff = if self.redirects < 2 { Duration::ZERO } else { self.next_backoff() };
        self.retry(target, backoff)
    }

    /// Lets the request be sent to the primary again, after a pause.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Busy`] if the request was redirected too often.
    pub(crate) fn retry_later(&mut self) -> Result<(), Error> {
        let backoff = self.next_backoff();
        self.retry(Target::Primary, backoff)
    }

    /// Lets the request be sent to the same node again, with the script.
    pub(crate) fn retry_with_script(&mut self) {
        self.backoff = Duration::ZERO;
        self.mode = match self.mode {
            EvalMode::Sha => EvalMode::ShaAfterEval,
            _ => EvalMode::Eval,
        };
    }

    fn retry(&mut self, target: Target, backoff: Duration) -> Result<(), Error> {
        if self.redirects == MAX_REDIRECTS {
            return Err(Error::new(
                ErrorKind::Busy,
                format!(
                    "{:?} is moving: the nodes redirected the call {MAX_REDIRECTS} times; nothing \
                     was charged",
                    self.slot
                ),
            ));
        }
        self.redirects += 1;
        (self.target, self.backoff) = (target, backoff);
        Ok(())
    }

    fn next_backoff(&self) -> Duration {
        let backoff = MIN_BACKOFF.saturating_mul(1 << self.redirects.min(8)).min(MAX_BACKOFF);
        // Half of the pause is random, so that callers do not retry together.
        backoff / 2 + (backoff / 2).mul_f64(fastrand::f64())
    }

    /// Returns the number of charges.
    pub(crate) fn charges(&self) -> usize {
        self.plan.calls_of(&self.planned).map(|call| call.charges.len()).sum()
    }

    /// Returns the number of calls.
    pub(crate) fn len(&self) -> usize {
        self.planned.places.len()
    }
}
