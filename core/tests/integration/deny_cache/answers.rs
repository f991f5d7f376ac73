//! Tests of the calls that the deny cache answers by itself, and of the calls that it must not
//! answer.

use std::time::Duration;

use tidegate_core::{
    Answer, Call, CallId, Charge, Decision, Degraded, DegradedAnswer, DenyCache, Error, ErrorKind,
    Operation, Outcome, Store, StoreExt, SystemClock, Timestamp, Verdict,
};
use tidegate_testkit::faults::{Fault, Faults};

use super::common::{Bench, START, Source, policy, ready};

#[test]
fn b45_a_refusal_never_outlives_retry_after() {
    let bench = Bench::new();
    let anchored = policy("fixed-window 1/10us anchored");
    let charge = [Charge::new(&anchored, "s")];
    assert!(bench.acquire_by(Source::Store, &charge).is_allowed());
    bench.advance(3);
    assert!(bench.acquire_by(Source::Store, &charge).is_denied());
    bench.advance(6);
    let last = bench.acquire_by(Source::Cache, &charge);
    assert_eq!(last.retry_after(), Some(Duration::from_micros(1)));
    bench.advance(1);
    assert!(bench.acquire_by(Source::Store, &charge).is_allowed());
}

#[test]
fn a_flood_of_refused_requests_calls_the_store_once_per_retry_after() {
    let bench = Bench::new();
    let window = policy("fixed-window 1/1s");
    let charge = [Charge::new(&window, "s")];
    bench.set(1_790_000_000_000_000);
    let mut admitted = 0;
    for _ in 0..100_000 {
        admitted += usize::from(bench.decide(Operation::Acquire, &charge).is_allowed());
        bench.advance(100);
    }
    // In each of the ten seconds, the store admits one call and refuses one call. The cache refuses
    // all other calls.
    assert_eq!((admitted, bench.calls()), (10, 20));
    let stats = bench.store.stats();
    assert_eq!((stats.hits(), stats.misses(), stats.len()), (99_980, 20, 1));
}

#[test]
fn the_time_that_an_answer_was_in_flight_counts() {
    let bench = Bench::failing(vec![Fault::None, Fault::Late]);
    let anchored = policy("fixed-window 1/10us anchored");
    let charge = [Charge::new(&anchored, "s")];
    assert!(bench.acquire_by(Source::Store, &charge).is_allowed());
    bench.advance(3);
    let mut late = std::pin::pin!(bench.store.decide(Call::acquire(&charge)));
    assert!(super::common::poll(late.as_mut()).is_pending());
    bench.advance(5);
    crate::run(Faults::deliver(bench.store.inner()));
    let answer = crate::run(late).unwrap();
    assert_eq!(answer.retry_after(), Some(Duration::from_micros(7)));
    bench.advance(1);
    let cached = bench.acquire_by(Source::Cache, &charge);
    assert_eq!(cached.retry_after(), Some(Duration::from_micros(1)));
    bench.advance(1);
    assert!(bench.acquire_by(Source::Store, &charge).is_allowed());
}

#[test]
fn a_block_is_answered_from_the_cache_until_it_ends_and_then_written_again() {
    let bench = Bench::new();
    let strict = policy("sliding-log 1/1h block 10us");
    let charge = [Charge::new(&strict, "s")];
    assert!(bench.acquire_by(Source::Store, &charge).is_allowed());
    let first = bench.acquire_by(Source::Store, &charge);
    assert_eq!(first.verdicts()[0].outcome(), Outcome::Denied);
    bench.advance(9);
    let blocked = bench.acquire_by(Source::Cache, &charge).verdicts()[0];
    assert_eq!(blocked.outcome(), Outcome::Blocked);
    assert_eq!(blocked.blocked_for(), Duration::from_micros(1));
    bench.advance(1);
    // The block of 10 µs has ended, but the limit stays used up for an hour. So the store must deny
    // the call and write another block.
    let verdict = bench.acquire_by(Source::Store, &charge).verdicts()[0];
    assert_eq!((verdict.outcome(), verdict.blocked_for().as_micros()), (Outcome::Denied, 10));
}

