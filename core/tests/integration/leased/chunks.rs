//! Tests of chunks: a node uses a chunk, fetches the next chunk, and returns the unspent cost.

use std::time::Duration;

use tidegate_core::{Call, Charge, Lease, Operation, Policy, Share, Store};
use tokio::time::{Instant, sleep};

use super::world::{NodeStore, Quality, Server, node};

pub(super) fn policy(text: &str) -> Policy {
    text.parse().unwrap()
}

/// Returns a configuration that leases from the second call on, with chunks of up to a tenth of the
/// remaining amount.
pub(super) fn eager() -> Lease {
    Lease::new().hot_after(2).max_share(Share::new(1, 10).unwrap())
}

/// Makes an acquire for the subject `s`. Returns `true` if a chunk admitted the call.
pub(super) async fn acquire(store: &NodeStore, policy: &Policy, cost: u64) -> bool {
    let charges = [Charge::new(policy, "s").cost(cost)];
    match store.decide(Call::acquire(&charges)).into_ready() {
        Ok(decision) => decision.unwrap().is_allowed(),
        Err(later) => {
            let _ = later.await;
            false
        }
    }
}

/// Makes `rate` calls per second for `time`. Returns the number of calls that chunks admitted.
pub(super) async fn load(store: &NodeStore, policy: &Policy, rate: u64, time: Duration) -> u64 {
    let (start, mut local) = (Instant::now(), 0);
    while start.elapsed() < time {
        local += u64::from(acquire(store, policy, 1).await);
        sleep(Duration::from_micros(1_000_000 / rate)).await;
    }
    local
}

/// Returns the remaining amount of the subject `s` on the server.
pub(super) fn remaining(server: &Server, policy: &Policy) -> u64 {
    let charges = [Charge::new(policy, "s").cost(0)];
    let peek = server.store.decide_now(&Call::new(Operation::Peek, &charges)).unwrap();
    peek.verdicts()[0].remaining()
}

const HOT: &str = "p: fixed-window 1000000/1h";

#[test]
fn a_hot_subject_costs_the_store_few_calls_and_a_cold_one_no_more_than_before() {
    crate::run(async {
        let (server, policy) = (Server::new(), policy(HOT));
        let (store, _) = node(&server, Lease::new(), Quality::GOOD);
        let local = load(&store, &policy, 10_000, Duration::from_secs(5)).await;
        let stats = store.stats();
        assert_eq!((stats.local(), stats.passed() + local), (local, local + stats.passed()));
        assert!(stats.passed() < 200, "{stats:?}");
        assert!(server.executed().len() < 300, "{} calls for {local}", server.executed().len());

        let cold = server.executed().len();
        for subject in 0..500 {
            let subject = format!("cold {subject}");
            let charges = [Charge::new(&policy, &subject)];
            for _ in 0..3 {
                assert!(store.decide(Call::acquire(&charges)).await.unwrap().is_allowed());
            }
        }
        let calls = server.executed().len() - cold;
        assert!((1_500..1_510).contains(&calls), "{calls} calls for 1,500");
    });
}

#[test]
fn a_subject_with_few_calls_is_not_leased() {
    crate::run(async {
        let (server, policy) = (Server::new(), policy(HOT));
        let (store, _) = node(&server, Lease::new().hot_after(20), Quality::GOOD);
        assert_eq!(load(&store, &policy, 15, Duration::from_secs(10)).await, 0);
        assert_eq!((server.holds(), store.stats().len()), (0, 0));
    });
}

/// A node fetches the next chunk while the current chunk still has unspent cost. So if the load is
/// constant, the chunks grow to the demand, and then no call waits for the store.
#[test]
fn no_caller_waits_for_the_next_chunk() {
    crate::run(async {
        let (server, policy) = (Server::new(), policy(HOT));
        let slow = Quality { max_delay: 5_000, lost: 0 };
        let (store, _) = node(&server, Lease::new(), slow);
        load(&store, &policy, 5_000, Duration::from_secs(4)).await;
        let before = store.stats().passed();
        load(&store, &policy, 5_000, Duration::from_secs(4)).await;
        assert_eq!(store.stats().passed(), before);
    });
}

#[test]
fn the_unspent_cost_is_returned_after_the_span() {
    for text in [HOT, "p: fixed-window 1000000/1h anchored", "p: gcra 1/10m burst 1000000"] {
        crate::run(async {
            let (server, policy) = (Server::new(), policy(text));
            let (store, _) = node(&server, eager().span(Duration::from_millis(300)), Quality::GOOD);
            load(&store, &policy, 1_000, Duration::from_secs(1)).await;
            let used = store.stats().local() + store.stats().passed();
            let held = 1_000_000 - used - remaining(&server, &policy);
            assert!(held > 0, "{text}: there must be an unspent cost");
            sleep(Duration::from_millis(320)).await;
            assert_eq!(remaining(&server, &policy), 1_000_000 - used, "{text}");
            assert_eq!(store.stats().stranded(), 0, "{text}");
        });
    }
}

