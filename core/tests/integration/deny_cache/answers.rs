//! What the cache answers by itself, and what it does not.

use std::time::Duration;

use tidegate_core::{
    Answer, Call, CallId, Charge, Decision, Degraded, DegradedAnswer, DenyCache, Error, ErrorKind,
    Operation, Outcome, Store, StoreExt, SystemClock, Timestamp, Verdict,
};
use tidegate_testkit::faults::{Fault, Faults};

use super::common::{Bench, START, Who, now, policy};

#[test]
fn b45_a_refusal_never_outlives_retry_after() {
    let bench = Bench::new();
    let anchored = policy("fixed-window 1/10us anchored");
    let charge = [Charge::new(&anchored, "s")];
    assert!(bench.acquire_by(Who::Store, &charge).is_allowed());
    bench.advance(3);
    assert!(bench.acquire_by(Who::Store, &charge).is_denied());
    bench.advance(6);
    let last = bench.acquire_by(Who::Cache, &charge);
    assert_eq!(last.retry_after(), Some(Duration::from_micros(1)));
    bench.advance(1);
    assert!(bench.acquire_by(Who::Store, &charge).is_allowed());
}

#[test]
fn a_flood_of_refused_requests_asks_the_store_once_per_retry_after() {
    let bench = Bench::new();
    let window = policy("fixed-window 1/1s");
    let charge = [Charge::new(&window, "s")];
    bench.set(1_790_000_000_000_000);
    let mut admitted = 0;
    for _ in 0..100_000 {
        admitted += usize::from(bench.ask(Operation::Acquire, &charge).is_allowed());
        bench.advance(100);
    }
    // Ten seconds: each has one that is admitted, and one that is told until when no other is.
    assert_eq!((admitted, bench.asked()), (10, 20));
    let stats = bench.store.stats();
    assert_eq!((stats.hits(), stats.misses(), stats.len()), (99_980, 20, 1));
}

#[test]
fn the_time_that_the_store_took_to_answer_counts() {
    let bench = Bench::failing(vec![Fault::None, Fault::Late]);
    let anchored = policy("fixed-window 1/10us anchored");
    let charge = [Charge::new(&anchored, "s")];
    assert!(bench.acquire_by(Who::Store, &charge).is_allowed());
    bench.advance(3);
    let mut late = std::pin::pin!(bench.store.decide(Call::acquire(&charge)));
    assert!(super::common::poll(late.as_mut()).is_pending());
    bench.advance(5);
    crate::run(Faults::deliver(bench.store.inner()));
    let told = crate::run(late).unwrap();
    assert_eq!(told.retry_after(), Some(Duration::from_micros(7)));
    bench.advance(1);
    let known = bench.acquire_by(Who::Cache, &charge);
    assert_eq!(known.retry_after(), Some(Duration::from_micros(1)));
    bench.advance(1);
    assert!(bench.acquire_by(Who::Store, &charge).is_allowed());
}

#[test]
fn who_was_shut_out_is_blocked_until_the_block_ends_and_then_shut_out_anew() {
    let bench = Bench::new();
    let strict = policy("sliding-log 1/1h block 10us");
    let charge = [Charge::new(&strict, "s")];
    assert!(bench.acquire_by(Who::Store, &charge).is_allowed());
    let first = bench.acquire_by(Who::Store, &charge);
    assert_eq!(first.verdicts()[0].outcome(), Outcome::Denied);
    bench.advance(9);
    let blocked = bench.acquire_by(Who::Cache, &charge).verdicts()[0];
    assert_eq!(blocked.outcome(), Outcome::Blocked);
    assert_eq!(blocked.blocked_for(), Duration::from_micros(1));
    bench.advance(1);
    // An hour is not over: the store has a block to write.
    let anew = bench.acquire_by(Who::Store, &charge).verdicts()[0];
    assert_eq!((anew.outcome(), anew.blocked_for().as_micros()), (Outcome::Denied, 10));
}

#[test]
fn a_peek_that_is_refused_does_not_save_the_subject_from_being_shut_out() {
    let bench = Bench::new();
    let strict = policy("sliding-log 1/1h block 1m");
    let charge = [Charge::new(&strict, "s")];
    assert!(bench.acquire_by(Who::Store, &charge).is_allowed());
    assert!(bench.ask(Operation::Peek, &charge).is_denied());
    let shut_out = bench.acquire_by(Who::Store, &charge).verdicts()[0];
    assert_eq!(shut_out.blocked_for(), Duration::from_secs(60));
}

