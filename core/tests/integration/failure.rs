//! Tests of the decision of each failure policy on each operation, when the store fails.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, and so do its helpers")]

use std::time::Duration;

use tidegate_core::layers::{FallbackStore, HasFallback};
use tidegate_core::{
    Breaker, Call, CallId, Charge, Clock, Decision, DegradedAnswer, DenyCache, Error, ErrorKind,
    Limiter, ManualClock, OnFailure, Operation, Outcome, Policy, Share, Store, StoreExt, Timestamp,
};

use crate::stubs::{Mood, Stub};

const HOUR: Duration = Duration::from_secs(3600);
const RESERVE: Operation = Operation::Reserve { max_wait: HOUR };
const BLOCK: Operation = Operation::Block { span: HOUR };
const BLOCK_AT_LEAST: Operation = Operation::BlockAtLeast { span: HOUR };
const UNDO: Operation = Operation::Undo { at: Timestamp::EPOCH };

/// A store with a failure policy, its inner store, its fallback store, and the clock of these
/// stores.
struct Bench {
    clock: ManualClock,
    main: Stub,
    spare: Stub,
    store: FallbackStore<Stub>,
}

/// Creates the stores of a test. The main store is down. `on_failure` creates the failure policy
/// from the fallback store, a share of a third, and the clock.
fn bench<F>(on_failure: impl FnOnce(Stub, Share, ManualClock) -> OnFailure<F>) -> Bench {
    let clock = ManualClock::default();
    let (main, spare) = (Stub::new(&clock), Stub::new(&clock));
    let third = Share::new(1, 3).unwrap();
    let store = main.clone().on_failure(on_failure(spare.clone(), third, clock.clone()));
    main.set(Mood::Down(ErrorKind::Unavailable));
    Bench { clock, main, spare, store }
}

fn open() -> Bench {
    bench(|_, _, clock| OnFailure::open().clock(clock))
}

fn closed() -> Bench {
    bench(|_, _, _| OnFailure::closed())
}

fn fall_back() -> Bench {
    bench(|spare, share, _| OnFailure::fall_back_to(spare, share))
}

fn policy(text: &str) -> Policy {
    text.parse().unwrap()
}

