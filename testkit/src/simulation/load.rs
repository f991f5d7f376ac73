//! Requests of many callers.

use std::future::Future;
use std::ops::{Range, RangeInclusive};
use std::panic::resume_unwind;
use std::pin::Pin;
use std::time::Duration;

use tidegate_core::{Call, Charge, Operation, Policy, Store};
use tokio::task::{JoinHandle, JoinSet};

use super::random::Random;
use super::time::micros;
use super::world::{Node, World, poll_once};

/// Requests that arrive at random, whatever became of those before: of many callers, each of which makes few.
///
/// By default 1,000 per second for a second, all nodes together, each an acquire of cost 1 for one subject, `s0`.
#[derive(Debug, Clone)]
#[must_use = "a load does nothing until a world runs it"]
pub struct Load {
    policies: Vec<Policy>,
    operation: Operation,
    rate: u64,
    /// The other rate, and the duration of each rate in microseconds.
    alternate: Option<(u64, u64)>,
    lasting: u64,
    requests: u64,
    subjects: u64,
    cost: RangeInclusive<u64>,
    nodes: Range<usize>,
}

impl Load {
    /// A load of requests that are charged under one policy.
    pub fn new(policy: &Policy) -> Self {
        Self::of([policy.clone()])
    }

    /// A load of requests that are charged under several policies each, for the same subject.
    pub fn of(policies: impl IntoIterator<Item = Policy>) -> Self {
        Self {
            policies: policies.into_iter().collect(),
            operation: Operation::Acquire,
            rate: 1_000,
            alternate: None,
            lasting: 1_000_000,
            requests: u64::MAX,
            subjects: 1,
            cost: 1..=1,
            nodes: 0..usize::MAX,
        }
    }

    /// How many requests arrive per second on average, at all nodes together; on each node a Poisson process.
    pub fn per_second(mut self, rate: u64) -> Self {
        self.rate = rate.max(1);
        self
    }

    /// Lets this rate alternate with that of [`per_second`](Self::per_second), which is the
    /// first. Each lasts for `period`.
    ///
    /// With a low rate first, a layer holds budget that it has not used when a window ends. The
    /// high rate then shows whether it uses this budget on top of the next window's limit.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tidegate_testkit::simulation::Load;
    /// # let policy = "p: fixed-window 300/500ms".parse().unwrap();
    /// // 200 requests in each even window, and 1,500 in each odd one. let load =
    /// Load::new(&policy).per_second(400).alternating_with(3_000, Duration::from_millis(500));
    /// ```
    pub fn alternating_with(mut self, rate: u64, period: Duration) -> Self {
        self.alternate = Some((rate.max(1), micros(period).max(1)));
        self
    }

    /// Returns the rate at a time since the start, and the end of this rate, in nanoseconds.
    fn rate_at(&self, time: u64) -> (u64, u64) {
        let Some((other, period)) = self.alternate else { return (self.rate, u64::MAX) };
        let period = period.saturating_mul(1_000);
        let index = time / period;
        let rate = if index.is_multiple_of(2) { self.rate } else { other };
        (rate, (index + 1).saturating_mul(period))
    }

    /// For how long requests are made.
    pub fn lasting(mut self, time: Duration) -> Self {
        self.lasting = micros(time);
        self
    }

    /// The number of requests after which it ends: each node makes as many as any other, or one more.
    pub fn requests(mut self, requests: u64) -> Self {
        self.requests = requests;
        self
    }

    /// The number of subjects, `s0`, `s1` and so on, each as frequent as any other.
    pub fn subjects(mut self, subjects: u64) -> Self {
        self.subjects = subjects.max(1);
        self
    }

    /// The costs: any of this range is as likely as any other.
    pub fn cost(mut self, cost: RangeInclusive<u64>) -> Self {
        self.cost = cost;
        self
    }

    /// The operation.
    pub fn operation(mut self, operation: Operation) -> Self {
        self.operation = operation;
        self
    }

