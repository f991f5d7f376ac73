//! Tests of the type `Cluster`, a Redis Cluster: its start, failovers, moves of slots, and nodes
//! that are added and removed.
#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "helper functions of tests fail by panicking, like tests")]

use std::time::{Duration, Instant};

use tidegate_test_servers::{Client, Cluster, Data, Redis, Reply, eventually};

const SOON: Duration = Duration::from_secs(20);

/// Runs a command on each node of a cluster. Returns the replies as text.
async fn all(cluster: &Cluster, command: &[&str]) -> Vec<String> {
    let mut replies = vec![];
    for node in cluster.nodes() {
        replies.push(node.client().await.unwrap().call(command).await.unwrap().text());
    }
    replies
}

/// Returns a key whose slot belongs to `node`. Call this function only before the first slot is
/// moved, because it looks only at the first range of slots.
async fn key_on(cluster: &Cluster, node: usize) -> String {
    let slots = cluster.slots_of(node).await.unwrap();
    let is_there = |key: &String| slots[0].contains(&Cluster::slot_of(key.as_bytes()));
    (0..).map(|number| format!("key{number}")).find(is_there).unwrap()
}

/// Returns `Some` if `node` considers a primary dead.
async fn a_primary_failed(cluster: &Cluster, node: usize) -> Option<()> {
    let nodes = cluster.node(node).command(&["CLUSTER", "NODES"]).await.unwrap().text();
    nodes.lines().any(|line| line.contains(" master,fail ")).then_some(())
}

#[tokio::test]
async fn a_cluster_serves_as_soon_as_it_has_started() {
    let start = Instant::now();
    let cluster = Cluster::start().await.unwrap();
    println!("3 primaries in {:?}", start.elapsed());
    assert_eq!(cluster.urls().len(), 3);
    let mut shares = vec![];
    for number in 0..3 {
        shares.extend(cluster.slots_of(number).await.unwrap());
        let key = key_on(&cluster, number).await;
        // The client connects over TCP, like the clients of a real program.
        let mut client = Client::connect(cluster.node(number).port()).await.unwrap();
        assert_eq!(client.call(&["SET", &key, "value"]).await.unwrap().text(), "OK");
        let slot = Cluster::slot_of(key.as_bytes());
        assert_eq!(cluster.primary_of_slot(slot).await.unwrap(), number);
        let other = cluster.node((number + 1) % 3).command(&["GET", &key]).await.unwrap_err();
        let moved = format!("MOVED {slot} 127.0.0.1:{}", cluster.node(number).port());
        assert!(other.to_string().ends_with(&moved), "{other}");
    }
    assert_eq!(shares, [0..=5460, 5461..=10_921, 10_922..=16_383]);
}

#[tokio::test]
async fn the_settings_of_the_start_are_replaced() {
    let cluster = Cluster::builder().replicas(1).start().await.unwrap();
    for (node, nodes) in cluster.nodes().iter().zip(all(&cluster, &["CLUSTER", "NODES"]).await) {
        assert_eq!(nodes.trim().lines().count(), 6, "{nodes}");
        let timeout = node.command(&["CONFIG", "GET", "cluster-node-timeout"]).await.unwrap();
        assert_eq!(timeout.list()[1].text(), "1000");
    }
    let epochs: std::collections::BTreeSet<_> = all(&cluster, &["CLUSTER", "INFO"])
        .await
        .iter()
        .map(|info| {
            let epoch = info.lines().find(|line| line.starts_with("cluster_my_epoch:"));
            epoch.unwrap().to_owned()
        })
        .collect();
    assert_eq!(epochs.len(), 3, "each primary has its own epoch: {epochs:?}");
}

#[tokio::test]
async fn a_replica_receives_writes_immediately() {
    let start = Instant::now();
    let cluster = Cluster::builder().replicas(1).start().await.unwrap();
    println!("3 primaries and 3 replicas in {:?}", start.elapsed());
    for primary in 0..3 {
        assert_eq!(cluster.replicas_of(primary).await, [primary + 3]);
        let key = key_on(&cluster, primary).await;
        let mut client = cluster.node(primary).client().await.unwrap();
        client.call(&["SET", &key, "value"]).await.unwrap();
        assert_eq!(client.call(&["WAIT", "1", "500"]).await.unwrap().text(), "1");
        assert_eq!(cluster.slots_of(primary + 3).await.unwrap(), []);
    }
}