impl Bench {
    async fn decide(
        &self,
        operation: Operation,
        charges: &[Charge<'_>],
    ) -> Result<Decision, Error> {
        self.store.decide(Call::new(operation, charges)).await
    }

    async fn acquire(&self, policy: &Policy, cost: u64) -> Decision {
        let decision =
            self.decide(Operation::Acquire, &[Charge::new(policy, "s").cost(cost)]).await;
        decision.unwrap()
    }
}

fn answer(decision: &Decision) -> Option<(DegradedAnswer, ErrorKind)> {
    decision.degraded().map(|degraded| (degraded.answer, degraded.reason))
}

#[test]
fn a_store_that_answers_decides_alone() {
    crate::run(async {
        for bench in [open(), closed(), fall_back()] {
            for mood in [Mood::Up, Mood::Slow] {
                bench.main.set(mood);
                let log = policy("p: sliding-log 1/1h");
                assert!(bench.decide(Operation::Reset, &[Charge::new(&log, "s")]).await.is_ok());
                assert!(bench.acquire(&log, 1).await.is_allowed());
                let denied = bench.acquire(&log, 1).await;
                assert!(denied.is_denied(), "a denial is not a failure");
                assert_eq!(answer(&denied), None);
            }
            assert_eq!(bench.spare.take_calls().len(), 0);
        }
    });
}

#[test]
fn b44_failing_open_admits_and_is_marked_as_degraded() {
    crate::run(async {
        let bench = open();
        for mood in [Mood::Down(ErrorKind::Timeout), Mood::SlowlyDown(ErrorKind::Timeout)] {
            bench.main.set(mood);
            for operation in [Operation::Acquire, Operation::Peek, RESERVE] {
                let bucket = policy("p: token-bucket 1/1s burst 5");
                let charges = [Charge::new(&bucket, "s").cost(2)];
                for _ in 0..9 {
                    let decision = bench.decide(operation, &charges).await.unwrap();
                    assert!(decision.is_allowed());
                    assert_eq!(
                        answer(&decision),
                        Some((DegradedAnswer::FailedOpen, ErrorKind::Timeout))
                    );
                    let verdict = decision.verdicts()[0];
                    let remaining = if operation == Operation::Peek { 5 } else { 3 };
                    assert_eq!((verdict.limit(), verdict.remaining()), (5, remaining));
                    assert_eq!(verdict.reset_after().as_secs(), 5 - remaining);
                    assert_eq!(decision.wait(), Duration::ZERO);
                }
            }
        }
        assert_eq!(bench.main.model().len(), 0);
    });
}

#[test]
fn failing_open_still_refuses_calls_that_no_state_admits() {
    crate::run(async {
        let bench = open();
        let too_much = bench.acquire(&policy("p: sliding-log 5/1h"), 6).await;
        assert!(too_much.is_denied());
        assert_eq!(too_much.retry_after(), None, "the call can never be admitted");
        assert!(bench.acquire(&policy("none: fixed-window 0/1h"), 1).await.is_denied());

        let log = policy("p: sliding-log 5/1h");
        let twins = [Charge::new(&log, "s").cost(3), Charge::new(&log, "s").cost(3)];
        assert!(bench.decide(Operation::Acquire, &twins).await.unwrap().is_denied());
        let others = [Charge::new(&log, "s").cost(3), Charge::new(&log, "t").cost(3)];
        assert!(bench.decide(Operation::Acquire, &others).await.unwrap().is_allowed());
    });
}

#[test]
fn failing_closed_refuses_with_a_hint_when_to_retry() {
    crate::run(async {
        let bench = closed();
        let bucket = policy("p: token-bucket 1/1s burst 5");
        for (operation, cost) in [(Operation::Acquire, 1), (Operation::Peek, 5), (RESERVE, 1)] {
            let charges = [Charge::new(&bucket, "s").cost(cost)];
            let decision = bench.decide(operation, &charges).await.unwrap();
            assert!(decision.is_denied());
            assert_eq!(
                answer(&decision),
                Some((DegradedAnswer::FailedClosed, ErrorKind::Unavailable))
            );
            assert_eq!(decision.retry_after(), Some(Duration::from_secs(1)));
            let verdict = decision.verdicts()[0];
            assert_eq!((verdict.limit(), verdict.remaining()), (5, 0));
            assert_eq!(verdict.outcome(), Outcome::Denied);
            assert_eq!(verdict.blocked_for(), Duration::ZERO);
        }
        assert_eq!(
            bench.acquire(&bucket, 6).await.retry_after(),
            None,
            "the call can never be admitted"
        );
        assert!(bench.acquire(&policy("p: fixed-window 1/1h shadow"), 1).await.is_allowed());

        let hint = Duration::from_millis(2500);
        let bench = self::bench(|_, _, _| OnFailure::closed().retry_hint(hint));
        assert_eq!(bench.acquire(&bucket, 1).await.retry_after_secs(), Some(3));
        let bench = self::bench(|_, _, _| OnFailure::closed().retry_hint(Duration::ZERO));
        assert_eq!(bench.acquire(&bucket, 1).await.retry_after_secs(), Some(1));
    });
}

#[test]
fn b47_falling_back_admits_a_share() {
    crate::run(async {
        let bench = fall_back();
        for text in ["a: sliding-log 9/1h", "b: token-bucket 9/1h", "c: fixed-window 9/1h anchored"]
        {
            let policy = policy(text);
            for number in 1..=5 {
                let decision = bench.acquire(&policy, 1).await;
                assert_eq!(decision.is_allowed(), number <= 3, "{text}: {number}");
                let degraded = (DegradedAnswer::FellBack, ErrorKind::Unavailable);
                assert_eq!(answer(&decision), Some(degraded));
                assert_eq!(decision.verdicts()[0].limit(), 3);
            }
        }
        assert_eq!(bench.main.model().len(), 0);
        assert_eq!(bench.spare.model().len(), 3);
    });
}

#[test]
fn falling_back_to_a_share_of_zero_refuses() {
    crate::run(async {
        let bench = fall_back();
        let decision = bench.acquire(&policy("p: sliding-log 2/1h"), 1).await;
        assert!(decision.is_denied());
        assert_eq!(answer(&decision), Some((DegradedAnswer::FailedClosed, ErrorKind::Unavailable)));
        assert_eq!(decision.retry_after_secs(), Some(1));
        assert_eq!(bench.spare.take_calls().len(), 0);
    });
}

#[test]
fn a_reservation_that_falls_back_is_booked_in_the_fallback_store() {
    crate::run(async {
        let bench = fall_back();
        let bucket = policy("p: token-bucket 3/1s burst 3");
        let charges = [Charge::new(&bucket, "s")];
        for seconds in 0..4 {
            let decision = bench.decide(RESERVE, &charges).await.unwrap();
            assert!(decision.is_allowed());
            assert_eq!(decision.wait(), Duration::from_secs(seconds), "one place per second");
        }
        assert!(bench.acquire(&bucket, 1).await.is_denied());
        bench.clock.advance(Duration::from_secs(4));
        assert!(bench.acquire(&bucket, 1).await.is_allowed());
    });
}

#[test]
fn a_failed_change_stays_an_error() {
    crate::run(async {
        let log = policy("p: sliding-log 3/1h");
        let charges = [Charge::new(&log, "s")];
        for bench in [open(), closed(), fall_back()] {
            for operation in [Operation::Refund, UNDO, Operation::Reset, BLOCK, BLOCK_AT_LEAST] {
                let error = bench.decide(operation, &charges).await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Unavailable);
                let answers = bench.store.decide_many(&[Call::new(operation, &charges)]).await;
                let error = answers.into_iter().next().unwrap().unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Unavailable);
            }
            assert_eq!(bench.store.now().await.unwrap_err().kind(), ErrorKind::Unavailable);
        }
    });
}

