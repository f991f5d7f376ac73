//! Tests of usual batches on a real cluster. The script for usual batches cannot decide calls on
//! some states, so the general script decides these calls.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of a test that fails panics, as the test does"
)]

use std::time::Duration;

use tidegate_cluster::{Call, CallId, Charge, ErrorKind, Operation, Store};
use tidegate_redis::protocol::{Keys, Request, probable_time};
use tidegate_test_servers::Cluster;

use crate::common::{cluster, fresh_prefix, patient, policy};

#[tokio::test]
async fn unusual_values_are_decided_by_the_general_script_and_calls_of_a_key_stay_in_order() {
    let cluster = cluster().await;
    let prefix = fresh_prefix();
    let store = patient(cluster).prefix(&prefix).build().unwrap();
    let bucket = policy("p: token-bucket 2/10d burst 2");
    let lapsing = policy("p: token-bucket 2/10d burst 2 refund-lapsed");
    let charge = |subject| Charge::new(&bucket, subject).tenant("acme");
    let key = String::from_utf8(Keys::new(&prefix).key(&charge("foreign"))).unwrap();
    let node = cluster.primary_of_slot(Cluster::slot_of(b"acme")).await.unwrap();
    cluster.nodes()[node].command(&["SET", &key, "x"]).await.unwrap();
    let block = Operation::Block { span: Duration::from_secs(3_600) };
    let _ = store.decide(Call::new(block, &[charge("blocked")])).await.unwrap();
    let held = [Charge::new(&lapsing, "held").tenant("acme")];
    let id = CallId::new("hold", Duration::from_secs(3_600));
    let hold = Call::new(Operation::Hold, &held).with_id(id);
    assert!(store.decide(hold).await.unwrap().is_allowed());

    let subjects =
        ["new", "foreign", "held", "blocked", "new", "held", "new", "blocked", "foreign", "held"];
    let charges = subjects.map(|subject| [charge(subject)]);
    let calls: Vec<_> = charges.iter().map(|charges| Call::acquire(charges)).collect();
    assert!(Request::usual_batch(&Keys::new("any"), &calls, probable_time()).is_some());
    let shown: Vec<_> = store
        .decide_many(&calls)
        .await
        .iter()
        .map(|answer| match answer {
            Ok(decision) if decision.is_allowed() => "allowed",
            Ok(decision) if decision.verdicts()[0].blocked_for().is_zero() => "denied",
            Ok(_) => "blocked",
            Err(error) if error.kind() == ErrorKind::ForeignValue => "foreign",
            Err(error) => panic!("{error}"),
        })
        .collect();
    assert_eq!(
        shown,
        [
            "allowed", "foreign", "allowed", "blocked", "allowed", "denied", "denied", "blocked",
            "foreign", "denied",
        ]
    );
}
