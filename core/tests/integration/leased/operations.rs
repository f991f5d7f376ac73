//! What other operations do to chunks, and what they see of them.

use std::time::Duration;

use tidegate_core::{Call, CallId, Charge, Decision, Operation, Outcome, Policy, Store};
use tokio::time::sleep;

use super::chunks::{acquire, eager, load, policy, remaining};
use super::world::{NodeStore, Quality, Server, node};

const LIMIT: u64 = 1_000;

/// A node that holds a chunk, after some requests of a limit of [`LIMIT`].
async fn leased(server: &std::sync::Arc<Server>, policy: &Policy) -> NodeStore {
    let (store, _) = node(server, eager(), Quality::GOOD);
    load(&store, policy, 2_000, Duration::from_millis(50)).await;
    // Nothing is on its way.
    sleep(Duration::from_millis(1)).await;
    assert!(held(server, policy, &store) > 10, "{:?}", store.stats());
    store
}

fn used(store: &NodeStore) -> u64 {
    store.stats().local() + store.stats().passed()
}

/// What is held unused.
fn held(server: &Server, policy: &Policy, store: &NodeStore) -> u64 {
    LIMIT - used(store) - remaining(server, policy)
}

/// How many requests are admitted until one is refused.
async fn admits(store: &NodeStore, policy: &Policy) -> u64 {
    let mut admitted = 0;
    while ask(store, Operation::Acquire, policy, 1).await.is_allowed() {
        admitted += 1;
        sleep(Duration::from_micros(200)).await;
    }
    admitted
}

async fn ask(store: &NodeStore, operation: Operation, policy: &Policy, cost: u64) -> Decision {
    let charges = [Charge::new(policy, "s").cost(cost)];
    store.decide(Call::new(operation, &charges)).await.unwrap()
}

fn windows_and_buckets() -> [Policy; 3] {
    ["p: fixed-window 1000/1h", "p: gcra 1/1h burst 1000", "p: fixed-window 1000/1h anchored"]
        .map(policy)
}

#[test]
fn a_peek_counts_what_is_held_here_as_there() {
    for policy in windows_and_buckets() {
        crate::run(async {
            let server = Server::new();
            let store = leased(&server, &policy).await;
            let (left, held) = (LIMIT - used(&store), held(&server, &policy, &store));
            let peek = ask(&store, Operation::Peek, &policy, left).await;
            assert_eq!(peek.verdicts()[0].remaining(), left, "{policy}");
            assert!(peek.is_allowed() && peek.retry_after() == Some(Duration::ZERO), "{policy}");
            let peek = ask(&store, Operation::Peek, &policy, left + 1).await;
            assert!(peek.is_denied(), "{policy}");
            // Another node counts it as taken.
            let (other, _) = node(&server, eager(), Quality::GOOD);
            let peek = ask(&other, Operation::Peek, &policy, 1).await;
            assert_eq!(peek.verdicts()[0].remaining(), left - held, "{policy}");
            assert!(acquire(&store, &policy, 1).await, "{policy}: the chunk stays");
        });
    }
}

#[test]
fn as_much_as_there_is_includes_what_is_held_here() {
    for policy in windows_and_buckets() {
        crate::run(async {
            let server = Server::new();
            let store = leased(&server, &policy).await;
            let left = LIMIT - used(&store);
            let up_to = ask(&store, Operation::AcquireUpTo { min: 1 }, &policy, 5_000).await;
            assert_eq!(up_to.amounts(), [left], "{policy}");
            assert!(!acquire(&store, &policy, 1).await, "{policy}");
            assert_eq!(remaining(&server, &policy), 0, "{policy}");
        });
    }
}

/// A refund of more than was used gives back no chunk that is then used.
#[test]
fn a_refund_makes_chunks_go_back_before() {
    for policy in windows_and_buckets() {
        crate::run(async {
            let server = Server::new();
            let store = leased(&server, &policy).await;
            let used = used(&store);
            let refund = ask(&store, Operation::Refund, &policy, 5_000).await;
            // Of a bucket, a part of a token has come back.
            assert!(used - refund.amounts()[0] <= 1, "{policy}");
            assert_eq!(remaining(&server, &policy), LIMIT, "{policy}");
            assert_eq!(admits(&store, &policy).await, LIMIT, "{policy}");
        });
    }
}

