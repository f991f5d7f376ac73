//! Refreshes the slot map (the assignment of slots to nodes) in a background task.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::Value;
use redis::cluster_routing::Slot;
use tidegate_core::{Error, ErrorKind};
use tidegate_redis::connection::first_success;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::routing::cluster_slots::{self, Range};
use crate::routing::node::Node;
use crate::routing::slot_map::SlotMap;

const PAUSE: Duration = Duration::from_millis(100);

/// Refreshes the slot map. At most one refresh runs at a time, and all callers that wait for a
/// refresh share its result.
#[derive(Debug)]
pub(crate) struct TopologyRefresh {
    slot_map: Arc<SlotMap>,
    is_running: AtomicBool,
    /// A counter of the refreshes that have ended. Callers wait until it changes.
    rounds: watch::Sender<u64>,
    last: Mutex<Option<Round>>,
}

/// The end of the last refresh of the slot map, and the error of the refresh if it failed.
#[derive(Debug)]
struct Round {
    ended: Instant,
    failure: Option<Error>,
}

impl TopologyRefresh {
    pub(crate) fn new(slot_map: Arc<SlotMap>) -> Self {
        let (rounds, _) = watch::channel(0);
        Self { slot_map, is_running: AtomicBool::new(false), rounds, last: Mutex::new(None) }
    }

    /// Starts a refresh if no refresh is running. Does not wait for the end of the refresh.
    pub(crate) fn trigger(self: &Arc<Self>) {
        if self.is_running.swap(true, Ordering::AcqRel) {
            return;
        }
        let turn = RefreshGuard(Arc::clone(self));
        tokio::spawn(async move {
            let topology = &turn.0;
            let next = topology.last().as_ref().map(|last| last.ended + PAUSE);
            if let Some(next) = next {
                sleep_until(next).await;
            }
            let failure = topology.refresh().await.err();
            *topology.last() = Some(Round { ended: Instant::now(), failure });
        });
    }

    /// Returns the primary of a slot. If the slot map does not contain the primary, waits for a
    /// refresh. If a refresh has ended within the last [`PAUSE`], uses its result without waiting.
    /// Returns an error if no node replies, or if no node serves the slot.
    pub(crate) async fn primary(self: &Arc<Self>, slot: Slot) -> Result<Arc<Node>, Error> {
        if let Some(primary) = self.slot_map.primary(slot) {
            return Ok(primary);
        }
        let mut rounds = self.rounds.subscribe();
        let recent = self.last().as_ref().filter(|last| last.ended.elapsed() < PAUSE).map(|last| {
            last.failure
                .as_ref()
                .map_or_else(|| unserved(slot), |failure| lookup_failed(slot, failure))
        });
        self.trigger();
        if let Some(failure) = recent {
            return Err(failure);
        }
        // `changed` cannot fail, because the sender of the channel lives as long as `self`.
        let _ = rounds.changed().await;
        self.slot_map.primary(slot).ok_or_else(|| {
            let last = self.last();
            let failure = last.as_ref().and_then(|last| last.failure.as_ref());
            failure.map_or_else(|| unserved(slot), |failure| lookup_failed(slot, failure))
        })
    }

    /// Queries the nodes for the slot map, with a short delay between two queries, and uses the
    /// first reply.
    async fn refresh(&self) -> Result<(), Error> {
        let mut nodes = self.slot_map.nodes();
        // The order is random, so that different clients query different nodes first.
        fastrand::shuffle(&mut nodes);
        let view = first_success(nodes.into_iter().map(query)).await.unwrap_or_else(|| {
            Err(Error::new(ErrorKind::Unavailable, "no node of the cluster is known"))
        })?;
        self.slot_map.update(&view);
        Ok(())
    }

    fn last(&self) -> MutexGuard<'_, Option<Round>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn query(node: Arc<Node>) -> Result<Vec<Range>, Error> {
    let connection = node.connections.next();
    let answer =
        async { connection.send(&mut connection.live().await?, &cluster_slots::command()).await };
    let answer: Value = answer.await?;
    cluster_slots::parse(answer, &node.address)
}

pub(crate) fn unserved(slot: Slot) -> Error {
    Error::new(ErrorKind::Unavailable, format!("no node of the cluster serves {slot:?}"))
}

fn lookup_failed(slot: Slot, failure: &Error) -> Error {
    failure.clone().with_context(format_args!("the node that serves {slot:?} is not known"))
}

/// A guard that exists while a refresh runs. When the guard is dropped for any reason, the next
/// refresh is possible, and the waiting callers wake.
struct RefreshGuard(Arc<TopologyRefresh>);

impl Drop for RefreshGuard {
    fn drop(&mut self) {
        self.0.is_running.store(false, Ordering::Release);
        self.0.rounds.send_modify(|round| *round = round.wrapping_add(1));
    }
}
