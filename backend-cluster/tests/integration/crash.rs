//! A client that dies between the steps of calls across slots.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of a test that fails panics, as the test does"
)]

use std::time::Duration;

use tidegate_cluster::{
    Call, Charge, ClusterStore, ManualClock, Operation, Policy, Store, Timestamp,
};
use tidegate_redis::RedisStore;
use tidegate_testkit::servers::{Redis, eventually};

use crate::fake_nodes::node::{Node, Say};

/// At the beginning of an hour and of a second.
const START: u64 = 1_790_002_800_000_000;

/// How many calls a client has in flight when it dies.
const IN_FLIGHT: u64 = 16;

/// Subjects in the first half of the slots and in the second.
const LOW: &str = "low-1";
const HIGH: &str = "high-2";

async fn taken(store: &RedisStore, policy: &Policy) -> u64 {
    let charges = [Charge::new(policy, LOW).cost(0)];
    let peek = store.decide(Call::new(Operation::Peek, &charges)).await.unwrap();
    policy.limit() - peek.verdicts()[0].remaining()
}

/// The nodes: one that carries out what it is asked, and one that answers the look and no more.
struct Halves {
    low: Redis,
    high: Node,
}

impl Halves {
    async fn start() -> Self {
        let (low, high) = (Redis::start().await.unwrap(), Node::start().await);
        high.sees_ports(&[(0, 8_191, low.port()), (8_192, 16_383, high.port)]);
        Self { low, high }
    }

    fn client(&self, clock: &ManualClock) -> ClusterStore {
        let builder = ClusterStore::builder().urls([self.high.url()]);
        let builder = builder.response_timeout(Duration::from_secs(60));
        builder.clock(clock.clone()).build().unwrap()
    }

    /// What is stored, read by another client.
    fn observer(&self, clock: &ManualClock) -> RedisStore {
        let builder = RedisStore::builder().url(self.low.url());
        let builder = builder.response_timeout(Duration::from_secs(30));
        builder.clock(clock.clone()).build().unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_dead_client_took_comes_back_by_itself_and_lets_nothing_more_pass() {
    let halves = Halves::start().await;
    let refill = Duration::from_millis(10) * 16;
    for (wide, recovers) in [
        ("w: fixed-window 50/1h", Duration::from_secs(3_600)),
        ("a: fixed-window 50/1h anchored", Duration::from_secs(3_600)),
        ("l: sliding-log 50/1h", Duration::from_secs(3_600)),
        ("c: sliding-counter 50/1h", Duration::from_secs(7_200)),
        // A token each 10 ms, for 16 calls.
        ("b: token-bucket 100/1s burst 1000", refill),
        ("g: gcra 100/1s burst 1000", refill),
        // At the end of the period, for up to 100 of them.
        ("i: token-bucket 100/1s burst 1000 by-interval", Duration::from_secs(1)),
    ] {
        let clock = ManualClock::new(Timestamp::from_micros(START));
        let policies: [Policy; 2] =
            [wide, "other: fixed-window 900/1d"].map(|text| text.parse().unwrap());
        let observer = halves.observer(&clock);
        // A runtime of its own ends as a process does: with all that was about to be done.
        let process = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        for number in 1..=IN_FLIGHT {
            // Each on a connection of its own, as the one that is not answered is blocked.
            let client = halves.client(&clock);
            halves.high.says([Say::Admit, Say::Nothing]);
            let own = policies.clone();
            process.spawn(async move {
                let charges = [Charge::new(&own[0], LOW), Charge::new(&own[1], HIGH)];
                client.decide(Call::acquire(&charges)).await
            });
            let took = async || (taken(&observer, &policies[0]).await == number).then_some(());
            eventually(Duration::from_secs(30), "the second step", took).await.unwrap();
        }
        process.shutdown_background();

        // What was in flight stays taken, so that less passes, and never more.
        let limit = policies[0].limit();
        let one = Charge::new(&policies[0], LOW);
        let rest = observer.decide(Call::acquire(&[one.cost(limit - IN_FLIGHT)])).await.unwrap();
        assert!(rest.is_allowed(), "{wide}");
        assert!(observer.decide(Call::acquire(&[one])).await.unwrap().is_denied(), "{wide}");
        let refund = [one.cost(limit - IN_FLIGHT)];
        let _ = observer.decide(Call::new(Operation::Refund, &refund)).await.unwrap();
        assert_eq!(taken(&observer, &policies[0]).await, IN_FLIGHT, "{wide}");
        // Until it has recovered, as it would have if it had been admitted; and no longer.
        clock.advance(recovers - Duration::from_micros(1));
        assert!(taken(&observer, &policies[0]).await >= 1, "{wide}");
        clock.advance(Duration::from_micros(1));
        assert_eq!(taken(&observer, &policies[0]).await, 0, "{wide}");
    }
}