/// After a reset exactly the limit is admitted: no earlier chunk is used or returned.
#[test]
fn chunks_are_returned_before_a_reset() {
    for policy in windows_and_buckets() {
        crate::run(async {
            let server = Server::new();
            let store = leased(&server, &policy).await;
            let _ = ask(&store, Operation::Reset, &policy, 1).await;
            assert_eq!(remaining(&server, &policy), LIMIT, "{policy}");
            assert_eq!(admits(&store, &policy).await, LIMIT, "{policy}");
        });
    }
}

/// A chunk that is on its way while a reset is may be charged before the reset, and so for nothing.
#[test]
fn a_chunk_on_its_way_does_not_survive_a_reset() {
    for delay in [2_000, 20_000] {
        for seed in 0..40 {
            crate::run(async {
                let (server, policy) = (Server::new(), policy("p: fixed-window 1000/1h"));
                let slow = Quality { max_delay: delay, lost: 0 };
                let (store, _) = super::world::node_with(&server, eager(), slow, seed, 0);
                for _ in 0..3 {
                    let charges = [Charge::new(&policy, "s")];
                    let _ = store.decide(Call::acquire(&charges)).await;
                }
                // The reset overtakes the hold, or the other way round.
                let _ = ask(&store, Operation::Reset, &policy, 1).await;
                let mut admitted = 0;
                for _ in 0..1_500 {
                    admitted +=
                        u64::from(ask(&store, Operation::Acquire, &policy, 1).await.is_allowed());
                }
                assert!(admitted <= LIMIT, "{admitted}");
            });
        }
    }
}

/// A block is in force here at once.
#[test]
fn a_block_makes_chunks_go_back_before() {
    for policy in windows_and_buckets() {
        for at_least in [false, true] {
            crate::run(async {
                let server = Server::new();
                let store = leased(&server, &policy).await;
                let left = LIMIT - used(&store);
                let span = Duration::from_secs(10);
                let block = if at_least {
                    Operation::BlockAtLeast { span }
                } else {
                    Operation::Block { span }
                };
                let _ = ask(&store, block, &policy, 1).await;
                for _ in 0..100 {
                    let refused = ask(&store, Operation::Acquire, &policy, 1).await;
                    assert_eq!(refused.verdicts()[0].outcome(), Outcome::Blocked, "{policy}");
                }
                let _ = ask(&store, Operation::Block { span: Duration::ZERO }, &policy, 1).await;
                assert_eq!(remaining(&server, &policy), left, "{policy}");
            });
        }
    }
}

/// A charge beyond the limit leaves the chunks, which count as used before.
#[test]
fn a_charge_leaves_the_chunks() {
    crate::run(async {
        let (server, policy) = (Server::new(), policy("p: fixed-window 1000/1h"));
        let store = leased(&server, &policy).await;
        let charged = ask(&store, Operation::Charge, &policy, 2_000).await;
        assert_eq!(charged.amounts(), [2_000]);
        let mut local = 0;
        while acquire(&store, &policy, 1).await {
            local += 1;
        }
        assert!(local > 10, "{local}");
        assert!(ask(&store, Operation::Acquire, &policy, 1).await.is_denied());
    });
}

/// Reservations, holds, calls with an id and checks are decided as if nothing were held here.
#[test]
fn other_acquires_get_what_is_held_here() {
    let bucket = policy("p: gcra 1/1h burst 1000");
    let hold = |ttl| CallId::new("job", Duration::from_secs(ttl));
    for operation in [
        Operation::Reserve { max_wait: Duration::ZERO },
        Operation::Hold,
        Operation::HoldUpTo { min: 1 },
        Operation::Acquire,
    ] {
        crate::run(async {
            let server = Server::new();
            let store = leased(&server, &bucket).await;
            let charges = [Charge::new(&bucket, "s").cost(LIMIT - used(&store))];
            let call = Call::new(operation, &charges);
            let call = if matches!(operation, Operation::Reserve { .. }) {
                call
            } else {
                call.with_id(hold(60))
            };
            let decision = store.decide(call).await.unwrap();
            assert!(decision.is_allowed() && decision.wait().is_zero(), "{operation:?}");
            assert_eq!(remaining(&server, &bucket), 0, "{operation:?}");
        });
    }
    crate::run(async {
        let server = Server::new();
        let store = leased(&server, &bucket).await;
        let left = LIMIT - used(&store);
        for (cost, is_allowed) in [(left + 1, false), (left, true)] {
            let charges = [Charge::new(&bucket, "s").cost(cost).check_only()];
            let decision = store.decide(Call::acquire(&charges)).await.unwrap();
            assert_eq!(decision.is_allowed(), is_allowed, "{cost}");
        }
    });
}