#[tokio::test]
async fn a_cluster_may_have_one_primary_or_many() {
    for (primaries, replicas) in [(1, 2), (5, 0)] {
        let builder = Cluster::builder().primaries(primaries).replicas(replicas);
        let cluster = builder.start().await.unwrap();
        assert_eq!(cluster.nodes().len(), usize::from(primaries * (1 + replicas)));
        assert_eq!(cluster.replicas_of(0).await.len(), usize::from(replicas));
    }
}

#[tokio::test]
async fn settings_hold_also_after_a_restart() {
    let builder = Cluster::builder().config("cluster-node-timeout", "700");
    let cluster = builder.config("cluster-require-full-coverage", "yes").start().await.unwrap();
    for _ in 0..2 {
        for (name, value) in [("node-timeout", "700"), ("require-full-coverage", "yes")] {
            let reply = ["CONFIG", "GET", &format!("cluster-{name}")];
            let reply = cluster.node(1).command(&reply).await.unwrap();
            assert_eq!(reply.list()[1].text(), value);
        }
        cluster.node(1).restart(Data::Lost).await.unwrap();
        cluster.wait_until_ok().await.unwrap();
    }
}

#[tokio::test]
async fn slots_are_computed_as_by_the_servers() {
    let cluster = Cluster::builder().primaries(1).start().await.unwrap();
    let mut client = cluster.node(0).client().await.unwrap();
    let keys =
        ["", "a", "123456789", "{user}.x", "x{user}y{z}", "{}a", "a{", "}{", "a}{b}", "ключ"];
    for key in keys {
        let slot = client.call(&["CLUSTER", "KEYSLOT", key]).await.unwrap();
        assert_eq!(slot, Reply::Integer(Cluster::slot_of(key.as_bytes()).into()), "{key:?}");
    }
    assert_eq!(Cluster::slot_of(b"{user}.x"), Cluster::slot_of(b"user"));
}

#[tokio::test]
async fn a_failover_loses_nothing_and_can_be_reversed() {
    let cluster = Cluster::builder().replicas(1).start().await.unwrap();
    let key = key_on(&cluster, 0).await;
    cluster.node(0).command(&["SET", &key, "value"]).await.unwrap();
    assert_eq!(cluster.fail_over(0).await.unwrap(), 3);
    assert_eq!(cluster.replicas_of(3).await, [0]);
    let slot = Cluster::slot_of(key.as_bytes());
    assert_eq!(cluster.primary_of_slot(slot).await.unwrap(), 3);
    assert_eq!(cluster.node(3).command(&["GET", &key]).await.unwrap().text(), "value");
    assert_eq!(cluster.fail_over(3).await.unwrap(), 0);
    cluster.wait_until_ok().await.unwrap();
    let refused = cluster.fail_over(3).await.unwrap_err();
    assert_eq!(refused.to_string(), "node 3 has no slots");
}

#[tokio::test]
async fn a_dead_primary_is_replaced_and_returns_as_a_replica() {
    let cluster = Cluster::builder().replicas(1).start().await.unwrap();
    let slot = cluster.slots_of(1).await.unwrap()[0].start().to_owned();
    let start = Instant::now();
    cluster.node(1).kill().await.unwrap();
    assert_eq!(cluster.primary_after(1, slot).await.unwrap(), 4);
    println!("replaced after {:?}", start.elapsed());
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    cluster.wait_until_ok().await.unwrap();
    cluster.node(1).restart(Data::Lost).await.unwrap();
    cluster.wait_until_ok().await.unwrap();
    assert_eq!(cluster.replicas_of(4).await, [1]);
}

