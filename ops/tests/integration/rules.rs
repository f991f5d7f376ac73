//! Checks the alert rules with `promtool`, which is a part of Prometheus.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::Command;

#[test]
fn promtool_accepts_the_rules_and_each_alert_fires_when_it_must_and_only_then() {
    let check = Path::new(env!("CARGO_MANIFEST_DIR")).join("check");
    let output = Command::new(check).output().unwrap();
    let said = [output.stdout, output.stderr].map(|s| String::from_utf8_lossy(&s).into_owned());
    assert!(output.status.success(), "{}", said.join("\n"));
}
