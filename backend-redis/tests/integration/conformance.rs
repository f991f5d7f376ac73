//! The conformance suite of the testkit, in virtual time through the real Lua.
#![allow(clippy::unwrap_used, reason = "a helper of a test that fails panics, as the test does")]

use tidegate_redis::{ManualClock, RedisStore};
use tidegate_testkit::{Fixture, StoreWithContext};

use crate::common::{fresh_prefix, server};

tidegate_testkit::conformance!(redis_store, fixture: OnRedis);

/// Opens stores on the shared server, each with a prefix of its own.
struct OnRedis;

impl Fixture for OnRedis {
    type Store = StoreWithContext<RedisStore, String>;
    type Guard = ();

    async fn open(&self, clock: ManualClock) -> (Self::Store, ()) {
        let prefix = fresh_prefix();
        let url = server().await.socket_url();
        // The machine that runs the tests may be slow; none of them is about a timeout.
        let patience = std::time::Duration::from_secs(30);
        let builder = RedisStore::builder().url(url).prefix(&prefix).clock(clock);
        let store = builder.connect_timeout(patience).response_timeout(patience).build().unwrap();
        (StoreWithContext { store, context: prefix }, ())
    }

    async fn snapshot(&self, store: &Self::Store) -> Option<Vec<u8>> {
        Some(server().await.dump(&store.context).await.unwrap())
    }

    fn steps(&self) -> u32 {
        std::env::var("TIDEGATE_STEPS").map_or(50_000, |steps| steps.parse().unwrap())
    }
}
