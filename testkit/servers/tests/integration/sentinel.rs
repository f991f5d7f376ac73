//! Tests of the type `Sentinel`, a group of a primary, its replicas and three sentinels.
#![cfg(unix)]

use std::time::{Duration, Instant};

use tidegate_test_servers::{Data, Redis, Sentinel, eventually};

const SOON: Duration = Duration::from_secs(20);

#[tokio::test]
async fn a_group_is_ready_when_it_has_started() {
    let group = Sentinel::builder().master_name("orders").start().await.unwrap();
    assert_eq!(group.master_name(), "orders");
    assert_eq!(group.sentinel_urls().len(), 3);
    let primary = group.primary().await.unwrap();
    let mut client = primary.client().await.unwrap();
    client.call(&["SET", "key", "value"]).await.unwrap();
    assert_eq!(client.call(&["WAIT", "2", "5000"]).await.unwrap().text(), "2");
}

#[tokio::test]
async fn a_failover_makes_another_the_primary_and_the_old_one_a_replica() {
    let group = Sentinel::start().await.unwrap();
    let old = group.primary().await.unwrap();
    let mut client = old.client().await.unwrap();
    client.call(&["SET", "key", "value"]).await.unwrap();
    assert_eq!(client.call(&["WAIT", "2", "5000"]).await.unwrap().text(), "2");
    let start = Instant::now();
    let new = group.failover().await.unwrap();
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    assert_ne!(new, old.port());
    assert_eq!(group.primary_port().await.unwrap(), new);
    assert_eq!(old.info("role").await.unwrap(), "slave");
    let primary = group.primary().await.unwrap();
    assert_eq!(primary.command(&["GET", "key"]).await.unwrap().text(), "value");
    primary.command(&["SET", "key", "newer"]).await.unwrap();
}

#[tokio::test]
async fn a_dead_primary_is_replaced_and_returns_as_a_replica() {
    let group = Sentinel::start().await.unwrap();
    let start = Instant::now();
    let dead = group.kill_primary().await.unwrap();
    let new = group.primary_after(dead).await.unwrap();
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    assert_ne!(new, dead);
    let old = group.nodes().iter().find(|node| node.port() == dead).unwrap();
    old.restart(Data::Lost).await.unwrap();
    // A sentinel closes the connections of a server that it demotes. So the command possibly gets
    // no reply, and the test repeats it.
    let is_replica =
        async || old.info("role").await.is_ok_and(|role| role == "slave").then_some(());
    eventually(SOON, "the old primary to follow", is_replica).await.unwrap();
}

#[tokio::test]
async fn a_group_with_a_password_fails_over_too() {
    let node = Redis::builder().password("secret");
    let group = Sentinel::builder().node(node).replicas(1).start().await.unwrap();
    let old = group.primary_port().await.unwrap();
    assert_ne!(group.failover().await.unwrap(), old);
    assert_ne!(group.failover().await.unwrap(), group.nodes()[1].port());
}

#[tokio::test]
async fn a_dropped_group_leaves_nothing_behind() {
    let group = Sentinel::start().await.unwrap();
    let servers = || group.nodes().iter().chain(group.sentinels());
    let dirs: Vec<_> = servers().map(|server| server.socket_path()).collect();
    let ports: Vec<u16> = servers().map(Redis::port).collect();
    assert_eq!(dirs.len(), 6);
    drop(group);
    assert!(dirs.iter().all(|socket| !socket.parent().unwrap().exists()));
    for port in ports {
        std::net::TcpListener::bind(("127.0.0.1", port)).unwrap();
    }
}
