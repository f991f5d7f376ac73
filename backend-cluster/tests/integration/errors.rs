//! Tests of the error messages of a cluster, and of the check that a program makes when it starts.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of a test that fails panics, as the test does"
)]

use std::error::Error as StdError;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use tidegate_cluster::{Call, Charge, ClusterStore, Error, ErrorKind, Store};
use tidegate_test_servers::{Cluster, Redis, free_port};

use crate::common::{patient, policy};

async fn acquire(store: &ClusterStore, subject: &str) -> Result<bool, Error> {
    let policy = policy("p: gcra 500/1h");
    let charge = [Charge::new(&policy, subject)];
    store.decide(Call::acquire(&charge)).await.map(|decision| decision.is_allowed())
}

/// Checks the messages of an error and of its sources. No message contains another message, is
/// empty, or contains a password.
fn check_chain(error: &Error) {
    let chain: Vec<String> = std::iter::successors(Some(error as &dyn StdError), |&e| e.source())
        .map(ToString::to_string)
        .collect();
    println!("{}", chain.join("\n  because: "));
    for (index, text) in chain.iter().enumerate() {
        assert!(!text.is_empty() && !text.contains("S3CRET"), "{chain:?}");
        for (other_index, other) in chain.iter().enumerate() {
            assert!(index == other_index || !text.contains(other.as_str()), "{chain:?}");
        }
    }
    assert_eq!(format!("{error:#}"), chain.join(": "));
}

#[tokio::test]
async fn an_unreachable_cluster_is_an_error_that_names_a_node() {
    let ports = [free_port().unwrap(), free_port().unwrap()];
    let urls = ports.map(|port| format!("redis://user:S3CRET@127.0.0.1:{port}"));
    let store = ClusterStore::new(urls).unwrap();
    let mut errors = vec![acquire(&store, "s").await.unwrap_err()];
    errors.push(store.now().await.unwrap_err());
    errors.push(store.ready().await.unwrap_err());
    let policy = policy("p: gcra 500/1h");
    let charge = [Charge::new(&policy, "s")];
    let many = store.decide_many(&[Call::acquire(&charge), Call::acquire(&charge)]).await;
    errors.extend(many.into_iter().map(Result::unwrap_err));
    for error in errors {
        check_chain(&error);
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        let names_one = ports.iter().any(|port| error.to_string().contains(&port.to_string()));
        assert!(names_one && error.is_definitely_not_charged(), "{error}");
    }
}

#[test]
fn a_url_that_cannot_be_used_is_refused_with_the_url_and_the_forms() {
    for (url, shown) in [
        ("127.0.0.1:7000", "`127.0.0.1:7000`"),
        ("redis://:S3CRET@a:99999", "`redis://:***@a:99999`"),
        ("redis://:S3CRET@a/3", "`redis://:***@a/3`"),
        ("unix:///run/redis?pass=S3CRET", "`unix:///run/redis?pass=***`"),
    ] {
        let error = ClusterStore::new([url]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfig);
        check_chain(&error);
        assert!(error.to_string().contains(shown), "{error}");
    }
}

#[tokio::test]
async fn readiness_is_checked_on_all_primaries_and_stores_nothing() {
    let cluster = Cluster::start().await.unwrap();
    let store = patient(&cluster).build().unwrap();
    store.ready().await.unwrap();
    for number in 0..3 {
        let node = cluster.node(number);
        assert_eq!(node.command(&["DBSIZE"]).await.unwrap().text(), "0");
        assert_eq!(node.info("number_of_cached_scripts").await.unwrap(), "7");
    }
    let last = cluster.node(2);
    last.command(&["CONFIG", "SET", "maxmemory", "1"]).await.unwrap();
    let error = store.ready().await.unwrap_err();
    check_chain(&error);
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    assert!(error.to_string().contains(&format!("127.0.0.1:{}", last.port())), "{error}");
}

#[tokio::test]
async fn a_wrong_password_is_an_error_that_names_the_node_and_a_right_one_is_ready() {
    let rules = "~tidegate:* +evalsha +eval +time +get +mget +set +psetex +getrange +setrange +exists \
                 +pttl +pexpire +unlink +llen +lindex +lset +ltrim +rpush +cluster +asking";
    let node = Redis::builder().user("limiter", "secret", rules);
    let cluster = Cluster::builder().node(node).start().await.unwrap();
    patient(&cluster).user("limiter", "secret").build().unwrap().ready().await.unwrap();
    let wrong = patient(&cluster).user("limiter", "S3CRET").build().unwrap();
    for error in [wrong.ready().await.unwrap_err(), acquire(&wrong, "s").await.unwrap_err()] {
        check_chain(&error);
        assert_eq!(error.kind(), ErrorKind::Misconfigured);
        assert!(error.to_string().contains("Redis at 127.0.0.1:"), "{error}");
        assert!(error.is_definitely_not_charged());
    }
}

#[test]
fn a_call_outside_of_a_runtime_is_an_error_that_names_the_runtime() {
    let store = ClusterStore::new(["redis://127.0.0.1:1"]).unwrap();
    let policy = policy("p: fixed-window 5/1h");
    let charges = [Charge::new(&policy, "s"), Charge::new(&policy, "t")];
    let call = Call::acquire(&charges);
    let calls = [Call::acquire(&charges[..1])];
    let check = |error: Error| {
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains("within a Tokio runtime"), "{error}");
    };
    check(ready_output(store.decide(call)).unwrap_err());
    check(ready_output(store.decide(calls[0])).unwrap_err());
    check(ready_output(store.decide_many(&calls)).remove(0).unwrap_err());
    check(ready_output(store.now()).unwrap_err());
    check(ready_output(store.ready()).unwrap_err());
}

/// Returns the output of a future that is ready immediately.
fn ready_output<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("the future is pending"),
    }
}
