//! The conformance suite of the testkit, in virtual time, on a real server.
#![allow(clippy::unwrap_used, reason = "a helper of a test that fails panics, as the test does")]

use tidegate_redis::{ManualClock, RedisStore, StoreExt};
use tidegate_testkit::{Context, Fixture, StoreWithContext};

use crate::common::{builder_with, fresh_prefix, server};

tidegate_testkit::conformance!(redis_store, fixture: OnRedis);

/// Creates stores on the shared server, each with its own prefix.
struct OnRedis;

impl Fixture for OnRedis {
    type Store = StoreWithContext<RedisStore, String>;
    type Guard = ();

    async fn open(&self, clock: ManualClock) -> (Self::Store, ()) {
        let prefix = fresh_prefix();
        let store = builder_with(&prefix).await.clock(clock).build().unwrap();
        (store.layer(Context(prefix)), ())
    }

    async fn open_again(&self, store: &Self::Store, clock: ManualClock) -> Option<Self::Store> {
        let prefix = store.as_layer().0.clone();
        let store = builder_with(&prefix).await.clock(clock).build().unwrap();
        Some(store.layer(Context(prefix)))
    }

    async fn snapshot(&self, store: &Self::Store) -> Option<Vec<u8>> {
        Some(server().await.dump(&store.as_layer().0).await.unwrap())
    }
}