#[tokio::test]
async fn without_a_replica_only_the_slots_of_a_dead_primary_are_out_of_reach() {
    let cluster = Cluster::start().await.unwrap();
    let (lost, kept) = (key_on(&cluster, 0).await, key_on(&cluster, 2).await);
    cluster.node(0).kill().await.unwrap();
    eventually(SOON, "the other nodes to notice the failure", async || {
        a_primary_failed(&cluster, 2).await
    })
    .await
    .unwrap();
    let slot = Cluster::slot_of(lost.as_bytes());
    assert_eq!(
        cluster.primary_of_slot(slot).await.unwrap(),
        0,
        "the dead primary still owns the slot"
    );
    let moved = cluster.node(2).command(&["GET", &lost]).await.unwrap_err().to_string();
    assert!(moved.ends_with(&format!("MOVED {slot} 127.0.0.1:{}", cluster.node(0).port())));
    cluster.node(2).command(&["SET", &kept, "value"]).await.unwrap();
    cluster.node(0).restart(Data::Lost).await.unwrap();
    cluster.wait_until_ok().await.unwrap();
    cluster.node(0).command(&["SET", &lost, "value"]).await.unwrap();
}

#[tokio::test]
async fn a_cluster_that_must_be_whole_is_down_without_one_primary() {
    let builder = Cluster::builder().config("cluster-require-full-coverage", "yes");
    let cluster = builder.start().await.unwrap();
    let key = key_on(&cluster, 2).await;
    cluster.node(0).kill().await.unwrap();
    let is_down = async || {
        let refused = cluster.node(2).command(&["GET", &key]).await.err()?;
        refused.to_string().contains("CLUSTERDOWN").then_some(())
    };
    eventually(SOON, "CLUSTERDOWN", is_down).await.unwrap();
    cluster.node(0).restart(Data::Lost).await.unwrap();
    cluster.wait_until_ok().await.unwrap();
    cluster.node(2).command(&["GET", &key]).await.unwrap();
}

#[tokio::test]
async fn a_paused_node_counts_as_dead_until_it_is_resumed() {
    let cluster = Cluster::start().await.unwrap();
    cluster.node(2).pause().await.unwrap();
    eventually(SOON, "the other nodes to notice the failure", async || {
        a_primary_failed(&cluster, 0).await
    })
    .await
    .unwrap();
    // `primary_of_slot` does not query the paused node, because this query would take ten seconds.
    assert_eq!(cluster.primary_of_slot(16_383).await.unwrap(), 2);
    cluster.node(2).resume().await.unwrap();
    cluster.wait_until_ok().await.unwrap();
}

#[tokio::test]
async fn a_slot_moves_with_its_keys() {
    let cluster = Cluster::start().await.unwrap();
    let slot = Cluster::slot_of(b"tag");
    let from = cluster.primary_of_slot(slot).await.unwrap();
    let to = (from + 1) % 3;
    let mut client = cluster.node(from).client().await.unwrap();
    for number in 0..250 {
        client.call(&["SET", &format!("{{tag}}{number}"), "value"]).await.unwrap();
    }
    cluster.move_slot(slot, to).await.unwrap();
    assert_eq!(cluster.primary_of_slot(slot).await.unwrap(), to);
    let count = ["CLUSTER", "COUNTKEYSINSLOT", &slot.to_string()];
    assert_eq!(cluster.node(to).command(&count).await.unwrap(), Reply::Integer(250));
    assert_eq!(cluster.node(from).command(&count).await.unwrap(), Reply::Integer(0));
    cluster.wait_until_ok().await.unwrap();
    cluster.move_slot(slot, from).await.unwrap();
    assert_eq!(client.call(&["GET", "{tag}7"]).await.unwrap().text(), "value");
    assert!(cluster.move_slot(slot, from).await.is_err(), "the slot is on this node already");
}

