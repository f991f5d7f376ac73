//! Checks that the costs that several shares of a policy admit together are within the bound of the
//! whole policy.

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

/// The admitted requests. Each request is a pair of its time and its cost.
pub(crate) type Admitted = Vec<(u64, u64)>;

/// Returns `parts / whole` of the window or period of a policy, for a pause.
pub(crate) fn pause(policy: &Policy, (parts, whole): (u64, u32)) -> Duration {
    let pause = u128::from(span(policy)) * u128::from(parts) / u128::from(whole);
    Duration::from_micros(u64::try_from(pause.min(1 << 44)).unwrap())
}

pub(crate) fn acquire(store: &impl Store, policy: &Policy, subject: &[u8], cost: u64) -> Decision {
    let charges = [Charge::new(policy, subject).cost(cost)];
    ready(store.decide(Call::acquire(&charges))).unwrap()
}

/// Returns the value of an answer, which must be ready immediately.
pub(crate) fn ready<T>(answer: Answer<'_, T>) -> T {
    match pin!(answer).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("the answer is pending"),
    }
}

/// Returns the outcome of the first verdict, which shows a denial even if the policy is a shadow.
pub(crate) fn outcome(decision: &Decision) -> Outcome {
    decision.verdicts()[0].outcome()
}

/// Returns the window or the period of a policy, in microseconds.
pub(crate) fn span(policy: &Policy) -> u64 {
    let span = match policy.algorithm() {
        Algorithm::FixedWindow(spec) => spec.window(),
        Algorithm::SlidingLog(spec) => spec.window(),
        Algorithm::SlidingCounter(spec) => spec.window(),
        Algorithm::TokenBucket(spec) => spec.period(),
        Algorithm::Quota(_) | Algorithm::FairPool(_) => policy.window(),
        _ => unreachable!("no other algorithm"),
    };
    u64::try_from(span.as_micros()).unwrap()
}

/// Checks the requests that were admitted under several shares of a policy. Together, they must be
/// within the bound of the whole policy.
pub(crate) fn check(
    policy: &Policy,
    subject: &[u8],
    scaled: &[Policy],
    admitted: &Admitted,
) -> Result<(), TestCaseError> {
    let tick = |policy: &Policy| policy.rule().tick();
    let ticks = scaled.iter().map(tick).max().unwrap_or(1).max(tick(policy));
    match policy.algorithm() {
        // Anchored windows of several stores begin at different times. So in any interval with the
        // length of a window, up to twice the limit can be admitted. A single store has the same
        // bound.
        Algorithm::FixedWindow(spec) if spec.start() == Start::Anchored => {
            within_any_window(admitted, span(policy), 2 * u128::from(policy.limit()))?;
        }
        Algorithm::TokenBucket(spec) if spec.is_by_interval() => {
            within_rate(&admitted[..], policy, spec.refill(), 0)?;
        }
        Algorithm::TokenBucket(spec) => within_any_rate(admitted, policy, spec.refill(), ticks)?,
        Algorithm::SlidingLog(_) => {
            within_any_window(admitted, span(policy), u128::from(policy.limit()))?;
        }
        _ => {}
    }
    let one_node_decides_equally = match policy.algorithm() {
        Algorithm::FixedWindow(spec) => spec.start() != Start::Anchored,
        Algorithm::TokenBucket(spec) => !spec.is_by_interval(),
        _ => true,
    };
    // A policy with a coarser tick admits a request a little later than a policy with a finer tick.
    // So the requests can be compared only if the ticks are equal.
    if one_node_decides_equally && scaled.iter().all(|scaled| tick(scaled) == tick(policy)) {
        check_on_one_node(policy, subject, admitted)?;
    }
    Ok(())
}

/// Sends the admitted requests again to a single store with the whole policy, and checks that the
/// store admits each request.
fn check_on_one_node(
    policy: &Policy,
    subject: &[u8],
    admitted: &Admitted,
) -> Result<(), TestCaseError> {
    let clock = ManualClock::new(Timestamp::from_micros(START));
    let store = ModelStore::new(clock.clone());
    for &(time, cost) in admitted {
        clock.set(Timestamp::from_micros(time));
        prop_assert_eq!(
            outcome(&acquire(&store, policy, subject, cost)),
            Outcome::Allowed,
            "at {}",
            time
        );
    }
    Ok(())
}

fn within_any_window(admitted: &Admitted, window: u64, max: u128) -> Result<(), TestCaseError> {
    for (index, &(end, _)) in admitted.iter().enumerate() {
        let inside = admitted[..=index].iter().filter(|(time, _)| time + window > end);
        let sum: u128 = inside.map(|(_, cost)| u128::from(*cost)).sum();
        prop_assert!(sum <= max, "{} was admitted in the window that ends at {}", sum, end);
    }
    Ok(())
}

fn within_any_rate(
    admitted: &Admitted,
    policy: &Policy,
    refill: u64,
    tick: u64,
) -> Result<(), TestCaseError> {
    (0..admitted.len()).try_for_each(|first| within_rate(&admitted[first..], policy, refill, tick))
}

/// Checks that at most `burst + refill · t / period` was admitted in the first time `t` after the
/// first admission, for any `t`. With a coarse tick, `t` can be up to a tick longer than measured.
fn within_rate(
    admitted: &[(u64, u64)],
    policy: &Policy,
    refill: u64,
    tick: u64,
) -> Result<(), TestCaseError> {
    let (period, mut sum) = (u128::from(span(policy)), 0);
    for &(time, cost) in admitted {
        sum += u128::from(cost);
        // With a tick of one microsecond, the elapsed time is exact.
        let elapsed = time - admitted[0].0 + tick.saturating_sub(1);
        let max = u128::from(policy.limit()) * period + u128::from(refill) * u128::from(elapsed);
        prop_assert!(sum * period <= max, "{} was admitted by {}", sum, time);
    }
    Ok(())
}