/// An undo identifies its charge by a time of the main store's clock. So the layer does not send an
/// undo to the fallback store.
#[test]
fn a_failed_undo_is_not_sent_to_the_fallback_store() {
    crate::run(async {
        let bench = fall_back();
        let log = policy("p: sliding-log 3/1h");
        assert!(bench.acquire(&log, 1).await.is_allowed());
        assert_eq!(bench.spare.take_calls(), [[Operation::Acquire]]);
        let at = bench.clock.now();
        assert!(bench.decide(Operation::Undo { at }, &[Charge::new(&log, "s")]).await.is_err());
        assert!(bench.spare.take_calls().is_empty());
        assert!(bench.acquire(&log, 1).await.is_denied());
    });
}

/// The fallback store forgets its states, so it would lose a grant.
#[test]
fn a_failed_grant_is_an_error_and_not_sent_to_the_fallback_store() {
    crate::run(async {
        let bench = fall_back();
        let credits = policy("p: credits 3");
        let charges = [Charge::new(&credits, "s").cost(5)];
        let id = CallId::new("invoice 17", HOUR);
        let grant = Call::new(Operation::Grant { ends_at: None }, &charges).with_id(id);
        let error = bench.store.decide(grant).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(bench.spare.take_calls().is_empty());
    });
}

#[test]
fn a_failed_change_is_made_in_the_fallback_store() {
    crate::run(async {
        let bench = fall_back();
        let log = policy("p: sliding-log 3/1h");
        let charges = [Charge::new(&log, "s")];
        for undo in [Operation::Refund, Operation::Reset] {
            assert!(bench.acquire(&log, 1).await.is_allowed());
            assert!(bench.acquire(&log, 1).await.is_denied());
            assert!(bench.decide(undo, &charges).await.is_err());
        }
        assert!(bench.decide(BLOCK, &charges).await.is_err());
        let blocked = bench.acquire(&log, 1).await;
        assert_eq!(blocked.verdicts()[0].outcome(), Outcome::Blocked);
    });
}

