//! Asks the nodes who serves which slot, in the background.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::Value;
use redis::cluster_routing::Slot;
use tidegate_core::{Error, ErrorKind};
use tidegate_redis::connection::first_success;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::map::Map;
use crate::node::Node;
use crate::view::{self, Range};

/// Between two rounds of questions.
const PAUSE: Duration = Duration::from_millis(100);

/// Keeps the map up to date. At most one round of questions is under way; whoever needs its answer
/// waits for the same.
#[derive(Debug)]
pub(crate) struct Scout {
    map: Arc<Map>,
    is_out: AtomicBool,
    /// Changes at the end of each round.
    rounds: watch::Sender<u64>,
    last: Mutex<Option<Round>>,
}

/// How the last round ended.
#[derive(Debug)]
struct Round {
    ended: Instant,
    failure: Option<Error>,
}

impl Scout {
    pub(crate) fn new(map: Arc<Map>) -> Self {
        let (rounds, _) = watch::channel(0);
        Self { map, is_out: AtomicBool::new(false), rounds, last: Mutex::new(None) }
    }

    /// Has the nodes asked, soon. Returns at once.
    pub(crate) fn go(self: &Arc<Self>) {
        if self.is_out.swap(true, Ordering::AcqRel) {
            return;
        }
        let turn = Turn(Arc::clone(self));
        tokio::spawn(async move {
            let scout = &turn.0;
            let next = scout.last().as_ref().map(|last| last.ended + PAUSE);
            if let Some(next) = next {
                sleep_until(next).await;
            }
            let failure = scout.ask_around().await.err();
            *scout.last() = Some(Round { ended: Instant::now(), failure });
        });
    }

    /// The node that serves a slot, after asking for it if need be.
    ///
    /// # Errors
    ///
    /// If no node could be asked, just now or a moment ago, or the slot is not served.
    pub(crate) async fn primary(self: &Arc<Self>, slot: Slot) -> Result<Arc<Node>, Error> {
        if let Some(primary) = self.map.primary(slot) {
            return Ok(primary);
        }
        let mut rounds = self.rounds.subscribe();
        let recent = self.last().as_ref().filter(|last| last.ended.elapsed() < PAUSE).map(|last| {
            last.failure.as_ref().map_or_else(|| unserved(slot), |failure| unknown(slot, failure))
        });
        self.go();
        if let Some(failure) = recent {
            return Err(failure);
        }
        // The sender lives as long as this.
        let _ = rounds.changed().await;
        self.map.primary(slot).ok_or_else(|| {
            let last = self.last();
            let failure = last.as_ref().and_then(|last| last.failure.as_ref());
            failure.map_or_else(|| unserved(slot), |failure| unknown(slot, failure))
        })
    }

    /// Asks one node after the other, not waiting long for any, and learns from the first that answers.
    async fn ask_around(&self) -> Result<(), Error> {
        let mut nodes = self.map.nodes();
        // So that not all clients ask one node.
        let start =
            RandomState::new().hash_one(()) % u64::try_from(nodes.len()).unwrap_or(1).max(1);
        nodes.rotate_left(usize::try_from(start).unwrap_or(0));
        let view = first_success(nodes.into_iter().map(ask)).await.unwrap_or_else(|| {
            Err(Error::new(ErrorKind::Unavailable, "no node of the cluster is known"))
        })?;
        self.map.learn(&view);
        Ok(())
    }

    fn last(&self) -> MutexGuard<'_, Option<Round>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn ask(node: Arc<Node>) -> Result<Vec<Range>, Error> {
    let connection = node.connections.next();
    let answer = async { connection.send(&mut connection.live().await?, &view::question()).await };
    let answer: Value = answer.await?;
    view::read(answer, &node.address)
}

pub(crate) fn unserved(slot: Slot) -> Error {
    Error::new(ErrorKind::Unavailable, format!("no node of the cluster serves {slot:?}"))
}

fn unknown(slot: Slot, failure: &Error) -> Error {
    failure.repeated(&format!("it is not known which node serves {slot:?}"))
}

/// Held during a round; whatever ends it, the next can begin, and those who wait are woken.
struct Turn(Arc<Scout>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.is_out.store(false, Ordering::Release);
        self.0.rounds.send_modify(|round| *round = round.wrapping_add(1));
    }
}
