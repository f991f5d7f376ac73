//! Tests of operations on a node that has chunks. They check the effect of each operation on the
//! chunks, and the effect of the chunks on the operation.

use std::time::Duration;

use tidegate_core::{Call, CallId, Charge, Decision, Operation, Outcome, Policy, Store};
use tokio::time::{Instant, sleep};

use super::chunks::{acquire, eager, load, policy, remaining};
use super::world::{NodeStore, Quality, Server, node};

const LIMIT: u64 = 1_000;

/// Returns a node that has a chunk, after some requests under a limit of [`LIMIT`].
async fn leased(server: &std::sync::Arc<Server>, policy: &Policy) -> NodeStore {
    let (store, _) = node(server, eager(), Quality::GOOD);
    load(&store, policy, 2_000, Duration::from_millis(50)).await;
    // After this pause, no chunk is in flight.
    sleep(Duration::from_millis(1)).await;
    assert!(held(server, policy, &store) > 10, "{:?}", store.stats());
    store
}

fn used(store: &NodeStore) -> u64 {
    store.stats().local() + store.stats().passed()
}

/// Returns the unspent cost in the chunks of the node.
fn held(server: &Server, policy: &Policy, store: &NodeStore) -> u64 {
    LIMIT - used(store) - remaining(server, policy)
}

/// Returns the number of requests that are admitted before the first refusal.
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
fn a_peek_adds_the_unspent_cost_of_this_node() {
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
            // A peek on another node counts the unspent cost of the first node as used.
            let (other, _) = node(&server, eager(), Quality::GOOD);
            let peek = ask(&other, Operation::Peek, &policy, 1).await;
            assert_eq!(peek.verdicts()[0].remaining(), left - held, "{policy}");
            assert!(acquire(&store, &policy, 1).await, "{policy}: the chunk stays");
        });
    }
}

#[test]
fn an_acquire_up_to_gets_the_unspent_cost_of_this_node() {
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

/// The node returns its chunks before a refund. Otherwise a refund of more than the used cost would
/// also refund a chunk, and the node would still use the chunk.
#[test]
fn chunks_are_returned_before_a_refund() {
    for policy in windows_and_buckets() {
        crate::run(async {
            let server = Server::new();
            let store = leased(&server, &policy).await;
            let used = used(&store);
            let refund = ask(&store, Operation::Refund, &policy, 5_000).await;
            // A bucket refills a part of a token during the test, so the refund can be smaller than
            // the used cost by 1.
            assert!(used - refund.amounts()[0] <= 1, "{policy}");
            assert_eq!(remaining(&server, &policy), LIMIT, "{policy}");
            assert_eq!(admits(&store, &policy).await, LIMIT, "{policy}");
        });
    }
}

/// If refunds return almost every chunk unused, chunks cost more calls than they save. So after 16
/// unused chunks, the node fetches at most one chunk per quarter of a span.
#[test]
fn frequent_returns_of_unused_chunks_prevent_fetches() {
    crate::run(async {
        let (server, policy) = (Server::new(), policy("p: fixed-window 1000/1h"));
        let store = leased(&server, &policy).await;
        let (holds, start) = (server.holds(), Instant::now());
        for _ in 0..200 {
            let _ = ask(&store, Operation::Refund, &policy, 1).await;
            let _ = ask(&store, Operation::Acquire, &policy, 1).await;
            // If the node is fetching a chunk, the fetch ends during this pause.
            sleep(Duration::from_millis(1)).await;
        }
        let quarters = start.elapsed().as_millis() / 250;
        let fetched = server.holds() - holds;
        assert!((1..=18 + usize::try_from(quarters).unwrap()).contains(&fetched), "{fetched}");
    });
}

/// After a reset, exactly the limit is admitted, because no chunk from before the reset is used or
/// returned.
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

/// A hold is possibly in flight at the same time as a reset. If the store executes the hold first,
/// the reset removes the charge of the hold, so the chunk must not be used.
#[test]
fn a_chunk_in_flight_does_not_survive_a_reset() {
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
                // The reset and the hold of a chunk are in flight together. The link is slow, so in
                // some runs the store executes the reset first, and in others the hold.
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

/// The node returns its chunks before it sends a block, so that it enforces the block immediately.
#[test]
fn chunks_are_returned_before_a_block() {
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

/// A charge beyond the limit does not end the use of chunks, because the store charged the chunks
/// before that charge.
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

/// The chunks of a node cause no refusal of a reservation, of a hold, of a call with an id, or of a
/// check-only charge on this node.
#[test]
fn other_acquires_get_the_unspent_cost_of_this_node() {
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

/// A refusal by a policy with `block` would block the subject. So the chunks of a node must never
/// cause a refusal by such a policy.
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

/// A call with a shadow policy is leased as long as the shadow policy admits the charge of the
/// chunks. The shadow policy never refuses a call.
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
        assert_eq!(shadowed, 1_500, "the shadow policy denies as without leases");
        assert_eq!(remaining(&server, &policies[0]), 98_000);
    });
}

/// The calls of a batch are decided one after another, so a call after a reset is decided on the
/// state after the reset.
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
        let allowed: Vec<_> =
            answers.iter().map(|answer| answer.as_ref().unwrap().is_allowed()).collect();
        assert_eq!(allowed, [true, true, true, false, true, false]);
        assert_eq!(remaining(&server, &policy), 0);
    });
}

