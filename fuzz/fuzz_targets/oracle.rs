//! The core and the oracle make the same decisions on any trace. The input bytes choose one of the
//! traces that the property tests can generate.
#![no_main]

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use libfuzzer_sys::fuzz_target;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use tidegate_core::ManualClock;
use tidegate_testkit::generate::{ClockKind, Kind, related_policies, scenario};
use tidegate_testkit::{ModelStore, run_against_oracle};

fuzz_target!(|data: &[u8]| {
    let rng = TestRng::from_seed(RngAlgorithm::PassThrough, data);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let kind = Kind::any();
    let policies = kind.prop_flat_map(|kind| related_policies(kind, "p"));
    let clock = ClockKind::Jumping;
    let Ok(tree) = scenario(policies, clock, 40, 3).new_tree(&mut runner) else { return };
    let hand = ManualClock::default();
    let store = ModelStore::keeping_all(hand.clone());
    let scenario = tree.current();
    match pin!(run_against_oracle(&store, &hand, &scenario, clock))
        .poll(&mut Context::from_waker(Waker::noop()))
    {
        Poll::Ready(result) => result.unwrap_or_else(|error| panic!("{error}\n{scenario:#?}")),
        Poll::Pending => panic!("this store answers at once"),
    }
});
