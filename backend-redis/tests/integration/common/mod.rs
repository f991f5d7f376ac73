//! The server that the tests of one program share, and stores on it.
#![allow(dead_code, reason = "each test program uses a part of this")]
#![allow(clippy::unwrap_used, reason = "a helper of a test that fails panics, as the test does")]

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tidegate_redis::wire::Keys;
use tidegate_redis::{
    Call, Charge, ManualClock, Operation, Policy, RedisStore, RedisStoreBuilder, Store,
};
use tidegate_testkit::servers::{Client, Redis};
use tokio::sync::OnceCell;

/// The server of this program. It ends with the program.
pub(crate) async fn server() -> &'static Redis {
    static SERVER: OnceCell<Redis> = OnceCell::const_new();
    SERVER.get_or_init(async || Redis::start().await.unwrap()).await
}

/// A prefix that no other store has.
pub(crate) fn fresh_prefix() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("t{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A store on the shared server, with keys of its own.
pub(crate) async fn builder() -> RedisStoreBuilder {
    builder_with(&fresh_prefix()).await
}

/// The same, with keys that begin with this.
pub(crate) async fn builder_with(prefix: &str) -> RedisStoreBuilder {
    // The machine that runs the tests may be slow; none of these is about a timeout.
    let patience = Duration::from_secs(30);
    let builder = RedisStore::builder().url(server().await.socket_url());
    builder.prefix(prefix).connect_timeout(patience).response_timeout(patience)
}

/// The same, in virtual time.
pub(crate) async fn store_at(clock: &ManualClock) -> RedisStore {
    builder().await.clock(clock.clone()).build().unwrap()
}

/// A store that gives up soon, on a server or a proxy before it.
pub(crate) fn impatient_store(url: &str) -> RedisStore {
    let builder = RedisStore::builder().url(url).connect_timeout(Duration::from_millis(300));
    builder.response_timeout(Duration::from_millis(300)).build().unwrap()
}

/// A store on a server of which no answer is lost: it waits for a busy machine.
pub(crate) fn patient_store(url: &str) -> RedisStore {
    let builder = RedisStore::builder().url(url).connect_timeout(Duration::from_secs(30));
    builder.response_timeout(Duration::from_secs(30)).build().unwrap()
}

/// What is taken of a policy's limit of the subject `s`.
pub(crate) async fn taken(store: &RedisStore, policy: &Policy) -> u64 {
    let charges = [Charge::new(policy, "s").cost(0)];
    let peek = store.decide(Call::new(Operation::Peek, &charges)).await.unwrap();
    policy.limit() - peek.verdicts()[0].remaining()
}

pub(crate) fn policy(text: &str) -> Policy {
    text.parse().unwrap()
}

/// The key of a policy's state of the subject `s`, with the default prefix.
pub(crate) fn key_of(policy: &Policy) -> Vec<u8> {
    key_with("tidegate", policy).into_bytes()
}

/// The same with another prefix.
pub(crate) fn key_with(prefix: &str, policy: &Policy) -> String {
    String::from_utf8(Keys::new(prefix).of(&Charge::new(policy, "s"))).unwrap()
}

/// A connection past the library under test.
pub(crate) async fn client() -> Client {
    server().await.client().await.unwrap()
}
