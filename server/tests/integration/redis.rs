//! Tests counts in a Redis, with Sentinels and in a cluster.

use std::sync::Arc;
use std::time::Duration;

use tidegate_memory::MemoryStore;
use tidegate_server::envoy::decide::{Behaviour, Decider};
use tidegate_server::envoy::service::Service;
use tidegate_server::store::{Auth, OnStoreError, StoreSettings, open};
use tidegate_test_servers::{Cluster, Redis, Reply, Sentinel};
use tokio::task::JoinSet;

use crate::scene::{decider, descriptor, hits, is_ok, is_over, refund, request};

const CONFIG: &str = "domain: d\ndescriptors:\n\
    - {key: a, rate_limit: {unit: year, requests_per_unit: 3}}\n\
    - {key: b, rate_limit: {unit: month, requests_per_unit: 9}}\n\
    - {key: p, policy: fixed-window 5/365d, refunds: true}\n\
    - {key: q, policy: gcra 2/365d burst 2}\n\
    - {key: u, policy: token-bucket 10/365d, charge_afterwards: true}\n";

fn settings() -> StoreSettings {
    StoreSettings { timeout: Duration::from_secs(5), ..StoreSettings::default() }
}

fn at(url: &str) -> Decider {
    decider(open(url, &settings()).unwrap(), CONFIG, Behaviour::default())
}

/// Checks that two servers with one store decide like one server.
async fn decides(url: &str) {
    let servers = [at(url), at(url)];
    let ask = async |index: usize, descriptors| {
        servers[index % 2].decide(&request("d", descriptors)).await.unwrap().response
    };
    let (a, b) = (&[("a", "{x}*|\u{0}")][..], &[("b", "é")][..]);
    for sent in 1..=5 {
        let response = ask(sent, vec![descriptor(a), descriptor(b)]).await;
        let count = u32::try_from(sent).unwrap();
        assert_eq!(response.statuses[0].limit_remaining, 3_u32.saturating_sub(count));
        assert_eq!(
            (is_ok(&response), response.statuses[1].limit_remaining),
            (sent <= 3, 9 - count)
        );
    }
    assert_eq!(ask(0, vec![refund(a, 4)]).await.statuses[0].limit_remaining, 2);
    assert_eq!(ask(1, vec![hits(a, 0)]).await.statuses[0].limit_remaining, 2);

    let (p, q, u) = (&[("p", "1")][..], &[("q", "2")][..], &[("u", "3")][..]);
    for sent in 1..=4 {
        let response = ask(sent, vec![descriptor(p), descriptor(q)]).await;
        assert_eq!(is_ok(&response), sent <= 2, "{response:?}");
    }
    // The policy `p` charged two hits and refused two. The first two refunds are for the refused
    // hits, and change nothing.
    for (server, remaining) in [(0, 3), (1, 3), (0, 4), (1, 5), (0, 5)] {
        let response = ask(server, vec![refund(p, 1)]).await;
        assert_eq!(response.statuses[0].limit_remaining, remaining);
    }
    assert!(is_ok(&ask(0, vec![hits(u, 25)]).await));
    assert!(is_over(&ask(1, vec![hits(u, 0)]).await.statuses[0]));
}

#[tokio::test]
async fn counts_are_shared_in_a_redis() {
    let redis = Redis::start().await.unwrap();
    decides(&redis.url()).await;
    // Redis has deleted the state of `p`, because all hits were refunded.
    let keys = redis.command(&["KEYS", "tidegate:*"]).await.unwrap();
    assert!(matches!(&keys, Reply::List(keys) if keys.len() == 4), "{keys:?}");
}

#[tokio::test]
async fn the_password_of_the_settings_is_used_unless_the_url_has_one() {
    let redis = Redis::builder().password("p@s:s").start().await.unwrap();
    let port = redis.port();
    let socket = format!("unix://{}", redis.socket_path().display());
    let with_user = format!("redis://default@127.0.0.1:{port}");
    let is_ready = async |url: &str, password: &str| {
        let settings = StoreSettings { password: Auth(password.to_owned()), ..settings() };
        open(url, &settings).unwrap().ready().await.is_ok()
    };
    for url in [&*format!("redis://127.0.0.1:{port}/1"), &with_user, &socket] {
        assert!(is_ready(url, "p@s:s").await, "{url}");
        assert!(!is_ready(url, "").await, "{url}");
    }
    assert!(is_ready(&redis.url(), "guess").await);
    assert!(open("memory", &StoreSettings { password: Auth("p".into()), ..settings() }).is_ok());
}

