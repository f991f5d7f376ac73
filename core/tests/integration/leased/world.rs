//! A simulated world in virtual time. It has a server, nodes with their own clocks, and links that
//! are slow and lose calls.
//!
//! The tests of leases count the calls to the server at any time. They do not use the testkit's
//! simulation, because its ledger is complete only at the end.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate_core::layers::LeasedStore;
use tidegate_core::no_semver::split_mix;
use tidegate_core::{
    Answer, Call, Clock, Decision, Error, ErrorKind, Lease, Operation, Store, StoreExt, Timestamp,
};
use tidegate_memory::MemoryStore;
use tokio::time::{Instant, sleep};

/// The time at which the tests begin, in microseconds since 1970. It is the start of a second.
const START: u64 = 1_790_000_000_000_000;

/// Returns the true time, in microseconds since the start of the test.
pub(crate) fn micros_since(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_micros()).unwrap()
}

/// A wall clock that can be stepped in either direction.
#[derive(Debug, Clone)]
pub(crate) struct SteppedClock {
    started: Instant,
    offset: Arc<AtomicI64>,
}

impl SteppedClock {
    pub(crate) fn step(&self, micros: i64) {
        self.offset.fetch_add(micros, SeqCst);
    }
}

impl Clock for SteppedClock {
    fn now(&self) -> Timestamp {
        let time = START + micros_since(self.started);
        Timestamp::from_micros(time.saturating_add_signed(self.offset.load(SeqCst)))
    }
}

/// The clock of a node. It starts at any time `offset`, and is fast by `ppm` parts per million, or
/// slow if `ppm` is negative.
#[derive(Debug, Clone)]
pub(crate) struct NodeClock {
    started: Instant,
    offset: u64,
    ppm: i64,
}

impl Clock for NodeClock {
    fn now(&self) -> Timestamp {
        let elapsed = i128::from(micros_since(self.started));
        let shown = elapsed * i128::from(1_000_000 + self.ppm) / 1_000_000;
        Timestamp::from_micros(self.offset + u64::try_from(shown).unwrap())
    }
}

/// A call that the server has executed.
#[derive(Debug, Clone)]
pub(crate) struct Executed {
    /// The true time of the execution, in microseconds since the start of the test.
    pub(crate) at: u64,
    /// The time of the execution by the server's clock, in microseconds. It is counted from 100
    /// seconds before [`START`], so that it is not negative after the clock has stepped back.
    pub(crate) server_time: u64,
    pub(crate) operation: Operation,
    /// The cost of the first charge of the call.
    pub(crate) cost: u64,
    pub(crate) is_allowed: bool,
    pub(crate) amount: u64,
}

#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) store: MemoryStore<SteppedClock>,
    pub(crate) clock: SteppedClock,
    pub(crate) started: Instant,
    executed: Mutex<Vec<Executed>>,
}

impl Server {
    pub(crate) fn new() -> Arc<Self> {
        let started = Instant::now();
        let clock = SteppedClock { started, offset: Arc::default() };
        let store = MemoryStore::builder().clock(clock.clone()).build();
        Arc::new(Self { store, clock, started, executed: Mutex::default() })
    }

    pub(crate) fn executed(&self) -> Vec<Executed> {
        self.executed.lock().unwrap().clone()
    }

    pub(crate) fn holds(&self) -> usize {
        self.executed().iter().filter(|call| call.operation == Operation::Hold).count()
    }

    fn execute(&self, call: &Call<'_>) -> Result<Decision, Error> {
        let (at, server_time) = (micros_since(self.started), self.clock.now().as_micros());
        let answer = self.store.decide_now(call);
        let decided = answer.as_ref().ok();
        self.executed.lock().unwrap().push(Executed {
            at,
            server_time: server_time - (START - 100_000_000),
            operation: call.operation,
            cost: call.charges.get(0).unwrap().cost,
            is_allowed: decided.is_some_and(Decision::is_allowed),
            amount: decided.and_then(|decision| decision.amounts().first().copied()).unwrap_or(0),
        });
        answer
    }
}

/// The delay and the losses of a link.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Quality {
    /// The maximum delay of a message in each direction, in microseconds.
    pub(crate) max_delay: u64,
    /// The percentage of messages that are lost, in each direction.
    pub(crate) lost: u64,
}

impl Quality {
    pub(crate) const GOOD: Self = Self { max_delay: 200, lost: 0 };
}

/// The link of a node to the server. All clones share the state of the link.
#[derive(Debug, Clone)]
pub(crate) struct Link(Arc<LinkInner>);

#[derive(Debug)]
struct LinkInner {
    server: Arc<Server>,
    quality: Quality,
    random: Mutex<Random>,
    is_dead: AtomicBool,
    is_away: AtomicBool,
}

impl Link {
    pub(crate) fn new(server: &Arc<Server>, quality: Quality, seed: u64) -> Self {
        let (server, random) = (Arc::clone(server), Mutex::new(Random(seed)));
        let (is_dead, is_away) = (AtomicBool::new(false), AtomicBool::new(false));
        Self(Arc::new(LinkInner { server, quality, random, is_dead, is_away }))
    }

    /// Drops all further messages in both directions, as if the process of the node was killed.
    pub(crate) fn kill(&self) {
        self.0.is_dead.store(true, SeqCst);
    }

    /// Sets whether calls fail before the server executes them.
    pub(crate) fn set_away(&self, is_away: bool) {
        self.0.is_away.store(is_away, SeqCst);
    }

    /// Sends a message in one direction. Returns `false` if the message is lost.
    async fn send(&self) -> bool {
        let (delay, is_lost) = {
            let mut random = self.0.random.lock().unwrap();
            (random.below(self.0.quality.max_delay + 1), random.below(100) < self.0.quality.lost)
        };
        sleep(Duration::from_micros(delay)).await;
        if self.0.is_dead.load(SeqCst) {
            std::future::pending::<()>().await;
        }
        !is_lost
    }

    async fn call(&self, call: Call<'_>) -> Result<Decision, Error> {
        let lost = || Err(Error::new(ErrorKind::Timeout, "lost"));
        if !self.send().await {
            return lost();
        }
        if self.0.is_away.load(SeqCst) {
            return Err(Error::new(ErrorKind::Unavailable, "away"));
        }
        let answer = self.0.server.execute(&call);
        if self.send().await { answer } else { lost() }
    }
}

impl Store for Link {
    fn decide<'a>(&'a self, call: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
        Answer::later(self.call(call))
    }

    fn now(&self) -> Answer<'_, Result<Timestamp, Error>> {
        Answer::ready(Ok(self.0.server.clock.now()))
    }
}

pub(crate) type NodeStore = LeasedStore<Link, NodeClock>;

/// Creates a node with a clock that runs at the true rate.
pub(crate) fn node(server: &Arc<Server>, lease: Lease, quality: Quality) -> (NodeStore, Link) {
    node_with(server, lease, quality, 7, 0)
}

/// Creates a node. Its clock starts at a time that depends on the seed, and is fast by `ppm` parts
/// per million.
pub(crate) fn node_with(
    server: &Arc<Server>,
    lease: Lease,
    quality: Quality,
    seed: u64,
    ppm: i64,
) -> (NodeStore, Link) {
    let link = Link::new(server, quality, seed);
    let offset = Random(seed ^ 0x5555).below(1 << 50);
    let clock = NodeClock { started: server.started, offset, ppm };
    (link.clone().leased(lease.clock(clock)), link)
}

#[derive(Debug, Clone)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        split_mix(&mut self.0)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }
}