#[test]
fn a_closed_store_returns_its_chunks_and_leases_no_more() {
    crate::run(async {
        let (server, policy) = (Server::new(), policy(HOT));
        let (store, _) = node(&server, eager(), Quality { max_delay: 3_000, lost: 0 });
        load(&store, &policy, 5_000, Duration::from_millis(200)).await;
        let before = store.stats();
        let used = before.local() + before.passed();
        // `close` also returns a chunk that is in flight.
        store.close().await;
        assert_eq!(remaining(&server, &policy), 1_000_000 - used);
        let holds = server.holds();
        assert_eq!(load(&store, &policy, 5_000, Duration::from_millis(200)).await, 0);
        assert_eq!(server.holds(), holds);
    });
}

#[test]
fn dropping_the_last_clone_returns_the_chunks() {
    crate::run(async {
        let (server, policy) = (Server::new(), policy(HOT));
        let (store, _) = node(&server, eager(), Quality::GOOD);
        load(&store, &policy, 5_000, Duration::from_millis(200)).await;
        let stats = store.stats();
        let used = stats.local() + stats.passed();
        let clone = store.clone();
        drop(store);
        sleep(Duration::from_millis(2)).await;
        assert!(remaining(&server, &policy) < 1_000_000 - used, "another clone uses the chunks");
        drop(clone);
        sleep(Duration::from_millis(2)).await;
        assert_eq!(remaining(&server, &policy), 1_000_000 - used);
    });
}

/// Near the limit, chunks admit fewer and fewer calls, until the store decides each call.
#[test]
fn chunks_shrink_with_what_remains() {
    crate::run(async {
        let (server, policy) = (Server::new(), policy("p: fixed-window 2000/1h"));
        let (store, _) = node(&server, eager(), Quality::GOOD);
        load(&store, &policy, 2_000, Duration::from_secs(5)).await;
        let mut remaining = 2_000;
        let mut sizes = vec![];
        for call in server.executed() {
            match call.operation {
                Operation::Hold => {
                    assert!(call.cost <= remaining / 10, "{} of {remaining}", call.cost);
                    sizes.push(call.cost);
                    remaining -= call.cost;
                }
                Operation::Acquire if call.is_allowed => remaining -= call.cost,
                _ => {}
            }
        }
        assert!(sizes.iter().max() > Some(&100) && sizes.last() < Some(&8), "{sizes:?}");
        let last_calls = server.executed().into_iter().rev().take(30);
        assert!(last_calls.into_iter().all(|call| call.operation == Operation::Acquire));
    });
}

/// A call with several policies uses one chunk for all these policies. The policy with the least
/// remaining amount limits the size of the chunk.
#[test]
fn several_policies_are_leased_together() {
    crate::run(async {
        let server = Server::new();
        let policies = [policy("a: fixed-window 100000/1h"), policy("b: gcra 1/1h burst 5000")];
        let (store, _) = node(&server, eager(), Quality::GOOD);
        let charges = [Charge::new(&policies[0], "s").cost(2), Charge::new(&policies[1], "t")];
        let mut local = 0;
        for call in 0..6_000 {
            match store.decide(Call::acquire(&charges)).into_ready() {
                Ok(decision) => {
                    let decision = decision.unwrap();
                    assert_eq!(decision.verdicts().len(), 2);
                    local += 1;
                }
                Err(later) => {
                    let decision = later.await.unwrap();
                    assert_eq!(decision.is_allowed(), call < 5_000, "{call}");
                }
            }
            sleep(Duration::from_micros(100)).await;
        }
        assert!(local > 4_500, "{local}");
        let left = |index: usize, subject: &str| {
            let charges = [Charge::new(&policies[index], subject).cost(0)];
            let peek = server.store.decide_now(&Call::new(Operation::Peek, &charges)).unwrap();
            peek.verdicts()[0].remaining()
        };
        assert_eq!((left(0, "s"), left(1, "t")), (90_000, 0));
    });
}

#[test]
fn costs_may_differ_from_call_to_call() {
    crate::run(async {
        let (server, policy) = (Server::new(), policy("p: fixed-window 100000/1h"));
        let (store, _) = node(&server, eager(), Quality::GOOD);
        let mut used = 0;
        for call in 0..3_000_u64 {
            let cost = 1 + call % 7;
            acquire(&store, &policy, cost).await;
            used += cost;
            sleep(Duration::from_micros(200)).await;
        }
        assert_eq!(store.stats().len(), 1);
        assert!(store.stats().local() > 2_500, "{:?}", store.stats());
        store.close().await;
        assert_eq!(remaining(&server, &policy), 100_000 - used);
    });
}