#[test]
fn a_block_that_restarts_is_never_answered_from_the_cache() {
    let bench = Bench::new();
    let strict = policy("sliding-log 1/1h block 10us restart");
    let charge = [Charge::new(&strict, "s")];
    assert!(bench.acquire_by(Source::Store, &charge).is_allowed());
    for _ in 0..4 {
        let refused = bench.acquire_by(Source::Store, &charge).verdicts()[0];
        assert_eq!(refused.blocked_for(), Duration::from_micros(10));
        bench.advance(9);
    }
    // The same state under a policy without `restart`: the cached denial ends when another call
    // restarts the block.
    let strict = policy("p: sliding-log 1/1h block 10us restart");
    let plain = policy("p: sliding-log 1/1h");
    let [strict, plain] = [&strict, &plain].map(|policy| [Charge::new(policy, "t")]);
    assert!(bench.acquire_by(Source::Store, &strict).is_allowed());
    assert!(bench.acquire_by(Source::Store, &strict).is_denied());
    assert!(bench.acquire_by(Source::Store, &plain).is_denied());
    bench.advance(5);
    assert_eq!(
        bench.acquire_by(Source::Cache, &plain).verdicts()[0].blocked_for(),
        Duration::from_micros(5)
    );
    assert!(bench.acquire_by(Source::Store, &strict).is_denied());
    assert_eq!(
        bench.acquire_by(Source::Store, &plain).verdicts()[0].blocked_for(),
        Duration::from_micros(10)
    );
}

#[test]
fn a_cached_peek_does_not_prevent_the_block_of_an_acquire() {
    let bench = Bench::new();
    let strict = policy("sliding-log 1/1h block 1m");
    let charge = [Charge::new(&strict, "s")];
    assert!(bench.acquire_by(Source::Store, &charge).is_allowed());
    assert!(bench.decide(Operation::Peek, &charge).is_denied());
    let shut_out = bench.acquire_by(Source::Store, &charge).verdicts()[0];
    assert_eq!(shut_out.blocked_for(), Duration::from_secs(60));
}

#[test]
fn peeks_and_acquires_are_answered_equally() {
    let bench = Bench::new();
    let log = policy("sliding-log 1/1h");
    let charge = [Charge::new(&log, "s")];
    assert!(bench.acquire_by(Source::Store, &charge).is_allowed());
    assert!(bench.decide(Operation::Peek, &charge).is_denied());
    assert!(bench.acquire_by(Source::Cache, &charge).is_denied());
    assert!(bench.decide(Operation::Peek, &charge).is_denied());
    assert_eq!(bench.calls(), 2);
}

#[test]
fn other_costs_subjects_tenants_and_policies_reach_the_store() {
    let bench = Bench::new();
    let log = policy("p: sliding-log 2/1h");
    let refused = Charge::new(&log, "s").cost(2);
    assert!(bench.acquire_by(Source::Store, &[refused.cost(1)]).is_allowed());
    assert!(bench.acquire_by(Source::Store, &[refused]).is_denied());
    assert!(bench.acquire_by(Source::Cache, &[refused]).is_denied());

    let other = policy("q: sliding-log 2/1h");
    assert!(bench.acquire_by(Source::Store, &[Charge::new(&other, "s").cost(2)]).is_allowed());
    assert!(bench.acquire_by(Source::Store, &[Charge::new(&log, "").cost(2)]).is_allowed());
    let joined = Charge::new(&log, "").tenant("s").cost(2);
    assert!(bench.acquire_by(Source::Store, &[joined]).is_allowed());
    assert!(bench.acquire_by(Source::Store, &[refused, refused]).is_denied());
    assert!(bench.acquire_by(Source::Store, &[refused.cost(1)]).is_allowed());
}

#[test]
fn b45_a_changed_limit_takes_effect_immediately() {
    let bench = Bench::new();
    let (low, high) = (policy("p: sliding-log 1/1h"), policy("p: sliding-log 3/1h"));
    assert!(bench.acquire(&low, 1).is_allowed());
    assert!(bench.acquire(&low, 1).is_denied());
    let raised = [Charge::new(&high, "s")];
    assert!(bench.acquire_by(Source::Store, &raised).is_allowed());
    // The cache treats equal policies as one policy, even if they were parsed separately.
    assert!(bench.acquire(&low, 1).is_denied());
    let same = policy("p: sliding-log 1/1h");
    assert!(bench.acquire_by(Source::Cache, &[Charge::new(&same, "s")]).is_denied());
}

