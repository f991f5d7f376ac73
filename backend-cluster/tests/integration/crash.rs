//! Tests of a client that dies between the two steps (peek and charge) of a call across slots.
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
use tidegate_test_servers::{Redis, eventually};

use crate::fake_nodes::node::{Node, Say};

/// The virtual time at which the test starts: the beginning of an hour.
const START: u64 = 1_790_002_800_000_000;

/// The number of calls that are in flight when the client dies.
const IN_FLIGHT: u64 = 16;

/// A subject whose slot is in the first half of all slots, and a subject whose slot is in the
/// second half.
const LOW: &str = "low-1";
const HIGH: &str = "high-2";

async fn used(store: &RedisStore, policy: &Policy) -> u64 {
    let charges = [Charge::new(policy, LOW).cost(0)];
    let peek = store.decide(Call::new(Operation::Peek, &charges)).await.unwrap();
    policy.limit() - peek.verdicts()[0].remaining()
}

/// A cluster of two nodes. The node `low` is real and executes every request. The node `high` is a
/// fake: it answers the peek of a call, and does not answer the charge.
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

    /// Returns a store of another client, which reads the states directly from the real node.
    fn observer(&self, clock: &ManualClock) -> RedisStore {
        let builder = RedisStore::builder().url(self.low.url());
        let builder = builder.response_timeout(Duration::from_secs(30));
        builder.clock(clock.clone()).build().unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn charges_of_a_dead_client_recover_by_themselves_and_admit_nothing_extra() {
    let halves = Halves::start().await;
    let refill = Duration::from_millis(10) * 16;
    for (wide, recovers) in [
        ("w: fixed-window 50/1h", Duration::from_secs(3_600)),
        ("a: fixed-window 50/1h anchored", Duration::from_secs(3_600)),
        ("l: sliding-log 50/1h", Duration::from_secs(3_600)),
        ("c: sliding-counter 50/1h", Duration::from_secs(7_200)),
        // The bucket refills one token per 10 ms, so it refills the tokens of the 16 calls in 160
        // ms.
        ("b: token-bucket 100/1s burst 1000", refill),
        ("g: gcra 100/1s burst 1000", refill),
        // The bucket of this policy gets 100 tokens at the end of each second, up to its capacity.
        ("i: token-bucket 100/1s burst 1000 by-interval", Duration::from_secs(1)),
    ] {
        let clock = ManualClock::new(Timestamp::from_micros(START));
        let policies: [Policy; 2] =
            [wide, "other: fixed-window 900/1d"].map(|text| text.parse().unwrap());
        let observer = halves.observer(&clock);
        // The test shuts down a runtime instead of killing a process, with the same effect:
        // unfinished tasks never run again.
        let process = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        for number in 1..=IN_FLIGHT {
            // Each call has its own client and connection, because the fake node sends no further
            // reply on the connection of an unanswered request.
            let client = halves.client(&clock);
            halves.high.says([Say::Admit, Say::Nothing]);
            let own = policies.clone();
            process.spawn(async move {
                let charges = [Charge::new(&own[0], LOW), Charge::new(&own[1], HIGH)];
                client.decide(Call::acquire(&charges)).await
            });
            // The fake node `high` sends its replies in order. The test waits until both nodes have
            // received the charges of this client. Otherwise, the peek of the next client could get
            // the reply `Nothing`, which belongs to the charges of this client.
            let is_charged = async || {
                let is_charged = used(&observer, &policies[0]).await == number;
                (is_charged && halves.high.has_said_all()).then_some(())
            };
            eventually(Duration::from_secs(30), "the second step", is_charged).await.unwrap();
        }
        process.shutdown_background();

        // The charges of the calls in flight remain. So the policy admits the rest of its limit,
        // and nothing beyond the limit.
        let limit = policies[0].limit();
        let one = Charge::new(&policies[0], LOW);
        let rest = observer.decide(Call::acquire(&[one.cost(limit - IN_FLIGHT)])).await.unwrap();
        assert!(rest.is_allowed(), "{wide}");
        assert!(observer.decide(Call::acquire(&[one])).await.unwrap().is_denied(), "{wide}");
        let refund = [one.cost(limit - IN_FLIGHT)];
        let _ = observer.decide(Call::new(Operation::Refund, &refund)).await.unwrap();
        assert_eq!(used(&observer, &policies[0]).await, IN_FLIGHT, "{wide}");
        // The charges of the dead client remain until the state recovers, like the charges of
        // admitted calls.
        clock.advance(recovers - Duration::from_micros(1));
        assert!(used(&observer, &policies[0]).await >= 1, "{wide}");
        clock.advance(Duration::from_micros(1));
        assert_eq!(used(&observer, &policies[0]).await, 0, "{wide}");
    }
}