/// What one node holds never makes it block a subject.
#[test]
fn a_policy_that_blocks_is_not_leased_and_not_made_to_block() {
    crate::run(async {
        let (server, plain) = (Server::new(), policy("p: fixed-window 1000/1h"));
        let store = leased(&server, &plain).await;
        let blocking = policy("p: fixed-window 1000/1h block 1m");
        assert!(blocking.shares_state_with(&plain));
        let left = LIMIT - used(&store);
        assert!(ask(&store, Operation::Acquire, &blocking, left).await.is_allowed());
        let (other, _) = node(&server, eager(), Quality::GOOD);
        let blocking = policy("q: fixed-window 1000000/1h block 1m");
        assert_eq!(load(&other, &blocking, 1_000, Duration::from_secs(1)).await, 0);
    });
}

/// A shadow is leased with the others while it admits the chunk, and never refuses.
#[test]
fn a_shadow_that_is_used_up_ends_the_lease_and_refuses_nothing() {
    crate::run(async {
        let server = Server::new();
        let (store, _) = node(&server, eager(), Quality::GOOD);
        let policies =
            [policy("p: fixed-window 100000/1h"), policy("q: fixed-window 500/1h shadow")];
        let charges = [Charge::new(&policies[0], "s"), Charge::new(&policies[1], "s")];
        let mut shadowed = 0;
        for _ in 0..2_000 {
            let decision = store.decide(Call::acquire(&charges)).await.unwrap();
            assert!(decision.is_allowed());
            shadowed += u64::from(decision.verdicts()[1].outcome() == Outcome::Denied);
            sleep(Duration::from_micros(200)).await;
        }
        assert!(store.stats().local() > 200, "{:?}", store.stats());
        assert_eq!(shadowed, 1_500, "it denies as without leases");
        assert_eq!(remaining(&server, &policies[0]), 98_000);
    });
}

/// A batch is answered in its order: what comes after a reset is decided after it.
#[test]
fn a_batch_keeps_the_order_of_its_calls() {
    crate::run(async {
        let (server, policy) = (Server::new(), policy("p: fixed-window 1000/1h"));
        let store = leased(&server, &policy).await;
        let charges = [Charge::new(&policy, "s")];
        let all = [Charge::new(&policy, "s").cost(LIMIT)];
        let other = [Charge::new(&policy, "t")];
        let calls = [
            Call::acquire(&charges),
            Call::new(Operation::Reset, &charges),
            Call::acquire(&all),
            Call::acquire(&charges),
            Call::acquire(&other),
            Call::new(Operation::Peek, &charges),
        ];
        let answers = store.decide_many(&calls).await;
        let allowed: Vec<_> = answers.iter().map(|it| it.as_ref().unwrap().is_allowed()).collect();
        assert_eq!(allowed, [true, true, true, false, true, false]);
        assert_eq!(remaining(&server, &policy), 0);
    });
}

#[test]
fn a_batch_of_leased_calls_is_answered_at_once() {
    crate::run(async {
        let (server, policy) = (Server::new(), policy("p: fixed-window 1000/1h"));
        let store = leased(&server, &policy).await;
        let charges = [Charge::new(&policy, "s")];
        let calls = [Call::acquire(&charges); 5];
        let answers = store.decide_many(&calls).into_ready().unwrap();
        assert!(answers.into_iter().all(|answer| answer.unwrap().is_allowed()));
        // One that is refused because of the chunk is asked again.
        let rest = [Charge::new(&policy, "s").cost(LIMIT - used(&store))];
        let answers = store.decide_many(&[Call::acquire(&rest)]).await;
        assert!(answers[0].as_ref().unwrap().is_allowed());
    });
}
