//! Makes the same calls at the same virtual time through the scripts and through the core. The
//! decisions must be identical, for at least 100,000 operations per algorithm.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of a test that fails panics, as the test does"
)]

use std::time::Duration;

use tidegate_redis::{Call, Charge, ManualClock, Operation, Policy, RedisStore, Store, Timestamp};
use tidegate_test_servers::{Client, Redis};
use tidegate_testkit::ModelStore;
use tidegate_testkit::differential::DifferentialStore;

tidegate_testkit::differential!(redis_store, stores);

const CONCURRENT_SCENARIOS: u16 = 8;

/// A store that uses its own database of the Redis server.
struct DatabaseStore {
    store: RedisStore,
    clock: ManualClock,
    client: Client,
}

async fn stores() -> (Vec<DatabaseStore>, Redis) {
    let redis = Redis::start().await.unwrap();
    let mut stores = vec![];
    for database in 0..CONCURRENT_SCENARIOS {
        stores.push(DatabaseStore::new(&redis, database).await);
    }
    (stores, redis)
}

impl DatabaseStore {
    async fn new(redis: &Redis, database: u16) -> Self {
        let clock = ManualClock::default();
        let builder = RedisStore::builder().url(redis.socket_url()).database(database);
        // The timeouts are long, because the machine is possibly slow and these tests do not depend
        // on timeouts.
        let patience = Duration::from_secs(30);
        let builder =
            builder.connect_timeout(patience).response_timeout(patience).clock(clock.clone());
        let mut client = redis.client().await.unwrap();
        client.call(&["SELECT", &database.to_string()]).await.unwrap();
        Self { store: builder.build().unwrap(), clock, client }
    }
}

impl DifferentialStore for DatabaseStore {
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

/// After reservations beyond the capacity, a charge is admitted as soon as enough debt is repaid.
/// The test checks 0, 1 and 2 µs before that time. It also covers a debt that is refunded or reset,
/// and a call that another charge refuses.
#[tokio::test]
async fn debt_that_recovers_in_the_next_microsecond_is_not_recovered_yet() {
    let (mut stores, _redis) = stores().await;
    let DatabaseStore { store, clock, .. } = &mut stores[0];
    let model = ModelStore::keeping_all(clock.clone());
    let texts = ["p: token-bucket 1/100us burst 3", "p: token-bucket 1/100us by-interval burst 3"];
    for text in texts {
        let (policy, full): (Policy, Policy) =
            (text.parse().unwrap(), "full: gcra 1/1d burst 1".parse().unwrap());
        let both = async |operation: Operation, charges: &[Charge<'_>]| {
            let call = Call::new(operation, charges);
            let (expected, answer) = (model.decide(call).await.unwrap(), store.decide(call).await);
            assert_eq!(answer.unwrap(), expected, "{text}: {call:?}");
            expected
        };
        let now = 1_790_000_000_000_000;
        for (index, before) in [0, 1, 2].into_iter().enumerate() {
            let subject = format!("{text} {index}");
            let charge = Charge::new(&policy, &subject);
            clock.set(Timestamp::from_micros(now));
            let max_wait = Duration::from_secs(1);
            let _ = both(Operation::Acquire, &[Charge::new(&full, &subject)]).await;
            for _ in 0..6 {
                let _ = both(Operation::Reserve { max_wait }, &[charge]).await;
            }
            // Three of the six reservations were within the burst, and the other three wait up to
            // 300 µs. The wait of the next reservation is 400 µs.
            clock.set(Timestamp::from_micros(now + 400 - before));
            let refused = [charge, Charge::new(&full, &subject)];
            let decision = both(Operation::Reserve { max_wait }, &refused).await;
            assert!(decision.is_denied());
            for operation in [
                Operation::Peek,
                Operation::Reserve { max_wait: Duration::from_micros(1) },
                Operation::Refund,
                Operation::Undo { at: Timestamp::from_micros(now - 50) },
                Operation::Block { span: Duration::ZERO },
                Operation::BlockAtLeast { span: Duration::from_micros(1) },
                Operation::Reset,
            ] {
                let _ = both(operation, &[charge]).await;
                let _ = both(Operation::Reserve { max_wait }, &refused).await;
            }
        }
    }
}

/// Guards against a defect: the end of a debt that lasts a million days does not fit into a value.
/// The scripts stored 2^53 µs instead, so the debt ended after 228 years instead of 2,738 years.
#[tokio::test]
async fn a_debt_that_lasts_for_millennia_ends_as_in_the_core() {
    let (mut stores, _redis) = stores().await;
    let DatabaseStore { store, clock, .. } = &mut stores[0];
    let model = ModelStore::keeping_all(clock.clone());
    let texts = ["1000000/1d burst 1000000", "1/1d burst 1"];
    let [fast, slow] =
        texts.map(|text| format!("p: token-bucket {text} by-interval").parse::<Policy>().unwrap());
    clock.set(Timestamp::from_micros(1_790_000_000_000_000));
    for (operation, policy, cost) in [
        (Operation::Acquire, &fast, 1_000_000),
        (Operation::Refund, &slow, 1),
        (Operation::Peek, &slow, 1),
    ] {
        let charge = [Charge::new(policy, "s").cost(cost)];
        let call = Call::new(operation, &charge);
        let (expected, answer) = (model.decide(call).await, store.decide(call).await);
        assert_eq!(answer.unwrap(), expected.unwrap(), "{call:?}");
    }
}

/// If the rate of a bucket changes, the script converts the debt into the new unit. The conversion
/// computes a product that is exact up to 2^52. In this test, the product is near 2^52.
#[tokio::test]
async fn a_fraction_at_the_bound_is_converted_as_in_the_core() {
    let (mut stores, _redis) = stores().await;
    let DatabaseStore { store, clock, .. } = &mut stores[0];
    let model = ModelStore::keeping_all(clock.clone());
    // These policies have 2^27 and 2^26 units per token.
    let texts = ["p: token-bucket 1/134217728us burst 9", "p: token-bucket 1/67108864us burst 9"];
    let [before, after] = texts.map(|text| text.parse::<Policy>().unwrap());
    for offset in [0, 1, 2] {
        let subject = format!("{offset}");
        let now = 1_790_000_000_000_000;
        // About 2^26 units of a token are missing when the policy changes. The conversion
        // multiplies this number by 2^26.
        for (policy, micros) in [(&before, 0), (&before, (1 << 26) + offset - 1), (&after, 1 << 26)]
        {
            clock.set(Timestamp::from_micros(now + micros));
            let charge = [Charge::new(policy, &subject)];
            let call = Call::acquire(&charge);
            let (expected, answer) = (model.decide(call).await, store.decide(call).await);
            assert_eq!(answer.unwrap(), expected.unwrap(), "{call:?}");
        }
    }
}
