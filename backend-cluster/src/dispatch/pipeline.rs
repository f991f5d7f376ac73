//! Dispatches script calls to their nodes: those of one node in one write, all nodes concurrently.

use std::iter::Peekable;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::{Pipeline, RedisError, Value};
use smallvec::smallvec;
use tidegate_core::{Error, ErrorKind};
use tidegate_redis::wire::Batch;
use tokio::time::sleep;

use crate::dispatch::request::{Calls, Failed, Places, Reply, SlotDecision, SlotRequest, Target};
use crate::inner::Inner;
use crate::routing::node::{Node, address_of};

/// The answers to calls, each with the index of its call.
pub(crate) type Completed = Vec<(usize, Result<SlotDecision, Error>)>;

/// The maximum number of charges in one write to a node: those of one full script call, or of as many
/// small ones. The response timeout is that of a whole write, so a write must be answered in a
/// fraction of it: a server that needs 10 ms for this many meets the default of 500 ms even where it
/// is slowed down twentyfold. Longer writes would save one round trip in these 10 ms.
const MAX_CHARGES_PER_WRITE: usize = Batch::MAX_CHARGES;

/// Requests that are dispatched together.
enum NodeBatch<'a> {
    /// To one node.
    To(Arc<Node>, Vec<SlotRequest<'a>>),
    /// To slots without a known primary.
    Unrouted(Vec<SlotRequest<'a>>),
    /// Waiting before a retry.
    Backoff(Box<SlotRequest<'a>>),
}

/// What became of a batch: calls that are completed, and requests to send on.
#[derive(Default)]
struct Dispatched<'a> {
    completed: Completed,
    retries: Vec<SlotRequest<'a>>,
}

impl Inner {
    /// Dispatches all requests until each call is completed. None is carried out twice.
    pub(crate) async fn dispatch(&self, requests: Vec<SlotRequest<'_>>) -> Completed {
        let mut completed = Vec::with_capacity(requests.len());
        let mut batches: FuturesUnordered<_> =
            self.plan(requests).into_iter().map(|node_batch| self.send_batch(node_batch)).collect();
        while let Some(result) = batches.next().await {
            completed.extend(result.completed);
            batches.extend(
                self.plan(result.retries).into_iter().map(|node_batch| self.send_batch(node_batch)),
            );
        }
        completed
    }

    /// Groups the requests by node.
    fn plan<'a>(&self, requests: Vec<SlotRequest<'a>>) -> Vec<NodeBatch<'a>> {
        let mut batches: Vec<NodeBatch<'a>> = vec![];
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

    async fn send_batch<'a>(&self, node_batch: NodeBatch<'a>) -> Dispatched<'a> {
        let mut result = Dispatched::default();
        match node_batch {
            NodeBatch::Backoff(mut request) => {
                sleep(std::mem::take(&mut request.backoff)).await;
                result.retries.push(*request);
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

    /// Looks up the primaries of unrouted requests. One topology refresh answers for all.
    async fn route<'a>(&self, requests: Vec<SlotRequest<'a>>, result: &mut Dispatched<'a>) {
        for request in requests {
            match self.topology.primary(request.slot()).await {
                Ok(_) => result.retries.push(request),
                Err(error) => result.fail(request.into_places(), error),
            }
        }
    }

    /// Sends requests to a node in one write, and handles its replies.
    async fn send_write<'a>(
        &self,
        node: &Arc<Node>,
        mut requests: Vec<SlotRequest<'a>>,
        result: &mut Dispatched<'a>,
    ) {
        let (pipeline, waits) = self.pipeline(&mut requests);
        let mut answers = match self.send_pipeline(node, &requests, &pipeline).await {
            Ok(answers) => answers,
            Err(error) => {
                // The node may have been replaced.
                self.topology.trigger();
                for request in requests {
                    result.fail(
                        request.into_places(),
                        error.clone().with_context("a node of the cluster"),
                    );
                }
                return;
            }
        };
        let replicas = if waits { answers.pop().and_then(replicas_of) } else { None };
        let mut answers = answers.into_iter();
        for request in requests {
            let read_reply = answers.next().map_or_else(
                || {
                    Reply::Done(Err(Error::new(
                        ErrorKind::Protocol,
                        "the node sent fewer replies than commands",
                    )))
                },
                |answer| request.read_reply(&node.address, answer),
            );
            self.handle_reply(node, request, read_reply, replicas, result);
        }
    }

    /// The commands of one write, and whether the last is WAIT.
    fn pipeline(&self, requests: &mut [SlotRequest<'_>]) -> (Pipeline, bool) {
        let mut pipeline = Pipeline::with_capacity(requests.len() + 1);
        pipeline.ignore_errors();
        let mut sent_in_full = vec![];
        for request in &mut *requests {
            if matches!(request.target, Target::Asking(_)) {
                pipeline.cmd("ASKING").ignore();
            }
            let script = request.script_call().script().sha();
            let command = request.command(sent_in_full.contains(&script));
            if request.is_eval() {
                sent_in_full.push(request.script_call().script().sha());
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
        requests: &[SlotRequest<'_>],
        pipeline: &Pipeline,
    ) -> Result<Vec<Result<Value, RedisError>>, Error> {
        let connection = node.connections.next();
        let mut live = connection.live().await?;
        let Some(first) = requests.first() else { return Ok(vec![]) };
        let sent = connection.send_all(&mut live, pipeline);
        self.script_times.of(first.script_call().script(), sent).await
    }

    fn handle_reply<'a>(
        &self,
        node: &Arc<Node>,
        request: SlotRequest<'a>,
        read_reply: Reply,
        replicas: Option<u64>,
        result: &mut Dispatched<'a>,
    ) {
        let retry = match read_reply {
            Reply::Done(Ok(reply)) => {
                for (call, reply) in request.calls().iter().zip(reply) {
                    match reply {
                        Err(error) if request.script_call().may_have_holds(&error) => {
                            match self.request_with_holds(&request, *call) {
                                Ok(request) => result.retries.push(request),
                                Err(error) => result.fail(smallvec![call.0], error),
                            }
                        }
                        reply => {
                            let decided = reply.map(|reply| SlotDecision { reply, replicas });
                            result.completed.push((call.0, decided));
                        }
                    }
                }
                return;
            }
            Reply::Done(Err(error)) => {
                if may_have_moved(&error) {
                    self.topology.trigger();
                }
                result.fail(request.into_places(), error);
                return;
            }
            Reply::NoScript => Ok(request.with_eval()),
            Reply::Moved(address) => self.moved(node, request, &address),
            Reply::Ask(address) => match self.node_at(node, &address) {
                Ok(node) => request.redirected(Target::Asking(node)),
                Err(error) => Err(Failed { places: request.into_places(), error }),
            },
            Reply::TryAgain => match request.calls() {
                [_] => request.again(),
                // Each call by itself mostly has one key, and so can be answered.
                _ => {
                    for call in request.into_calls() {
                        let calls: Calls<'a> = smallvec![call];
                        match self.request(calls) {
                            Ok(request) => result.retries.push(request),
                            Err(error) => result.fail(smallvec![call.0], error),
                        }
                    }
                    return;
                }
            },
        };
        match retry {
            Ok(request) => result.retries.push(request),
            Err(Failed { places, error }) => result.fail(places, error),
        }
    }

    fn moved<'a>(
        &self,
        node: &Node,
        request: SlotRequest<'a>,
        address: &str,
    ) -> Result<SlotRequest<'a>, Failed> {
        match self.node_at(node, address) {
            Ok(node) => {
                self.slot_map.set_primary(request.slot(), &node);
                // Slots rarely move alone.
                self.topology.trigger();
                request.redirected(Target::Node(node))
            }
            Err(error) => Err(Failed { places: request.into_places(), error }),
        }
    }

    fn node_at(&self, by: &Node, address: &str) -> Result<Arc<Node>, Error> {
        Ok(self.slot_map.node(&address_of(address, &by.address)?))
    }
}

impl<'a> Dispatched<'a> {
    /// Completes all calls with the error.
    fn fail(&mut self, mut places: Places, error: Error) {
        let last = places.pop();
        self.completed.extend(
            places.into_iter().map(|place| (place, Err(error.clone().with_context("in a batch")))),
        );
        self.completed.extend(last.map(|place| (place, Err(error))));
    }
}

/// Takes as many requests as fit in one write.
fn take_one_write<'a>(
    first: SlotRequest<'a>,
    rest: &mut Peekable<impl Iterator<Item = SlotRequest<'a>>>,
) -> Vec<SlotRequest<'a>> {
    let mut charges = first.charges();
    let mut write = vec![first];
    while let Some(request) = rest.next_if(|next| charges + next.charges() <= MAX_CHARGES_PER_WRITE)
    {
        charges += request.charges();
        write.push(request);
    }
    write
}

/// Whether another node may serve the slot by now, or soon.
fn may_have_moved(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::ReadOnly | ErrorKind::Busy)
}

fn replicas_of(answer: Result<Value, RedisError>) -> Option<u64> {
    redis::from_redis_value(answer.ok()?).ok()
}
