//! The conformance suite of the testkit, in virtual time through the real Lua.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of a test that fails panics, as the test does"
)]

mod common;

use tidegate_redis::{
    Answer, Call, Decision, Error, ManualClock, Policy, RedisStore, Store, Timestamp,
};
use tidegate_testkit::Fixture;
use tidegate_testkit::servers::Reply;

use common::{client, fresh_prefix, server};

tidegate_testkit::conformance!(redis_store, fixture: OnRedis);

/// Opens stores on the shared server, each with a prefix of its own.
struct OnRedis;

/// A store that knows its prefix, so that the fixture can look at its keys.
#[derive(Debug)]
struct Prefixed {
    store: RedisStore,
    prefix: String,
}

impl Store for Prefixed {
    fn decide<'a>(&'a self, call: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
        self.store.decide(call)
    }

    fn decide_many<'a>(
        &'a self,
        calls: &'a [Call<'a>],
    ) -> Answer<'a, Vec<Result<Decision, Error>>> {
        self.store.decide_many(calls)
    }

    fn now(&self) -> Answer<'_, Result<Timestamp, Error>> {
        self.store.now()
    }

    fn supports(&self, policy: &Policy) -> Result<(), Error> {
        self.store.supports(policy)
    }
}

impl Fixture for OnRedis {
    type Store = Prefixed;
    type Guard = ();

    async fn open(&self, clock: ManualClock) -> (Prefixed, ()) {
        let prefix = fresh_prefix();
        let url = server().await.socket_url();
        // The machine that runs the tests may be slow; none of them is about a timeout.
        let patience = std::time::Duration::from_secs(30);
        let builder = RedisStore::builder().url(url).prefix(&prefix).clock(clock);
        let store = builder.response_timeout(patience).build().unwrap();
        (Prefixed { store, prefix }, ())
    }

    async fn snapshot(&self, store: &Prefixed) -> Option<Vec<u8>> {
        const DUMP: &str = "local all = {} \
             for i, key in ipairs(redis.call('KEYS', ARGV[1])) do \
               all[i] = #key .. ':' .. key .. redis.call('DUMP', key) \
             end \
             table.sort(all) return table.concat(all)";
        let pattern = format!("{}:*", store.prefix);
        let dump = client().await.call(&["EVAL", DUMP, "0", &pattern]).await.unwrap();
        let Reply::Bytes(dump) = dump else { panic!("{dump:?}") };
        Some(dump)
    }

    fn steps(&self) -> u32 {
        std::env::var("TIDEGATE_STEPS").map_or(50_000, |steps| steps.parse().unwrap())
    }
}
