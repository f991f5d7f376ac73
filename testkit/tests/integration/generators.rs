//! Tests that random traces reach limits often. The tests count the calls of a trace that reach a
//! limit.
#![expect(clippy::expect_used, reason = "a test")]

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use tidegate_core::layers::{Layer, Layered};
use tidegate_core::{
    Answer, Call, Decision, Error, ManualClock, Operation, Outcome, Policy, Store, StoreExt,
};
use tidegate_core::{Clock, Timestamp};
use tidegate_testkit::generate::{
    Bytes, ClockKind, Kind, Scenario, confusable_pair, hostile_subject, policy, scenario,
};
use tidegate_testkit::{ModelStore, decide_one_by_one, run_against_oracle};

/// The numbers of calls and answers of a store.
#[derive(Debug, Default)]
struct Counts {
    calls: u32,
    allowed: u32,
    denied: u32,
    blocked: u32,
    never: u32,
    booked: u32,
    /// The number of refusals after which the next call was made exactly at the end of the wait,
    /// and was admitted.
    kept_waits: u32,
    steps_back: u32,
}

/// A [`ModelStore`] with a [`Counter`] around it.
type CountingStore = Layered<Counter, ModelStore>;

/// A layer that counts the calls and the kinds of answers.
#[derive(Debug)]
struct Counter {
    clock: ManualClock,
    seen: std::sync::Mutex<(Counts, Timestamp, Option<Timestamp>)>,
}

impl<S: Store> Layer<S> for Counter {
    const MAY_WAIT: bool = false;

    fn decide<'a>(&'a self, inner: &'a S, call: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
        let answer = inner.decide(call).into_ready().expect("the model answers immediately");
        let now = self.clock.now();
        let (seen, last, due) = &mut *self.seen.lock().expect("not poisoned");
        seen.calls += 1;
        seen.steps_back += u32::from(now < *last);
        *last = now;
        if let Ok(decision) = &answer {
            let outcome = decision.verdicts()[0].outcome();
            seen.allowed += u32::from(outcome == Outcome::Allowed);
            seen.denied += u32::from(outcome == Outcome::Denied);
            seen.blocked += u32::from(outcome == Outcome::Blocked);
            seen.never += u32::from(decision.retry_after().is_none());
            seen.booked += u32::from(!decision.wait().is_zero());
            let is_acquire = call.operation == Operation::Acquire;
            let kept = is_acquire && decision.is_allowed() && *due == Some(now);
            seen.kept_waits += u32::from(kept);
            let wait = decision.retry_after().filter(|wait| !wait.is_zero());
            *due = wait.map(|wait| now.saturating_add(wait));
        }
        Answer::ready(answer)
    }

    fn decide_many<'a>(
        &'a self,
        inner: &'a S,
        calls: &'a [Call<'a>],
    ) -> Answer<'a, Vec<Result<Decision, Error>>> {
        decide_one_by_one(self, inner, calls)
    }
}

fn play(store: &CountingStore, clock: &ManualClock, scenario: &Scenario, moves: ClockKind) {
    let played = pin!(run_against_oracle(store, clock, scenario, moves));
    let played = played.poll(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(played, Poll::Ready(Ok(()))), "{played:?}");
}

fn watch(kind: Kind, clock: ClockKind) -> Counts {
    let mut runner = TestRunner::deterministic();
    let policies = policy(kind, "p").prop_map(|policy| vec![policy]);
    let scenarios = scenario(policies, clock, 30, 1);
    let mut total = Counts::default();
    for _ in 0..400 {
        let scenario = scenarios.new_tree(&mut runner).expect("generated").current();
        let manual = ManualClock::default();
        let first = (Counts::default(), Timestamp::EPOCH, None);
        let counter = Counter { clock: manual.clone(), seen: first.into() };
        let store = ModelStore::new(manual.clone()).layer(counter);
        play(&store, &manual, &scenario, clock);
        let (seen, ..) = std::mem::take(&mut *store.as_layer().seen.lock().expect("not poisoned"));
        total.calls += seen.calls;
        total.allowed += seen.allowed;
        total.denied += seen.denied;
        total.blocked += seen.blocked;
        total.never += seen.never;
        total.booked += seen.booked;
        total.kept_waits += seen.kept_waits;
        total.steps_back += seen.steps_back;
    }
    total
}