#[test]
fn an_invalid_call_stays_an_error_even_if_the_store_is_not_called() {
    crate::run(async {
        let (log, other) = (policy("p: sliding-log 3/1h"), policy("p: sliding-log 4/1h"));
        let unsupported = policy("unsupported: sliding-log 3/1h");
        let wrong = [
            (Operation::Acquire, vec![], ErrorKind::InvalidCall),
            (Operation::Acquire, vec![Charge::new(&log, "s"); 65], ErrorKind::InvalidCall),
            (
                Operation::Peek,
                vec![Charge::new(&log, "s"), Charge::new(&other, "s")],
                ErrorKind::InvalidCall,
            ),
            (RESERVE, vec![Charge::new(&log, "s")], ErrorKind::Unsupported),
            (Operation::Acquire, vec![Charge::new(&unsupported, "s")], ErrorKind::Unsupported),
        ];
        for bench in [open(), closed(), fall_back()] {
            for (operation, charges, kind) in &wrong {
                for mood in [Mood::Up, Mood::Down(ErrorKind::CircuitOpen)] {
                    bench.main.set(mood);
                    if charges.first().is_some_and(|charge| charge.policy == &unsupported) {
                        bench.main.set(Mood::Down(ErrorKind::CircuitOpen));
                    }
                    let error = bench.decide(*operation, charges).await.unwrap_err();
                    assert_eq!(error.kind(), *kind);
                }
            }
            bench.main.set(Mood::Down(ErrorKind::TooManyWaiters));
            let error =
                bench.decide(Operation::Acquire, &[Charge::new(&log, "s")]).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::TooManyWaiters);
        }
    });
}

/// By default, a failure policy does not hide an error of the kind `Misconfigured`, such as a wrong
/// password. `also_on` changes this.
#[test]
fn misconfigured_errors_stay_errors_unless_configured_otherwise() {
    crate::run(async {
        let log = policy("p: sliding-log 3/1h");
        let charges = [Charge::new(&log, "s")];
        for bench in [open(), closed(), fall_back(), bench(|_, _, _| unrelated())] {
            for mood in
                [Mood::Down(ErrorKind::Misconfigured), Mood::SlowlyDown(ErrorKind::Misconfigured)]
            {
                bench.main.set(mood);
                let error = bench.decide(Operation::Acquire, &charges).await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Misconfigured);
                let many = bench.store.decide_many(&[Call::acquire(&charges)]).await;
                assert_eq!(many[0].as_ref().unwrap_err().kind(), ErrorKind::Misconfigured);
            }
            assert_eq!(bench.spare.take_calls().len(), 0);
        }
        let configured = bench(|_, _, _| OnFailure::open().also_on(ErrorKind::Misconfigured));
        configured.main.set(Mood::Down(ErrorKind::Misconfigured));
        let decision = configured.acquire(&log, 1).await;
        let degraded = (DegradedAnswer::FailedOpen, ErrorKind::Misconfigured);
        assert_eq!(answer(&decision), Some(degraded));
    });
}

/// Returns a failure policy that fails open. The two calls of `also_on` have no effect, because
/// `also_on` ignores these kinds of errors.
fn unrelated() -> OnFailure {
    let on_failure = OnFailure::open().also_on(ErrorKind::TooManyWaiters);
    on_failure.also_on(ErrorKind::InvalidCall)
}

#[test]
fn b43_b55_every_other_error_is_the_reason_and_never_a_plain_decision() {
    crate::run(async {
        let log = policy("p: sliding-log 3/1h");
        for kind in [
            ErrorKind::Timeout,
            ErrorKind::Unavailable,
            ErrorKind::ReadOnly,
            ErrorKind::Busy,
            ErrorKind::OutOfMemory,
            ErrorKind::ForeignValue,
            ErrorKind::UnsupportedServer,
            ErrorKind::Protocol,
            ErrorKind::CircuitOpen,
        ] {
            for bench in [open(), closed(), fall_back()] {
                bench.main.set(Mood::Down(kind));
                let decision = bench.acquire(&log, 1).await;
                assert_eq!(decision.degraded().unwrap().reason, kind);
            }
        }
    });
}

#[test]
fn if_the_fallback_fails_too_the_error_names_both() {
    crate::run(async {
        let bench = fall_back();
        bench.spare.set(Mood::Down(ErrorKind::OutOfMemory));
        let log = policy("p: sliding-log 3/1h");
        let charges = [Charge::new(&log, "s")];
        for operation in [Operation::Acquire, Operation::Reset] {
            let error = bench.decide(operation, &charges).await.unwrap_err();
            assert_eq!(
                error.to_string(),
                "unavailable: neither the store (unavailable: down) nor its fallback has decided"
            );
            let fallback = std::error::Error::source(&error).unwrap();
            assert_eq!(fallback.to_string(), "out-of-memory: down");
        }
        // A second failure policy around this store decides when the first failure policy fails.
        let store = bench.store.or_fail_closed();
        let decision = store.decide(Call::acquire(&charges)).await.unwrap();
        assert_eq!(answer(&decision), Some((DegradedAnswer::FailedClosed, ErrorKind::Unavailable)));
    });
}

