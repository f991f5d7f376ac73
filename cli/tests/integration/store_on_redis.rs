//! Tests that a replay whose states are on a Redis has the same result as a replay in memory, and
//! deletes its keys.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of a test that fails panics, as the test does"
)]

use std::io::Write;
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::time::Duration;

use tidegate_test_servers::{Redis, Reply, eventually};

fn start(arguments: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Runs the program with this input. The input is smaller than the buffer of the pipe, so the write
/// does not block.
fn run(arguments: &[&str], input: &str) -> Output {
    let mut child = start(arguments);
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

async fn keys(server: &Redis) -> i64 {
    match server.command(&["DBSIZE"]).await.unwrap() {
        Reply::Integer(keys) => keys,
        reply => panic!("{reply:?}"),
    }
}

const LINES: &str = "time,ip\n12,a\n12,a\n13,b\n14,a\n";
const ARGUMENTS: [&str; 6] = ["replay", "-", "--time-unit", "s", "--limit", "1/2s"];

fn with(store: &str) -> Vec<&str> {
    [&ARGUMENTS[..], &["--store", store]].concat()
}

/// Starts a replay, and waits until the replay has decided a part of its input and needs more
/// input.
async fn begin(server: &Redis) -> (Child, ChildStdin) {
    let mut child = start(&with(&server.url()));
    let mut pipe = child.stdin.take().unwrap();
    // The program reads a quarter of a MiB before it parses a line, so the test writes more than
    // that.
    let line = |number: usize| format!("{number},{},{:9000}\n", ["a", "b"][number % 2], "");
    let lines: String = (0..40).map(line).collect();
    pipe.write_all(format!("time,ip,filler\n{lines}").as_bytes()).unwrap();
    let has_begun = async || (keys(server).await == 12).then_some(());
    eventually(Duration::from_secs(20), "the first decisions", has_begun).await.unwrap();
    (child, pipe)
}

#[tokio::test]
async fn the_result_is_that_in_memory_and_nothing_is_left() {
    let server = Redis::start().await.unwrap();
    server.command(&["SET", "tidegate-replay", "of another program"]).await.unwrap();
    // The second input is not sorted, so the replay starts again. At the end, it must also delete
    // the keys that it wrote before.
    for lines in [LINES, "time,ip\n12,a\n12,a\n11,a\n13,b\n12,a\n"] {
        for format in [&[][..], &["--json"]] {
            let [memory, redis] = ["memory".to_owned(), server.url()]
                .map(|store| run(&[&with(&store)[..], format].concat(), lines));
            assert_eq!(redis.status.code(), Some(0), "{}", stderr(&redis));
            assert_eq!(stderr(&redis), "");
            assert!(!redis.stdout.is_empty());
            assert_eq!(memory.stdout, redis.stdout);
        }
    }
    assert_eq!(keys(&server).await, 1);
}

/// The state of a fair pool cannot be reset, so a replay deletes it in another way.
#[tokio::test]
async fn the_shares_of_a_pool_are_those_in_memory_and_nothing_is_left() {
    let server = Redis::start().await.unwrap();
    let line = |number: u64| format!("{},{}\n", number / 5, number * number % 7);
    let lines: String = (0..300).map(line).collect();
    // The last line is earlier, so the replay starts again with a second store.
    let lines = format!("time,ip\n{lines}1,9\n");
    let options = ["--share", "9/5s", "--pool", "fair-pool 2/10s", "-p", "gcra 1/5s", "--json"];
    let [memory, redis] = ["memory".to_owned(), server.url()].map(|store| {
        let arguments = ["replay", "-", "--time-unit", "s", "--store", &store];
        run(&[&arguments[..], &options].concat(), &lines)
    });
    assert_eq!(redis.status.code(), Some(0), "{}", stderr(&redis));
    assert_eq!(stderr(&redis), "");
    assert!(String::from_utf8(redis.stdout.clone()).unwrap().contains("\"windows_refused\":"));
    assert_eq!(memory.stdout, redis.stdout);
    let written = server.info("total_writes_processed").await.unwrap();
    assert_ne!(written, "0");
    assert_eq!(keys(&server).await, 0);
}

#[tokio::test]
async fn a_result_is_shown_although_cleaning_up_fails_and_that_is_told() {
    let server = Redis::builder().user("limiter", "secret", "~* +@all -unlink").start().await;
    let server = server.unwrap();
    let redis = run(&with(&server.url_for("limiter", "secret")), LINES);
    assert_eq!(redis.stdout, run(&with("memory"), LINES).stdout);
    assert_eq!(redis.status.code(), Some(0), "the result is whole");
    // The replay has written a key for each of two subjects and six policies.
    assert_eq!(keys(&server).await, 12);
    let told = stderr(&redis);
    assert!(told.contains("warning: ") && told.contains("misconfigured"), "{told}");
    let key = server.command(&["RANDOMKEY"]).await.unwrap().text();
    let prefix = told.split('`').nth(1).unwrap();
    assert!(key.starts_with(prefix), "{key}: {told}");
    let life = server.command(&["TTL", &key]).await.unwrap();
    assert!(matches!(life, Reply::Integer(1..=3_700)), "{life:?}: it does not expire by itself");
}

#[tokio::test]
async fn a_replay_that_fails_at_a_line_leaves_nothing() {
    let server = Redis::start().await.unwrap();
    // The records before the malformed line are decided immediately in the first case, and
    // collected to be sorted in the second.
    for lines in [format!("{LINES}never,a\n"), format!("{LINES}11,c\nnever,a\n")] {
        let redis = run(&[&with(&server.url())[..], &["--strict"]].concat(), &lines);
        assert_eq!(redis.status.code(), Some(1));
        assert!(stderr(&redis).contains("never"), "{}", stderr(&redis));
        assert!(!stderr(&redis).contains("warning"), "{}", stderr(&redis));
        assert!(redis.stdout.is_empty());
        assert_eq!(server.info("expired_keys").await.unwrap(), "0");
        let written = server.info("total_writes_processed").await.unwrap();
        assert_ne!(written, "0", "nothing to clean up");
        assert_eq!(keys(&server).await, 0);
    }
}

#[tokio::test]
async fn a_replay_whose_store_fails_ends_with_1_and_leaves_nothing() {
    let server = Redis::start().await.unwrap();
    let (child, mut pipe) = begin(&server).await;
    server.command(&["CONFIG", "SET", "maxmemory", "1"]).await.unwrap();
    pipe.write_all(b"99,c,\n").unwrap();
    drop(pipe);
    let redis = child.wait_with_output().unwrap();
    assert_eq!(redis.status.code(), Some(1), "{}", stderr(&redis));
    assert!(stderr(&redis).contains("out-of-memory"), "{}", stderr(&redis));
    assert!(!stderr(&redis).contains("warning"), "{}", stderr(&redis));
    assert_eq!(keys(&server).await, 0);
}

#[tokio::test]
async fn a_server_that_is_gone_is_not_waited_for_to_clean_up() {
    let server = Redis::start().await.unwrap();
    let (child, mut pipe) = begin(&server).await;
    server.kill().await.unwrap();
    // If the program has ended before it reads this line, the write fails. The test ignores this
    // error.
    let _ = pipe.write_all(b"99,c,\n");
    drop(pipe);
    let start = std::time::Instant::now();
    let redis = child.wait_with_output().unwrap();
    assert!(start.elapsed() < Duration::from_secs(8), "{:?}", start.elapsed());
    assert_eq!(redis.status.code(), Some(1), "{}", stderr(&redis));
    assert!(stderr(&redis).contains("warning: "), "{}", stderr(&redis));
}

/// Regression test: after Ctrl-C, the keys stayed until they expired, and no message reported them.
#[tokio::test]
async fn ctrl_c_takes_away_what_was_written_even_while_waiting_for_input() {
    let server = Redis::start().await.unwrap();
    let (child, pipe) = begin(&server).await;
    let interrupt = format!("kill -INT {}", child.id());
    assert!(Command::new("sh").args(["-c", &interrupt]).status().unwrap().success());
    let all_gone = async || (keys(&server).await == 0).then_some(());
    eventually(Duration::from_secs(20), "the keys are gone", all_gone).await.unwrap();
    let redis = child.wait_with_output().unwrap();
    drop(pipe);
    assert_eq!(redis.status.code(), Some(130), "{}", stderr(&redis));
    assert_eq!(stderr(&redis), "tidegate: interrupted\n");
    assert!(redis.stdout.is_empty());
    assert_eq!(server.info("expired_keys").await.unwrap(), "0");
}

#[test]
fn a_server_that_was_never_there_has_nothing_to_be_taken_away() {
    let redis = run(&with("redis://127.0.0.1:1"), LINES);
    assert_eq!(redis.status.code(), Some(1));
    let told = stderr(&redis);
    assert!(told.contains("unavailable") && !told.contains("warning"), "{told}");
}

#[tokio::test]
async fn a_password_comes_from_the_environment() {
    let server = Redis::builder().user("limiter", "s:e/c@ret", "~* +@all").start().await.unwrap();
    let url = server.url().replace("redis://", "redis://limiter@");
    for (password, code) in [("s:e/c@ret", 0), ("wrong", 1)] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args(with(&url))
            .env("TIDEGATE_STORE_PASSWORD", password)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(LINES.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{}", stderr(&output));
        assert!(!stderr(&output).contains(password), "{}", stderr(&output));
    }
}