/// A decision from a chunk reports as `remaining` the amount that remained in the store when the
/// chunk was granted, plus the unspent cost of the chunk.
#[test]
fn a_local_answer_tells_what_is_known() {
    crate::run(async {
        let (server, policy) = (Server::new(), policy("p: fixed-window 1000/10s"));
        let (store, _) = node(&server, eager().span(Duration::from_secs(9)), Quality::GOOD);
        let charges = [Charge::new(&policy, "s")];
        let mut last = 1_000;
        for _ in 0..200 {
            let decision = store.decide(Call::acquire(&charges)).await.unwrap();
            let verdict = decision.verdicts()[0];
            assert_eq!((verdict.remaining(), verdict.limit()), (last - 1, 1_000));
            assert_eq!(verdict.retry_after(), Some(Duration::ZERO));
            let ends = 10_000_000 - super::world::micros_since(server.started);
            let reset = u64::try_from(verdict.reset_after().as_micros()).unwrap();
            // The reported `reset_after` is too long by at most the duration of a call, and never
            // too short.
            assert!((ends..ends + 2_500).contains(&reset), "{reset} at {ends} before the end");
            last -= 1;
            sleep(Duration::from_millis(5)).await;
        }
        assert!(store.stats().local() > 150);
    });
}

/// A chunk is not used after its window has ended, even if the clock of the node is slow.
#[test]
fn a_chunk_ends_with_its_window() {
    for ppm in [0, -999] {
        crate::run(async {
            let (server, policy) = (Server::new(), policy("p: fixed-window 1000/10m"));
            let lease = eager().span(Duration::from_secs(1_200));
            let (store, _) = super::world::node_with(&server, lease, Quality::GOOD, 7, ppm);
            load(&store, &policy, 1_000, Duration::from_millis(50)).await;
            assert!(acquire(&store, &policy, 1).await);
            // The windows begin at multiples of ten minutes since 1970. The next window begins 400
            // s after the start of the test.
            let next = 400_000_000 - super::world::micros_since(server.started);
            sleep(Duration::from_micros(next + 1_000)).await;
            let all = [Charge::new(&policy, "s").cost(1_000)];
            assert!(server.store.decide_now(&Call::acquire(&all)).unwrap().is_allowed());
            assert!(!acquire(&store, &policy, 1).await);
        });
    }
}

/// A policy is marked by the word `leased`. With [`Lease::only_marked`], a call is leased exactly
/// if all of its policies are marked. Calls in a batch follow the same rule.
#[test]
fn only_marked_policies_are_leased() {
    crate::run(async {
        let plain = policy("plain: fixed-window 1000000/1h");
        let marked = policy("marked: fixed-window 1000000/1h leased");
        let other = policy("other: gcra 1000000/1h leased");
        for (policies, is_leased) in [
            (vec![&plain], false),
            (vec![&marked], true),
            (vec![&marked, &other], true),
            (vec![&marked, &plain], false),
        ] {
            for in_batch in [false, true] {
                let server = Server::new();
                let (store, _) = node(&server, eager().only_marked(), Quality::GOOD);
                let charges: Vec<_> =
                    policies.iter().map(|policy| Charge::new(policy, "s")).collect();
                let calls = [Call::acquire(&charges); 2];
                for _ in 0..50 {
                    let answers = match in_batch {
                        true => store.decide_many(&calls).await,
                        false => vec![store.decide(calls[0]).await],
                    };
                    assert!(answers.iter().all(|answer| answer.as_ref().unwrap().is_allowed()));
                    sleep(Duration::from_millis(1)).await;
                }
                let has_local_calls = store.stats().local() > 0;
                assert_eq!((has_local_calls, server.holds() > 0), (is_leased, is_leased));
            }
        }
    });
}

/// A marked and an unmarked policy share a state, and the node has chunks of the marked policy. A
/// call of the unmarked policy must still get the unspent cost of these chunks.
#[test]
fn an_unmarked_policy_gets_the_unspent_cost_of_a_marked_one() {
    crate::run(async {
        let server = Server::new();
        let (plain, marked) =
            (policy("p: fixed-window 1000/1h"), policy("p: fixed-window 1000/1h leased"));
        let (store, _) = node(&server, eager().only_marked(), Quality::GOOD);
        load(&store, &marked, 200, Duration::from_millis(200)).await;
        let used = store.stats().local() + store.stats().passed();
        assert!(remaining(&server, &marked) < 1_000 - used, "a part of a chunk is unspent");
        let rest = [Charge::new(&plain, "s").cost(1_000 - used)];
        assert!(store.decide(Call::acquire(&rest)).await.unwrap().is_allowed());
    });
}