#[tokio::test]
async fn a_test_can_stay_in_the_middle_of_a_move() {
    let cluster = Cluster::start().await.unwrap();
    let slot = Cluster::slot_of(b"tag");
    let from = cluster.primary_of_slot(slot).await.unwrap();
    let to = (from + 2) % 3;
    let mut client = cluster.node(from).client().await.unwrap();
    client.call(&["MSET", "{tag}a", "1", "{tag}b", "2"]).await.unwrap();

    cluster.begin_moving_slot(slot, to).await.unwrap();
    assert_eq!(client.call(&["GET", "{tag}a"]).await.unwrap().text(), "1");
    assert_eq!(cluster.move_keys(slot, to, 1).await.unwrap(), 1);
    let ask = client.call(&["GET", "{tag}new"]).await.unwrap().text();
    assert_eq!(ask, format!("ASK {slot} 127.0.0.1:{}", cluster.node(to).port()));
    let mut there = cluster.node(to).client().await.unwrap();
    // One of the keys `{tag}a` and `{tag}b` was moved, so the old and the new node have one key
    // each.
    assert_eq!(there.call(&["ASKING"]).await.unwrap().text(), "OK");
    let both = there.call(&["MGET", "{tag}a", "{tag}b"]).await.unwrap().text();
    assert!(both.starts_with("TRYAGAIN"), "{both}");
    assert_eq!(there.call(&["ASKING"]).await.unwrap().text(), "OK");
    assert_eq!(there.call(&["SET", "{tag}new", "3"]).await.unwrap().text(), "OK");
    assert_eq!(cluster.primary_of_slot(slot).await.unwrap(), from);

    cluster.finish_moving_slot(slot, to).await.unwrap();
    let texts = there.call(&["MGET", "{tag}a", "{tag}b", "{tag}new"]).await.unwrap();
    assert_eq!(texts.list().iter().map(Reply::text).collect::<Vec<_>>(), ["1", "2", "3"]);
    let moved = client.call(&["GET", "{tag}a"]).await.unwrap().text();
    assert_eq!(moved, format!("MOVED {slot} 127.0.0.1:{}", cluster.node(to).port()));
}

#[tokio::test]
async fn a_move_can_be_stopped() {
    let cluster = Cluster::start().await.unwrap();
    let slot = Cluster::slot_of(b"tag");
    let from = cluster.primary_of_slot(slot).await.unwrap();
    let to = (from + 1) % 3;
    cluster.begin_moving_slot(slot, to).await.unwrap();
    cluster.stop_moving_slot(slot, to).await.unwrap();
    cluster.node(from).command(&["SET", "{tag}new", "1"]).await.unwrap();
}

#[tokio::test]
async fn a_node_joins_receives_a_slot_returns_it_and_leaves() {
    let mut cluster = Cluster::start().await.unwrap();
    let slot = Cluster::slot_of(b"tag");
    let from = cluster.primary_of_slot(slot).await.unwrap();
    cluster.node(from).command(&["SET", "{tag}a", "1"]).await.unwrap();
    let start = Instant::now();
    let new = cluster.add_node().await.unwrap();
    println!("joined after {:?}", start.elapsed());
    assert_eq!(new, 3);
    assert_eq!(cluster.slots_of(new).await.unwrap(), []);
    cluster.move_slot(slot, new).await.unwrap();
    assert_eq!(cluster.slots_of(new).await.unwrap(), [slot..=slot]);
    assert_eq!(cluster.node(new).command(&["GET", "{tag}a"]).await.unwrap().text(), "1");
    for nodes in all(&cluster, &["CLUSTER", "NODES"]).await {
        assert_eq!(nodes.trim().lines().count(), 4, "{nodes}");
    }
    let refused = cluster.remove_node(new).await.unwrap_err();
    assert_eq!(refused.to_string(), "node 3 still has slots");
    cluster.move_slot(slot, from).await.unwrap();
    cluster.remove_node(new).await.unwrap();
    cluster.wait_until_ok().await.unwrap();
    let nodes = cluster.node(0).command(&["CLUSTER", "NODES"]).await.unwrap().text();
    assert_eq!(nodes.trim().lines().count(), 3, "{nodes}");
}

#[tokio::test]
async fn a_node_that_joined_can_be_joined_again_and_survives_a_restart() {
    let mut cluster = Cluster::builder().primaries(1).start().await.unwrap();
    assert_eq!((cluster.add_node().await.unwrap(), cluster.add_node().await.unwrap()), (1, 2));
    cluster.node(2).restart(Data::Lost).await.unwrap();
    cluster.wait_until_ok().await.unwrap();
}

