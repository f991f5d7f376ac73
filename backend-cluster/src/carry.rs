//! Carries errands to their nodes: all that go to one node in one write, to all nodes at once.

use std::iter::Peekable;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::{Pipeline, RedisError, Value};
use smallvec::smallvec;
use tidegate_core::{Error, ErrorKind};
use tidegate_redis::wire::Batch;
use tokio::time::sleep;

use crate::cluster_store::Inner;
use crate::errand::{Calls, Decided, Errand, Failed, Step, Target};
use crate::node::{Node, address_of};

/// The calls that have come to an end, by their places.
pub(crate) type Ended = Vec<(usize, Result<Decided, Error>)>;

/// The maximum number of charges in one write to a node: those of one full script call, or of as many
/// small ones. The response timeout is that of a whole write, so a write must be answered in a
/// fraction of it: a server that needs 10 ms for this many meets the default of 500 ms even where it
/// is slowed down twentyfold. What is gained by longer writes is a round trip in these 10 ms.
const MAX_CHARGES_PER_WRITE: usize = Batch::MAX_CHARGES;

/// Errands that are on their way together.
enum Leg<'a> {
    /// To one node.
    To(Arc<Node>, Vec<Errand<'a>>),
    /// Nobody knows where.
    Nowhere(Vec<Errand<'a>>),
    /// Resting.
    Rest(Box<Errand<'a>>),
}

/// What comes of a leg.
#[derive(Default)]
struct Landed<'a> {
    ended: Ended,
    onward: Vec<Errand<'a>>,
}

impl Inner {
    /// Carries out all errands, each once, and tells what became of each of their calls.
    pub(crate) async fn carry(&self, errands: Vec<Errand<'_>>) -> Ended {
        let mut ended = Vec::with_capacity(errands.len());
        let mut legs: FuturesUnordered<_> =
            self.plan(errands).into_iter().map(|leg| self.travel(leg)).collect();
        while let Some(landed) = legs.next().await {
            ended.extend(landed.ended);
            legs.extend(self.plan(landed.onward).into_iter().map(|leg| self.travel(leg)));
        }
        ended
    }

    /// Puts together what goes to one node.
    fn plan<'a>(&self, errands: Vec<Errand<'a>>) -> Vec<Leg<'a>> {
        let mut legs: Vec<Leg<'a>> = vec![];
        let mut nowhere = vec![];
        for errand in errands {
            if !errand.rest.is_zero() {
                legs.push(Leg::Rest(Box::new(errand)));
                continue;
            }
            let node = match &errand.target {
                Target::Primary => self.map.primary(errand.slot()),
                Target::Node(node) | Target::Asking(node) => Some(Arc::clone(node)),
            };
            let Some(node) = node else {
                nowhere.push(errand);
                continue;
            };
            let there = legs.iter_mut().find_map(|leg| match leg {
                Leg::To(other, errands) if Arc::ptr_eq(other, &node) => Some(errands),
                _ => None,
            });
            match there {
                Some(errands) => errands.push(errand),
                None => legs.push(Leg::To(node, vec![errand])),
            }
        }
        if !nowhere.is_empty() {
            legs.push(Leg::Nowhere(nowhere));
        }
        legs
    }

    async fn travel<'a>(&self, leg: Leg<'a>) -> Landed<'a> {
        let mut landed = Landed::default();
        match leg {
            Leg::Rest(mut errand) => {
                sleep(std::mem::take(&mut errand.rest)).await;
                landed.onward.push(*errand);
            }
            Leg::Nowhere(errands) => self.look(errands, &mut landed).await,
            Leg::To(node, errands) => {
                let mut errands = errands.into_iter().peekable();
                while let Some(first) = errands.next() {
                    self.visit(&node, one_write(first, &mut errands), &mut landed).await;
                }
            }
        }
        landed
    }

    /// Finds out who has the slots of errands: of all together, as whoever tells of one tells of all.
    async fn look<'a>(&self, errands: Vec<Errand<'a>>, landed: &mut Landed<'a>) {
        for errand in errands {
            match self.scout.primary(errand.slot()).await {
                Ok(_) => landed.onward.push(errand),
                Err(error) => landed.fail(errand.into_calls(), error),
            }
        }
    }

    /// Sends errands to a node in one write, once, and sorts them by what it says.
    async fn visit<'a>(
        &self,
        node: &Arc<Node>,
        mut errands: Vec<Errand<'a>>,
        landed: &mut Landed<'a>,
    ) {
        let (pipeline, waits) = self.pipeline(&mut errands);
        let mut answers = match self.exchange(node, &errands, &pipeline).await {
            Ok(answers) => answers,
            Err(error) => {
                // It may be gone for good, and another in its place.
                self.scout.go();
                for errand in errands {
                    landed.fail(errand.into_calls(), error.repeated("a node of the cluster"));
                }
                return;
            }
        };
        let replicas = if waits { answers.pop().and_then(replicas_of) } else { None };
        let mut answers = answers.into_iter();
        for errand in errands {
            let step = answers.next().map_or_else(
                || Step::Done(Err(Error::new(ErrorKind::Protocol, "the node left out an answer"))),
                |answer| errand.step(&node.address, answer),
            );
            self.take_step(node, errand, step, replicas, landed);
        }
    }

    /// One command after the other as the node gets them, and whether the last asks for the replicas.
    fn pipeline(&self, errands: &mut [Errand<'_>]) -> (Pipeline, bool) {
        let mut pipeline = Pipeline::with_capacity(errands.len() + 1);
        pipeline.ignore_errors();
        let mut brought = vec![];
        for errand in &mut *errands {
            if matches!(errand.target, Target::Asking(_)) {
                pipeline.cmd("ASKING").ignore();
            }
            let script = errand.request().script().sha();
            let command = errand.command(brought.contains(&script));
            if errand.is_in_full() {
                brought.push(errand.request().script().sha());
            }
            pipeline.add_command(command);
        }
        let replicas = self.replicas.as_ref().filter(|_| errands.iter().any(Errand::writes));
        if let Some(replicas) = replicas {
            pipeline.cmd("WAIT").arg(replicas.count).arg(replicas.millis());
        }
        (pipeline, replicas.is_some())
    }

    async fn exchange(
        &self,
        node: &Node,
        errands: &[Errand<'_>],
        pipeline: &Pipeline,
    ) -> Result<Vec<Result<Value, RedisError>>, Error> {
        let connection = node.connections.next();
        let mut live = connection.live().await?;
        let Some(first) = errands.first() else { return Ok(vec![]) };
        let sent = connection.send_all(&mut live, pipeline);
        self.script_times.of(first.request().script(), sent).await
    }

    fn take_step<'a>(
        &self,
        node: &Arc<Node>,
        errand: Errand<'a>,
        step: Step,
        replicas: Option<u64>,
        landed: &mut Landed<'a>,
    ) {
        let onward = match step {
            Step::Done(Ok(told)) => {
                let calls = errand.into_calls().into_iter();
                landed.ended.extend(calls.zip(told).map(|((place, _), told)| {
                    (place, told.map(|told| Decided { told, replicas }))
                }));
                return;
            }
            Step::Done(Err(error)) => {
                if tells_of_a_change(&error) {
                    self.scout.go();
                }
                landed.fail(errand.into_calls(), error);
                return;
            }
            Step::NoScript => Ok(errand.with_script()),
            Step::Moved(address) => self.moved(node, errand, &address),
            Step::Ask(address) => match self.named(node, &address) {
                Ok(node) => errand.referred(Target::Asking(node)),
                Err(error) => Err(Failed { calls: errand.into_calls(), error }),
            },
            Step::TryAgain => match errand.calls() {
                [_] => errand.again(),
                // Each by itself has one key, most often, and so can be answered.
                _ => {
                    for call in errand.into_calls() {
                        let calls: Calls<'a> = smallvec![call];
                        match self.errand(calls.clone()) {
                            Ok(errand) => landed.onward.push(errand),
                            Err(error) => landed.fail(calls, error),
                        }
                    }
                    return;
                }
            },
        };
        match onward {
            Ok(errand) => landed.onward.push(errand),
            Err(Failed { calls, error }) => landed.fail(calls, error),
        }
    }

    fn moved<'a>(
        &self,
        node: &Node,
        errand: Errand<'a>,
        address: &str,
    ) -> Result<Errand<'a>, Failed<'a>> {
        match self.named(node, address) {
            Ok(node) => {
                self.map.moved(errand.slot(), &node);
                // Slots seldom move alone.
                self.scout.go();
                errand.referred(Target::Node(node))
            }
            Err(error) => Err(Failed { calls: errand.into_calls(), error }),
        }
    }

    fn named(&self, by: &Node, address: &str) -> Result<Arc<Node>, Error> {
        Ok(self.map.node(&address_of(address, &by.address)?))
    }
}

impl<'a> Landed<'a> {
    /// The error of all is that of each.
    fn fail(&mut self, calls: Calls<'a>, error: Error) {
        let mut calls = calls.into_iter().map(|(place, _)| place);
        let last = calls.next_back();
        self.ended.extend(calls.map(|place| (place, Err(error.repeated("in a batch")))));
        self.ended.extend(last.map(|place| (place, Err(error))));
    }
}

/// The first errands, as many as go in one write.
fn one_write<'a>(
    first: Errand<'a>,
    rest: &mut Peekable<impl Iterator<Item = Errand<'a>>>,
) -> Vec<Errand<'a>> {
    let mut charges = first.charges();
    let mut write = vec![first];
    while let Some(errand) = rest.next_if(|next| charges + next.charges() <= MAX_CHARGES_PER_WRITE)
    {
        charges += errand.charges();
        write.push(errand);
    }
    write
}

/// Whether somebody else may serve the slot by now, or soon.
fn tells_of_a_change(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::ReadOnly | ErrorKind::Busy)
}

fn replicas_of(answer: Result<Value, RedisError>) -> Option<u64> {
    redis::from_redis_value(answer.ok()?).ok()
}
