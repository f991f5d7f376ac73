//! The same calls, at the same virtual time, through the real Lua and through the core: identical
//! decisions, at least 100,000 operations for each algorithm.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of a test that fails panics, as the test does"
)]

use std::time::Duration;

use tidegate_redis::{ManualClock, RedisStore};
use tidegate_testkit::differential::Emptied;
use tidegate_testkit::servers::{Client, Redis};

tidegate_testkit::differential!(redis_store, stores);

/// How many scenarios are played at the same time.
const AT_ONCE: u16 = 8;

/// A store, in a database of its own.
struct Lua {
    store: RedisStore,
    clock: ManualClock,
    client: Client,
}

async fn stores() -> (Vec<Lua>, Redis) {
    let redis = Redis::start().await.unwrap();
    let mut stores = vec![];
    for database in 0..AT_ONCE {
        stores.push(Lua::new(&redis, database).await);
    }
    (stores, redis)
}

impl Lua {
    async fn new(redis: &Redis, database: u16) -> Self {
        let clock = ManualClock::default();
        let builder = RedisStore::builder().url(redis.socket_url()).database(database);
        // The machine that runs the tests may be slow; none of them is about a timeout.
        let builder = builder.response_timeout(Duration::from_secs(30)).clock(clock.clone());
        let mut client = redis.client().await.unwrap();
        client.call(&["SELECT", &database.to_string()]).await.unwrap();
        Self { store: builder.build().unwrap(), clock, client }
    }
}

impl Emptied for Lua {
    type Store = RedisStore;

    fn store(&self) -> &RedisStore {
        &self.store
    }

    fn clock(&self) -> &ManualClock {
        &self.clock
    }

    async fn empty(&mut self) {
        assert_eq!(self.client.call(&["FLUSHDB"]).await.unwrap().text(), "OK");
    }
}