#[test]
fn a_batch_of_leased_calls_is_answered_immediately() {
    crate::run(async {
        let (server, policy) = (Server::new(), policy("p: fixed-window 1000/1h"));
        let store = leased(&server, &policy).await;
        let charges = [Charge::new(&policy, "s")];
        let calls = [Call::acquire(&charges); 5];
        let answers = store.decide_many(&calls).into_ready().unwrap();
        assert!(answers.into_iter().all(|answer| answer.unwrap().is_allowed()));
        // The store refuses the call at first, because the chunk of this node is charged. So the
        // node returns the chunk and sends the call again.
        let rest = [Charge::new(&policy, "s").cost(LIMIT - used(&store))];
        let answers = store.decide_many(&[Call::acquire(&rest)]).await;
        assert!(answers[0].as_ref().unwrap().is_allowed());
    });
}

/// With a grant, a subject can have more than the limit left, also according to a chunk.
#[test]
fn a_chunk_reports_more_than_the_limit_after_a_grant() {
    let quota = policy("p: quota 10/year in UTC");
    crate::run(async {
        let server = Server::new();
        let (store, _) = node(&server, eager(), Quality::GOOD);
        let charges = [Charge::new(&quota, "s").cost(100_000)];
        let id = CallId::new("invoice 17", Duration::from_secs(3_600));
        let grant = Call::new(Operation::Grant { ends_at: None }, &charges).with_id(id);
        assert!(store.decide(grant).await.unwrap().is_allowed());
        load(&store, &quota, 2_000, Duration::from_millis(50)).await;
        let local = store.stats().local();
        let decision = ask(&store, Operation::Acquire, &quota, 1).await;
        assert_eq!(store.stats().local(), local + 1, "a chunk has admitted the request");
        assert!(decision.verdicts()[0].remaining() > 90_000, "{decision:?}");
    });
}

/// A node does not refuse a cost above the limit because of its own chunk, if the subject has a
/// grant.
#[test]
fn a_grant_is_shown_and_spent_as_a_whole_although_a_chunk_has_a_part_of_it() {
    for text in ["p: quota 10/year in UTC", "p: credits 0"] {
        let quota = policy(text);
        crate::run(async {
            let server = Server::new();
            let (store, _) = node(&server, eager(), Quality::GOOD);
            let charges = [Charge::new(&quota, "s").cost(100_000)];
            let id = CallId::new("invoice 17", Duration::from_secs(3_600));
            let grant = Call::new(Operation::Grant { ends_at: None }, &charges).with_id(id);
            assert!(server.store.decide_now(&grant).unwrap().is_allowed());
            load(&store, &quota, 2_000, Duration::from_millis(50)).await;
            sleep(Duration::from_millis(1)).await;
            let left = quota.limit() + 100_000 - used(&store);
            assert!(remaining(&server, &quota) < left, "the node has a chunk");
            let peek = ask(&store, Operation::Peek, &quota, left).await;
            assert_eq!((peek.is_allowed(), peek.verdicts()[0].remaining()), (true, left), "{text}");
            let peek = ask(&store, Operation::Peek, &quota, left + 1).await;
            assert_eq!(
                (peek.is_allowed(), peek.verdicts()[0].remaining()),
                (false, left),
                "{text}"
            );
            let local = store.stats().local();
            let decision = ask(&store, Operation::Acquire, &quota, 1).await;
            assert_eq!(store.stats().local(), local + 1, "a chunk has admitted the request");
            assert!(decision.verdicts()[0].remaining() > 90_000, "{text}: {decision:?}");
            assert!(ask(&store, Operation::Acquire, &quota, left - 1).await.is_allowed(), "{text}");
            assert_eq!(remaining(&server, &quota), 0, "{text}");
        });
    }
}
