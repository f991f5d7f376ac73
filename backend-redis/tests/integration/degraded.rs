//! Three nodes use one real Redis while faults occur. During a fault, each node falls back to a
//! third of the limit. Redis must admit at most the limit, and all fallbacks together must admit at
//! most the limit once more.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of a test that fails panics, as the test does"
)]

use std::sync::Arc;
use std::time::Duration;

use tidegate_memory::MemoryStore;
use tidegate_redis::{
    Breaker, Call, Charge, DegradedAnswer, ErrorKind, Policy, RedisStore, Share, Store, StoreExt,
};
use tidegate_test_servers::{Data, End, Mode, Proxy, Redis};
use tokio::task::JoinSet;

use crate::common::policy;

const NODES: u32 = 3;
const TASKS: usize = 8;
const CALLS: usize = 40;

#[derive(Debug, Default, Clone, Copy)]
struct Outcomes {
    by_redis: u64,
    by_node: u64,
    denied: u64,
}

struct Node {
    proxy: Proxy,
    store: Arc<dyn Store>,
}

impl Node {
    async fn start(redis: &Redis) -> Self {
        let proxy = Proxy::start(redis.port()).await.unwrap();
        let store = RedisStore::builder()
            .url(proxy.url())
            .connect_timeout(Duration::from_millis(100))
            .build()
            .unwrap()
            .timeout(Duration::from_millis(60))
            .breaker(Breaker::new().failures(3).open_for(Duration::from_millis(30)))
            .or_fall_back_to(MemoryStore::new(), Share::new(1, NODES).unwrap());
        Self { proxy, store: Arc::new(store) }
    }

    async fn make_calls(&self, policy: &Policy) -> Outcomes {
        let mut tasks = JoinSet::new();
        for _ in 0..TASKS {
            let (store, policy) = (Arc::clone(&self.store), policy.clone());
            tasks.spawn(async move {
                let mut outcomes = Outcomes::default();
                for _ in 0..CALLS {
                    let charges = [Charge::new(&policy, "s")];
                    let decision = store.decide(Call::acquire(&charges)).await.unwrap();
                    let degraded = decision.degraded();
                    assert!(degraded.is_none_or(|degraded| {
                        degraded.answer == DegradedAnswer::FellBack
                            && matches!(
                                degraded.reason,
                                ErrorKind::Timeout
                                    | ErrorKind::Unavailable
                                    | ErrorKind::CircuitOpen
                                    | ErrorKind::Busy
                            )
                    }));
                    match (decision.is_allowed(), degraded) {
                        (false, _) => outcomes.denied += 1,
                        (true, None) => outcomes.by_redis += 1,
                        (true, Some(_)) => outcomes.by_node += 1,
                    }
                }
                outcomes
            });
        }
        let all = tasks.join_all().await;
        all.into_iter().fold(Outcomes::default(), |all, outcomes| Outcomes {
            by_redis: all.by_redis + outcomes.by_redis,
            by_node: all.by_node + outcomes.by_node,
            denied: all.denied + outcomes.denied,
        })
    }
}

#[tokio::test]
async fn no_more_than_the_stated_bound_is_admitted_under_any_fault() {
    let redis = Redis::start().await.unwrap();
    for text in ["w: fixed-window 900/1d anchored", "l: sliding-log 900/1d", "b: gcra 900/1d"] {
        let policy = policy(text);
        let nodes =
            [Node::start(&redis).await, Node::start(&redis).await, Node::start(&redis).await];
        let mut all = Outcomes::default();
        let faults = [
            Mode::Pass,
            Mode::LoseAnswer(End::Reset),
            Mode::Delay { requests: Duration::from_millis(40), answers: Duration::from_millis(40) },
            Mode::HalveAnswer(End::Close),
            Mode::SwallowAnswers,
            Mode::Refuse,
            Mode::Pass,
        ];
        for fault in faults {
            for node in &nodes {
                node.proxy.set(fault).await.unwrap();
                node.proxy.cut(End::Close);
            }
            let [first, second, third] = &nodes;
            let outcomes = tokio::join!(
                first.make_calls(&policy),
                second.make_calls(&policy),
                third.make_calls(&policy)
            );
            for outcomes in [outcomes.0, outcomes.1, outcomes.2] {
                all.by_redis += outcomes.by_redis;
                all.by_node += outcomes.by_node;
                all.denied += outcomes.denied;
                assert!(outcomes.by_node <= 300, "{text}, {fault:?}: {outcomes:?}");
            }
        }
        // The test takes a few seconds, and the window lasts a day. So a bucket refills at most one
        // token during the test.
        assert!(all.by_redis <= 901 && all.by_node <= 901, "{text}: {all:?}");
        assert!(all.by_redis > 0 && all.by_node > 0 && all.denied > 0, "{text}: {all:?}");
        // After a crash that loses all data, the server admits at most the limit once more.
        redis.restart(Data::Lost).await.unwrap();
        let after = nodes[0].make_calls(&policy).await;
        assert!(after.by_redis <= 900 && all.by_node + after.by_node <= 901, "{text}: {after:?}");
    }
}
