//! The links between the nodes and the server.

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate_core::{
    Answer, Call, Decision, Error, ErrorKind, OwnedCall, Policy, Share, Store, Timestamp,
};
use tokio::sync::oneshot;

use super::ledger::Book;
use super::random::Random;
use super::server::Server;
use super::time::{Time, lock, micros};

/// The settings of a link: its delays and losses.
///
/// By default, a message takes 100 to 300 µs in each direction, and no message is lost. A caller
/// waits up to a second for an answer.
#[derive(Debug, Clone, Copy)]
#[must_use = "a link does nothing until a simulation has it"]
pub struct Link {
    /// The minimum and the maximum delay of a message in one direction, in microseconds.
    delay: (u64, u64),
    /// The share of slow messages, and the maximum delay of a slow message in microseconds.
    tail: Option<(Share, u64)>,
    lost: Option<Share>,
    timeout: u64,
}

impl Link {
    /// Creates a link with the default settings.
    pub fn new() -> Self {
        Self { delay: (100, 300), tail: None, lost: None, timeout: 1_000_000 }
    }

    /// Sets the range of the delay of a message in one direction. Delays are distributed uniformly
    /// over this range.
    pub fn delay(mut self, delay: RangeInclusive<Duration>) -> Self {
        self.delay = (micros(*delay.start()), micros(*delay.end()));
        self
    }

    /// Makes this share of the messages slow. In each direction, the delay of a slow message is a
    /// random time from the usual minimum to `max`.
    pub fn tail(mut self, share: Share, max: Duration) -> Self {
        self.tail = Some((share, micros(max)));
        self
    }

    /// Sets the share of messages that are lost in each direction. A message is a call, or the
    /// answer to a call.
    pub fn lost(mut self, share: Share) -> Self {
        self.lost = Some(share);
        self
    }

    /// Sets the maximum time for which a caller waits for an answer. After this time, the call
    /// fails with [`ErrorKind::Timeout`].
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = micros(timeout);
        self
    }

    /// Returns the delay of a message in one direction, or `None` if the message is lost.
    fn travel(&self, random: &mut Random) -> Option<u64> {
        let mut is_one_of = |share: Share| random.below(1 << 32) < share.apply(1 << 32);
        let (is_lost, is_slow) = (
            self.lost.is_some_and(&mut is_one_of),
            self.tail.is_some_and(|(share, _)| is_one_of(share)),
        );
        let (min, mut max) = self.delay;
        if let Some((_, longer)) = self.tail.filter(|_| is_slow) {
            max = max.max(longer);
        }
        let delay = random.within(min, max);
        (!is_lost).then_some(delay)
    }
}

impl Default for Link {
    fn default() -> Self {
        Self::new()
    }
}

/// The innermost store of a node, which sends all calls over the node's link to the server. A test
/// adds the layers under test around this store. Clones share the link.
///
/// If a caller is cancelled while its call is in flight, the server still executes the call, like a
/// real server.
#[derive(Clone)]
pub struct LinkStore(Arc<Inner>);

struct Inner {
    node: usize,
    time: Time,
    server: Arc<dyn Server>,
    book: Book,
    link: Mutex<Link>,
    random: Mutex<Random>,
    is_killed: AtomicBool,
    is_cut_off: AtomicBool,
}

type Answers = Vec<Result<Decision, Error>>;

impl LinkStore {
    pub(super) fn new(
        node: usize,
        time: Time,
        server: Arc<dyn Server>,
        book: Book,
        link: Link,
        random: Random,
    ) -> Self {
        let (link, random) = (Mutex::new(link), Mutex::new(random));
        let (is_killed, is_cut_off) = (AtomicBool::new(false), AtomicBool::new(false));
        Self(Arc::new(Inner { node, time, server, book, link, random, is_killed, is_cut_off }))
    }

    pub(super) fn kill(&self) {
        self.0.is_killed.store(true, SeqCst);
        self.0.book.lose_pending_calls(self.0.node);
    }

