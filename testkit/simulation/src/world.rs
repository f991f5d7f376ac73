//! The nodes and the server of a running simulation.

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

/// The server and the nodes of a simulation. `S` is the store of the server. `D` is the store of a
/// node: the layers under test around a `LinkStore`. Clones share the world.
#[derive(Debug)]
pub struct World<S, D>(pub(super) Arc<Inner<S, D>>);

#[derive(Debug)]
pub(super) struct Inner<S, D> {
    pub(super) time: Time,
    pub(super) server: Arc<StoreServer<S>>,
    pub(super) nodes: Vec<Node<D>>,
    pub(super) random: Random,
    pub(super) numbers: AtomicU64,
}

/// A node: a simulated process with a store, a link and a clock. Clones share the node.
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

/// The number, the link and the clock of a node. A test creates the node's store from these parts.
#[derive(Debug, Clone)]
pub struct Host {
    pub(super) number: usize,
    pub(super) link: LinkStore,
    pub(super) clock: SimulatedClock,
}

impl Host {
    /// Returns the number of the node. The first number is 0.
    #[must_use]
    pub fn number(&self) -> usize {
        self.number
    }

    /// Returns the store that sends calls to the server. A test adds the layers under test around
    /// this store.
    #[must_use]
    pub fn link(&self) -> LinkStore {
        self.link.clone()
    }

    /// Returns the clock of the node. A layer with a clock must use this clock, because any other
    /// clock would show real time.
    #[must_use]
    pub fn clock(&self) -> SimulatedClock {
        self.clock.clone()
    }
}

impl<S: Store, D: Store> World<S, D> {
    /// Returns the store of the server, for example to read the counters of the store. A direct
    /// call to the store uses no link, so the call is never delayed or lost.
    #[must_use]
    pub fn server(&self) -> &S {
        &self.0.server.store
    }

    /// Returns the clock of the server.
    #[must_use]
    pub fn server_clock(&self) -> &SimulatedClock {
        &self.0.server.clock
    }

    /// Sets whether the server is away. While the server is away, each call that arrives fails with
    /// [`ErrorKind::Unavailable`](tidegate_core::ErrorKind::Unavailable).
    pub fn set_server_away(&self, is_away: bool) {
        self.0.server.is_away.store(is_away, SeqCst);
    }

    /// Returns all nodes, in the order of their numbers.
    #[must_use]
    pub fn nodes(&self) -> &[Node<D>] {
        &self.0.nodes
    }

    /// Returns the time since the simulation began.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        Duration::from_micros(self.0.time.now())
    }

    /// Waits for a duration. The wait is exact to the microsecond.
    pub async fn sleep(&self, duration: Duration) {
        self.sleep_until(self.elapsed().saturating_add(duration)).await;
    }

    /// Waits until `elapsed` has passed since the simulation began.
    pub async fn sleep_until(&self, elapsed: Duration) {
        self.0.time.sleep_until(micros(elapsed)).await;
    }

    /// Returns a random number generator. The seed of the simulation and `number` determine the
    /// numbers of the generator.
    #[must_use]
    pub fn random(&self, number: u64) -> Random {
        self.0.random.fork(number)
    }

    /// Returns the number that a new load passes to [`random`](Self::random). The number is at
    /// least 2^40, so that it differs from the numbers that scenarios and nodes use.
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

    /// Returns the number of the node. The first number is 0.
    #[must_use]
    pub fn number(&self) -> usize {
        self.0.number
    }

    /// Returns the store of the node. The ledger records only the requests of
    /// [`request`](Self::request), and not direct calls to this store.
    #[must_use]
    pub fn store(&self) -> &D {
        &self.0.store
    }

    /// Returns the clock of the node.
    #[must_use]
    pub fn clock(&self) -> &SimulatedClock {
        &self.0.clock
    }

    /// Makes a request to the store of the node. The ledger records the request. Returns `None` if
    /// the node is killed before the answer arrives.
    pub async fn request(&self, call: Call<'_>) -> Option<Result<Decision, Error>> {
        let node = &*self.0;
        if self.is_killed() {
            return None;
        }
        let number = node.book.made(node.number, &call, node.time.now());
        match node.store.decide(call).into_ready() {
            Ok(answer) => {
                node.book.replied(number, &answer, node.time.now(), true);
                Some(answer)
            }
            Err(later) => {
                let answer = self.until_killed(later).await?;
                node.book.replied(number, &answer, node.time.now(), false);
                Some(answer)
            }
        }
    }

    /// Kills the node, like a process that is killed. The node's requests get no answer, the node
    /// sends no more messages, and messages to the node are lost.
    pub fn kill(&self) {
        self.0.is_killed.store(true, SeqCst);
        self.0.link.kill();
        self.0.killed.notify_waiters();
    }

    /// Returns `true` if the node was killed.
    #[must_use]
    pub fn is_killed(&self) -> bool {
        self.0.is_killed.load(SeqCst)
    }

    /// Sets whether the node is cut off. A message from or to the node is lost if the node is cut
    /// off when the message would arrive.
    pub fn set_cut_off(&self, is_cut_off: bool) {
        self.0.link.set_cut_off(is_cut_off);
    }

    /// Changes the link of the node. The change applies to messages that are sent from now on.
    pub fn set_link(&self, link: Link) {
        self.0.link.set_link(link);
    }

    /// Returns the output of a future, or `None` if the node is killed before the future ends.
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

/// Polls a future once. Returns the output, or the future itself if it is still pending.
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
