//! Dispatches requests to their nodes. The requests to one node are sent in one write, and all
//! nodes are called concurrently.

use std::iter::Peekable;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::{Pipeline, RedisError, Value};
use tidegate_core::{Error, ErrorKind};
use tidegate_redis::protocol::{self, Batch, Plan};
use tokio::time::sleep;

use crate::dispatch::request::{NodeReply, SlotDecision, SlotRequest, Target};
use crate::inner::Inner;
use crate::routing::node::{Node, redirect_address};

/// Decisions on calls, each with the index of its call.
pub(crate) type Completed = Vec<(usize, Result<SlotDecision, Error>)>;

/// The maximum number of charges in one write to a node. It is equal to the maximum in one request.
///
/// The response timeout applies to a whole write. A node needs about 10 ms for 1,024 charges, and
/// the default timeout is 500 ms. So even a node that is twenty times slower than usual replies in
/// time. A larger write would save only one round trip per 10 ms.
const MAX_CHARGES_PER_WRITE: usize = Batch::MAX_CHARGES;

enum NodeBatch<'c, 'a> {
    To(Arc<Node>, Vec<SlotRequest<'c, 'a>>),
    Unrouted(Vec<SlotRequest<'c, 'a>>),
    /// A request that the store sends again after a pause.
    Backoff(Box<SlotRequest<'c, 'a>>),
}

/// The result of a batch: the completed calls, and the requests that must be sent next.
#[derive(Default)]
struct Dispatched<'c, 'a> {
    completed: Completed,
    requests: Vec<SlotRequest<'c, 'a>>,
}

