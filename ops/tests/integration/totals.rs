//! Tests `.ci/totals.awk`, which writes the last lines of the output of `./test`.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of a test that fails panics, as the test does"
)]

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

const PASSED: &str = "\
{\"reason\":\"build-finished\",\"success\":true}
     Running unittests src/lib.rs (target/debug/deps/one-1)

running 3 tests
test a ... ok

test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s
";

const FAILED: &str = "\
     Running tests/two.rs (target/debug/deps/two-2)
test m::b ... FAILED

failures:

---- m::b stdout ----
    a line of its output

failures:
    m::b
    m::c

test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s

error: test failed, to rerun pass `-p two --test two`
";

const CRASHED: &str = "\
     Running tests/three.rs (target/debug/deps/three-3)
running 2 tests
error: test failed, to rerun pass `-p three --test three`

Caused by:
  process didn't exit successfully: `three-3` (signal: 6, SIGABRT: process abort signal)
";

const DOCUMENTATION: &str = "\
failures:
    src/lib.rs - f (line 3)

test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s

error: doctest failed, to rerun pass `-p two --doc`
";

const NONE: &str = "\
test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 9 filtered out; finished in 0.00s
";

/// Runs `totals.awk` on the output and the exit status of `cargo test`. Returns the exit status of
/// the script and the lines that it adds.
fn totals(output: &str, status: u8) -> (Option<i32>, String) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.ci/totals.awk");
    let mut awk = Command::new("awk")
        .args(["-v", "programs=/dev/null", "-f"])
        .arg(script)
        .env("PROPTEST_RNG_SEED", "7")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let input = format!("{output}\ntidegate-test-status {status}\n");
    awk.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let printed = awk.wait_with_output().unwrap();
    let text = String::from_utf8(printed.stdout).unwrap();
    let passed_on: String = format!("{output}\n")
        .lines()
        .filter(|line| !line.starts_with('{'))
        .fold(String::new(), |text, line| text + line + "\n");
    let added = text.strip_prefix(&passed_on).unwrap_or_else(|| panic!("{text}"));
    (printed.status.code(), added.to_owned())
}

#[test]
fn the_totals_are_the_last_line() {
    assert_eq!(totals(PASSED, 0), (Some(0), "2 passed, 0 failed, 1 skipped\n".to_owned()));
}

#[test]
fn each_failed_test_has_the_command_that_runs_it() {
    let (status, added) = totals(&[FAILED, PASSED, CRASHED, DOCUMENTATION].concat(), 101);
    assert_eq!(status, Some(101));
    assert_eq!(
        added,
        "failed; each line runs one again, with the same random input:\n  \
         PROPTEST_RNG_SEED=7 ./test -p two --test two -- --exact 'm::b'\n  \
         PROPTEST_RNG_SEED=7 ./test -p two --test two -- --exact 'm::c'\n  \
         PROPTEST_RNG_SEED=7 ./test -p three --test three    # the program ended before its result\n  \
         PROPTEST_RNG_SEED=7 ./test -p two --doc -- --exact 'src/lib.rs - f (line 3)'\n\
         5 passed, 4 failed, 1 skipped\n"
    );
}

#[test]
fn a_filter_without_a_test_and_a_failed_build_are_failures() {
    let (status, added) = totals(NONE, 0);
    assert_eq!((status, added.lines().last()), (Some(1), Some("0 passed, 0 failed")));
    assert!(added.contains("no test has a name that matches"), "{added}");
    let (status, added) = totals("error: could not compile `two`\n", 101);
    assert_eq!((status, added.lines().last()), (Some(101), Some("0 passed, 0 failed")));
    assert!(added.contains("the build failed"), "{added}");
    assert_eq!(totals("    Finished `test` profile\n", 0), (Some(0), String::new()));
}