#[tokio::test]
async fn concurrent_requests_share_batches() {
    const REQUESTS: u32 = 200;
    let redis = Redis::start().await.unwrap();
    let server = Arc::new(at(&redis.url()));
    // The first request loads the script, so that the count contains only the later calls.
    server.decide(&request("d", vec![descriptor(&[("b", "first")])])).await.unwrap();
    redis.command(&["CONFIG", "RESETSTAT"]).await.unwrap();
    let mut requests = JoinSet::new();
    for number in 0..REQUESTS {
        let server = Arc::clone(&server);
        requests.spawn(async move {
            let name = (number % 2).to_string();
            let descriptors = vec![descriptor(&[("a", "all")]), descriptor(&[("b", &name)])];
            server.decide(&request("d", descriptors)).await.unwrap().response
        });
    }
    let responses = requests.join_all().await;
    assert_eq!(responses.iter().filter(|response| is_ok(response)).count(), 3);
    let stats = redis.command(&["INFO", "commandstats"]).await.unwrap().text();
    let calls = stats.split("cmdstat_evalsha:calls=").nth(1).unwrap();
    let calls: u32 = calls.split(',').next().unwrap().parse().unwrap();
    assert!(calls <= REQUESTS / 20, "{calls} calls for {REQUESTS} requests");
}

#[tokio::test]
async fn counts_are_shared_behind_sentinels() {
    let group = Sentinel::start().await.unwrap();
    let hosts: Vec<String> =
        group.sentinel_urls().iter().map(|url| url.replace("redis://", "")).collect();
    decides(&format!("redis-sentinel://{}#{}", hosts.join(","), group.master_name())).await;
}

#[tokio::test]
async fn sentinels_get_a_login_of_their_own() {
    let group = Sentinel::start().await.unwrap();
    for sentinel in group.sentinels() {
        let watcher = ["ACL", "SETUSER", "watcher", "on", ">w4tcher", "~*", "&*", "+@all"];
        sentinel.command(&watcher).await.unwrap();
        sentinel.command(&["ACL", "SETUSER", "default", "resetpass", ">s3sam:e"]).await.unwrap();
    }
    let hosts: Vec<String> =
        group.sentinel_urls().iter().map(|url| url.replace("redis://", "")).collect();
    let url = format!("redis-sentinel://{}#{}", hosts.join(","), group.master_name());
    let asked = request("d", vec![descriptor(&[("b", "")])]);
    for (auth, is_right) in [
        (":s3sam:e", true),
        ("default:s3sam:e", true),
        ("watcher:w4tcher", true),
        ("", false),
        ("w4tcher", false),
        ("watcher:s3sam:e", false),
    ] {
        let settings = StoreSettings { sentinel_auth: Auth(auth.into()), ..settings() };
        assert!(!format!("{settings:?}").contains("w4tcher"));
        let decider = decider(open(&url, &settings).unwrap(), CONFIG, Behaviour::default());
        let decided = decider.decide(&asked).await;
        assert_eq!(decided.is_ok(), is_right, "{auth}");
    }
}

#[tokio::test]
async fn counts_are_shared_in_a_cluster() {
    let cluster = Cluster::start().await.unwrap();
    let hosts: Vec<String> = cluster.urls().iter().map(|url| url.replace("redis://", "")).collect();
    decides(&format!("redis-cluster://{}", hosts.join(","))).await;
}

#[tokio::test]
async fn a_store_that_is_down_is_answered_as_it_is_set() {
    let redis = Redis::start().await.unwrap();
    let asked = request("d", vec![descriptor(&[("a", "")]), descriptor(&[("p", "")])]);
    let services = [OnStoreError::Error, OnStoreError::Allow, OnStoreError::Deny]
        .map(|on_error| Arc::new(Service::new(at(&redis.url())).on_store_error(on_error)));
    for service in &services {
        assert!(is_ok(&service.should_rate_limit(&asked).await.unwrap()));
    }
    redis.kill().await.unwrap();
    let [error, allow, deny] = &services;
    let text = error.should_rate_limit(&asked).await.unwrap_err().to_string();
    assert!(text.starts_with("unavailable: ") || text.starts_with("timeout: "), "{text}");
    for (service, passes) in [(allow, true), (deny, false)] {
        let response = service.should_rate_limit(&asked).await.unwrap();
        assert_eq!(is_ok(&response), passes);
        assert_eq!(response.statuses.len(), 2);
    }
    let shares = Service::new(at(&redis.url()).with_fallback(Arc::new(MemoryStore::new())));
    let shares = shares.on_store_error(OnStoreError::Share("1/3".parse().unwrap()));
    let passes = async |descriptors| {
        is_ok(&shares.should_rate_limit(&request("d", descriptors)).await.unwrap())
    };
    // The server has a third of each limit, rounded down: 1 of 3, 3 of 9, 1 of 5, and 0 of 2.
    for (key, limit) in [("a", 1), ("b", 3), ("p", 1), ("q", 0)] {
        for sent in 1..=5 {
            assert_eq!(passes(vec![descriptor(&[(key, "share")])]).await, sent <= limit, "{key}");
        }
    }
    // An invalid request is an error, regardless of the setting for errors of the store.
    assert!(allow.should_rate_limit(&request("", vec![])).await.is_err());
}
