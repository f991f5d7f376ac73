//! Simulations of many nodes and one server in virtual time, for authors of layers. In a
//! simulation, links are slow and lose messages, clocks run slow or fast, and nodes are killed. The
//! seed determines a run completely, so that the run can be repeated.
//!
//! The layers under test are the layers that a real program uses. They are added to a
//! [`LinkStore`], a store that sends calls to the simulated server. The [`Ledger`] records each
//! request of a caller and each call to the server.
//!
//! ```
//! use std::time::Duration;
//! use tidegate_core::{Lease, Policy, Share, StoreExt};
//! use tidegate_memory::MemoryStore;
//! use tidegate_simulation::{Link, Load, Simulation};
//!
//! let policy: Policy = "ingest: fixed-window 7000/1m".parse()?;
//! let micros = Duration::from_micros;
//! let link = Link::new().delay(micros(80)..=micros(400)).lost(Share::new(1, 100)?);
//!
//! let ledger = Simulation::new(42).nodes(8).link(link).clock_error(500).run(
//!     |clock| MemoryStore::builder().clock(clock).build(),
//!     |host| host.link().leased(Lease::new().clock(host.clock())),
//!     async move |world| {
//!         let load = world.start(Load::new(&policy).per_second(4_000).lasting(Duration::from_secs(2)));
//!         world.sleep(Duration::from_secs(1)).await;
//!         world.nodes()[3].kill();
//!         load.await;
//!     },
//! );
//!
//! assert!(ledger.admissions().total() <= 7_000); // the limit is never exceeded
//! assert!(ledger.admitted_at_once() > ledger.admitted() / 2); // the rest needed the server
//! assert_eq!(ledger.sent(), ledger.answered() + ledger.lost() + ledger.pending());
//! # Ok::<(), tidegate_core::PolicyError>(())
//! ```
//!
//! # Time
//!
//! A simulation never sleeps: when no task can run, the time moves to the next event. Requests,
//! links and clocks are exact to the microsecond. The layers use the timers of Tokio, which end at
//! the next whole millisecond, as in a real program. Computations take no virtual time.
//!
//! # Repeatable runs
//!
//! One thread runs all tasks in turn. The seed determines all random numbers: delays, losses,
//! arrivals, the seeds of the hash tables in Tidegate's layers, and the pauses of waiting callers.
//! A layer must read only the clock of its [`Host`]. It must not use other randomness, and must not
//! depend on the order of a `HashMap` of the standard library. The store of the server must answer
//! immediately. It must also have room for all states, because random hashes determine which states
//! a full store evicts.
//!
//! # Stability
//!
//! This crate is outside semantic versioning: a patch release can change it incompatibly.

mod admissions;
mod clock;
mod ledger;
mod link;
mod load;
mod random;
mod server;
mod time;
mod world;

use std::future::poll_fn;
use std::panic::resume_unwind;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::task::Poll;
use std::time::Duration;

use tidegate_core::Store;
use tidegate_core::no_semver::seed_hashes;

pub use admissions::{Admission, Admissions};
pub use clock::SimulatedClock;
pub use ledger::{Executed, Fate, Ledger, Reply, Request, SentCall};
pub use link::{Link, LinkStore};
pub use load::{Load, RunningLoad};
pub use random::Random;
pub use world::{Host, Node, World};

use self::ledger::Book;
use self::server::StoreServer;
use self::time::{Time, micros};

/// A midnight in 2026, in microseconds since 1970. The server's clock shows this time when a
/// simulation begins.
const START: u64 = 20_700 * 86_400 * 1_000_000;

/// The settings of a simulation. [The crate documentation](self) explains simulations.
///
/// By default, a simulation has one node, and the clock of this node runs at the true rate.
#[derive(Debug, Clone)]
#[must_use = "a simulation does nothing until it is run"]
pub struct Simulation {
    seed: u64,
    nodes: usize,
    link: Link,
    ppm: i64,
    max_time: u64,
}

impl Simulation {
    /// Creates a simulation whose random numbers are determined by this seed.
    pub fn new(seed: u64) -> Self {
        Self { seed, nodes: 1, link: Link::new(), ppm: 0, max_time: 3_600_000_000 }
    }

    /// Sets the number of nodes of the simulation.
    pub fn nodes(mut self, nodes: usize) -> Self {
        self.nodes = nodes;
        self
    }

    /// Sets the delays and losses of the links of all nodes. During the simulation,
    /// [`Node::set_link`] changes the link of one node.
    pub fn link(mut self, link: Link) -> Self {
        self.link = link;
        self
    }

