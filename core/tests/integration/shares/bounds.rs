//! What a policy promises at most, told from what has passed.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use proptest::prelude::*;
use tidegate_core::algorithm::fixed_window::Start;
use tidegate_core::{
    Algorithm, Answer, Call, Charge, Decision, ManualClock, Outcome, Policy, Store, Timestamp,
};
use tidegate_testkit::ModelStore;

/// A time at which no window begins or ends.
pub(crate) const START: u64 = 1_790_000_000_000_123;

/// What passed: when, and how much.
pub(crate) type Passed = Vec<(u64, u64)>;

/// A time later by so many parts of the policy's span.
pub(crate) fn pause(policy: &Policy, (of, parts): (u64, u32)) -> Duration {
    let pause = u128::from(span(policy)) * u128::from(of) / u128::from(parts);
    Duration::from_micros(u64::try_from(pause.min(1 << 44)).unwrap())
}

pub(crate) fn ask(store: &impl Store, policy: &Policy, subject: &[u8], cost: u64) -> Decision {
    let charges = [Charge::new(policy, subject).cost(cost)];
    now(store.decide(Call::acquire(&charges))).unwrap()
}

/// An answer that waits for nothing.
pub(crate) fn now<T>(answer: Answer<'_, T>) -> T {
    match pin!(answer).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("the answer waits for something"),
    }
}

/// As if the policy were in force, which a shadow is not.
pub(crate) fn outcome(decision: &Decision) -> Outcome {
    decision.verdicts()[0].outcome()
}

/// The window or the period.
pub(crate) fn span(policy: &Policy) -> u64 {
    let span = match policy.algorithm() {
        Algorithm::FixedWindow(spec) => spec.window(),
        Algorithm::SlidingLog(spec) => spec.window(),
        Algorithm::SlidingCounter(spec) => spec.window(),
        Algorithm::TokenBucket(spec) => spec.period(),
        _ => unreachable!("no other algorithm"),
    };
    u64::try_from(span.as_micros()).unwrap()
}

/// What passed under parts of a policy is no more than what may pass under the whole.
pub(crate) fn check(
    policy: &Policy,
    subject: &[u8],
    scaled: &[Policy],
    passed: &Passed,
) -> Result<(), TestCaseError> {
    let tick = |policy: &Policy| policy.rule().tick();
    let ticks = scaled.iter().map(tick).max().unwrap_or(1).max(tick(policy));
    match policy.algorithm() {
        // Windows of several places may begin at different times: then, as in one place, up to twice
        // the limit may pass around the end of one.
        Algorithm::FixedWindow(spec) if spec.start() == Start::Anchored => {
            within_any_window(passed, span(policy), 2 * u128::from(policy.limit()))?;
        }
        Algorithm::TokenBucket(spec) if spec.is_by_interval() => {
            within_rate(&passed[..], policy, spec.refill(), 0)?;
        }
        Algorithm::TokenBucket(spec) => within_any_rate(passed, policy, spec.refill(), ticks)?,
        Algorithm::SlidingLog(_) => {
            within_any_window(passed, span(policy), u128::from(policy.limit()))?;
        }
        _ => {}
    }
    let one_node_decides_alike = match policy.algorithm() {
        Algorithm::FixedWindow(spec) => spec.start() != Start::Anchored,
        Algorithm::TokenBucket(spec) => !spec.is_by_interval(),
        _ => true,
    };
    // A coarser tick admits a little later, and is no measure for a finer one.
    if one_node_decides_alike && scaled.iter().all(|scaled| tick(scaled) == tick(policy)) {
        would_pass_on_one_node(policy, subject, passed)?;
    }
    Ok(())
}

fn would_pass_on_one_node(
    policy: &Policy,
    subject: &[u8],
    passed: &Passed,
) -> Result<(), TestCaseError> {
    let clock = ManualClock::new(Timestamp::from_micros(START));
    let store = ModelStore::new(clock.clone());
    for &(time, cost) in passed {
        clock.set(Timestamp::from_micros(time));
        prop_assert_eq!(
            outcome(&ask(&store, policy, subject, cost)),
            Outcome::Allowed,
            "at {}",
            time
        );
    }
    Ok(())
}

fn within_any_window(passed: &Passed, window: u64, most: u128) -> Result<(), TestCaseError> {
    for (place, &(end, _)) in passed.iter().enumerate() {
        let inside = passed[..=place].iter().filter(|(time, _)| time + window > end);
        let sum: u128 = inside.map(|(_, cost)| u128::from(*cost)).sum();
        prop_assert!(sum <= most, "{} passed in the window that ends at {}", sum, end);
    }
    Ok(())
}

fn within_any_rate(
    passed: &Passed,
    policy: &Policy,
    refill: u64,
    tick: u64,
) -> Result<(), TestCaseError> {
    (0..passed.len()).try_for_each(|first| within_rate(&passed[first..], policy, refill, tick))
}

/// At most `B + R·t/P` since the first, for every last. Within a tick too little may seem to pass.
fn within_rate(
    passed: &[(u64, u64)],
    policy: &Policy,
    refill: u64,
    tick: u64,
) -> Result<(), TestCaseError> {
    let (period, mut sum) = (u128::from(span(policy)), 0);
    for &(time, cost) in passed {
        sum += u128::from(cost);
        // A tick of one microsecond is exact.
        let elapsed = time - passed[0].0 + tick.saturating_sub(1);
        let most = u128::from(policy.limit()) * period + u128::from(refill) * u128::from(elapsed);
        prop_assert!(sum * period <= most, "{} passed by {}", sum, time);
    }
    Ok(())
}
