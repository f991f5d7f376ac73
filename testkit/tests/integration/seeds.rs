//! Tests of the variable `PROPTEST_RNG_SEED`. With the same value, all processes generate the same
//! random input.
#![expect(clippy::expect_used, reason = "a test")]

use std::path::PathBuf;
use std::process::Command;

use proptest::prelude::*;
use tidegate_core::{Clock, ManualClock};
use tidegate_testkit::generate::{ClockKind, Kind, policy, scenario, seeded_rng};
use tidegate_testkit::suite::check;
use tidegate_testkit::{Fixture, ModelStore};

/// The environment variable that makes a test process print its random input.
const PRINTS: &str = "TIDEGATE_TEST_PRINTS";

/// A fixture whose guards print the time of the clock at the end of each case. This time depends on
/// the random calls of the case.
struct Printing;

/// A guard that prints the time of a clock when the guard is dropped.
struct TimePrinter(ManualClock);

impl Drop for TimePrinter {
    fn drop(&mut self) {
        println!("suite: {:?}", self.0.now());
    }
}

impl Fixture for Printing {
    type Store = ModelStore;
    type Guard = TimePrinter;

    async fn open(&self, clock: ManualClock) -> (ModelStore, TimePrinter) {
        (ModelStore::new(clock.clone()), TimePrinter(clock))
    }

    fn regressions(&self) -> Option<PathBuf> {
        None
    }
}

/// Prints the random input of each kind of random test. Other tests run this test in a separate
/// process.
#[test]
fn input_of_a_process_of_its_own() {
    if std::env::var_os(PRINTS).is_none() {
        return;
    }
    check(&Printing, "token_bucket_decides_as_the_oracle");
    println!("suite: {:?}", [1, 1, 2].map(|stream| seeded_rng(stream).random::<u64>()));
    let policies = policy(Kind::Gcra, "p").prop_map(|policy| vec![policy]);
    let scenarios = scenario(policies, ClockKind::Jumping, 20, 2);
    proptest!(ProptestConfig::with_cases(8), |(scenario in scenarios)| {
        println!("property: {scenario:?}");
    });
}

/// Runs a test process with the seed `seed`, and returns the lines of random input that the process
/// prints.
fn input(seed: Option<&str>) -> Vec<String> {
    let mut process = Command::new(std::env::current_exe().expect("this program"));
    process.args(["--exact", "seeds::input_of_a_process_of_its_own", "--nocapture"]);
    process.env(PRINTS, "1").env_remove("PROPTEST_RNG_SEED");
    if let Some(seed) = seed {
        process.env("PROPTEST_RNG_SEED", seed);
    }
    let output = process.output().expect("it starts");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("text");
    let is_input = |line: &&str| line.starts_with("suite: ") || line.starts_with("property: ");
    text.lines().filter(is_input).map(str::to_owned).collect()
}

#[test]
fn a_seed_gives_the_same_input_in_each_process() {
    let first = input(Some("5"));
    assert!(first.len() > 70, "{first:?}");
    assert_eq!(first, input(Some("5")));
    let other = input(Some("6"));
    let pairs = first.iter().zip(&other);
    assert!(pairs.filter(|(one, other)| one == other).count() < first.len() / 4, "{other:?}");
}

#[test]
fn the_default_seed_of_the_suite_is_1() {
    let suite_input = |seed| {
        let mut lines = input(seed);
        lines.retain(|line| line.starts_with("suite: "));
        lines
    };
    assert_eq!(suite_input(None), suite_input(Some("1")));
}
