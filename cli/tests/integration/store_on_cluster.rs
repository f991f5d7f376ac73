//! Tests that a replay whose states are on a Redis Cluster has the same result as a replay in
//! memory, and deletes its keys.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of a test that fails panics, as the test does"
)]

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Output, Stdio};

use tidegate_test_servers::{Cluster, Redis, Reply};

/// Runs the program with this input. The input is smaller than the buffer of the pipe, so the write
/// does not block.
fn run(store: &str, more: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["replay", "-", "--time-unit", "s", "--limit", "3/20s", "--store", store])
        .args(more)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Returns a URL that names all nodes of the cluster.
fn url(nodes: &[Redis]) -> String {
    let nodes: Vec<String> =
        nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
    format!("redis-cluster://{}", nodes.join(","))
}

/// Returns the number of keys of each node, and the number of its writes so far.
async fn keys_and_writes(cluster: &Cluster) -> Vec<(i64, u64)> {
    let mut all = vec![];
    for node in cluster.nodes() {
        let Reply::Integer(keys) = node.command(&["DBSIZE"]).await.unwrap() else { panic!() };
        let writes = node.info("total_writes_processed").await.unwrap();
        all.push((keys, writes.parse().unwrap()));
    }
    all
}

/// Returns requests of enough subjects that each node stores some of them.
fn lines() -> String {
    let mut lines = "time,ip\n".to_owned();
    for time in 0..40 {
        for subject in 0..time % 13 {
            writeln!(lines, "{time},10.0.0.{subject}").unwrap();
        }
    }
    lines
}

#[tokio::test]
async fn the_result_is_that_in_memory_and_nothing_is_left_on_any_node() {
    let cluster = Cluster::start().await.unwrap();
    // The URL names all nodes or only one node, because the store finds the other nodes through any
    // node.
    for url in [url(cluster.nodes()), url(&cluster.nodes()[1..2])] {
        for format in
            [&[][..], &["--json"], &["--pool", "fixed-window 9/1h"], &["--pool", "fair-pool 9/10s"]]
        {
            let [memory, there] = ["memory", &url].map(|store| run(store, format, &lines()));
            assert_eq!(there.status.code(), Some(0), "{}", stderr(&there));
            assert_eq!(stderr(&there), "");
            assert!(!there.stdout.is_empty());
            assert_eq!(memory.stdout, there.stdout);
        }
    }
    for (keys, writes) in keys_and_writes(&cluster).await {
        assert_eq!(keys, 0);
        assert!(writes > 0, "nothing was kept there");
    }
}

#[tokio::test]
async fn a_replay_that_fails_at_a_line_leaves_nothing() {
    let cluster = Cluster::start().await.unwrap();
    let failed = run(&url(cluster.nodes()), &["--strict"], &format!("{}never,a\n", lines()));
    assert_eq!(failed.status.code(), Some(1));
    assert!(stderr(&failed).contains("never"), "{}", stderr(&failed));
    assert!(failed.stdout.is_empty());
    for (keys, _) in keys_and_writes(&cluster).await {
        assert_eq!(keys, 0);
    }
}

#[tokio::test]
async fn a_server_that_is_no_cluster_is_told_as_such() {
    let server = Redis::start().await.unwrap();
    let failed = run(&url(std::slice::from_ref(&server)), &[], &lines());
    assert_eq!(failed.status.code(), Some(1));
    assert!(stderr(&failed).contains("cluster"), "{}", stderr(&failed));
}
