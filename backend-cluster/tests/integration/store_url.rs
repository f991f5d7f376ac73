//! One URL for a store of any kind, on real servers of each.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of a test that fails panics, as the test does"
)]

use std::time::Duration;

use crate::common::{cluster, fresh_prefix};
use tidegate_cluster::{ErrorKind, Limiter, Store, StoreBuilder};
use tidegate_testkit::servers::{Redis, Sentinel};

/// A store whose timeouts are not what is tried here, on a machine that may be slow.
fn at(url: &str) -> StoreBuilder {
    let patience = Duration::from_secs(10);
    let builder = StoreBuilder::from_url(url).unwrap().prefix(fresh_prefix());
    builder.connect_timeout(patience).response_timeout(patience)
}

async fn decides(builder: StoreBuilder) {
    let store = builder.build().unwrap();
    store.ready().await.unwrap();
    let limiter = Limiter::new(store, ["p: fixed-window 1/1h".parse().unwrap()]).unwrap();
    assert!(limiter.acquire("s").await.unwrap().is_allowed());
    assert!(limiter.acquire("s").await.unwrap().is_denied());
}

#[tokio::test]
async fn a_server_and_its_socket() {
    let redis = Redis::builder().password("sesame").start().await.unwrap();
    let without = format!("redis://127.0.0.1:{}/3", redis.port());
    let socket = format!("unix://{}?db=2", redis.socket_path().display());
    for url in [&without, &socket] {
        decides(at(url).password_if_none("sesame")).await;
        let error = at(url).build().unwrap().ready().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:#}");
    }
    decides(at(&redis.url()).password_if_none("guess")).await;
    let keys = redis.command(&["INFO", "keyspace"]).await.unwrap().text();
    assert!(["db0:", "db2:", "db3:"].iter().all(|database| keys.contains(database)), "{keys}");
}

#[tokio::test]
async fn a_sentinel_group() {
    let group = Sentinel::start().await.unwrap();
    let hosts: Vec<_> =
        group.sentinel_urls().iter().map(|url| url.replace("redis://", "")).collect();
    let url = format!("redis-sentinel://{}/1#{}", hosts.join(","), group.master_name());
    decides(at(&url)).await;
    let primary = group.primary().await.unwrap();
    let keys = primary.command(&["INFO", "keyspace"]).await.unwrap().text();
    assert!(keys.contains("db1:keys=1"), "{keys}");
}

#[tokio::test]
async fn a_cluster() {
    let hosts: Vec<_> =
        cluster().await.urls().iter().map(|url| url.replace("redis://", "")).collect();
    decides(at(&format!("redis-cluster://{}", hosts.join(",")))).await;
}