    /// The nodes at which requests arrive. Default: all.
    pub fn nodes(mut self, nodes: Range<usize>) -> Self {
        self.nodes = nodes;
        self
    }

    async fn request<D: Store>(self, node: Node<D>, subject: u64, cost: u64) {
        let subject = format!("s{subject}");
        let charges: Vec<_> =
            self.policies.iter().map(|policy| Charge::new(policy, &subject).cost(cost)).collect();
        node.request(Call::new(self.operation, &charges)).await;
    }
}

/// A load that runs.
#[derive(Debug)]
#[must_use = "a load ends when it is awaited or the simulation ends"]
pub struct RunningLoad(JoinHandle<()>);

impl Future for RunningLoad {
    type Output = ();

    fn poll(
        mut self: Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context).map(unwound)
    }
}

/// A panic goes on in the task that waits.
fn unwound(result: Result<(), tokio::task::JoinError>) {
    if let Err(error) = result
        && let Ok(panic) = error.try_into_panic()
    {
        resume_unwind(panic);
    }
}

impl<S: Store + 'static, D: Store + 'static> World<S, D> {
    /// Runs a load, until all its requests are answered, or their nodes killed.
    pub async fn run(&self, load: Load) {
        self.start(load).await;
    }

    /// Starts a load, which goes on while something else is done.
    pub fn start(&self, load: Load) -> RunningLoad {
        let nodes: Vec<_> = {
            let last = load.nodes.end.min(self.nodes().len());
            self.nodes().get(load.nodes.start..last).unwrap_or_default().to_vec()
        };
        let (world, number) = (self.clone(), self.next_number());
        let random = self.random(number);
        RunningLoad(tokio::spawn(async move {
            let mut tasks = JoinSet::new();
            let count = nodes.len() as u64;
            for (index, node) in nodes.into_iter().enumerate() {
                let index = index as u64;
                let requests = load.requests / count + u64::from(index < load.requests % count);
                let load = Load { requests, ..load.clone() };
                tasks.spawn(arrivals(world.clone(), node, load, count, random.fork(index)));
            }
            while let Some(ended) = tasks.join_next().await {
                unwound(ended);
            }
        }))
    }
}

/// Returns the time of the next request after `at` at one of `nodes` nodes. Times are
/// nanoseconds since the start, so that many requests may arrive within a microsecond.
fn next_arrival(load: &Load, nodes: u64, mut at: u64, random: &mut Random) -> u64 {
    loop {
        let (rate, ends_at) = load.rate_at(at);
        let mean = nodes.saturating_mul(1_000_000_000) / rate;
        let next = at.saturating_add(random.exponential(mean));
        // A Poisson process has no memory, so that it can begin again when the rate changes.
        if next < ends_at || ends_at == u64::MAX || ends_at / 1_000 >= load.lasting {
            return next;
        }
        at = ends_at;
    }
}

/// The requests at one node of so many.
async fn arrivals<S: Store + 'static, D: Store + 'static>(
    world: World<S, D>,
    node: Node<D>,
    load: Load,
    nodes: u64,
    mut random: Random,
) {
    let start = micros(world.elapsed());
    let (mut waiting, mut at) = (JoinSet::new(), 0_u64);
    for _ in 0..load.requests {
        at = next_arrival(&load, nodes, at, &mut random);
        if at / 1_000 >= load.lasting {
            break;
        }
        world.sleep_until(Duration::from_micros(start + at / 1_000)).await;
        if node.is_killed() {
            break;
        }
        let subject = random.below(load.subjects);
        let cost = random.within(*load.cost.start(), *load.cost.end());
        let request = Box::pin(load.clone().request(node.clone(), subject, cost));
        if let Err(waits) = poll_once(request).await {
            waiting.spawn(waits);
        }
        while let Some(ended) = waiting.try_join_next() {
            unwound(ended);
        }
    }
    while let Some(ended) = waiting.join_next().await {
        unwound(ended);
    }
}
