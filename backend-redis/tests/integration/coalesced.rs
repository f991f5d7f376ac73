//! Runs the conformance suite on a store with coalesced calls. Another test makes coalesced calls
//! while connections fail, and checks a record of each call.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of a test that fails panics, as the test does"
)]

use std::sync::Arc;
use std::time::Duration;

use tidegate_redis::core::layers::CoalescedStore;
use tidegate_redis::{
    Call, CallId, Charge, ErrorKind, ManualClock, Policy, RedisStore, Store, StoreExt,
};
use tidegate_test_servers::{End, Mode, Proxy, Redis};
use tidegate_testkit::{Context, Fixture, StoreWithContext};
use tokio::task::JoinSet;

use crate::common::{builder_with, fresh_prefix, server};
use crate::ledger::{Ledger, Load, decided};

tidegate_testkit::conformance!(coalesced_store, fixture: OnRedis);

struct OnRedis;

impl Fixture for OnRedis {
    type Store = StoreWithContext<CoalescedStore<RedisStore>, String>;
    type Guard = ();

    async fn open(&self, clock: ManualClock) -> (Self::Store, ()) {
        let prefix = fresh_prefix();
        let store = builder_with(&prefix).await.clock(clock).build().unwrap().coalesced();
        (store.layer(Context(prefix)), ())
    }

    async fn snapshot(&self, store: &Self::Store) -> Option<Vec<u8>> {
        Some(server().await.dump(&store.as_layer().0).await.unwrap())
    }

    fn steps(&self) -> u32 {
        std::env::var("TIDEGATE_STEPS").map_or(20_000, |steps| steps.parse().unwrap())
    }
}

const TIMEOUT: Duration = Duration::from_millis(200);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_call_of_a_batch_is_charged_at_most_once_under_every_fault() {
    let redis = Redis::start().await.unwrap();
    let proxy = Proxy::start(redis.port()).await.unwrap();
    let ledger = Ledger::new(&redis.url());
    let builder = RedisStore::builder().url(proxy.url()).response_timeout(TIMEOUT);
    let store = Arc::new(builder.build().unwrap().coalesced());
    decided(&ledger, &store).await;
    let before = proxy.counts().commands;
    // The callers of `impatient` cancel calls that wait or are in flight.
    let load = Load::start(&ledger, &store, 64, None);
    let impatient = Load::start(&ledger, &store, 16, Some(Duration::from_millis(3)));
    tokio::time::sleep(TIMEOUT).await;
    let (made, _) = ledger.decided_since(ledger.start());
    let commands = proxy.counts().commands - before;
    assert!(commands < made as u64 / 3, "{made} calls in {commands} commands");
    for mode in [
        Mode::LoseAnswer(End::Close),
        Mode::HalveAnswer(End::Reset),
        Mode::SwallowAnswers,
        Mode::BlackHole,
        Mode::LoseAnswer(End::Hang),
        Mode::Refuse,
    ] {
        proxy.set(mode).await.unwrap();
        if mode == Mode::Refuse {
            proxy.cut(End::Reset);
        }
        tokio::time::sleep(TIMEOUT).await;
        proxy.set(Mode::Pass).await.unwrap();
        decided(&ledger, &store).await;
    }
    impatient.stop().await;
    load.stop().await;
    let failures = ledger.failures_since(ledger.start());
    assert!(failures.contains(&ErrorKind::Timeout), "silent connections must cause timeouts");
    assert!(failures.contains(&ErrorKind::Unavailable), "lost connections must cause errors");
    assert!(!failures.contains(&ErrorKind::TooManyWaiters), "{failures:?}");
    ledger.check().await;
}

#[tokio::test]
async fn several_connections_have_separate_batches_and_share_one_limit() {
    let prefix = fresh_prefix();
    let store = builder_with(&prefix).await.connections(3).build().unwrap().coalesced();
    let policies: Arc<[Policy; 2]> = Arc::new(
        ["a: fixed-window 50/10d anchored", "b: sliding-log 70/10d"]
            .map(|text| text.parse().unwrap()),
    );
    let mut callers = JoinSet::new();
    for caller in 0..90 {
        let (store, policies) = (store.clone(), Arc::clone(&policies));
        callers.spawn(async move {
            let subject = format!("s{}", caller % 3);
            let (mut admitted, id) = (0, format!("{caller}"));
            for number in 0..20 {
                let charge = Charge::new(&policies[number % 2], &subject);
                let charges = [charge];
                let call = Call::acquire(&charges);
                // Every fifth call has an id. Calls with an id are not batched.
                let id = format!("{id}-{number}");
                let id = CallId::new(&id, Duration::from_secs(60));
                let call = if number % 5 == 0 { call.with_id(id) } else { call };
                admitted += usize::from(store.decide(call).await.unwrap().is_allowed());
            }
            admitted
        });
    }
    let mut admitted = 0;
    while let Some(count) = callers.join_next().await {
        admitted += count.unwrap();
    }
    assert_eq!(admitted, 3 * (50 + 70));
}
