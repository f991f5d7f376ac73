//! The wake-ups of calls that wait for slots.
//!
//! A script that frees slots publishes the places of the calls that can possibly take them. The
//! shard channel of the message has the name of the state's key, so that it is in the slot of the
//! key. A store subscribes to the channels of its waiting calls on a connection of its own, which a
//! task makes and replaces. The task ends when no call has waited for [`UNUSED`].
//!
//! A wake-up is only a hint. If it is lost, the call is sent again after a pause. So errors of this
//! connection are not reported.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures_util::future::{Either, select};
use redis::{Pipeline, PushInfo, PushKind, RedisResult, Value};
use tidegate_core::Answer;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

use super::access::Access;
use super::live::{Driver, LiveConnection};
use super::source::Source;

/// The bounds of the pause before the task connects again. The pause doubles with each connection
/// on which no subscription was confirmed.
const MIN_PAUSE: Duration = Duration::from_millis(20);
const MAX_PAUSE: Duration = Duration::from_secs(5);

/// The time after which the task removes a channel that no call uses. A call that waits uses its
/// channels at least every 2.5 seconds.
const UNUSED: Duration = Duration::from_secs(5);

/// The interval at which the task removes channels.
const SWEEP: Duration = Duration::from_secs(1);

/// The pause after the server has refused a subscription, because the user lacks the permission, or
/// the server does not serve the slot or has no shard channels.
const REFUSED: Duration = Duration::from_secs(5);

/// The size in bytes of a place in a message. The place is big-endian.
const PLACE: usize = 7;

#[derive(Debug)]
pub(super) struct WakeUps(Arc<Shared>);

#[derive(Debug)]
pub(super) struct Shared {
    source: Arc<Source>,
    state: Mutex<State>,
    /// Notifies the task that it has work to do.
    changed: Arc<Notify>,
}

#[derive(Debug, Default)]
struct State {
    channels: HashMap<Vec<u8>, Channel>,
    /// The subscriptions that the task must end.
    removed: Vec<Vec<u8>>,
    /// The task holds a reference until it ends, even if its runtime ends it.
    task: Weak<()>,
    /// The time at which the current connection was made.
    connected_at: Option<Instant>,
    /// Whether the task must replace the connection.
    is_stale: bool,
}

#[derive(Debug)]
struct Channel {
    subscription: Subscription,
    used_at: Instant,
    /// The calls that wait, by their places.
    calls: HashMap<u64, Arc<Notify>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Subscription {
    None,
    Requested,
    Confirmed,
    Refused { at: Instant },
}

impl WakeUps {
    /// Creates the wake-ups from the server of `source`.
    pub(super) fn new(source: &Source) -> Self {
        Self(Arc::new_cyclic(|shared| {
            let Source { target, access, connect_timeout } = source.clone();
            let access = Access { wakes: Some(Weak::clone(shared)), ..access };
            Shared {
                source: Arc::new(Source { target, access, connect_timeout }),
                state: Mutex::default(),
                changed: Arc::default(),
            }
        }))
    }

    /// Returns a future that completes when a script wakes the call with the place `place` in the
    /// queues of the states with these keys, or when the connection is lost. Returns `None` while
    /// the store is not subscribed. In this case, a task subscribes.
    ///
    /// `calls_since` is the time at which the newest connection for calls was made. A connection
    /// for wake-ups that is older is replaced, because its server is possibly no longer the server
    /// of the calls.
    pub(super) fn until_turn(
        &self,
        keys: Vec<Vec<u8>>,
        place: u64,
        calls_since: Option<Instant>,
    ) -> Option<Answer<'static, ()>> {
        if keys.is_empty() {
            return None;
        }
        let (shared, runtime) = (&self.0, Handle::try_current().ok()?);
        let mut state = shared.state();
        if state.task.strong_count() == 0 {
            state.disconnect();
            let task = Arc::new(());
            state.task = Arc::downgrade(&task);
            runtime.spawn(run(Arc::downgrade(shared), Arc::clone(&shared.changed), task));
        }
        let is_older = |connected_at| calls_since.is_some_and(|since| connected_at < since);
        state.is_stale |= state.connected_at.is_some_and(is_older);
        let (mut is_subscribed, known) = (!state.is_stale, state.channels.len());
        for key in &keys {
            is_subscribed &= state.use_channel(key) == Subscription::Confirmed;
        }
        if !is_subscribed {
            if state.is_stale || state.channels.len() > known {
                shared.changed.notify_one();
            }
            return None;
        }
        let woken = Arc::new(Notify::new());
        for key in &keys {
            if let Some(channel) = state.channels.get_mut(key) {
                channel.calls.insert(place, Arc::clone(&woken));
            }
        }
        drop(state);
        let call = WaitingCall { shared: Arc::clone(shared), keys, place, woken };
        Some(Answer::later(async move { call.woken.notified().await }))
    }
}

