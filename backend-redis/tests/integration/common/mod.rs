//! The server that all tests of one program share, and stores on this server.
#![allow(dead_code, reason = "each test program uses a part of this")]
#![allow(clippy::unwrap_used, reason = "a helper of a test that fails panics, as the test does")]

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tidegate_redis::protocol::Keys;
use tidegate_redis::{
    Call, Charge, ManualClock, Operation, Policy, RedisStore, RedisStoreBuilder, Store,
};
use tidegate_test_servers::{Client, Redis};
use tokio::sync::OnceCell;

/// Returns the shared server, which runs from its first use until the program ends.
pub(crate) async fn server() -> &'static Redis {
    static SERVER: OnceCell<Redis> = OnceCell::const_new();
    SERVER.get_or_init(async || Redis::start().await.unwrap()).await
}

pub(crate) fn fresh_prefix() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("t{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Returns a builder for a store on the shared server, with a new prefix.
pub(crate) async fn builder() -> RedisStoreBuilder {
    builder_with(&fresh_prefix()).await
}

pub(crate) async fn builder_with(prefix: &str) -> RedisStoreBuilder {
    // The timeouts are long, because the machine is possibly slow and these tests do not depend on
    // timeouts.
    let patience = Duration::from_secs(30);
    let builder = RedisStore::builder().url(server().await.socket_url());
    builder.prefix(prefix).connect_timeout(patience).response_timeout(patience)
}

/// Returns a store on the shared server, with a new prefix and in virtual time.
pub(crate) async fn store_at(clock: &ManualClock) -> RedisStore {
    builder().await.clock(clock.clone()).build().unwrap()
}

/// Returns a store with short timeouts, on a server or on a proxy in front of a server.
pub(crate) fn impatient_store(url: &str) -> RedisStore {
    let builder = RedisStore::builder().url(url).connect_timeout(Duration::from_millis(300));
    builder.response_timeout(Duration::from_millis(300)).build().unwrap()
}

/// Returns a store with long timeouts, on a server whose answers are never lost.
pub(crate) fn patient_store(url: &str) -> RedisStore {
    let builder = RedisStore::builder().url(url).connect_timeout(Duration::from_secs(30));
    builder.response_timeout(Duration::from_secs(30)).build().unwrap()
}

/// Returns the used amount of a policy's limit for the subject `s`.
pub(crate) async fn used(store: &RedisStore, policy: &Policy) -> u64 {
    let charges = [Charge::new(policy, "s").cost(0)];
    let peek = store.decide(Call::new(Operation::Peek, &charges)).await.unwrap();
    policy.limit() - peek.verdicts()[0].remaining()
}

pub(crate) fn policy(text: &str) -> Policy {
    text.parse().unwrap()
}

/// Returns the key of a policy's state for the subject `s`, with the default prefix.
pub(crate) fn key(policy: &Policy) -> Vec<u8> {
    key_with_prefix("tidegate", policy).into_bytes()
}

/// Returns the key of a policy's state for the subject `s`, with the prefix `prefix`.
pub(crate) fn key_with_prefix(prefix: &str, policy: &Policy) -> String {
    String::from_utf8(Keys::new(prefix).key(&Charge::new(policy, "s"))).unwrap()
}

/// Opens a connection to the shared server, without the library under test.
pub(crate) async fn client() -> Client {
    server().await.client().await.unwrap()
}

/// Returns the number of calls of a command in the reply to `INFO commandstats`.
pub(crate) fn calls_in(stats: &str, command: &str) -> u64 {
    let begin = format!("cmdstat_{command}:calls=");
    let line = stats.lines().find_map(|line| line.strip_prefix(&*begin));
    line.map_or(0, |line| line.split(',').next().unwrap().parse().unwrap())
}
