//! A request for keys in one slot. The request handles redirects and retries, and chooses between
//! EVALSHA (with the hash of the script) and EVAL (with the script).

use std::sync::Arc;
use std::time::Duration;

use redis::cluster::NodeAddress;
use redis::cluster_routing::Slot;
use redis::{Cmd, RedisError, ServerErrorKind, Value, from_redis_value};
use tidegate_core::{Error, ErrorKind, Operation, Timestamp};
use tidegate_redis::connection::error::{self, printable};
use tidegate_redis::protocol::{self, Plan, PlannedRequest, Request, ScriptReply};

use crate::routing::node::Node;
use crate::routing::slots::slot_of_request;

#[derive(Debug)]
pub(crate) struct SlotDecision {
    pub(crate) reply: ScriptReply,
    /// The number of replicas that have acknowledged the write of the call, or `None` if WAIT was
    /// not sent.
    pub(crate) replicas: Option<u64>,
}

/// The next request of a [`Plan`]. All keys of the request are in one slot.
#[derive(Debug)]
pub(crate) struct SlotRequest<'c, 'a> {
    plan: Plan<'c, 'a>,
    planned: PlannedRequest<'a>,
    slot: Slot,
    pub(crate) target: Target,
    /// The time for which the store waits before it sends the request.
    pub(crate) backoff: Duration,
    mode: EvalMode,
    /// The number of times that the nodes have redirected or delayed this request so far.
    redirects: u32,
}

#[derive(Debug, Clone)]
pub(crate) enum Target {
    /// The primary of the slot, according to the slot map.
    Primary,
    Node(Arc<Node>),
    /// The node that an ASK redirect named. This node imports the slot and already has the keys of
    /// the request.
    Asking(Arc<Node>),
}

/// The form of the command that calls the script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EvalMode {
    Sha,
    /// The command is EVALSHA if an earlier command of the same write contains the script, and EVAL
    /// otherwise.
    ShaAfterEval,
    Eval,
}

#[derive(Debug)]
pub(crate) enum NodeReply {
    /// The node executed the request, or the request failed.
    Done(Result<Vec<protocol::Reply>, Error>),
    /// MOVED: the node at this address serves the slot.
    Moved(String),
    /// ASK: the node at this address imports the slot and already has the keys of the request.
    Ask(String),
    /// TRYAGAIN: some of the keys of the request have moved to another node, and the others have
    /// not.
    TryAgain,
    /// NOSCRIPT: the node does not know the script.
    NoScript,
}

/// The maximum number of redirects of a request before it fails.
const MAX_REDIRECTS: u32 = 8;

/// The bounds of the time for which the store waits before it sends a redirected request again.
const MIN_BACKOFF: Duration = Duration::from_millis(4);
const MAX_BACKOFF: Duration = Duration::from_millis(64);

impl<'c, 'a> SlotRequest<'c, 'a> {
    /// Creates the next request of a plan. A plan contains the requests for some calls, which are
    /// sent one after the other. Returns `None` if no request is left.
    ///
    /// If `now` is `Some`, the script decides at this time, and not by the clock of the node. If a
    /// call fails before it is sent, this function passes the error to `decided`.
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

    /// Passes the decisions in the replies to `decided`. Returns the plan for the calls that have
    /// no decision yet.
    pub(crate) fn finish(
        self,
        replies: Result<Vec<protocol::Reply>, Error>,
        decided: &mut impl FnMut(usize, Result<ScriptReply, Error>),
    ) -> Plan<'c, 'a> {
        let Self { mut plan, planned, .. } = self;
        plan.take_replies(planned, replies, decided);
        plan
    }

    /// Splits a request that no node has executed. Returns one plan for each call of the request,
    /// and then a plan for the other calls of the original plan.
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

    /// Returns `true` if one of the calls can make a write that must not be lost in a failover. An
    /// undo is allowed to be lost, because its loss admits nothing beyond the limit.
    pub(crate) fn writes(&self) -> bool {
        let may_be_lost = |operation| matches!(operation, Operation::Peek | Operation::Undo { .. });
        !self.plan.is_peek()
            && self.plan.calls_of(&self.planned).any(|call| !may_be_lost(call.operation))
    }

    /// Returns the command to send. `is_loaded` is `true` if an earlier command of the same write
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
            // Callers of the store cannot handle the other errors of the cluster protocol, such as
            // CROSSSLOT. So each of these errors becomes an error of kind `Protocol`.
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

    /// Prepares the request for another attempt at the node `target`. Returns [`ErrorKind::Busy`]
    /// if the request was redirected too often.
    pub(crate) fn redirect(&mut self, target: Target) -> Result<(), Error> {
        // The store follows the first two redirects immediately, because the node that a redirect
        // names usually has the slot.
        let backoff = if self.redirects < 2 { Duration::ZERO } else { self.next_backoff() };
        self.retry(target, backoff)
    }

    /// Prepares the request for another attempt at the primary of the slot, after a pause. Returns
    /// [`ErrorKind::Busy`] if the request was redirected too often.
    pub(crate) fn retry_later(&mut self) -> Result<(), Error> {
        let backoff = self.next_backoff();
        self.retry(Target::Primary, backoff)
    }

    /// Prepares the request for another attempt at the same node, which does not know the script.
    /// The next command contains the whole script, or only its hash if an earlier command of the
    /// same write contains the script.
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
        // Half of the pause is random, so that several callers do not retry at the same time.
        backoff / 2 + (backoff / 2).mul_f64(fastrand::f64())
    }

    pub(crate) fn charges(&self) -> usize {
        self.plan.calls_of(&self.planned).map(|call| call.charges.len()).sum()
    }

    pub(crate) fn len(&self) -> usize {
        self.planned.places.len()
    }
}
