//! Tests of the output of a failing property, which must fit on a screen.

use std::fmt::Debug;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use tidegate_testkit::generate::{
    Bytes, ClockKind, Scenario, hold_scenario, hostile_subject, scenario, several_policies,
};

/// Returns a strategy for subjects of 1 MiB, the maximum length.
fn long_subject() -> impl Strategy<Value = Bytes> {
    any::<u8>().prop_map(|byte| Bytes::from(vec![byte; 1 << 20]))
}

/// Runs a property that fails for each input, and returns its output. The input is not reduced.
fn printed<T: Debug>(input: impl Strategy<Value = T>, seed: u64) -> String {
    let config = Config {
        failure_persistence: None,
        max_shrink_iters: 0,
        rng_seed: RngSeed::Fixed(seed),
        ..Config::default()
    };
    let result = TestRunner::new(config).run(&input, |_| Err(TestCaseError::fail("on purpose")));
    result.err().map(|error| error.to_string()).unwrap_or_default()
}

fn assert_fits_on_a_screen<T: Debug>(input: impl Fn() -> BoxedStrategy<T>) {
    for seed in 0..30 {
        let text = printed(input(), seed);
        assert!(text.contains("on purpose"), "{text}");
        let (lines, bytes) = (text.lines().count(), text.len());
        assert!(lines <= 60 && bytes <= 8 << 10, "seed {seed}: {lines} lines, {bytes} bytes");
    }
}

#[test]
fn a_failing_property_of_long_subjects_prints_at_most_a_screen() {
    assert_fits_on_a_screen(|| vec((long_subject(), hostile_subject()), 1..6).boxed());
    assert_fits_on_a_screen(|| {
        let subjects = vec((long_subject(), long_subject()), 1..6);
        let scenarios = (scenario(several_policies(), ClockKind::Jumping, 60, 5), subjects);
        scenarios.prop_map(|(scenario, subjects)| Scenario { subjects, ..scenario }).boxed()
    });
    assert_fits_on_a_screen(|| hold_scenario(several_policies(), 60).boxed());
}

/// Checks that the text of a failing input is one line, because proptest writes the text into a
/// file, on the line of the seed.
#[test]
fn the_input_is_a_line_of_a_file() {
    let mut runner = TestRunner::deterministic();
    let inputs = (
        scenario(several_policies(), ClockKind::Forwards, 5, 2),
        hold_scenario(several_policies(), 5),
    );
    let input = inputs.new_tree(&mut runner).map(|tree| format!("{:?}", tree.current()));
    assert_eq!(input.map(|line| line.lines().count()), Ok(1));
}

#[test]
fn a_scenario_names_its_policies_subjects_and_steps() {
    let text = "p: gcra 1/1s burst 5";
    let policies = text.parse().map(|policy| Just(vec![policy]));
    let mut runner = TestRunner::deterministic();
    let scenario = policies.map(|policies| scenario(policies, ClockKind::Forwards, 1, 1));
    let scenario = scenario.map(|any| any.new_tree(&mut runner).map(|tree| tree.current()));
    let Ok(Ok(scenario)) = scenario else { panic!("no scenario") };
    let subjects = vec![(Bytes::from("acme"), Bytes::from(vec![b'a'; 1 << 20]))];
    let shown = format!("{:#?}", Scenario { subjects, ..scenario });
    let parts =
        ["policy `p: gcra 1/1s burst 5`", "subject 1048576 bytes: 61 61", "tenant \"acme\""];
    for part in parts.into_iter().chain(["start 1", "(policy 0, subject 0, "]) {
        assert!(shown.contains(part), "{part}: {shown}");
    }
}