#[test]
fn a_call_that_can_never_be_admitted_is_not_cached() {
    let bench = Bench::new();
    let log = policy("sliding-log 1/1h");
    for _ in 0..3 {
        let never = bench.acquire_by(Source::Store, &[Charge::new(&log, "s").cost(2)]);
        assert_eq!(never.retry_after(), None);
    }
    assert_eq!(bench.store.stats().len(), 0);
}

#[test]
fn a_cached_refusal_by_several_policies_ends_with_the_earliest_of_them() {
    let bench = Bench::new();
    let (short, long) = (policy("a: sliding-log 1/10us"), policy("b: sliding-log 1/20us"));
    let charges = [Charge::new(&short, "s"), Charge::new(&long, "s")];
    assert!(bench.acquire_by(Source::Store, &charges).is_allowed());
    assert_eq!(bench.acquire_by(Source::Store, &charges).refused_by().count(), 2);
    bench.advance(9);
    assert_eq!(bench.acquire_by(Source::Cache, &charges).refused_by().count(), 2);
    bench.advance(1);
    assert_eq!(bench.acquire_by(Source::Store, &charges).refused_by().collect::<Vec<_>>(), [1]);
    bench.advance(9);
    let last = bench.acquire_by(Source::Cache, &charges);
    assert_eq!(last.retry_after(), Some(Duration::from_micros(1)));
}

#[test]
fn the_cached_remaining_amount_is_a_lower_bound_unless_it_must_be_exact() {
    let bucket = policy("token-bucket 1/10us burst 5");
    let charge = [Charge::new(&bucket, "s").cost(5)];
    for (cache, source, remaining) in
        [(DenyCache::new(), Source::Cache, 0), (DenyCache::new().only_exact(), Source::Store, 2)]
    {
        let bench = Bench::with(cache, vec![]);
        bench.set(1_790_000_000_000_000);
        assert!(bench.acquire_by(Source::Store, &charge).is_allowed());
        assert!(bench.acquire_by(Source::Store, &charge).is_denied());
        bench.advance(20);
        let verdict = bench.acquire_by(source, &charge).verdicts()[0];
        assert_eq!(verdict.remaining(), remaining);
        assert_eq!(verdict.retry_after(), Some(Duration::from_micros(30)));
        assert_eq!(verdict.reset_after(), Duration::from_micros(30));
    }
}

#[test]
fn the_remaining_amount_of_a_fixed_window_is_exact_until_it_ends() {
    let bench = Bench::with(DenyCache::new().only_exact(), vec![]);
    let window = policy("fixed-window 3/10us anchored");
    let charge = [Charge::new(&window, "s").cost(2)];
    assert!(bench.acquire_by(Source::Store, &charge).is_allowed());
    assert!(bench.acquire_by(Source::Store, &charge).is_denied());
    bench.advance(9);
    assert_eq!(bench.acquire_by(Source::Cache, &charge).verdicts()[0].remaining(), 1);
    bench.advance(1);
    assert!(bench.acquire_by(Source::Store, &charge).is_allowed());
}

/// The policy `user` denies for an hour, so the cache answers. When the bucket `ip` has recovered,
/// the cached answers must report the full remaining amount of `ip`.
#[test]
fn a_recovered_state_has_its_full_remaining_amount() {
    let bench = Bench::with(DenyCache::new(), vec![]);
    let (ip, user) = (policy("ip: token-bucket 1/10us burst 4"), policy("user: sliding-log 1/1h"));
    let charges = [Charge::new(&ip, "s").cost(2), Charge::new(&user, "s")];
    bench.set(1_790_000_000_000_000);
    assert!(bench.acquire_by(Source::Store, &charges).is_allowed());
    assert!(bench.acquire_by(Source::Store, &charges).is_denied());
    for (pause, reset, remaining) in [(19, 1, 2), (1, 0, 4), (1_000_000, 0, 4)] {
        bench.advance(pause);
        let verdict = bench.acquire_by(Source::Cache, &charges).verdicts()[0];
        assert_eq!(verdict.reset_after(), Duration::from_micros(reset));
        assert_eq!(verdict.remaining(), remaining);
    }
}