/// Creates stores with different settings per policy: `open` fails open, `closed` fails closed, and
/// `tenth` falls back to a tenth. All other policies fall back to a third.
fn mixed() -> Bench {
    bench(|spare, share, clock| {
        let on_failure = OnFailure::fall_back_to(spare, share).clock(clock);
        let tenth = Share::new(1, 10).unwrap();
        on_failure.open_for("open").closed_for("closed").fall_back_for("tenth", tenth)
    })
}

#[test]
fn each_policy_has_its_own_setting() {
    crate::run(async {
        let bench = mixed();
        let all = ["open", "closed", "tenth", "third"];
        let policies = all.map(|name| policy(&format!("{name}: sliding-log 30/1h")));
        let mut admitted = [0; 4];
        for _ in 0..20 {
            for (policy, admitted) in policies.iter().zip(&mut admitted) {
                *admitted += u32::from(bench.acquire(policy, 1).await.is_allowed());
            }
        }
        assert_eq!(admitted, [20, 0, 3, 10]);
        assert!(format!("{:?}", bench.store).contains(r#""open": Open"#));
    });
}

#[test]
fn several_charges_that_fall_back_are_one_call() {
    crate::run(async {
        let bench = mixed();
        let [free, tenth, third] =
            ["open", "tenth", "third"].map(|name| policy(&format!("{name}: sliding-log 30/1h")));
        let charges = [Charge::new(&third, "s"), Charge::new(&free, "s"), Charge::new(&tenth, "s")];
        for number in 1..=5 {
            let decision = bench.decide(Operation::Acquire, &charges).await.unwrap();
            assert_eq!(decision.is_allowed(), number <= 3);
            assert_eq!(answer(&decision), Some((DegradedAnswer::FellBack, ErrorKind::Unavailable)));
            let verdicts = decision.verdicts();
            assert_eq!(verdicts.iter().map(|v| v.limit()).collect::<Vec<_>>(), [10, 30, 3]);
            assert_eq!(verdicts[0].remaining(), 10 - number.min(3));
            assert_eq!(verdicts[1].remaining(), if number <= 3 { 29 } else { 30 });
            assert_eq!(verdicts[2].remaining(), 3 - number.min(3));
            assert_eq!(bench.spare.take_calls(), [[Operation::Acquire]], "with two charges");
        }
        assert_eq!(bench.spare.model().len(), 2);
    });
}

#[test]
fn a_policy_that_fails_closed_refuses_the_call_and_nothing_is_charged() {
    crate::run(async {
        let bench = mixed();
        let [free, closed, third] =
            ["open", "closed", "third"].map(|name| policy(&format!("{name}: token-bucket 30/1h")));
        let charges =
            [Charge::new(&third, "s"), Charge::new(&closed, "s"), Charge::new(&free, "s")];
        for operation in [Operation::Acquire, RESERVE] {
            let decision = bench.decide(operation, &charges).await.unwrap();
            assert!(decision.is_denied());
            assert_eq!(decision.refused_by().collect::<Vec<_>>(), [1]);
            assert_eq!(decision.wait(), Duration::ZERO);
            assert_eq!(
                answer(&decision),
                Some((DegradedAnswer::FailedClosed, ErrorKind::Unavailable))
            );
            let remaining: Vec<_> = decision.verdicts().iter().map(|v| v.remaining()).collect();
            assert_eq!(remaining, [10, 0, 30]);
            assert_eq!(bench.spare.take_calls(), [[Operation::Peek]]);
        }
        assert_eq!(bench.spare.model().len(), 0);

        // A shadow policy that fails closed does not refuse the call, so the other charge is made.
        let shadow = policy("closed: sliding-log 30/1h shadow");
        let charges = [Charge::new(&third, "s"), Charge::new(&shadow, "s")];
        let decision = bench.decide(Operation::Acquire, &charges).await.unwrap();
        assert!(decision.is_allowed());
        assert_eq!(decision.verdicts()[1].outcome(), Outcome::Denied);
        assert_eq!(bench.spare.model().len(), 1);

        // A policy that fails open still denies a cost above its limit. The call is refused, and no
        // policy is charged.
        let small = policy("open: sliding-log 1/1h");
        let charges = [Charge::new(&third, "t").cost(2), Charge::new(&small, "t").cost(2)];
        let decision = bench.decide(Operation::Acquire, &charges).await.unwrap();
        assert_eq!(decision.refused_by().collect::<Vec<_>>(), [1]);
        assert_eq!(bench.spare.model().len(), 1);
    });
}

#[test]
fn only_failed_calls_of_a_batch_fall_back_in_one_batch() {
    crate::run(async {
        use tidegate_testkit::faults::{Fault, Faults};

        let clock = ManualClock::default();
        let spare = Stub::new(&clock);
        let lost = Fault::Before(ErrorKind::Busy);
        let plan = vec![Fault::None, lost, Fault::None, lost, lost];
        let main = Stub::new(&clock).layer(Faults::new(plan));
        let on_failure = OnFailure::fall_back_to(spare.clone(), Share::new(1, 3).unwrap());
        let store = main.on_failure(on_failure.open_for("open"));
        let (log, free) = (policy("p: sliding-log 3/1h"), policy("open: sliding-log 3/1h"));
        let (log, free) = ([Charge::new(&log, "s")], [Charge::new(&free, "s")]);
        let calls = [&log, &log, &log, &free, &log].map(|charges| Call::acquire(charges));
        let answers = store.decide_many(&calls).await;
        let answers = answers.into_iter().map(|answer| {
            let decision = answer.unwrap();
            (decision.is_allowed(), decision.degraded().map(|degraded| degraded.answer))
        });
        assert_eq!(
            answers.collect::<Vec<_>>(),
            [
                (true, None),
                (true, Some(DegradedAnswer::FellBack)),
                (true, None),
                (true, Some(DegradedAnswer::FailedOpen)),
                (false, Some(DegradedAnswer::FellBack)),
            ]
        );
        assert_eq!(spare.take_calls(), [[Operation::Acquire; 2]]);
        assert_eq!(store.inner().as_layer().calls(), 5);
    });
}

#[test]
fn a_batch_stays_one_batch() {
    crate::run(async {
        for (bench, spare_batches) in [(open(), 0), (closed(), 0), (fall_back(), 1)] {
            let log = policy("p: sliding-log 9/1h");
            let charges = [Charge::new(&log, "s")];
            let calls = [Call::acquire(&charges); 4];
            for mood in [Mood::Down(ErrorKind::Busy), Mood::SlowlyDown(ErrorKind::Busy)] {
                bench.main.set(mood);
                let answers = bench.store.decide_many(&calls).await;
                assert_eq!(answers.len(), 4);
                assert!(answers.iter().all(|answer| answer.as_ref().unwrap().degraded().is_some()));
                assert_eq!(bench.main.take_calls(), [[Operation::Acquire; 4]]);
                assert_eq!(bench.spare.take_calls().len(), spare_batches);
            }
            bench.main.set(Mood::Up);
            let answers = bench.store.decide_many(&calls).await;
            assert!(answers.iter().all(|answer| answer.as_ref().unwrap().degraded().is_none()));
        }
    });
}

#[test]
fn a_policy_without_a_share_is_an_error_when_a_limiter_is_built() {
    let years = Duration::from_micros(23 * 31_536_000_000_000 + 1);
    let slow = tidegate_core::TokenBucket::new(1, years).burst(3);
    let slow = Policy::new("slow", slow).unwrap();
    let clock = ManualClock::default();
    let store = |share| Stub::new(&clock).or_fall_back_to(Stub::new(&clock), share);
    let error = store(Share::new(2, 5).unwrap()).supports(&slow).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("has no share of 2/5"), "{error}");
    assert!(store(Share::new(1, 3).unwrap()).supports(&slow).is_ok());
    assert!(
        store(Share::new(0, 3).unwrap()).supports(&slow).is_ok(),
        "a share of zero fails closed"
    );
    assert!(store(Share::new(1, 3).unwrap()).supports(&policy("unsupported: gcra 9/1s")).is_err());
}

/// A policy whose share rounds down to zero would refuse every call during an outage. So building
/// the limiter fails, long before an outage.
#[test]
fn a_share_that_rounds_to_zero_is_an_error_when_a_limiter_is_built() {
    let clock = ManualClock::default();
    let store = |setting: fn(OnFailure<HasFallback>) -> OnFailure<HasFallback>| {
        let third = Share::new(1, 3).unwrap();
        let on_failure = OnFailure::fall_back_to(Stub::new(&clock), third);
        Stub::new(&clock).on_failure(setting(on_failure))
    };
    let build = |setting, text: &str| Limiter::new(store(setting), [policy(text)]);
    for text in ["login: sliding-log 2/15m", "login: gcra 9/1s burst 2", "login: fixed-window 1/1s"]
    {
        let error = build(|on_failure| on_failure, text).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        let message = error.to_string();
        for part in [text, "share 1/3", "at least 3", "fall_back_for", "closed_for"] {
            assert!(message.contains(part), "{part}: {message}");
        }
        let two_thirds = |on_failure: OnFailure<HasFallback>| {
            on_failure.fall_back_for("login", Share::new(2, 3).unwrap())
        };
        assert_eq!(build(two_thirds, text).is_ok(), !text.contains(" 1/1s"), "{text}");
        assert!(build(|on_failure| on_failure.closed_for("login"), text).is_ok());
        assert!(build(|on_failure| on_failure.open_for("login"), text).is_ok());
        let nothing = |on_failure: OnFailure<HasFallback>| {
            on_failure.fall_back_for("login", Share::new(0, 3).unwrap())
        };
        assert!(build(nothing, text).is_ok());
        let shadow = format!("{text} shadow");
        assert!(build(|on_failure| on_failure, &shadow).is_ok(), "a shadow never refuses");
    }
    assert!(build(|on_failure| on_failure, "login: sliding-log 3/15m").is_ok());
    assert!(
        build(|on_failure| on_failure, "none: fixed-window 0/15m").is_ok(),
        "the policy refuses every call even without a share"
    );
}

#[test]
fn layers_forward_ready_to_the_store() {
    crate::run(async {
        for mood in [Mood::Up, Mood::Slow, Mood::Down(ErrorKind::Misconfigured)] {
            let stub = Stub::new(&ManualClock::default());
            stub.set(Mood::Down(ErrorKind::Unavailable));
            let store =
                stub.clone().breaker(Breaker::new().failures(1)).deny_cache(DenyCache::new());
            let store = std::sync::Arc::new(store.or_fail_open());
            let log = policy("p: sliding-log 3/1h");
            let charges = [Charge::new(&log, "s")];
            assert!(store.decide(Call::acquire(&charges)).await.unwrap().degraded().is_some());
            stub.set(mood);
            match mood {
                Mood::Down(kind) => assert_eq!(store.ready().await.unwrap_err().kind(), kind),
                _ => store.ready().await.unwrap(),
            }
        }
    });
}

#[test]
fn answers_that_need_no_waiting_need_no_runtime() {
    let log = policy("p: sliding-log 3/1h");
    let charges = [Charge::new(&log, "s")];
    for bench in [open(), closed()] {
        let decision = bench.store.decide(Call::acquire(&charges)).into_ready().unwrap().unwrap();
        assert!(decision.degraded().is_some());
        let calls = [Call::acquire(&charges)];
        assert!(bench.store.decide_many(&calls).into_ready().unwrap()[0].is_ok());
    }
    let bench = fall_back();
    bench.main.set(Mood::Up);
    assert!(bench.store.decide(Call::acquire(&charges)).into_ready().is_ok());
}

#[test]
fn an_acquire_up_to_a_cost_has_one_amount_for_charges_that_fail_open_and_fall_back() {
    crate::run(async {
        let bench = bench(|spare, share, _| OnFailure::fall_back_to(spare, share).open_for("open"));
        let (open, shared) = (policy("open: fixed-window 5/1h"), policy("p: fixed-window 9/1h"));
        let checked = policy("checked: fixed-window 9/1h");
        let charges = [
            Charge::new(&open, "s").cost(8),
            Charge::new(&shared, "s").cost(8),
            Charge::new(&checked, "s").check_only(),
        ];
        let up_to = |min| Operation::AcquireUpTo { min };
        // The fallback store gets a third of the limit of 9, so it admits at most a cost of 3.
        let refused = bench.decide(up_to(4), &charges).await.unwrap();
        assert!(refused.is_denied());
        assert_eq!(refused.amounts(), [0, 0, 0]);
        let acquired = bench.decide(up_to(2), &charges).await.unwrap();
        assert!(acquired.is_allowed());
        assert_eq!(acquired.amounts(), [3, 3, 0]);
        let remaining: Vec<_> =
            acquired.verdicts().iter().map(|verdict| verdict.remaining()).collect();
        assert_eq!(remaining, [2, 0, 3]);
        assert!(bench.decide(up_to(1), &charges).await.unwrap().is_denied());

        let alone = bench.decide(up_to(2), &charges[..1]).await.unwrap();
        assert_eq!(alone.amounts(), [5]);
        let wide = [charges[0], charges[1].cost(3), charges[2]];
        let _ = bench.decide(Operation::Reset, &wide).await.unwrap_err();
        let bounded_by_cost = bench.decide(up_to(2), &wide).await.unwrap();
        assert_eq!(bounded_by_cost.amounts(), [3, 3, 0]);
        // The first policy fails open. The fallback store decides only the check-only charge.
        let check = bench.decide(up_to(2), &[charges[0], charges[2]]).await.unwrap();
        assert_eq!(check.amounts(), [5, 0]);
        assert_eq!(check.verdicts()[1].remaining(), 3);
    });
}

#[test]
fn a_charge_beyond_the_limit_stays_an_error_and_reaches_the_fallback() {
    crate::run(async {
        let log = policy("p: sliding-log 9/1h");
        let charge = [Charge::new(&log, "s").cost(20)];
        for bench in [open(), closed(), fall_back()] {
            let error = bench.decide(Operation::Charge, &charge).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable);
        }
        let bench = fall_back();
        let _ = bench.decide(Operation::Charge, &charge).await.unwrap_err();
        assert!(bench.acquire(&log, 1).await.is_denied());
    });
}

