//! The conformance suite of the testkit, in virtual time on a real cluster. Its subjects lie in many
//! slots, and so do the charges of its calls: what is decided there is decided across slots.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of a test that fails panics, as the test does"
)]

mod common;

use tidegate_cluster::{
    Answer, Call, ClusterStore, Decision, Error, ManualClock, Policy, Store, Timestamp,
};
use tidegate_testkit::Fixture;
use tidegate_testkit::servers::Reply;

use common::{cluster, fresh_prefix, patient};

tidegate_testkit::conformance!(cluster_store, fixture: OnCluster);

/// Opens stores on the shared cluster, each with a prefix of its own.
struct OnCluster;

/// A store that knows its prefix, so that the fixture can look at its keys.
#[derive(Debug)]
struct Prefixed {
    store: ClusterStore,
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

impl Fixture for OnCluster {
    type Store = Prefixed;
    type Guard = ();

    async fn open(&self, clock: ManualClock) -> (Prefixed, ()) {
        let prefix = fresh_prefix();
        let builder = patient(cluster().await).prefix(&prefix).clock(clock);
        (Prefixed { store: builder.build().unwrap(), prefix }, ())
    }

    async fn snapshot(&self, store: &Prefixed) -> Option<Vec<u8>> {
        const DUMP: &str = "local all = {} \
             for i, key in ipairs(redis.call('KEYS', ARGV[1])) do \
               all[i] = #key .. ':' .. key .. redis.call('DUMP', key) \
             end \
             table.sort(all) return table.concat(all)";
        let pattern = format!("{}:*", store.prefix);
        let mut all = vec![];
        for node in cluster().await.nodes() {
            let mut client = node.client().await.unwrap();
            let dump = client.call(&["EVAL", DUMP, "0", &pattern]).await.unwrap();
            let Reply::Bytes(dump) = dump else { panic!("{dump:?}") };
            all.extend(dump);
        }
        Some(all)
    }

    fn steps(&self) -> u32 {
        std::env::var("TIDEGATE_STEPS").map_or(50_000, |steps| steps.parse().unwrap())
    }
}