#[test]
fn two_charges_to_one_key_are_exact_only_if_their_sum_is() {
    let bench = Bench::with(DenyCache::new().only_exact(), vec![]);
    let bucket = policy("token-bucket 1/10us burst 4");
    let charge = Charge::new(&bucket, "s");
    bench.set(1_790_000_000_000_000);
    assert!(bench.acquire_by(Source::Store, &[charge.cost(4)]).is_allowed());
    assert!(bench.acquire_by(Source::Store, &[charge, charge]).is_denied());
    bench.advance(10);
    let decision = bench.acquire_by(Source::Store, &[charge, charge]);
    assert_eq!((decision.is_denied(), decision.verdicts()[0].remaining()), (true, 1));
}

#[test]
fn a_clock_that_steps_back_clears_the_cache() {
    let bench = Bench::new();
    let log = policy("sliding-log 1/1h");
    let charge = [Charge::new(&log, "s")];
    assert!(bench.acquire_by(Source::Store, &charge).is_allowed());
    assert!(bench.acquire_by(Source::Store, &charge).is_denied());
    bench.advance(100);
    assert!(bench.acquire_by(Source::Store, &[Charge::new(&log, "other")]).is_allowed());
    bench.set(START + 50);
    assert!(bench.acquire_by(Source::Store, &charge).is_denied());
    assert!(bench.acquire_by(Source::Cache, &charge).is_denied());
    bench.set(START + 49);
    assert!(bench.acquire_by(Source::Store, &charge).is_denied());
}

#[test]
fn errors_are_not_cached_and_invalid_calls_stay_errors() {
    let bench = Bench::failing(vec![Fault::Before(ErrorKind::Busy), Fault::None]);
    let log = policy("sliding-log 1/1h");
    let charge = [Charge::new(&log, "s")];
    let busy = bench.try_decide(Operation::Acquire, &charge).unwrap_err();
    assert_eq!(busy.kind(), ErrorKind::Busy);
    assert!(bench.acquire_by(Source::Store, &charge).is_allowed());
    let too_many = vec![charge[0]; 65];
    for charges in [&[][..], &too_many, &[Charge::new(&log, &vec![0; (1 << 20) + 1])]] {
        for operation in [Operation::Acquire, Operation::Refund] {
            let wrong = bench.try_decide(operation, charges).unwrap_err();
            assert_eq!(wrong.kind(), ErrorKind::InvalidCall);
        }
    }
}

/// A store that refuses every call for an hour. Only its first decision is degraded.
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
fn a_degraded_refusal_is_not_cached() {
    let store = Degrading::default().deny_cache(DenyCache::new().clock(SystemClock::new()));
    let log = policy("sliding-log 1/1h");
    let charge = [Charge::new(&log, "s")];
    let degraded: Vec<bool> = (0..4)
        .map(|_| ready(store.decide(Call::acquire(&charge))).unwrap().degraded().is_some())
        .collect();
    assert_eq!(degraded, [true, false, false, false]);
    assert_eq!(store.inner().0.load(std::sync::atomic::Ordering::SeqCst), 2);
}

#[test]
fn check_only_charges_amounts_and_ids_reach_the_store() {
    let bench = Bench::new();
    let window = policy("fixed-window 3/1h");
    let charge = [Charge::new(&window, "s").cost(2)];
    let id = CallId::new("id", Duration::from_secs(60));
    let with_id = || crate::run(bench.store.decide(Call::acquire(&charge).with_id(id))).unwrap();
    let first = with_id();
    assert!(first.is_allowed());
    // The store refuses a cost of 2, because only 1 of 3 remains. The cache stores this refusal.
    assert!(bench.acquire_by(Source::Store, &charge).is_denied());
    assert!(bench.acquire_by(Source::Cache, &charge).is_denied());

    assert_eq!(with_id(), first, "a repeated call gets its first answer");
    assert!(bench.acquire_by(Source::Store, &charge).is_denied());
    assert!(bench.acquire_by(Source::Store, &[charge[0].check_only()]).is_denied());
    assert!(bench.acquire_by(Source::Store, &[charge[0].check_only()]).is_denied());
    let acquired = bench.decide(Operation::AcquireUpTo { min: 1 }, &charge);
    assert_eq!(acquired.amounts(), [1]);
    assert!(bench.decide(Operation::AcquireUpTo { min: 1 }, &charge).is_denied());
    // After a refund or a charge, the next acquire must be decided by the store.
    assert!(bench.acquire_by(Source::Store, &charge).is_denied());
    let _ = bench.decide(Operation::Refund, &charge);
    assert!(bench.acquire_by(Source::Store, &charge).is_allowed());
    let _ = bench.decide(Operation::Charge, &charge);
    assert!(bench.acquire_by(Source::Store, &charge).is_denied());
}