#[test]
fn peeks_and_acquires_are_answered_alike() {
    let bench = Bench::new();
    let log = policy("sliding-log 1/1h");
    let charge = [Charge::new(&log, "s")];
    assert!(bench.acquire_by(Who::Store, &charge).is_allowed());
    assert!(bench.ask(Operation::Peek, &charge).is_denied());
    assert!(bench.acquire_by(Who::Cache, &charge).is_denied());
    assert!(bench.ask(Operation::Peek, &charge).is_denied());
    assert_eq!(bench.asked(), 2);
}

#[test]
fn other_costs_subjects_tenants_and_policies_are_asked_for() {
    let bench = Bench::new();
    let log = policy("p: sliding-log 2/1h");
    let refused = Charge::new(&log, "s").cost(2);
    assert!(bench.acquire_by(Who::Store, &[refused.cost(1)]).is_allowed());
    assert!(bench.acquire_by(Who::Store, &[refused]).is_denied());
    assert!(bench.acquire_by(Who::Cache, &[refused]).is_denied());

    let other = policy("q: sliding-log 2/1h");
    assert!(bench.acquire_by(Who::Store, &[Charge::new(&other, "s").cost(2)]).is_allowed());
    assert!(bench.acquire_by(Who::Store, &[Charge::new(&log, "").cost(2)]).is_allowed());
    let joined = Charge::new(&log, "").tenant("s").cost(2);
    assert!(bench.acquire_by(Who::Store, &[joined]).is_allowed());
    assert!(bench.acquire_by(Who::Store, &[refused, refused]).is_denied());
    assert!(bench.acquire_by(Who::Store, &[refused.cost(1)]).is_allowed());
}

#[test]
fn b45_a_changed_limit_counts_at_once() {
    let bench = Bench::new();
    let (low, high) = (policy("p: sliding-log 1/1h"), policy("p: sliding-log 3/1h"));
    assert!(bench.acquire(&low, 1).is_allowed());
    assert!(bench.acquire(&low, 1).is_denied());
    let raised = [Charge::new(&high, "s")];
    assert!(bench.acquire_by(Who::Store, &raised).is_allowed());
    // An equal policy that was made anew is no other.
    assert!(bench.acquire(&low, 1).is_denied());
    let same = policy("p: sliding-log 1/1h");
    assert!(bench.acquire_by(Who::Cache, &[Charge::new(&same, "s")]).is_denied());
}

#[test]
fn what_can_never_pass_is_asked_for_each_time() {
    let bench = Bench::new();
    let log = policy("sliding-log 1/1h");
    for _ in 0..3 {
        let never = bench.acquire_by(Who::Store, &[Charge::new(&log, "s").cost(2)]);
        assert_eq!(never.retry_after(), None);
    }
    assert_eq!(bench.store.stats().len(), 0);
}

#[test]
fn the_first_policy_that_would_decide_otherwise_ends_a_refusal_by_several() {
    let bench = Bench::new();
    let (short, long) = (policy("a: sliding-log 1/10us"), policy("b: sliding-log 1/20us"));
    let charges = [Charge::new(&short, "s"), Charge::new(&long, "s")];
    assert!(bench.acquire_by(Who::Store, &charges).is_allowed());
    assert_eq!(bench.acquire_by(Who::Store, &charges).refused_by().count(), 2);
    bench.advance(9);
    assert_eq!(bench.acquire_by(Who::Cache, &charges).refused_by().count(), 2);
    bench.advance(1);
    assert_eq!(bench.acquire_by(Who::Store, &charges).refused_by().collect::<Vec<_>>(), [1]);
    bench.advance(9);
    let last = bench.acquire_by(Who::Cache, &charges);
    assert_eq!(last.retry_after(), Some(Duration::from_micros(1)));
}

#[test]
fn remaining_is_the_least_it_may_be_or_asked_for_if_it_must_be_exact() {
    let bucket = policy("token-bucket 1/10us burst 5");
    let charge = [Charge::new(&bucket, "s").cost(5)];
    for (cache, who, remaining) in
        [(DenyCache::new(), Who::Cache, 0), (DenyCache::new().only_exact(), Who::Store, 2)]
    {
        let bench = Bench::with(cache, vec![]);
        bench.set(1_790_000_000_000_000);
        assert!(bench.acquire_by(Who::Store, &charge).is_allowed());
        assert!(bench.acquire_by(Who::Store, &charge).is_denied());
        bench.advance(20);
        let verdict = bench.acquire_by(who, &charge).verdicts()[0];
        assert_eq!(verdict.remaining(), remaining);
        assert_eq!(verdict.retry_after(), Some(Duration::from_micros(30)));
        assert_eq!(verdict.reset_after(), Duration::from_micros(30));
    }
}