#[test]
fn traces_run_into_the_limit_and_recover_from_it() {
    for kind in Kind::ALL {
        let seen = watch(kind, ClockKind::Forwards);
        let share = |count: u32| 100 * count / seen.calls;
        assert!(share(seen.allowed) >= 30, "{kind:?}: {seen:?}");
        assert!(share(seen.denied) >= 15, "{kind:?}: {seen:?}");
        assert!(share(seen.never) >= 5, "{kind:?}: {seen:?}");
        // A fair pool cannot block its members.
        let min_blocked = if kind == Kind::FairPool { 0 } else { 2 };
        assert!(share(seen.blocked) >= min_blocked, "{kind:?}: {seen:?}");
        assert!(seen.kept_waits >= 20, "{kind:?}: {seen:?}");
        assert_eq!(seen.steps_back, 0, "{kind:?}: {seen:?}");
        let is_bucket = matches!(kind, Kind::TokenBucket | Kind::IntervalBucket | Kind::Gcra);
        assert_eq!(seen.booked >= 15, is_bucket, "{kind:?}: {seen:?}");
    }
}

#[test]
fn a_jumping_clock_jumps_back() {
    let seen = watch(Kind::SlidingLog, ClockKind::Jumping);
    assert!(100 * seen.steps_back / seen.calls >= 15, "{seen:?}");
}

#[test]
fn policies_have_coarse_ticks_and_fine_ones_shadows_and_blocks() {
    let mut runner = TestRunner::deterministic();
    let any = Kind::any().prop_flat_map(|kind| policy(kind, "p"));
    let policies: Vec<Policy> =
        (0..2_000).map(|_| any.new_tree(&mut runner).expect("generated").current()).collect();
    let count = |is: fn(&Policy) -> bool| policies.iter().filter(|policy| is(policy)).count();
    assert!(count(|policy| policy.rule().tick() > 1) >= 20);
    assert!(count(|policy| policy.limit() <= 6) >= 500);
    assert!(count(|policy| policy.limit() > 1 << 40) >= 20);
    assert!(count(|policy| policy.limit() == 0) >= 20);
    assert!(count(Policy::is_shadow) >= 100);
    assert!(count(|policy| policy.block().is_some()) >= 200);
    assert!(count(|policy| policy.block().is_some_and(|block| block.factor() > 1)) >= 100);
    assert!(count(|policy| policy.block().is_some_and(|block| block.restarts())) >= 50);
    for word in ["phased", "anchored", "grain", "by-interval", "gcra"] {
        let with = policies.iter().filter(|policy| policy.to_string().contains(word));
        assert!(with.count() >= 50, "{word}");
    }
}

#[test]
fn subjects_are_hostile() {
    let mut runner = TestRunner::deterministic();
    let any = hostile_subject();
    let subjects: Vec<Bytes> =
        (0..500).map(|_| any.new_tree(&mut runner).expect("generated").current()).collect();
    let count = |is: fn(&[u8]) -> bool| subjects.iter().filter(|subject| is(subject)).count();
    assert!(count(<[u8]>::is_empty) >= 5);
    assert!(count(|subject| subject.len() == 1 << 20) >= 5);
    assert!(count(|subject| subject.contains(&0)) >= 5);
    assert!(count(|subject| subject.contains(&b'{')) >= 5);
    assert!(count(|subject| std::str::from_utf8(subject).is_err()) >= 50);
    let pairs = confusable_pair();
    for _ in 0..200 {
        let [left, right] = pairs.new_tree(&mut runner).expect("generated").current();
        assert_ne!(left, right);
    }
}
