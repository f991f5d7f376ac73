//! The example runs, as its own text says.

use std::process::Command;

/// The quota is never overrun, however the machine stalls: that is exact. How much of it is used depends
/// on the machine; what is asked for here leaves room for a very slow one.
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
    assert!((50..=100).contains(&percent), "{said}");
}

#[test]
fn a_wrong_argument_is_an_error_and_no_run() {
    let output = Command::new(env!("CARGO_BIN_EXE_worker")).arg("wrok").output().unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("usage: worker"));
}