#[test]
fn what_remains_of_a_fixed_window_is_exact_until_it_ends() {
    let bench = Bench::with(DenyCache::new().only_exact(), vec![]);
    let window = policy("fixed-window 3/10us anchored");
    let charge = [Charge::new(&window, "s").cost(2)];
    assert!(bench.acquire_by(Who::Store, &charge).is_allowed());
    assert!(bench.acquire_by(Who::Store, &charge).is_denied());
    bench.advance(9);
    assert_eq!(bench.acquire_by(Who::Cache, &charge).verdicts()[0].remaining(), 1);
    bench.advance(1);
    assert!(bench.acquire_by(Who::Store, &charge).is_allowed());
}

/// While one policy refuses for long, the state of another recovers.
#[test]
fn what_has_recovered_remains_in_full() {
    let bench = Bench::with(DenyCache::new(), vec![]);
    let (ip, user) = (policy("ip: token-bucket 1/10us burst 4"), policy("user: sliding-log 1/1h"));
    let charges = [Charge::new(&ip, "s").cost(2), Charge::new(&user, "s")];
    bench.set(1_790_000_000_000_000);
    assert!(bench.acquire_by(Who::Store, &charges).is_allowed());
    assert!(bench.acquire_by(Who::Store, &charges).is_denied());
    for (pause, reset, remaining) in [(19, 1, 2), (1, 0, 4), (1_000_000, 0, 4)] {
        bench.advance(pause);
        let verdict = bench.acquire_by(Who::Cache, &charges).verdicts()[0];
        assert_eq!(verdict.reset_after(), Duration::from_micros(reset));
        assert_eq!(verdict.remaining(), remaining);
    }
}

#[test]
fn two_charges_to_one_key_are_exact_only_as_their_sum_is() {
    let bench = Bench::with(DenyCache::new().only_exact(), vec![]);
    let bucket = policy("token-bucket 1/10us burst 4");
    let charge = Charge::new(&bucket, "s");
    bench.set(1_790_000_000_000_000);
    assert!(bench.acquire_by(Who::Store, &[charge.cost(4)]).is_allowed());
    assert!(bench.acquire_by(Who::Store, &[charge, charge]).is_denied());
    bench.advance(10);
    let decision = bench.acquire_by(Who::Store, &[charge, charge]);
    assert_eq!((decision.is_denied(), decision.verdicts()[0].remaining()), (true, 1));
}

#[test]
fn a_clock_that_steps_back_behind_what_was_sent_forgets_all() {
    let bench = Bench::new();
    let log = policy("sliding-log 1/1h");
    let charge = [Charge::new(&log, "s")];
    assert!(bench.acquire_by(Who::Store, &charge).is_allowed());
    assert!(bench.acquire_by(Who::Store, &charge).is_denied());
    bench.advance(100);
    assert!(bench.acquire_by(Who::Store, &[Charge::new(&log, "other")]).is_allowed());
    bench.set(START + 50);
    assert!(bench.acquire_by(Who::Store, &charge).is_denied());
    assert!(bench.acquire_by(Who::Cache, &charge).is_denied());
    bench.set(START + 49);
    assert!(bench.acquire_by(Who::Store, &charge).is_denied());
}

#[test]
fn errors_are_not_remembered_and_wrong_calls_stay_errors() {
    let bench = Bench::failing(vec![Fault::Before(ErrorKind::Busy), Fault::None]);
    let log = policy("sliding-log 1/1h");
    let charge = [Charge::new(&log, "s")];
    let busy = bench.try_ask(Operation::Acquire, &charge).unwrap_err();
    assert_eq!(busy.kind(), ErrorKind::Busy);
    assert!(bench.acquire_by(Who::Store, &charge).is_allowed());
    let too_many = vec![charge[0]; 65];
    for charges in [&[][..], &too_many, &[Charge::new(&log, &vec![0; (1 << 20) + 1])]] {
        for operation in [Operation::Acquire, Operation::Refund] {
            let wrong = bench.try_ask(operation, charges).unwrap_err();
            assert_eq!(wrong.kind(), ErrorKind::InvalidCall);
        }
    }
}

