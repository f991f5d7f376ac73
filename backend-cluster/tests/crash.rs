//! A client that dies between the two steps of a call across slots.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of a test that fails panics, as the test does"
)]

mod common;

use std::time::Duration;

use tidegate_cluster::{
    Call, Charge, ClusterStore, ManualClock, Operation, Policy, Store, Timestamp,
};
use tidegate_testkit::servers::{Cluster, eventually};

use common::{patient, policy, subject_on};

const START: u64 = 1_790_000_000_000_000;

async fn taken(store: &ClusterStore, policy: &Policy, subject: &str) -> u64 {
    let charges = [Charge::new(policy, subject).cost(0)];
    let peek = store.decide(Call::new(Operation::Peek, &charges)).await.unwrap();
    policy.limit() - peek.verdicts()[0].remaining()
}

/// Has a client ask for both subjects, and kills it while the second one's node is held: with its
/// runtime all that it was about to do ends, as with its process.
fn ask_and_die(store: ClusterStore, policies: [Policy; 2], subjects: [String; 2]) -> Dying {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.spawn(async move {
        let charges = [0, 1].map(|n| Charge::new(&policies[n], &subjects[n]));
        let _ = store.decide(Call::acquire(&charges)).await;
    });
    Dying(Some(runtime))
}

struct Dying(Option<tokio::runtime::Runtime>);

impl Drop for Dying {
    fn drop(&mut self) {
        self.0.take().unwrap().shutdown_background();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_dead_client_took_comes_back_by_itself_and_lets_nothing_more_pass() {
    let cluster = Cluster::start().await.unwrap();
    let subjects = [subject_on(&cluster, 0, 0).await, subject_on(&cluster, 1, 0).await];
    for (wide, recovers) in [
        ("w: fixed-window 5/1h anchored", 3_600),
        ("l: sliding-log 5/1h", 3_600),
        ("c: sliding-counter 5/1h", 7_200),
        ("b: token-bucket 5/1h", 720),
    ] {
        let clock = ManualClock::new(Timestamp::from_micros(START));
        let open = || {
            let builder = patient(&cluster).prefix(wide.split(':').next().unwrap());
            builder.clock(clock.clone()).build().unwrap()
        };
        let policies = [policy(wide), policy("none: fixed-window 0/1d")];
        let observer = open();
        assert_eq!(taken(&observer, &policies[0], &subjects[0]).await, 0);
        cluster.node(1).pause().await.unwrap();
        let client = open();
        // It has to know the cluster before: the node that is held cannot be asked.
        let dying = ask_and_die(client, policies.clone(), subjects.clone());
        let first_step =
            async || (taken(&observer, &policies[0], &subjects[0]).await == 1).then_some(());
        eventually(Duration::from_secs(10), "the first step", first_step).await.unwrap();
        drop(dying);
        cluster.node(1).resume().await.unwrap();

        // It stays taken, so that less passes, and never more.
        let mut admitted = 0;
        for _ in 0..9 {
            let charges = [Charge::new(&policies[0], &subjects[0])];
            admitted +=
                u64::from(observer.decide(Call::acquire(&charges)).await.unwrap().is_allowed());
        }
        assert_eq!(admitted, 4, "{wide}");
        let reset = [Charge::new(&policies[0], &subjects[0]).cost(4)];
        let _ = observer.decide(Call::new(Operation::Refund, &reset)).await.unwrap();
        assert_eq!(taken(&observer, &policies[0], &subjects[0]).await, 1, "{wide}");
        // Until it has recovered, as it would have if it had been admitted; and no longer.
        clock.advance(Duration::from_secs(recovers));
        assert_eq!(taken(&observer, &policies[0], &subjects[0]).await, 0, "{wide}");
    }
}