    /// Sets the error of the nodes' clocks, in millionths. The seed determines whether a clock runs
    /// slow or fast. Regardless of this setting, each clock starts at a random time.
    pub fn clock_error(mut self, ppm: u32) -> Self {
        self.ppm = i64::from(ppm.min(1_000_000));
        self
    }

    /// Sets the maximum virtual time of a simulation. If the scenario has not ended after this
    /// time, [`run`](Self::run) panics. Default: one hour.
    pub fn max_time(mut self, time: Duration) -> Self {
        self.max_time = micros(time);
        self
    }

    /// Runs the simulation until `scenario` ends, and returns the ledger. The function `server`
    /// receives the server's clock and creates the server's store. The function `node` receives the
    /// [`Host`] of a node and creates the node's store.
    ///
    /// The simulation runs in its own thread, so a test can call this function even in a Tokio
    /// runtime.
    ///
    /// # Panics
    ///
    /// Panics if the scenario panics, or does not end within [`max_time`](Self::max_time).
    pub fn run<S, D, F>(
        self,
        server: impl FnOnce(SimulatedClock) -> S + Send,
        node: impl Fn(Host) -> D + Send,
        scenario: impl FnOnce(World<S, D>) -> F + Send,
    ) -> Ledger
    where
        S: Store + 'static,
        D: Store + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        // The simulation needs its own thread, because the random seeds are thread-local.
        let run = || self.run_here(server, node, scenario);
        let ended = std::thread::scope(|scope| scope.spawn(run).join());
        ended.unwrap_or_else(|panic| resume_unwind(panic))
    }

    #[expect(clippy::panic, reason = "a simulation fails as a test does")]
    fn run_here<S, D, F>(
        self,
        server: impl FnOnce(SimulatedClock) -> S,
        node: impl Fn(Host) -> D,
        scenario: impl FnOnce(World<S, D>) -> F,
    ) -> Ledger
    where
        S: Store + 'static,
        D: Store + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        seed_hashes(self.seed);
        fastrand::seed(self.seed);
        let (time, book) = (Time::default(), Book::default());
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let idle = time.clone();
        builder.enable_time().start_paused(true).on_thread_park(move || idle.idle());
        let runtime = match builder.build() {
            Ok(runtime) => runtime,
            Err(error) => panic!("no runtime: {error}"),
        };
        let within = runtime.enter();
        let scenario = scenario(self.world(server, node, &time, &book));
        drop(within);
        runtime
            .block_on(async {
                let end = self.max_time;
                let driver = time.clone();
                let mut driver = tokio::spawn(async move { driver.drive(end).await });
                let mut scenario = tokio::spawn(scenario);
                // The scenario and the driver (the task that moves the time) are spawned tasks,
                // because the runtime ignores the task of `block_on` when it determines whether a
                // task can run.
                poll_fn(|context| {
                    if let Poll::Ready(ended) = pin!(&mut scenario).poll(context) {
                        return Poll::Ready(ended);
                    }
                    if pin!(&mut driver).poll(context).is_ready() {
                        panic!(
                            "the simulation has not ended within {:?}",
                            Duration::from_micros(end)
                        );
                    }
                    Poll::Pending
                })
                .await
            })
            .unwrap_or_else(|error| match error.try_into_panic() {
                Ok(panic) => resume_unwind(panic),
                Err(error) => panic!("{error}"),
            });
        book.take()
    }

    fn world<S: Store + 'static, D: Store>(
        &self,
        server: impl FnOnce(SimulatedClock) -> S,
        node: impl Fn(Host) -> D,
        time: &Time,
        book: &Book,
    ) -> World<S, D> {
        let random = Random::new(self.seed);
        let clock = SimulatedClock::new(time.clone(), START, 0);
        let (store, is_away) = (server(clock.clone()), AtomicBool::new(false));
        let server = Arc::new(StoreServer { store, clock, is_away });
        let nodes = (0..self.nodes).map(|number| {
            let mut random = random.fork(number as u64).fork(1);
            let ppm = if random.below(2) == 0 { -self.ppm } else { self.ppm };
            let clock = SimulatedClock::new(time.clone(), random.below(1 << 50), ppm);
            let (time, book) = (time.clone(), book.clone());
            let link = LinkStore::new(
                number,
                time.clone(),
                server.clone(),
                book.clone(),
                self.link,
                random.fork(2),
            );
            let host = Host { number, link, clock };
            Node::new(host.clone(), node(host), time, book)
        });
        let (nodes, time) = (nodes.collect(), time.clone());
        World(Arc::new(world::Inner { time, server, nodes, random, numbers: AtomicU64::new(0) }))
    }
}