impl Inner {
    /// Sends the requests of all plans until each call is completed. A plan contains the requests
    /// for some calls, which are sent one after the other. No call is executed twice.
    pub(crate) async fn dispatch<'c, 'a: 'c>(
        &self,
        plans: impl IntoIterator<Item = Plan<'c, 'a>>,
    ) -> Completed {
        let mut start = Dispatched::default();
        plans.into_iter().for_each(|plan| self.push_next(plan, &mut start));
        let Dispatched { mut completed, requests } = start;
        let send = |node_batch| self.send_batch(node_batch);
        let mut batches = self.by_node(requests);
        // Usually there is a single batch, for example for a single call. A single batch needs no
        // set of concurrent futures.
        while batches.len() == 1
            && let Some(only) = batches.pop()
        {
            let result = send(only).await;
            completed.extend(result.completed);
            batches = self.by_node(result.requests);
        }
        let mut batches: FuturesUnordered<_> = batches.into_iter().map(send).collect();
        while let Some(result) = batches.next().await {
            completed.extend(result.completed);
            batches.extend(self.by_node(result.requests).into_iter().map(send));
        }
        completed
    }

    fn by_node<'c, 'a>(&self, requests: Vec<SlotRequest<'c, 'a>>) -> Vec<NodeBatch<'c, 'a>> {
        let mut batches: Vec<NodeBatch<'c, 'a>> = vec![];
        let mut unrouted = vec![];
        for request in requests {
            if !request.backoff.is_zero() {
                batches.push(NodeBatch::Backoff(Box::new(request)));
                continue;
            }
            let node = match &request.target {
                Target::Primary => self.slot_map.primary(request.slot()),
                Target::Node(node) | Target::Asking(node) => Some(Arc::clone(node)),
            };
            let Some(node) = node else {
                unrouted.push(request);
                continue;
            };
            let there = batches.iter_mut().find_map(|node_batch| match node_batch {
                NodeBatch::To(other, requests) if Arc::ptr_eq(other, &node) => Some(requests),
                _ => None,
            });
            match there {
                Some(requests) => requests.push(request),
                None => batches.push(NodeBatch::To(node, vec![request])),
            }
        }
        if !unrouted.is_empty() {
            batches.push(NodeBatch::Unrouted(unrouted));
        }
        batches
    }

    async fn send_batch<'c, 'a>(&self, node_batch: NodeBatch<'c, 'a>) -> Dispatched<'c, 'a> {
        let mut result = Dispatched::default();
        match node_batch {
            NodeBatch::Backoff(mut request) => {
                sleep(std::mem::take(&mut request.backoff)).await;
                result.requests.push(*request);
            }
            NodeBatch::Unrouted(requests) => self.route(requests, &mut result).await,
            NodeBatch::To(node, requests) => {
                let mut requests = requests.into_iter().peekable();
                while let Some(first) = requests.next() {
                    self.send_write(&node, take_one_write(first, &mut requests), &mut result).await;
                }
            }
        }
        result
    }

    /// Looks up the primaries of requests to slots without a known primary. All these requests wait
    /// for the same refresh of the slot map.
    async fn route<'c, 'a>(
        &self,
        requests: Vec<SlotRequest<'c, 'a>>,
        result: &mut Dispatched<'c, 'a>,
    ) {
        for request in requests {
            match self.topology.primary(request.slot()).await {
                Ok(_) => result.requests.push(request),
                Err(error) => self.finish(request, Err(error), None, result),
            }
        }
    }

    async fn send_write<'c, 'a>(
        &self,
        node: &Arc<Node>,
        mut requests: Vec<SlotRequest<'c, 'a>>,
        result: &mut Dispatched<'c, 'a>,
    ) {
        let (pipeline, waits) = self.pipeline(&mut requests);
        let mut answers = match self.send_pipeline(node, &requests, &pipeline).await {
            Ok(answers) => answers,
            Err(error) => {
                // The node has failed. The cluster has possibly replaced it by another node.
                self.topology.trigger();
                for request in requests {
                    let error = error.clone().with_context("a node of the cluster");
                    self.finish(request, Err(error), None, result);
                }
                return;
            }
        };
        let replicas = if waits { answers.pop().and_then(replicas_of) } else { None };
        let mut answers = answers.into_iter();
        for request in requests {
            let reply = match answers.next() {
                Some(answer) => request.read_reply(&node.address, answer),
                None => NodeReply::Done(Err(Error::new(
                    ErrorKind::Protocol,
                    "the node sent fewer replies than commands",
                ))),
            };
            self.handle_reply(node, request, reply, replicas, result);
        }
    }

    /// Returns the commands of one write, and a flag that is `true` if the last command is WAIT.
    fn pipeline(&self, requests: &mut [SlotRequest<'_, '_>]) -> (Pipeline, bool) {
        let mut pipeline = Pipeline::with_capacity(requests.len() + 1);
        pipeline.ignore_errors();
        let mut loaded = vec![];
        for request in &mut *requests {
            if matches!(request.target, Target::Asking(_)) {
                pipeline.cmd("ASKING").ignore();
            }
            let script = request.request().script().sha();
            let command = request.command(loaded.contains(&script));
            if request.is_eval() {
                loaded.push(script);
            }
            pipeline.add_command(command);
        }
        let replicas = self.replicas.as_ref().filter(|_| requests.iter().any(SlotRequest::writes));
        if let Some(replicas) = replicas {
            pipeline.cmd("WAIT").arg(replicas.count).arg(replicas.millis());
        }
        (pipeline, replicas.is_some())
    }

    async fn send_pipeline(
        &self,
        node: &Node,
        requests: &[SlotRequest<'_, '_>],
        pipeline: &Pipeline,
    ) -> Result<Vec<Result<Value, RedisError>>, Error> {
        let connection = node.connections.next();
        let mut live = connection.live().await?;
        let Some(first) = requests.first() else { return Ok(vec![]) };
        let sent = connection.send_all(&mut live, pipeline);
        self.script_times.measure(first.request().script(), sent).await
    }

    fn handle_reply<'c, 'a>(
        &self,
        node: &Arc<Node>,
        mut request: SlotRequest<'c, 'a>,
        reply: NodeReply,
        replicas: Option<u64>,
        result: &mut Dispatched<'c, 'a>,
    ) {
        let is_retried = match reply {
            NodeReply::Done(replies) => {
                if replies.as_ref().is_err_and(may_have_moved) {
                    self.topology.trigger();
                }
                return self.finish(request, replies, replicas, result);
            }
            // The keys of the request are on two nodes. A request for several calls is split into
            // one request per call, because a single call usually has only one key.
            NodeReply::TryAgain if request.len() > 1 => {
                return request.split().for_each(|plan| self.push_next(plan, result));
            }
            NodeReply::TryAgain => request.retry_later(),
            NodeReply::NoScript => {
                request.retry_with_script();
                Ok(())
            }
            NodeReply::Moved(address) => self.node_at(node, &address).and_then(|node| {
                self.slot_map.set_primary(request.slot(), &node);
                // When one slot has moved, other slots usually have moved too, so the whole slot
                // map is refreshed.
                self.topology.trigger();
                request.redirect(Target::Node(node))
            }),
            NodeReply::Ask(address) => {
                self.node_at(node, &address).and_then(|node| request.redirect(Target::Asking(node)))
            }
        };
        match is_retried {
            Ok(()) => result.requests.push(request),
            Err(error) => self.finish(request, Err(error), None, result),
        }
    }

    /// Completes the calls that `replies` decides. Adds the next request of the same plan to
    /// `result`.
    fn finish<'c, 'a>(
        &self,
        request: SlotRequest<'c, 'a>,
        replies: Result<Vec<protocol::Reply>, Error>,
        replicas: Option<u64>,
        result: &mut Dispatched<'c, 'a>,
    ) {
        let completed = &mut result.completed;
        let plan = request.finish(replies, &mut |place, reply| {
            completed.push((place, reply.map(|reply| SlotDecision { reply, replicas })));
        });
        self.push_next(plan, result);
    }

    /// Adds the next request of `plan` to `result`. If a call fails before it is sent, adds the
    /// error as the answer to the call.
    fn push_next<'c, 'a>(&self, plan: Plan<'c, 'a>, result: &mut Dispatched<'c, 'a>) {
        let completed = &mut result.completed;
        let next = SlotRequest::next(plan, self.time(), &mut |place, reply| {
            completed.push((place, reply.map(|reply| SlotDecision { reply, replicas: None })));
        });
        result.requests.extend(next);
    }

    fn node_at(&self, by: &Node, address: &str) -> Result<Arc<Node>, Error> {
        Ok(self.slot_map.node(&redirect_address(address, &by.address)?))
    }
}

/// Takes `first` and as many further requests from `rest` as fit into one write.
fn take_one_write<'c, 'a>(
    first: SlotRequest<'c, 'a>,
    rest: &mut Peekable<impl Iterator<Item = SlotRequest<'c, 'a>>>,
) -> Vec<SlotRequest<'c, 'a>> {
    let mut charges = first.charges();
    let mut write = vec![first];
    while let Some(request) = rest.next_if(|next| charges + next.charges() <= MAX_CHARGES_PER_WRITE)
    {
        charges += request.charges();
        write.push(request);
    }
    write
}

/// Returns `true` if an error possibly means that another node serves the slot, or will serve it
/// soon.
pub(super) fn may_have_moved(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::ReadOnly | ErrorKind::Busy)
}

fn replicas_of(answer: Result<Value, RedisError>) -> Option<u64> {
    redis::from_redis_value(answer.ok()?).ok()
}
