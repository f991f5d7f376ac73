//! Compares replays of real traffic with independently computed results: all numbers, and a hash of
//! all decisions.
//!
//! The traffic is not part of the repository, so `cargo test` does not run this test. `.ci/traces`
//! runs it where the traffic is available: `TIDEGATE_TRACES=… cargo test -p tidegate --test
//! real_traces`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::path::{Path, PathBuf};

use serde_json::Value;
use sha2::{Digest, Sha256};
use tidegate::replay::{Backend, PolicyRun, Replay};
use tidegate::report::PolicyReport;
use tidegate::trace::{By, Cost, Input, Options, Order, replay_in_order};
use tidegate_core::Policy;
use tidegate_test_servers::{Cluster, Redis, Reply};

fn traces() -> PathBuf {
    std::env::var_os("TIDEGATE_TRACES").expect("TIDEGATE_TRACES names the folder").into()
}

fn expected() -> Value {
    let text = std::fs::read(traces().join("expected.json")).expect("expected.json is there");
    serde_json::from_slice(&text).expect("expected.json is JSON")
}

/// Returns the policy of a run in `expected.json`.
fn policy(run: &Value) -> Policy {
    let number = |name: &str| run["numbers"][name].as_u64().expect("a number");
    let window = format!("{}/{}s", number("limit"), number("window_s"));
    let rate = format!("{}/{}s burst {}", number("refill"), number("per_s"), number("capacity"));
    let text = match run["algorithm"].as_str().expect("an algorithm") {
        "fixed" => format!("fixed-window {window}"),
        "log" => format!("sliding-log {window}"),
        "counter" => format!("sliding-counter {window}"),
        "bucket" => format!("token-bucket {rate}"),
        "gcra" => format!("gcra {rate}"),
        other => panic!("no such algorithm: {other}"),
    };
    text.parse().expect("a policy")
}

fn cost(run: &Value) -> Cost {
    match run["cost"].as_str() {
        Some("tokens") => "ContextTokens+GeneratedTokens".parse().expect("a cost"),
        _ => Cost::One,
    }
}

/// The result of one policy.
struct Outcome {
    report: PolicyReport,
    requests: u64,
    malformed: u64,
    subjects: u64,
    hash: String,
}

/// Replays a file against several policies.
fn replay(
    file: &Path,
    policies: &[Policy],
    cost: Cost,
    order: Order,
    backend: &Backend,
) -> Vec<Outcome> {
    let mut replay = Replay::new(policies, backend.clone(), None, true, |_| {}).unwrap();
    // The trace of a language model has no field for the subject.
    let is_model = file.to_string_lossy().contains("LLM");
    let by = if is_model { By::All } else { By::Auto };
    let options = Options { by, cost, ..Options::default() };
    let inputs = vec![Input::from_arg(file)];
    let summary = replay_in_order(inputs, &options, order, &mut replay).unwrap();
    replay.clean_up().unwrap();
    let reports = replay.policies(&summary).into_iter();
    let outcome = |(report, run): (PolicyReport, &mut PolicyRun)| {
        let mut decisions = Vec::new();
        run.decisions().unwrap().write_to(&mut decisions).unwrap();
        let hash = Sha256::digest(&decisions).iter().map(|byte| format!("{byte:02x}")).collect();
        Outcome {
            report,
            requests: summary.records,
            malformed: summary.malformed,
            subjects: summary.subjects.len() as u64,
            hash,
        }
    };
    reports.zip(replay.runs_mut()).map(outcome).collect()
}

#[test]
fn every_decision_on_real_traffic_is_the_expected_one() {
    check(&Backend::Memory);
}

#[tokio::test]
async fn every_decision_on_real_traffic_is_the_expected_one_on_redis() {
    let server = Redis::start().await.unwrap();
    let backend: Backend = server.url().parse().unwrap();
    // A `Replay` has its own runtime, which cannot run within the runtime of this test.
    tokio::task::spawn_blocking(move || check(&backend)).await.unwrap();
    assert_eq!(server.command(&["DBSIZE"]).await.unwrap(), Reply::Integer(0), "nothing is left");
}

#[tokio::test]
async fn every_decision_on_real_traffic_is_the_expected_one_on_a_cluster() {
    let cluster = Cluster::start().await.unwrap();
    let nodes = cluster.nodes().iter().map(|node| format!("127.0.0.1:{}", node.port()));
    let nodes: Vec<String> = nodes.collect();
    let backend: Backend = format!("redis-cluster://{}", nodes.join(",")).parse().unwrap();
    tokio::task::spawn_blocking(move || check(&backend)).await.unwrap();
    for node in cluster.nodes() {
        assert_eq!(node.command(&["DBSIZE"]).await.unwrap(), Reply::Integer(0), "nothing is left");
    }
}

/// Compares all runs in `expected.json`. The runs on different files are concurrent.
fn check(backend: &Backend) {
    let expected = expected();
    let files = expected.as_object().expect("files");
    let runs_seen: usize = std::thread::scope(|scope| {
        let mut threads = vec![];
        for (file, about) in files {
            threads.push(scope.spawn(move || check_file(file, about, backend)));
        }
        threads.into_iter().map(|thread| thread.join().expect("all as expected")).sum()
    });
    assert!(runs_seen >= 100, "only {runs_seen} runs");
}

/// Compares the runs on one file. Returns the number of runs.
fn check_file(file: &str, about: &Value, backend: &Backend) -> usize {
    let mut runs_seen = 0;
    for (order, runs) in about["runs"].as_object().expect("orders") {
        let order: Order = order.parse().expect("an order");
        let runs = runs.as_array().expect("runs");
        // Consecutive runs with the same cost are made in one replay.
        for runs in runs.chunk_by(|one, next| one["cost"] == next["cost"]) {
            let policies: Vec<Policy> = runs.iter().map(policy).collect();
            let found = replay(&traces().join(file), &policies, cost(&runs[0]), order, backend);
            assert_eq!(found.len(), runs.len());
            for ((run, policy), found) in runs.iter().zip(&policies).zip(&found) {
                let what = format!("{file}, {policy}, cost {}, order {order}", cost(run));
                compare(found, run, about, &what);
                runs_seen += 1;
            }
        }
    }
    runs_seen
}

fn compare(found: &Outcome, run: &Value, about: &Value, what: &str) {
    assert_eq!(found.requests, about["rows"], "{what}");
    assert_eq!(found.malformed, about["malformed"], "{what}");
    assert_eq!(found.subjects, about["subjects"], "{what}");
    assert_eq!(found.report.admitted, run["admitted"], "{what}");
    assert_eq!(found.report.denied, run["denied"], "{what}");
    assert_eq!(found.report.cost_admitted, run["cost_admitted"], "{what}");
    assert_eq!(found.report.cost_denied, run["cost_denied"], "{what}");
    assert_eq!(found.report.subjects_denied, run["subjects_denied"], "{what}");
    assert_eq!(found.hash, run["decisions_sha256"], "{what}");
    let worst = run["most_denied"].as_array().expect("a list");
    for (offender, worst) in found.report.offenders.iter().zip(worst) {
        assert_eq!(offender.denied, worst[1], "{what}");
    }
}