    pub(super) fn set_cut_off(&self, is_cut_off: bool) {
        self.0.is_cut_off.store(is_cut_off, SeqCst);
    }

    pub(super) fn set_link(&self, link: Link) {
        *lock(&self.0.link) = link;
    }

    async fn send(&self, calls: Vec<OwnedCall>) -> Answers {
        if self.0.is_killed.load(SeqCst) {
            return std::future::pending().await;
        }
        let count = calls.len();
        let (sender, answers) = oneshot::channel();
        self.0.start(calls, sender);
        answers.await.unwrap_or_else(|_| no_answers(count, ErrorKind::Timeout, "lost"))
    }
}

impl Inner {
    fn start(self: &Arc<Self>, calls: Vec<OwnedCall>, sender: oneshot::Sender<Answers>) {
        let (now, count) = (self.time.now(), calls.len());
        let link = *lock(&self.link);
        let (there, back) = {
            let mut random = lock(&self.random);
            (link.travel(&mut random), link.travel(&mut random))
        };
        let message = self.book.sent(self.node, &calls, now);
        let sender = Arc::new(Mutex::new(Some(sender)));
        if let Some(there) = there {
            let (this, sender) = (Arc::clone(self), Arc::clone(&sender));
            self.time.at(now + there, move || this.arrive(&calls, message, back, &sender));
        }
        let this = Arc::clone(self);
        self.time.at(now + link.timeout, move || {
            if let Some(sender) = lock(&sender).take() {
                this.book.lost(message);
                let _ = sender.send(no_answers(count, ErrorKind::Timeout, "lost"));
            }
        });
    }

    /// Executes the calls of a message that arrives at the server, and schedules the arrival of the
    /// answers at the node.
    fn arrive(
        self: &Arc<Self>,
        calls: &[OwnedCall],
        message: usize,
        back: Option<u64>,
        sender: &Arc<Mutex<Option<oneshot::Sender<Answers>>>>,
    ) {
        if self.is_cut_off.load(SeqCst) {
            return;
        }
        let answers = if self.server.is_away() {
            no_answers(calls.len(), ErrorKind::Unavailable, "the server is away")
        } else {
            let (at, server_time) = (self.time.now(), self.server.now().as_micros());
            let answers = self.server.execute(calls);
            self.book.executed(message, &answers, at, server_time);
            answers
        };
        let Some(back) = back else { return };
        let (this, sender) = (Arc::clone(self), Arc::clone(sender));
        self.time.at(self.time.now() + back, move || {
            if this.is_cut_off.load(SeqCst) || this.is_killed.load(SeqCst) {
                return;
            }
            if let Some(sender) = lock(&sender).take() {
                this.book.answered(message, this.time.now());
                // Sending fails if the caller has been cancelled. This is not an error, because
                // such a caller needs no answers.
                let _ = sender.send(answers);
            }
        });
    }
}

fn no_answers(count: usize, kind: ErrorKind, what: &'static str) -> Answers {
    (0..count).map(|_| Err(Error::new(kind, what))).collect()
}

impl Store for LinkStore {
    fn decide<'a>(&'a self, call: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
        let answers = self.send(vec![OwnedCall::from(call)]);
        Answer::later(async move {
            let none = || Err(Error::new(ErrorKind::Protocol, "no answer"));
            answers.await.pop().unwrap_or_else(none)
        })
    }

    fn decide_many<'a>(&'a self, calls: &'a [Call<'a>]) -> Answer<'a, Answers> {
        Answer::later(self.send(calls.iter().map(|call| OwnedCall::from(*call)).collect()))
    }

    fn now(&self) -> Answer<'_, Result<Timestamp, Error>> {
        Answer::ready(Ok(self.0.server.now()))
    }

    fn supports(&self, policy: &Policy) -> Result<(), Error> {
        self.0.server.supports(policy)
    }
}

impl fmt::Debug for LinkStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let node = self.0.node;
        f.debug_struct("LinkStore").field("node", &node).finish_non_exhaustive()
    }
}
