//! Three nodes that fall back to a third of the budget each, on a real Redis that goes wrong in every way
//! while they ask: no more is admitted than the limit by Redis, and once more by the nodes.
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
use tidegate_testkit::servers::{Data, End, Mode, Proxy, Redis};
use tokio::task::JoinSet;

use crate::common::policy;

const NODES: u32 = 3;
const TASKS: usize = 8;
const CALLS: usize = 40;

/// What a node has seen.
#[derive(Debug, Default, Clone, Copy)]
struct Seen {
    by_redis: u64,
    by_node: u64,
    denied: u64,
}

/// A node, and what is between it and Redis.
struct Node {
    proxy: Proxy,
    store: Arc<dyn Store>,
}

impl Node {
    async fn of(redis: &Redis) -> Self {
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

    /// Asks from several tasks at once.
    async fn ask(&self, policy: &Policy) -> Seen {
        let mut tasks = JoinSet::new();
        for _ in 0..TASKS {
            let (store, policy) = (Arc::clone(&self.store), policy.clone());
            tasks.spawn(async move {
                let mut seen = Seen::default();
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
                        (false, _) => seen.denied += 1,
                        (true, None) => seen.by_redis += 1,
                        (true, Some(_)) => seen.by_node += 1,
                    }
                }
                seen
            });
        }
        let all = tasks.join_all().await;
        all.into_iter().fold(Seen::default(), |all, seen| Seen {
            by_redis: all.by_redis + seen.by_redis,
            by_node: all.by_node + seen.by_node,
            denied: all.denied + seen.denied,
        })
    }
}

#[tokio::test]
async fn whatever_goes_wrong_no_more_passes_than_the_stated_bound() {
    let redis = Redis::start().await.unwrap();
    for text in ["w: fixed-window 900/1d anchored", "l: sliding-log 900/1d", "b: gcra 900/1d"] {
        let policy = policy(text);
        let nodes = [Node::of(&redis).await, Node::of(&redis).await, Node::of(&redis).await];
        let mut all = Seen::default();
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
            let seen = tokio::join!(first.ask(&policy), second.ask(&policy), third.ask(&policy));
            for seen in [seen.0, seen.1, seen.2] {
                all.by_redis += seen.by_redis;
                all.by_node += seen.by_node;
                all.denied += seen.denied;
                assert!(seen.by_node <= 300, "{text}, {fault:?}: {seen:?}");
            }
        }
        // In a day that lasts seconds, a bucket gives back one token at most.
        assert!(all.by_redis <= 901 && all.by_node <= 901, "{text}: {all:?}");
        assert!(all.by_redis > 0 && all.by_node > 0 && all.denied > 0, "{text}: {all:?}");
        // A crash that loses everything is one limit more, and no more than that.
        redis.restart(Data::Lost).await.unwrap();
        let after = nodes[0].ask(&policy).await;
        assert!(after.by_redis <= 900 && all.by_node + after.by_node <= 901, "{text}: {after:?}");
    }
}