/// A call that can be woken until this value is dropped.
struct WaitingCall {
    shared: Arc<Shared>,
    keys: Vec<Vec<u8>>,
    place: u64,
    woken: Arc<Notify>,
}

impl Drop for WaitingCall {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        for key in &self.keys {
            let Some(channel) = state.channels.get_mut(key) else { continue };
            channel.used_at = Instant::now();
            // The call possibly waits again already.
            if channel.calls.get(&self.place).is_some_and(|woken| Arc::ptr_eq(woken, &self.woken)) {
                channel.calls.remove(&self.place);
            }
        }
    }
}

impl State {
    fn use_channel(&mut self, key: &[u8]) -> Subscription {
        let now = Instant::now();
        if let Some(channel) = self.channels.get_mut(key) {
            channel.used_at = now;
            return channel.subscription;
        }
        let subscription = Subscription::None;
        let channel = Channel { subscription, used_at: now, calls: HashMap::new() };
        self.channels.insert(key.to_vec(), channel);
        subscription
    }

    /// Wakes all calls, because no subscription is left.
    fn disconnect(&mut self) {
        (self.connected_at, self.is_stale) = (None, false);
        self.removed.clear();
        for channel in self.channels.values_mut() {
            channel.subscription = Subscription::None;
            channel.calls.values().for_each(|woken| woken.notify_one());
        }
    }

