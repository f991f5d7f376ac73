//! The nodes and the server of a simulation that runs.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::task::Poll;
use std::time::Duration;

use tidegate_core::{Call, Decision, Error, Store};
use tokio::sync::Notify;

use super::clock::SimulatedClock;
use super::ledger::Book;
use super::link::{Link, LinkStore};
use super::random::Random;
use super::server::StoreServer;
use super::time::{Time, micros};

/// A server and its nodes, each with the store `D` that a layer has made of its link. Clones are the same world.
#[derive(Debug)]
pub struct World<S, D>(pub(super) Arc<Inner<S, D>>);

#[derive(Debug)]
pub(super) struct Inner<S, D> {
    pub(super) time: Time,
    pub(super) server: Arc<StoreServer<S>>,
    pub(super) nodes: Vec<Node<D>>,
    pub(super) random: Random,
    /// Of loads that were started.
    pub(super) numbers: AtomicU64,
}

/// A process with a store, a link and a clock. Clones are the same node.
#[derive(Debug)]
pub struct Node<D>(Arc<NodeInner<D>>);

struct NodeInner<D> {
    number: usize,
    store: D,
    link: LinkStore,
    clock: SimulatedClock,
    time: Time,
    book: Book,
    is_killed: AtomicBool,
    killed: Notify,
}

/// What a node is made of: the parts for the layers around its link.
#[derive(Debug, Clone)]
pub struct Host {
    pub(super) number: usize,
    pub(super) link: LinkStore,
    pub(super) clock: SimulatedClock,
}

impl Host {
    /// The number of the node, from 0.
    #[must_use]
    pub fn number(&self) -> usize {
        self.number
    }

    /// The store that a layer is put around: it sends calls to the server.
    #[must_use]
    pub fn link(&self) -> LinkStore {
        self.link.clone()
    }

    /// The clock of the node. To be given to each layer that has a clock: with another one it would see real time.
    #[must_use]
    pub fn clock(&self) -> SimulatedClock {
        self.clock.clone()
    }
}

impl<S: Store, D: Store> World<S, D> {
    /// The store of the server, without a link: to look at what it counts.
    #[must_use]
    pub fn server(&self) -> &S {
        &self.0.server.store
    }

    /// The clock of the server.
    #[must_use]
    pub fn server_clock(&self) -> &SimulatedClock {
        &self.0.server.clock
    }

    /// Sets whether each call that arrives at the server fails with
    /// [`ErrorKind::Unavailable`](tidegate_core::ErrorKind::Unavailable).
    pub fn set_server_away(&self, is_away: bool) {
        self.0.server.is_away.store(is_away, SeqCst);
    }

    /// All nodes.
    #[must_use]
    pub fn nodes(&self) -> &[Node<D>] {
        &self.0.nodes
    }

    /// The time since the simulation began.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        Duration::from_micros(self.0.time.now())
    }

    /// Waits, to the microsecond.
    pub async fn sleep(&self, duration: Duration) {
        self.sleep_until(self.elapsed().saturating_add(duration)).await;
    }

    /// Waits for a time since the simulation began.
    pub async fn sleep_until(&self, elapsed: Duration) {
        self.0.time.sleep_until(micros(elapsed)).await;
    }

    /// Random numbers that follow from the seed of the simulation and this number.
    #[must_use]
    pub fn random(&self, number: u64) -> Random {
        self.0.random.fork(number)
    }

    /// For the random numbers of a load, other than those of callers of [`random`](Self::random) and of nodes.
    pub(super) fn next_number(&self) -> u64 {
        (1 << 40) + self.0.numbers.fetch_add(1, SeqCst)
    }
}

impl<D: Store> Node<D> {
    pub(super) fn new(host: Host, store: D, time: Time, book: Book) -> Self {
        let Host { number, link, clock } = host;
        let (is_killed, killed) = (AtomicBool::new(false), Notify::new());
        Self(Arc::new(NodeInner { number, store, link, clock, time, book, is_killed, killed }))
    }

    /// Its number, from 0.
    #[must_use]
    pub fn number(&self) -> usize {
        self.0.number
    }

    /// The store of its callers. Requests to it are in the ledger only if [`request`](Self::request) makes them.
    #[must_use]
    pub fn store(&self) -> &D {
        &self.0.store
    }

    /// Its clock.
    #[must_use]
    pub fn clock(&self) -> &SimulatedClock {
        &self.0.clock
    }

    /// Makes a request, which the ledger records. Returns `None` if the node is killed before the answer.
    pub async fn request(&self, call: Call<'_>) -> Option<Result<Decision, Error>> {
        let it = &*self.0;
        if self.is_killed() {
            return None;
        }
        let number = it.book.made(it.number, &call, it.time.now());
        match it.store.decide(call).into_ready() {
            Ok(answer) => {
                it.book.replied(number, &answer, it.time.now(), true);
                Some(answer)
            }
            Err(later) => {
                let answer = self.until_killed(later).await?;
                it.book.replied(number, &answer, it.time.now(), false);
                Some(answer)
            }
        }
    }

    /// Ends the node as a process that is killed: its callers, and all that it would send or receive.
    pub fn kill(&self) {
        self.0.is_killed.store(true, SeqCst);
        self.0.link.kill();
        self.0.killed.notify_waiters();
    }

    /// Whether it was killed.
    #[must_use]
    pub fn is_killed(&self) -> bool {
        self.0.is_killed.load(SeqCst)
    }

    /// Sets whether all that it sends, and all that is sent to it, is lost.
    pub fn set_cut_off(&self, is_cut_off: bool) {
        self.0.link.set_cut_off(is_cut_off);
    }

    /// Changes how its link treats what is sent from now on.
    pub fn set_link(&self, link: Link) {
        self.0.link.set_link(link);
    }

    /// The output of a future, unless the node is killed before.
    pub(super) async fn until_killed<T>(&self, future: impl Future<Output = T>) -> Option<T> {
        let (mut killed, mut future) = (pin!(self.0.killed.notified()), pin!(future));
        killed.as_mut().enable();
        poll_fn(|context| {
            if self.is_killed() {
                return Poll::Ready(None);
            }
            match future.as_mut().poll(context) {
                Poll::Ready(output) => Poll::Ready(Some(output)),
                Poll::Pending => killed.as_mut().poll(context).map(|()| None),
            }
        })
        .await
    }
}

/// Polls a future once; returns it if it has to wait.
pub(super) async fn poll_once<F: Future + ?Sized>(
    mut future: Pin<Box<F>>,
) -> Result<F::Output, Pin<Box<F>>> {
    let output = poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await;
    match output {
        Poll::Ready(output) => Ok(output),
        Poll::Pending => Err(future),
    }
}

impl<D: std::fmt::Debug> std::fmt::Debug for NodeInner<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { number, store, .. } = self;
        f.debug_struct("Node").field("number", number).field("store", store).finish_non_exhaustive()
    }
}

impl<S, D> Clone for World<S, D> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<D> Clone for Node<D> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}
