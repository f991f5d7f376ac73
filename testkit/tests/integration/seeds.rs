//! Random input follows from `PROPTEST_RNG_SEED`, in each process alike.
#![expect(clippy::expect_used, reason = "a test")]

use std::path::PathBuf;
use std::process::Command;

use proptest::prelude::*;
use tidegate_core::{Clock, ManualClock};
use tidegate_testkit::generate::{ClockKind, Kind, policy, scenario, seeded_rng};
use tidegate_testkit::suite::check;
use tidegate_testkit::{Fixture, ModelStore};

/// Says that this process has to print its input.
const PRINTS: &str = "TIDEGATE_TEST_PRINTS";

/// Prints the time at the end of each case, which follows from its random calls.
struct Printing;

struct AtEnd(ManualClock);

impl Drop for AtEnd {
    fn drop(&mut self) {
        println!("suite: {:?}", self.0.now());
    }
}

impl Fixture for Printing {
    type Store = ModelStore;
    type Guard = AtEnd;

    async fn open(&self, clock: ManualClock) -> (ModelStore, AtEnd) {
        (ModelStore::new(clock.clone()), AtEnd(clock))
    }

    fn regressions(&self) -> Option<PathBuf> {
        None
    }
}

/// Prints the input of each kind of random test, in a process of its own.
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

/// Returns the lines of input that a process prints.
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
fn the_suite_has_seed_1_unless_told_otherwise() {
    let suite_input = |seed| {
        let mut lines = input(seed);
        lines.retain(|line| line.starts_with("suite: "));
        lines
    };
    assert_eq!(suite_input(None), suite_input(Some("1")));
}