/// Refuses everything for an hour; every other time because it could not be asked.
#[derive(Debug, Default)]
struct Degrading(std::sync::atomic::AtomicUsize);

impl Store for Degrading {
    fn decide<'a>(&'a self, _: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
        let calls = self.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        let hour = Duration::from_secs(3600);
        let verdict =
            Verdict::new(Outcome::Denied, 1).with_retry_after(Some(hour)).with_reset_after(hour);
        let decision = Decision::one(verdict);
        let (answer, reason) = (DegradedAnswer::FailedClosed, ErrorKind::Timeout);
        Answer::ready(Ok(match calls {
            0 => decision.degraded_by(Degraded::new(answer, reason)),
            _ => decision,
        }))
    }

    fn now(&self) -> Answer<'_, Result<Timestamp, Error>> {
        Answer::ready(Ok(Timestamp::EPOCH))
    }
}

#[test]
fn a_degraded_refusal_is_not_remembered() {
    let store = Degrading::default().deny_cache(DenyCache::new().clock(SystemClock::new()));
    let log = policy("sliding-log 1/1h");
    let charge = [Charge::new(&log, "s")];
    let degraded: Vec<bool> = (0..4)
        .map(|_| now(store.decide(Call::acquire(&charge))).unwrap().degraded().is_some())
        .collect();
    assert_eq!(degraded, [true, false, false, false]);
    assert_eq!(store.inner().0.load(std::sync::atomic::Ordering::SeqCst), 2);
}

#[test]
fn checks_amounts_and_ids_are_the_business_of_the_store() {
    let bench = Bench::new();
    let window = policy("fixed-window 3/1h");
    let charge = [Charge::new(&window, "s").cost(2)];
    let id = CallId::new("id", Duration::from_secs(60));
    let with_id = || crate::run(bench.store.decide(Call::acquire(&charge).with_id(id))).unwrap();
    let first = with_id();
    assert!(first.is_allowed());
    // Cached: there is 1 left.
    assert!(bench.acquire_by(Who::Store, &charge).is_denied());
    assert!(bench.acquire_by(Who::Cache, &charge).is_denied());

    assert_eq!(with_id(), first, "admitted once, and so again");
    assert!(bench.acquire_by(Who::Store, &charge).is_denied());
    assert!(bench.acquire_by(Who::Store, &[charge[0].check_only()]).is_denied());
    assert!(bench.acquire_by(Who::Store, &[charge[0].check_only()]).is_denied());
    let taken = bench.ask(Operation::AcquireUpTo { min: 1 }, &charge);
    assert_eq!(taken.amounts(), [1]);
    assert!(bench.ask(Operation::AcquireUpTo { min: 1 }, &charge).is_denied());
    // What is given back is seen at once, and so is what is charged.
    assert!(bench.acquire_by(Who::Store, &charge).is_denied());
    let _ = bench.ask(Operation::Refund, &charge);
    assert!(bench.acquire_by(Who::Store, &charge).is_allowed());
    let _ = bench.ask(Operation::Charge, &charge);
    assert!(bench.acquire_by(Who::Store, &charge).is_denied());
}

#[test]
fn a_caller_can_ask_the_cache_alone() {
    let bench = Bench::new();
    let window = policy("fixed-window 1/10us anchored");
    let charge = [Charge::new(&window, "s")];
    let ask = |operation| bench.store.cached_denial(Call::new(operation, &charge));
    assert!(bench.acquire_by(Who::Store, &charge).is_allowed());
    assert_eq!(ask(Operation::Acquire), None);
    let denial = bench.acquire_by(Who::Store, &charge);
    bench.advance(3);
    for operation in [Operation::Acquire, Operation::Peek] {
        let cached = ask(operation).unwrap();
        assert_eq!(cached.retry_after(), Some(Duration::from_micros(7)));
        assert!(denial.is_denied() && cached.is_denied());
    }
    // Operations that the cache never answers.
    for operation in [Operation::Charge, Operation::Refund, Operation::Reset] {
        assert_eq!(ask(operation), None);
    }
    assert_eq!(bench.asked(), 2);
    let stats = bench.store.stats();
    assert_eq!((stats.hits(), stats.misses()), (2, 2));
    bench.advance(7);
    assert_eq!(ask(Operation::Acquire), None);
    assert_eq!((stats.hits(), stats.misses()), (2, 2));
}
