//! Tests of users, passwords and TLS connections to the nodes of a cluster, and of the metrics of
//! the scripts.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of a test that fails panics, as the test does"
)]

use std::future::ready;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate_cluster::{
    Call, Charge, ClusterStore, Credentials, Error, ErrorKind, Limiter, Store, names,
};
use tidegate_test_servers::{Cluster, Redis, eventually};
use tidegate_testkit::Recorder;

use crate::certificates::Certificates;
use crate::common::{patient, policy};

/// Makes acquires for several subjects. Each node has the states of some of these subjects.
async fn acquire_on_all(store: &ClusterStore) -> Result<(), Error> {
    let policy = policy("p: gcra 500/1h");
    for subject in ["a", "b", "c", "d", "e", "f"] {
        let charge = [Charge::new(&policy, subject)];
        assert!(store.decide(Call::acquire(&charge)).await?.is_allowed());
    }
    Ok(())
}

#[tokio::test]
async fn all_nodes_are_trusted_by_the_root_that_is_given_and_only_by_it() {
    let certificates = Certificates::new();
    let cluster = Cluster::builder().node(certificates.server()).start().await.unwrap();
    let store = patient(&cluster).root_certificates(certificates.root()).build().unwrap();
    acquire_on_all(&store).await.unwrap();
    let untrusting = patient(&cluster).root_certificates(Certificates::new().root());
    for store in [patient(&cluster), untrusting] {
        let error = acquire_on_all(&store.build().unwrap()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
    }
}

#[tokio::test]
async fn a_user_needs_no_more_than_the_commands_that_are_named() {
    let rules = "~tidegate:* +evalsha +eval +time +get +mget +set +psetex +getrange +setrange +exists \
                 +pttl +pexpire +unlink +llen +lindex +lset +ltrim +rpush +cluster +asking +wait";
    let node = Redis::builder().user("limiter", "secret", rules);
    let cluster = Cluster::builder().node(node).start().await.unwrap();
    let with = |password: &str| patient(&cluster).user("limiter", password).build().unwrap();
    acquire_on_all(&with("secret")).await.unwrap();
    let error = acquire_on_all(&with("guess")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
}

#[tokio::test]
async fn a_provider_is_called_at_each_login_on_each_node() {
    let node = Redis::builder().user("limiter", "one", "~* +@all");
    let cluster = Cluster::builder().node(node).start().await.unwrap();
    let password = Arc::new(Mutex::new("one"));
    let provider = {
        let password = Arc::clone(&password);
        move || ready(Ok(Credentials::new("limiter", *password.lock().unwrap())))
    };
    let store = patient(&cluster).credentials(provider).build().unwrap();
    acquire_on_all(&store).await.unwrap();
    for node in cluster.nodes() {
        node.command(&["ACL", "SETUSER", "limiter", "resetpass", ">two"]).await.unwrap();
        node.command(&["CLIENT", "KILL", "USER", "limiter"]).await.unwrap();
    }
    acquire_on_all(&store).await.unwrap_err();
    *password.lock().unwrap() = "two";
    let decided = async || acquire_on_all(&store).await.ok();
    eventually(Duration::from_secs(20), "a login on all nodes", decided).await.unwrap();
}

#[test]
fn the_time_of_each_round_trip_is_taken_by_the_script() {
    let recorder = Recorder::new();
    metrics::with_local_recorder(&recorder, || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let store = patient(crate::common::cluster().await).prefix("metrics").build().unwrap();
            let limiter = Limiter::new(store, [policy("a: token-bucket 5/1m")]).unwrap();
            for _ in 0..3 {
                assert!(limiter.acquire("alice").await.unwrap().is_allowed());
            }
        });
    });
    let series = format!("{}{{script=\"token_bucket\"}}", names::SCRIPT_SECONDS.name);
    // Each of the three calls needs one round trip. If the node does not have the script yet, the
    // first call needs two.
    assert!((3..=4).contains(&recorder.times(&series).unwrap()));
}
