use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tidegate_core::Answer;

use super::given::GivenConnection;
use super::multiplexed::Connection;
use super::source::Source;
use super::wake_ups::WakeUps;

#[derive(Debug)]
pub struct ConnectionPool {
    connections: Box<[Connection]>,
    next: AtomicUsize,
    /// `None` for a connection that the application has made.
    wake_ups: Option<WakeUps>,
}

impl ConnectionPool {
    /// Creates a pool of `connections` connections, or of one connection if `connections` is 0.
    #[must_use]
    pub(super) fn new(source: Source, connections: usize) -> Self {
        let wake_ups = Some(WakeUps::new(&source));
        let source = Arc::new(source);
        let connections =
            (0..connections.max(1)).map(|_| Connection::new(Arc::clone(&source))).collect();
        Self { connections, next: AtomicUsize::new(0), wake_ups }
    }

    #[must_use]
    pub fn existing(connection: GivenConnection, response_timeout: Duration) -> Self {
        let connections = Box::new([Connection::given(connection, response_timeout)]);
        Self { connections, next: AtomicUsize::new(0), wake_ups: None }
    }

    /// Returns a future that completes when the call with the place `place`, which waits for slots
    /// of the states with these keys, should be sent again. Returns `None` while the store is not
    /// subscribed to wake-ups.
    pub fn until_turn(&self, keys: Vec<Vec<u8>>, place: u64) -> Option<Answer<'static, ()>> {
        let calls_since = self.connections.iter().filter_map(Connection::connected_at).max();
        self.wake_ups.as_ref()?.until_turn(keys, place, calls_since)
    }

    /// Returns a number for a key, which is less than the number of connections. Equal keys have
    /// the same number. A store uses the number to divide calls into batch groups.
    #[must_use]
    pub fn share<K: Hash>(&self, key: impl FnOnce() -> K) -> u64 {
        match self.connections.len() as u64 {
            1 => 0,
            count => {
                let mut hasher = DefaultHasher::new();
                key().hash(&mut hasher);
                hasher.finish() % count
            }
        }
    }

    pub fn next(&self) -> &Connection {
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        &self.connections[turn % self.connections.len()]
    }
}
