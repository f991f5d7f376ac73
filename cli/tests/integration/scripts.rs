//! Tests that `tidegate scripts` prints the scripts that a server executes, and that `redis-cli`
//! can execute them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::{Command, Output};

use tidegate::scripts::find;
use tidegate_test_servers::Redis;

fn tidegate(arguments: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_tidegate");
    Command::new(program).arg("scripts").args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn printed(arguments: &[&str]) -> String {
    let output = tidegate(arguments);
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

/// Returns the names and the hashes of all scripts that `tidegate scripts` lists.
fn listed() -> Vec<(String, String)> {
    let name_and_hash = |line: &str| {
        let words: Vec<_> = line.split_whitespace().collect();
        (words[0].to_owned(), words[words.len() - 1].to_owned())
    };
    printed(&[]).lines().map(name_and_hash).collect()
}

#[tokio::test]
async fn a_server_gives_each_printed_script_the_hash_of_the_list() {
    let server = Redis::start().await.unwrap();
    let names: Vec<_> = listed().into_iter().map(|(name, _)| name).collect();
    let plain = [
        "fixed_window_aligned",
        "fixed_window_phased",
        "fixed_window_anchored",
        "sliding_log",
        "sliding_log_list",
        "sliding_counter",
        "token_bucket",
        "interval_bucket",
        "quota",
        "fair_pool",
        "batch",
        "batch_lapse",
    ];
    // Each script has a variant for calls with an id (`_id`), and a variant that makes a hold
    // (`_hold`). The scripts of all algorithms except the logs and the fair pool have a variant
    // that settles the hold of a single charge (`_settle`). `batch_single` executes the usual
    // batch, and `batch_settle` and `batch_lapse_settle` settle all other holds.
    let all: Vec<_> = ["", "_id", "_hold"]
        .iter()
        .flat_map(|variant| plain.iter().map(move |name| format!("{name}{variant}")))
        .chain(
            (plain[..9].iter())
                .filter(|name| !name.contains("log"))
                .map(|name| format!("{name}_settle")),
        )
        .chain(["batch_single", "batch_settle", "batch_lapse_settle"].map(str::to_owned))
        .collect();
    assert_eq!(names, all);
    for (name, sha) in listed() {
        let code = find(&name).unwrap().code();
        assert!(code.contains("-- ") && !code.contains("-->"), "{name}");
        let loaded = server.command(&["SCRIPT", "LOAD", code]).await.unwrap();
        assert_eq!(loaded.text(), sha, "{name}");
    }
}

#[test]
fn a_folder_gets_a_file_of_each_script() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("new");
    assert_eq!(printed(&["--dir", folder.to_str().unwrap()]), "");
    let content = |name: &str| std::fs::read_to_string(folder.join(format!("{name}.lua"))).unwrap();
    let listed = listed();
    for (name, _) in &listed {
        assert_eq!(content(name), find(name).unwrap().code());
    }
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), listed.len());
    for name in ["fixed_window_aligned", "sliding_log_list_hold", "batch_lapse_settle"] {
        assert_eq!(printed(&[name]), content(name));
        assert_eq!(printed(&[&format!("{name}.lua")]), content(name));
    }
}

#[test]
fn a_name_that_is_no_script_is_bad_usage_and_the_names_are_shown() {
    let output = tidegate(&["gcra"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("`gcra` is not a script"), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("token_bucket"), "{}", text(&output.stderr));
    assert_eq!(tidegate(&["--call", "token-bucket"]).status.code(), Some(2));
    assert_eq!(tidegate(&["--subject", "alice"]).status.code(), Some(2));
}

/// The printed command decides as a store would: with a limit of 2, the third call is denied.
#[tokio::test]
async fn the_printed_command_runs_in_a_shell() {
    let server = Redis::start().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    printed(&["--dir", folder.path().to_str().unwrap()]);
    for policy in ["api: token-bucket 2/1h", "log: sliding-log 2/1h", "w: fixed-window 2/1h phased"]
    {
        let command = printed(&["--call", policy, "--subject", "it's", "--prefix", "the 'shop'"]);
        let port = server.port().to_string();
        let command = command.replace("redis-cli -x", &format!("redis-cli -p {port} -x"));
        let outcomes = [(); 3].map(|()| outcome(folder.path(), &command));
        assert_eq!(outcomes, [true, true, false], "{policy}: {command}");
    }
}

/// Runs the command, and returns `true` if the call was admitted. If the first byte of the output
/// is not 0, the output is the written value, and the call was admitted. Otherwise, the byte at
/// index 9 is the outcome, and 0 means admitted.
fn outcome(folder: &Path, command: &str) -> bool {
    let output = Command::new("sh").args(["-c", command]).current_dir(folder).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output.stderr));
    assert!(output.stdout.len() > 9, "{:?}", String::from_utf8_lossy(&output.stdout));
    output.stdout[0] != 0 || output.stdout[9] == 0
}