    fn remove_unused(&mut self) {
        let removed = self.channels.extract_if(|_, channel| {
            channel.calls.is_empty() && channel.used_at.elapsed() > UNUSED
        });
        let is_subscribed = |channel: &Channel| {
            matches!(channel.subscription, Subscription::Requested | Subscription::Confirmed)
        };
        self.removed
            .extend(removed.filter(|(_, channel)| is_subscribed(channel)).map(|(name, _)| name));
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Processes a message or a notification of the server.
    pub(super) fn receive(&self, push: &PushInfo) {
        let [Value::BulkString(name), content, ..] = &push.data[..] else { return };
        let mut state = self.state();
        let Some(channel) = state.channels.get(name) else { return };
        match (&push.kind, content) {
            (PushKind::SMessage, Value::BulkString(places)) => {
                for place in places.chunks_exact(PLACE) {
                    let place = place.iter().fold(0, |place, byte| place << 8 | u64::from(*byte));
                    if let Some(woken) = channel.calls.get(&place) {
                        woken.notify_one();
                    }
                }
            }
            // The server has ended a subscription that the store uses, because the slot has moved.
            // The Redis client possibly takes this notification for a reply.
            (PushKind::SUnsubscribe, _) if channel.subscription == Subscription::Confirmed => {
                state.is_stale = true;
                self.changed.notify_one();
            }
            _ => {}
        }
    }

    /// Returns the source of connections, or `None` if no call has waited for a while. In this
    /// case, the next call starts another task.
    fn source_if_used(&self) -> Option<Arc<Source>> {
        let mut state = self.state();
        state.remove_unused();
        if state.channels.is_empty() {
            state.task = Weak::new();
            return None;
        }
        Some(Arc::clone(&self.source))
    }

    /// Returns the commands that begin and end subscriptions, and the names of the channels to
    /// which they subscribe. The commands that subscribe are first. Returns `None` if the
    /// connection is no longer needed.
    fn commands(&self) -> Option<(Pipeline, Vec<Vec<u8>>)> {
        let mut state = self.state();
        state.remove_unused();
        if state.is_stale || state.channels.is_empty() {
            return None;
        }
        let (mut commands, mut names) = (Pipeline::new(), vec![]);
        commands.ignore_errors();
        // A channel is possibly used again after it was removed. So the old subscription must end
        // before the new one begins.
        let removed = std::mem::take(&mut state.removed);
        for (name, channel) in &mut state.channels {
            let is_due = match channel.subscription {
                Subscription::None => true,
                Subscription::Refused { at } => at.elapsed() > REFUSED,
                Subscription::Requested | Subscription::Confirmed => false,
            };
            if is_due && !removed.contains(name) {
                channel.subscription = Subscription::Requested;
                commands.cmd("SSUBSCRIBE").arg(name);
                names.push(name.clone());
            }
        }
        for name in removed {
            commands.cmd("SUNSUBSCRIBE").arg(name);
        }
        Some((commands, names))
    }

    /// Notes the replies to the commands that subscribe. Returns `true` if the server has confirmed
    /// a subscription.
    fn note_replies(&self, names: &[Vec<u8>], replies: &[RedisResult<Value>]) -> bool {
        let mut state = self.state();
        let mut is_any_confirmed = false;
        for (name, reply) in names.iter().zip(replies) {
            let subscription = match reply {
                Ok(_) => Subscription::Confirmed,
                Err(_) => Subscription::Refused { at: Instant::now() },
            };
            is_any_confirmed |= reply.is_ok();
            if let Some(channel) = state.channels.get_mut(name) {
                channel.subscription = subscription;
            }
        }
        is_any_confirmed
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // The task ends, because it finds no store.
        self.changed.notify_one();
    }
}

async fn run(shared: Weak<Shared>, changed: Arc<Notify>, _task: Arc<()>) {
    let mut pause = MIN_PAUSE;
    while let Some(source) = shared.upgrade().and_then(|shared| shared.source_if_used()) {
        let mut is_confirmed = false;
        if let Ok((live, driver)) = source.connect().await {
            if let Some(shared) = shared.upgrade() {
                shared.state().connected_at = Some(live.since);
            }
            is_confirmed = listen(&shared, &changed, live, driver).await;
            if let Some(shared) = shared.upgrade() {
                shared.state().disconnect();
            }
        }
        pause = if is_confirmed { MIN_PAUSE } else { (pause * 2).min(MAX_PAUSE) };
        sleep(pause).await;
    }
}

/// Subscribes and receives wake-ups until the connection is lost or no longer needed. Returns
/// `true` if the server has confirmed a subscription.
async fn listen(
    shared: &Weak<Shared>,
    changed: &Notify,
    mut live: LiveConnection,
    mut driver: Driver,
) -> bool {
    let is_expired =
        |live: &LiveConnection| live.renew_after.is_some_and(|life| live.since.elapsed() >= life);
    let mut is_confirmed = false;
    while !is_expired(&live) {
        let commands = shared.upgrade().and_then(|shared| shared.commands());
        let Some((commands, names)) = commands else { break };
        if commands.is_empty() {
            let wait = pin!(timeout(SWEEP, changed.notified()));
            match select(&mut driver, wait).await {
                Either::Left(_) => break,
                Either::Right(_) => continue,
            }
        }
        let replies = pin!(commands.query_async(&mut live.connection));
        match select(replies, &mut driver).await {
            Either::Left((Ok(replies), _)) => {
                let replies: Vec<RedisResult<Value>> = replies;
                if let Some(shared) = shared.upgrade() {
                    is_confirmed |= shared.note_replies(&names, &replies);
                }
            }
            Either::Left((Err(_), _)) | Either::Right(_) => break,
        }
    }
    is_confirmed
}
