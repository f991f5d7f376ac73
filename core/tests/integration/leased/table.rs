//! Tests of the table of leases. The size of the table is bounded regardless of the subjects.

use std::time::Duration;

use tidegate_core::{Call, Charge, Operation, Policy, Store};
use tokio::time::sleep;

use super::chunks::{acquire, eager, load, policy, remaining};
use super::world::{NodeStore, Quality, Server, node};

async fn acquire_often(store: &NodeStore, policy: &Policy, subject: &str) {
    let charges = [Charge::new(policy, subject)];
    for _ in 0..6 {
        assert!(store.decide(Call::acquire(&charges)).await.unwrap().is_allowed());
    }
}

/// Without defect B46, many subjects with frequent calls get at most `max_leases` leases, and all
/// chunks are returned.
#[test]
fn b46_hot_subjects_get_at_most_the_maximum_of_leases() {
    crate::run(async {
        let (server, policy) = (Server::new(), policy("p: fixed-window 1000/1h"));
        let lease = eager().max_leases(8).span(Duration::from_millis(100));
        let (store, _) = node(&server, lease, Quality::GOOD);
        let mut max = 0;
        for subject in 0..2_000 {
            acquire_often(&store, &policy, &subject.to_string()).await;
            max = max.max(store.stats().len());
            assert!(max <= 8, "{max}");
        }
        assert!(max > 5, "{max}");
        assert!(store.stats().chunks() > 100, "later subjects get leases too: {:?}", store.stats());
        store.close().await;
        for subject in 0..2_000 {
            let subject = subject.to_string();
            let charges = [Charge::new(&policy, &subject).cost(1_000 - 6)];
            let all = server.store.decide_now(&Call::acquire(&charges)).unwrap();
            assert!(all.is_allowed(), "{subject}");
        }
    });
}

/// A flood of subjects with one call each does not evict a lease.
#[test]
fn a_flood_of_cold_subjects_leaves_a_hot_one_its_lease() {
    crate::run(async {
        let (server, policy) = (Server::new(), policy("p: fixed-window 1000000/1h"));
        let (store, _) = node(&server, eager().max_leases(2), Quality::GOOD);
        let mut local = 0;
        for subject in 0..5_000 {
            let subject = subject.to_string();
            let charges = [Charge::new(&policy, &subject)];
            let _ = store.decide(Call::acquire(&charges)).await;
            local += u64::from(acquire(&store, &policy, 1).await);
            local += u64::from(acquire(&store, &policy, 1).await);
        }
        assert!(local > 9_000, "{local}");
        assert_eq!(server.holds(), usize::try_from(store.stats().chunks()).unwrap());
    });
}

/// Similar subjects, tenants and policies have separate leases.
#[test]
fn b17_no_two_subjects_share_a_lease() {
    crate::run(async {
        let server = Server::new();
        let (store, _) = node(&server, eager(), Quality::GOOD);
        let (one, two) = (policy("p: fixed-window 100/1h"), policy("p: fixed-window 101/1h"));
        let parts = [("", "ab"), ("a", "b"), ("ab", ""), ("b", "a")];
        let all: Vec<_> = [&one, &two]
            .into_iter()
            .flat_map(|policy| parts.map(|(tenant, subject)| (policy, tenant, subject)))
            .collect();
        for _ in 0..20 {
            for (policy, tenant, subject) in &all {
                let charges = [Charge::new(policy, *subject).tenant(*tenant)];
                assert!(store.decide(Call::acquire(&charges)).await.unwrap().is_allowed());
            }
            sleep(Duration::from_millis(1)).await;
        }
        assert!(store.stats().local() > 60, "{:?}", store.stats());
        store.close().await;
        for (tenant, subject) in parts {
            let charges = [Charge::new(&one, subject).tenant(tenant).cost(60)];
            assert!(server.store.decide_now(&Call::acquire(&charges)).unwrap().is_allowed());
            assert!(server.store.decide_now(&Call::acquire(&charges)).unwrap().is_denied());
        }
    });
}

/// Without defect B100, if the numbers of a policy change, such as its limit, each subject is
/// leased again, and its earlier lease is removed. A lease that is not used any more is also
/// removed.
#[test]
fn b100_each_subject_is_leased_again_after_the_numbers_change() {
    const SUBJECTS: usize = 12;
    crate::run(async {
        let server = Server::new();
        let (store, _) = node(&server, eager(), Quality { max_delay: 0, lost: 0 });
        let policies = ["p: fixed-window 1000000/1h", "p: fixed-window 2000000/1h"].map(policy);
        for (policy, rounds) in policies.iter().zip([300_usize, 2_500]) {
            let mut local = [0; SUBJECTS];
            for round in 0..rounds {
                // The subjects stop making calls one after another. So some subjects have no
                // unspent cost in chunks when the limit changes.
                let active = local.iter_mut().take((rounds - round).div_ceil(10));
                for (subject, local) in active.enumerate() {
                    let subject = subject.to_string();
                    let charges = [Charge::new(policy, &subject)];
                    match store.decide(Call::acquire(&charges)).into_ready() {
                        Ok(_) => *local += u64::from((100..300).contains(&round)),
                        Err(later) => assert!(later.await.unwrap().is_allowed()),
                    }
                }
                sleep(Duration::from_millis(1)).await;
            }
            let few = local.iter().position(|local| *local < 50);
            assert_eq!(few, None, "{policy}: {local:?} are admitted from chunks");
            assert_eq!(store.stats().len(), SUBJECTS, "{policy}");
        }
        sleep(Duration::from_secs(3)).await;
        assert!(store.stats().is_empty(), "{:?}", store.stats());
        let charges = [Charge::new(&policies[1], "0").cost(0)];
        let peek = server.store.decide_now(&Call::new(Operation::Peek, &charges)).unwrap();
        assert_eq!(peek.verdicts()[0].remaining(), 2_000_000 - 2_800);
    });
}

/// The store decides calls that are too large for the table.
#[test]
fn large_calls_are_not_leased() {
    crate::run(async {
        let (server, policy) = (Server::new(), policy("p: fixed-window 1000000/1h"));
        let (store, _) = node(&server, eager(), Quality::GOOD);
        let long = "x".repeat(1_025);
        acquire_often(&store, &policy, &long).await;
        sleep(Duration::from_millis(1)).await;
        assert!(store.stats().is_empty());
        acquire_often(&store, &policy, &long[1..]).await;
        sleep(Duration::from_millis(1)).await;
        assert_eq!(store.stats().len(), 1);
    });
}

/// A subject that was leased and now has few calls costs the store one call per request.
#[test]
fn a_subject_that_has_cooled_down_is_not_leased() {
    crate::run(async {
        let (server, policy) = (Server::new(), policy("p: fixed-window 1000000/1h"));
        let (store, _) = node(&server, eager().hot_after(10), Quality::GOOD);
        load(&store, &policy, 1_000, Duration::from_secs(1)).await;
        sleep(Duration::from_secs(3)).await;
        let (holds, before) = (server.holds(), remaining(&server, &policy));
        assert_eq!(load(&store, &policy, 2, Duration::from_secs(20)).await, 0);
        assert_eq!((server.holds(), remaining(&server, &policy)), (holds, before - 40));
    });
}
