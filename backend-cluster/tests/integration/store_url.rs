//! Tests that the form of a URL selects the kind of store, on real servers of each kind.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of a test that fails panics, as the test does"
)]

use std::time::Duration;

use crate::common::{cluster, fresh_prefix};
use tidegate_cluster::{ErrorKind, Limiter, Store, StoreBuilder};
use tidegate_test_servers::{Redis, Sentinel};

/// Returns a builder with long timeouts, because the machine is possibly slow and these tests do
/// not depend on timeouts.
fn builder(url: &str) -> StoreBuilder {
    let patience = Duration::from_secs(10);
    let builder = StoreBuilder::from_url(url).unwrap().prefix(fresh_prefix());
    builder.connect_timeout(patience).response_timeout(patience)
}

async fn check_decides(builder: StoreBuilder) {
    let store = builder.build().unwrap();
    store.ready().await.unwrap();
    let limiter = Limiter::new(store, ["p: fixed-window 1/1h".parse().unwrap()]).unwrap();
    assert!(limiter.acquire("s").await.unwrap().is_allowed());
    assert!(limiter.acquire("s").await.unwrap().is_denied());
}

#[tokio::test]
async fn a_url_can_name_a_server_or_its_socket() {
    let redis = Redis::builder().password("sesame").start().await.unwrap();
    let without = format!("redis://127.0.0.1:{}/3", redis.port());
    let socket = format!("unix://{}?db=2", redis.socket_path().display());
    for url in [&without, &socket] {
        check_decides(builder(url).password_if_none("sesame")).await;
        let error = builder(url).build().unwrap().ready().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:#}");
    }
    check_decides(builder(&redis.url()).password_if_none("guess")).await;
    let keys = redis.command(&["INFO", "keyspace"]).await.unwrap().text();
    assert!(["db0:", "db2:", "db3:"].iter().all(|database| keys.contains(database)), "{keys}");
}

#[tokio::test]
async fn a_url_can_name_a_sentinel_group() {
    let group = Sentinel::start().await.unwrap();
    let hosts: Vec<_> =
        group.sentinel_urls().iter().map(|url| url.replace("redis://", "")).collect();
    let url = format!("redis-sentinel://{}/1#{}", hosts.join(","), group.master_name());
    check_decides(builder(&url)).await;
    let primary = group.primary().await.unwrap();
    let keys = primary.command(&["INFO", "keyspace"]).await.unwrap().text();
    assert!(keys.contains("db1:keys=1"), "{keys}");
}

#[tokio::test]
async fn a_url_can_name_a_cluster() {
    let hosts: Vec<_> =
        cluster().await.urls().iter().map(|url| url.replace("redis://", "")).collect();
    check_decides(builder(&format!("redis-cluster://{}", hosts.join(",")))).await;
}