#[tokio::test]
async fn nodes_with_a_password_join_and_fail_over() {
    let node = Redis::builder().password("secret");
    let mut cluster = Cluster::builder().node(node).replicas(1).start().await.unwrap();
    assert!(cluster.urls()[0].starts_with("redis://:secret@127.0.0.1:"));
    let slot = Cluster::slot_of(b"tag");
    let from = cluster.primary_of_slot(slot).await.unwrap();
    cluster.node(from).command(&["SET", "{tag}a", "1"]).await.unwrap();
    let new = cluster.add_node().await.unwrap();
    cluster.move_slot(slot, new).await.unwrap();
    assert_eq!(cluster.node(new).command(&["GET", "{tag}a"]).await.unwrap().text(), "1");
    // Redis 6.0 fails over only after a key was written.
    let key = key_on(&cluster, 0).await;
    cluster.node(0).command(&["SET", &key, "1"]).await.unwrap();
    assert_eq!(cluster.fail_over(0).await.unwrap(), 3);
}

/// Creates a root certificate, and a certificate for 127.0.0.1 that the root has signed.
fn certificates() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("names"), "subjectAltName=IP:127.0.0.1\n").unwrap();
    let new_key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    for arguments in [
        format!("req -x509 {new_key} -days 2 -subj /CN=root -keyout root.key -out root"),
        format!("req {new_key} -subj /CN=node -keyout key -out request"),
        "x509 -req -in request -CA root -CAkey root.key -CAcreateserial -days 2 -extfile names -out cert"
            .to_owned(),
    ] {
        let mut openssl = std::process::Command::new("openssl");
        let run = openssl.args(arguments.split(' ')).current_dir(&dir).output().unwrap();
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    }
    dir
}

#[tokio::test]
async fn nodes_with_tls_join_and_receive_slots() {
    let files = certificates();
    let path = |name| files.path().join(name);
    let node = Redis::builder().tls(path("cert"), path("key"), path("root"));
    let mut cluster = Cluster::builder().node(node).replicas(1).start().await.unwrap();
    assert!(cluster.urls()[0].starts_with("rediss://127.0.0.1:"));
    let slots = cluster.node(0).command(&["CLUSTER", "SLOTS"]).await.unwrap();
    let slot = Cluster::slot_of(b"tag");
    let from = cluster.primary_of_slot(slot).await.unwrap();
    cluster.node(from).command(&["SET", "{tag}a", "1"]).await.unwrap();
    let new = cluster.add_node().await.unwrap();
    cluster.move_slot(slot, new).await.unwrap();
    assert_eq!(cluster.node(new).command(&["GET", "{tag}a"]).await.unwrap().text(), "1");
    let ports: Vec<String> =
        slots.list().iter().map(|range| range.list()[2].list()[1].text()).collect();
    let expected: Vec<String> = (0..3).map(|node| cluster.node(node).port().to_string()).collect();
    assert_eq!(ports, expected, "clients are redirected to the TLS ports");
}

#[tokio::test]
async fn clusters_of_one_test_are_independent() {
    let starts: Vec<_> = (0..2).map(|_| tokio::spawn(Cluster::start())).collect();
    for start in starts {
        let cluster = start.await.unwrap().unwrap();
        for nodes in all(&cluster, &["CLUSTER", "NODES"]).await {
            assert_eq!(nodes.trim().lines().count(), 3, "{nodes}");
        }
    }
}

#[tokio::test]
async fn a_dropped_cluster_leaves_nothing_behind() {
    let cluster = Cluster::start().await.unwrap();
    let sockets: Vec<_> = cluster.nodes().iter().map(Redis::socket_path).collect();
    let ports: Vec<u16> = cluster.nodes().iter().map(Redis::port).collect();
    drop(cluster);
    assert!(sockets.iter().all(|socket| !socket.parent().unwrap().exists()));
    for port in ports {
        std::net::TcpListener::bind(("127.0.0.1", port)).unwrap();
    }
}

#[tokio::test]
async fn a_node_that_refuses_to_start_shows_why() {
    let error = Cluster::builder().config("no-such-setting", "1").start().await.unwrap_err();
    assert!(error.to_string().contains("no-such-setting"), "{error}");
}
