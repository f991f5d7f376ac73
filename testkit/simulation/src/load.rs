//! Loads. A load is a stream of requests of many callers.

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

/// The settings of a load. The requests arrive at random times and do not depend on earlier
/// answers, like the requests of many callers that make few requests each.
///
/// By default, 1,000 requests per second arrive at all nodes together, for one second. Each request
/// is an acquire of cost 1 for the subject `s0`.
#[derive(Debug, Clone)]
#[must_use = "a load does nothing until a world runs it"]
pub struct Load {
    policies: Vec<Policy>,
    operation: Operation,
    rate: u64,
    /// The second rate, which alternates with `rate`, and the time after which the rate changes, in
    /// microseconds.
    alternate: Option<(u64, u64)>,
    lasting: u64,
    requests: u64,
    subjects: u64,
    cost: RangeInclusive<u64>,
    nodes: Range<usize>,
}

impl Load {
    /// Creates a load whose requests are charged under one policy.
    pub fn new(policy: &Policy) -> Self {
        Self::with_policies([policy.clone()])
    }

    /// Creates a load whose requests are charged under all of these policies, for the same subject.
    pub fn with_policies(policies: impl IntoIterator<Item = Policy>) -> Self {
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

    /// Sets the average number of requests per second, at all nodes together. The arrivals at each
    /// node are a Poisson process.
    pub fn per_second(mut self, rate: u64) -> Self {
        self.rate = rate.max(1);
        self
    }

    /// Sets a second rate. The load alternates between the rate of [`per_second`](Self::per_second)
    /// and the second rate. It starts with the rate of `per_second`, and changes the rate after
    /// each `period`.
    ///
    /// To test a layer with leases, use a low first rate and a high second rate. At the low rate,
    /// chunks have unspent cost when a window ends. At the high rate, the ledger shows whether the
    /// layer wrongly uses this cost in the next window.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tidegate_simulation::Load;
    /// # let policy = "p: fixed-window 300/500ms".parse().unwrap();
    /// // 200 requests in each even window, and 1,500 in each odd one.
    /// let load =
    ///     Load::new(&policy).per_second(400).alternating_with(3_000, Duration::from_millis(500));
    /// ```
    pub fn alternating_with(mut self, rate: u64, period: Duration) -> Self {
        self.alternate = Some((rate.max(1), micros(period).max(1)));
        self
    }

    /// Returns the rate at `time`, and the time at which this rate ends. All times are in
    /// nanoseconds since the start of the load.
    fn rate_at(&self, time: u64) -> (u64, u64) {
        let Some((other, period)) = self.alternate else { return (self.rate, u64::MAX) };
        let period = period.saturating_mul(1_000);
        let index = time / period;
        let rate = if index.is_multiple_of(2) { self.rate } else { other };
        (rate, (index + 1).saturating_mul(period))
    }

    /// Sets the duration of the load.
    pub fn lasting(mut self, time: Duration) -> Self {
        self.lasting = micros(time);
        self
    }

    /// Sets the maximum number of requests at all nodes together, which is split evenly over the
    /// nodes.
    pub fn requests(mut self, requests: u64) -> Self {
        self.requests = requests;
        self
    }

    /// Sets the number of subjects, which are `s0`, `s1` and so on. All subjects are equally
    /// frequent.
    pub fn subjects(mut self, subjects: u64) -> Self {
        self.subjects = subjects.max(1);
        self
    }

    /// Sets the range of the costs. All costs of the range are equally frequent.
    pub fn cost(mut self, cost: RangeInclusive<u64>) -> Self {
        self.cost = cost;
        self
    }

    /// Sets the operation of the requests.
    pub fn operation(mut self, operation: Operation) -> Self {
        self.operation = operation;
        self
    }

    /// Sets the nodes at which requests arrive, as a range of node numbers. Default: all nodes.
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

/// A load that has been started. To wait for the end of the load, await this value.
#[derive(Debug)]
#[must_use = "a load ends when it is awaited or the simulation ends"]
pub struct RunningLoad(JoinHandle<()>);

impl Future for RunningLoad {
    type Output = ();

    fn poll(
        mut self: Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context).map(resume_panic)
    }
}

fn resume_panic(result: Result<(), tokio::task::JoinError>) {
    if let Err(error) = result
        && let Ok(panic) = error.try_into_panic()
    {
        resume_unwind(panic);
    }
}

impl<S: Store + 'static, D: Store + 'static> World<S, D> {
    /// Runs a load to its end. The load ends when each request has been answered, or the node of
    /// the request has been killed.
    pub async fn run(&self, load: Load) {
        self.start(load).await;
    }

    /// Starts a load, which runs concurrently with the test's scenario.
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
                resume_panic(ended);
            }
        }))
    }
}

/// Returns the time of the next request after `at` at one of `nodes` nodes. Times are in
/// nanoseconds since the start of the load, so that many requests can arrive within a microsecond.
fn next_arrival(load: &Load, nodes: u64, mut at: u64, random: &mut Random) -> u64 {
    loop {
        let (rate, ends_at) = load.rate_at(at);
        let mean = nodes.saturating_mul(1_000_000_000) / rate;
        let next = at.saturating_add(random.exponential(mean));
        // In a Poisson process, the wait for the next arrival does not depend on earlier arrivals.
        // So when the rate changes, the loop draws a new wait at the new rate.
        if next < ends_at || ends_at == u64::MAX || ends_at / 1_000 >= load.lasting {
            return next;
        }
        at = ends_at;
    }
}

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
            resume_panic(ended);
        }
    }
    while let Some(ended) = waiting.join_next().await {
        resume_panic(ended);
    }
}
