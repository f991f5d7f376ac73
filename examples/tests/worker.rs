//! Runs the example and checks its output.

use std::process::Command;

/// The workers never exceed the quota, even if the machine stalls, and must use at least half of
/// it. A slow machine uses less of the quota than a fast machine.
#[test]
fn the_workers_keep_within_the_quota_and_use_it() {
    let output =
        Command::new(env!("CARGO_BIN_EXE_worker")).env_remove("REDIS_URL").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("3 processes of 8 workers"), "{said}");
    assert!(said.contains(", 0 answered with 429"), "{said}");
    let percent = said.split(['(', ')']).nth(1).and_then(|text| text.strip_suffix(" %"));
    let percent: u32 = percent.unwrap().parse().unwrap();
    assert!(percent >= 50, "{said}");
}

#[test]
fn a_wrong_argument_is_an_error_and_no_run() {
    let output = Command::new(env!("CARGO_BIN_EXE_worker")).arg("wrok").output().unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("usage: worker"));
}
