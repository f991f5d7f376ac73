//! Compares rare cases of fair pools with the core: full pools, settlements after refunds, and
//! charges beyond the limit.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, and so do its helpers")]

use std::time::Duration;

use tidegate_redis::{Call, CallId, Charge, Decision, ManualClock, Operation, Policy, Store};
use tidegate_testkit::ModelStore;

use crate::common::{builder_with, client, fresh_prefix, key_with_prefix, policy};

const HOUR: Duration = Duration::from_secs(3600);

/// A store on Redis and the core, with one clock.
struct Pair {
    redis: tidegate_redis::RedisStore,
    core: ModelStore,
    clock: ManualClock,
    prefix: String,
}

impl Pair {
    async fn new() -> Self {
        let (clock, prefix) = (ManualClock::default(), fresh_prefix());
        let redis = builder_with(&prefix).await.clock(clock.clone()).build().unwrap();
        Self { redis, core: ModelStore::new(clock.clone()), clock, prefix }
    }

    /// Makes a call on both stores, and returns their equal decision.
    async fn decide(&self, call: Call<'_>) -> Decision {
        let decision = self.redis.decide(call).await.unwrap();
        assert_eq!(decision, self.core.decide(call).await.unwrap(), "{call:?}");
        decision
    }

    /// Makes calls on both stores, in one batch.
    async fn decide_many(&self, calls: &[Call<'_>]) {
        let answers = self.redis.decide_many(calls).await;
        for ((call, answer), expected) in
            calls.iter().zip(answers).zip(self.core.decide_many(calls).await)
        {
            assert_eq!(answer.unwrap(), expected.unwrap(), "{call:?}");
        }
    }

    /// Returns the number of members whose numbers the server stores.
    async fn members(&self, policy: &Policy) -> usize {
        let key = key_with_prefix(&self.prefix, policy);
        let fields = client().await.call(&["HLEN", &key]).await.unwrap().text();
        fields.parse::<usize>().unwrap() - 1
    }
}

#[tokio::test]
async fn in_a_full_pool_all_further_subjects_are_one_member() {
    let (pair, policy) = (Pair::new().await, policy("p: fair-pool 2000/1h"));
    let subjects: Vec<String> = (0..1_004).map(|number| format!("subject {number}")).collect();
    let charges: Vec<_> = subjects.iter().map(|subject| [Charge::new(&policy, subject)]).collect();
    let calls: Vec<_> = charges.iter().map(|charges| Call::acquire(charges)).collect();
    for _ in 0..2 {
        pair.decide_many(&calls[..600]).await;
        pair.decide_many(&calls[600..]).await;
        assert_eq!(pair.members(&policy).await, 1_000);
        // A single charge has its own script.
        for charge in &charges[995..] {
            let _ = pair.decide(Call::acquire(charge)).await;
            let _ = pair.decide(Call::new(Operation::Peek, charge)).await;
        }
        // In the next window, the further subjects have one share.
        pair.clock.advance(HOUR);
    }
    // A member without a demand in the previous window is dropped.
    pair.decide_many(&calls[..10]).await;
    assert_eq!(pair.members(&policy).await, 1_000);
    pair.clock.advance(HOUR);
    pair.decide_many(&calls[..10]).await;
    assert_eq!(pair.members(&policy).await, 10);
}

/// The pool has fewer units than members, so each member is charged at most 1.
#[tokio::test]
async fn the_last_own_member_is_charged_apart_from_all_further_subjects() {
    let (pair, policy) = (Pair::new().await, policy("p: fair-pool 500/1h"));
    let subjects: Vec<String> = (0..1_001).map(|number| format!("subject {number}")).collect();
    let charges: Vec<_> = subjects.iter().map(|subject| [Charge::new(&policy, subject)]).collect();
    let calls: Vec<_> = charges.iter().map(|charges| Call::acquire(charges)).collect();
    for is_batch in [false, true] {
        pair.decide_many(&calls[..500]).await;
        pair.decide_many(&calls[500..998]).await;
        pair.clock.advance(HOUR);
        // The first call in a window reads all members.
        if is_batch {
            pair.decide_many(&calls[998..]).await;
        } else {
            for (call, is_allowed) in calls[998..].iter().zip([true, true, false]) {
                assert_eq!(pair.decide(*call).await.is_allowed(), is_allowed, "{call:?}");
            }
        }
        pair.clock.advance(HOUR);
    }
}

#[tokio::test]
async fn a_settlement_after_a_refund_refunds_the_rest() {
    for text in ["p: fair-pool 100/1h", "p: fair-pool 100/1h weight 2"] {
        let (pair, policy) = (Pair::new().await, policy(text));
        let with = |cost| [Charge::new(&policy, "alice").cost(cost)];
        let (held, refunded, spent) = (with(20), with(5), with(8));
        let id = CallId::new("job", HOUR);
        assert!(pair.decide(Call::new(Operation::Hold, &held).with_id(id)).await.is_allowed());
        let _ = pair.decide(Call::new(Operation::Refund, &refunded)).await;
        let settled = pair.decide(Call::new(Operation::Settle, &spent).with_id(id)).await;
        assert_eq!(settled.amounts(), [7], "{text}");
        assert_eq!(pair.members(&policy).await, 1);
    }
}

#[tokio::test]
async fn a_charge_beyond_the_limit_does_not_change_the_pool() {
    for text in ["p: fair-pool 10/1h", "p: fair-pool 11/20d weight 3"] {
        let (pair, policy) = (Pair::new().await, policy(text));
        let beyond = policy.beyond_limit();
        for step in 0_u64..6 {
            for (index, name) in (0..).zip(["a", "b", "c"]) {
                let policy = if step % 2 == index % 2 { &beyond } else { &policy };
                let charge = [Charge::new(policy, name).cost(3 + index)];
                let one = [Charge::new(policy, name)];
                for _ in 0..6 {
                    let _ = pair.decide(Call::acquire(&one)).await;
                }
                // In the other windows, the members divide the pool by their weights.
                if step % 3 == 1 {
                    let _ = pair.decide(Call::new(Operation::Charge, &charge)).await;
                }
                let peek = Call::new(Operation::Peek, &charge);
                pair.decide_many(&[Call::acquire(&charge), peek]).await;
            }
            pair.clock.advance(policy.window());
        }
    }
}