#[test]
fn a_caller_can_query_only_the_cache() {
    let bench = Bench::new();
    let window = policy("fixed-window 1/10us anchored");
    let charge = [Charge::new(&window, "s")];
    let cached_denial = |operation| bench.store.cached_denial(Call::new(operation, &charge));
    assert!(bench.acquire_by(Source::Store, &charge).is_allowed());
    assert_eq!(cached_denial(Operation::Acquire), None);
    let denial = bench.acquire_by(Source::Store, &charge);
    bench.advance(3);
    for operation in [Operation::Acquire, Operation::Peek] {
        let cached = cached_denial(operation).unwrap();
        assert_eq!(cached.retry_after(), Some(Duration::from_micros(7)));
        assert!(denial.is_denied() && cached.is_denied());
    }
    // The cache never answers a charge, a refund or a reset.
    for operation in [Operation::Charge, Operation::Refund, Operation::Reset] {
        assert_eq!(cached_denial(operation), None);
    }
    assert_eq!(bench.calls(), 2);
    let stats = bench.store.stats();
    assert_eq!((stats.hits(), stats.misses()), (2, 2));
    bench.advance(7);
    assert_eq!(cached_denial(Operation::Acquire), None);
    assert_eq!((stats.hits(), stats.misses()), (2, 2));
}

/// At the end of an idle window, more quota can roll over. A cached denial by another policy must
/// not outlive this end if the remaining amounts are exact.
#[test]
fn an_exact_denial_ends_before_quota_rolls_over() {
    /// September 22, 2026.
    const MIDNIGHT: u64 = 1_790_035_200_000_000;
    const DAY: u64 = 86_400_000_000;
    let (window, quota) =
        (policy("w: fixed-window 1/1h anchored"), policy("q: quota 10/day in UTC rollover 1/2"));
    let bench = Bench::with(DenyCache::new().only_exact(), vec![]);
    let both = [Charge::new(&window, "s"), Charge::new(&quota, "s")];
    bench.set(MIDNIGHT);
    assert!(bench.acquire(&quota, 10).is_allowed());
    bench.set(MIDNIGHT + 2 * DAY - 1_000_000);
    assert!(bench.acquire(&window, 1).is_allowed());
    for (time, remaining) in [(MIDNIGHT + 2 * DAY - 1_000_000, 10), (MIDNIGHT + 2 * DAY, 15)] {
        bench.set(time);
        let denied = bench.decide(Operation::Acquire, &both);
        assert!(denied.is_denied());
        assert_eq!(denied.verdicts()[1].remaining(), remaining);
    }
}

/// A cached denial by another policy must not show less than a grant, if the remaining amounts are
/// exact.
#[test]
fn an_exact_denial_shows_a_grant() {
    let (window, credits) = (policy("w: fixed-window 1/1h anchored"), policy("c: credits 5"));
    let bench = Bench::with(DenyCache::new().only_exact(), vec![]);
    let id = CallId::new("invoice 17", Duration::from_secs(3_600));
    let charges = [Charge::new(&credits, "s").cost(500)];
    let grant = Call::new(Operation::Grant { ends_at: None }, &charges).with_id(id);
    assert!(ready(bench.store.decide(grant)).unwrap().is_allowed());
    assert!(bench.acquire(&window, 1).is_allowed());
    let both = [Charge::new(&window, "s"), Charge::new(&credits, "s")];
    for _ in 0..2 {
        let denied = bench.decide(Operation::Acquire, &both);
        assert!(denied.is_denied());
        assert_eq!(denied.verdicts()[1].remaining(), 505);
    }
}