#[test]
fn an_id_that_was_used_for_another_call_is_an_error_under_every_setting() {
    crate::run(async {
        let log = policy("p: sliding-log 9/1h");
        let charge = [Charge::new(&log, "s")];
        for bench in [open(), closed(), fall_back()] {
            bench.main.set(Mood::Down(ErrorKind::IdReused));
            let error = bench.decide(Operation::Acquire, &charge).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::IdReused);
            assert!(bench.spare.take_calls().is_empty());
        }
    });
}

#[test]
fn the_fallback_decides_a_call_with_an_id_each_time() {
    crate::run(async {
        let bench = fall_back();
        let log = policy("p: sliding-log 9/1h");
        let charge = [Charge::new(&log, "s")];
        let call = Call::acquire(&charge).with_id(CallId::new("id", HOUR));
        for remaining in [2, 1, 0] {
            let decision = bench.store.decide(call).await.unwrap();
            assert_eq!(decision.verdicts()[0].remaining(), remaining);
        }
    });
}

/// The error of a call says whether the call has possibly charged the fallback store.
#[test]
fn an_error_after_a_charge_of_the_fallback_store_says_so() {
    crate::run(async {
        let policy = policy("p: fixed-window 30/1h");
        let charge = [Charge::new(&policy, "s")];
        for (operation, spare, is_uncharged) in [
            (Operation::Charge, Mood::Up, false),
            (Operation::Refund, Mood::Up, false),
            (UNDO, Mood::Up, true),
            (Operation::Acquire, Mood::Down(ErrorKind::Timeout), false),
            (Operation::Acquire, Mood::Down(ErrorKind::Busy), true),
        ] {
            let bench = fall_back();
            bench.main.set(Mood::Down(ErrorKind::CircuitOpen));
            bench.spare.set(spare);
            let error = bench.decide(operation, &charge).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::CircuitOpen, "{operation:?}");
            assert_eq!(error.is_definitely_not_charged(), is_uncharged, "{operation:?}");
        }
    });
}
