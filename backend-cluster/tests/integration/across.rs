//! Tests of calls across slots on a real cluster. A call that one slot refuses must not change the
//! states in the other slots.
//!
//! The tests guard against a defect. The store charged every slot without a peek, and undid the
//! charges if another slot refused. With many such calls in flight, an undo refunded less than the
//! charge. So a single user over its own limit emptied a bucket that all users shared.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of a test that fails panics, as the test does"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tidegate_cluster::{
    Call, Charge, ErrorKind, ManualClock, Operation, Outcome, Policy, Store, Timestamp,
};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use crate::common::{cluster, dump, fresh_prefix, patient, policy, subject_on, used};

/// The time for which the callers of a test case make calls, and the number of test cases that run
/// concurrently.
const SPAN: Duration = Duration::from_secs(1);
const CONCURRENT_CASES: usize = 4;

/// Returns two subjects with states on two different nodes.
async fn two_subjects() -> [String; 2] {
    let cluster = cluster().await;
    [subject_on(cluster, 0, 0).await, subject_on(cluster, 1, 0).await]
}

/// A test case: a policy that all callers share, and a policy that refuses every call, with the
/// cost of its charge.
struct Case {
    shared: Policy,
    refuses: Policy,
    cost: u64,
    callers: u64,
}

impl Case {
    fn all() -> impl Iterator<Item = Self> {
        let shared = [
            "token-bucket 100/1s burst 1000",
            "token-bucket 1000/1s burst 1000",
            "gcra 100/1s burst 1000",
            "token-bucket 100/1s burst 1000 by-interval",
            "sliding-log 1000/1h",
            "sliding-counter 1000/1h",
            "fixed-window 1000/1h",
        ];
        // Both policies refuse every call: the limit of the first policy is already used up, and
        // the limit of the second policy is smaller than the cost.
        let refusals = [("fixed-window 1/10d anchored", 1), ("fixed-window 9/10d anchored", 10)];
        shared.into_iter().flat_map(move |shared| {
            refusals.into_iter().flat_map(move |(refuses, cost)| {
                [16, 64].map(|callers| Self {
                    shared: policy(&format!("shared: {shared}")),
                    refuses: policy(&format!("refuses: {refuses}")),
                    cost,
                    callers,
                })
            })
        })
    }

    async fn run(self, subjects: [String; 2]) {
        let store = patient(cluster().await).prefix(fresh_prefix()).build().unwrap();
        let own = Charge::new(&self.refuses, &subjects[1]);
        assert!(store.decide(Call::acquire(&[own])).await.unwrap().is_allowed());
        let case = Arc::new(self);
        let (is_over, refused) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let mut callers = JoinSet::new();
        for _ in 0..case.callers {
            let (store, case, subjects) = (store.clone(), Arc::clone(&case), subjects.clone());
            let (is_over, refused) = (Arc::clone(&is_over), Arc::clone(&refused));
            callers.spawn(async move {
                let charges = [
                    Charge::new(&case.shared, &subjects[0]),
                    Charge::new(&case.refuses, &subjects[1]).cost(case.cost),
                ];
                while !is_over.load(Ordering::Relaxed) {
                    assert!(store.decide(Call::acquire(&charges)).await.unwrap().is_denied());
                    refused.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let shared = Charge::new(&case.shared, &subjects[0]);
        let name = format!("{} callers, {} and {}", case.callers, case.shared, case.refuses);
        let start = Instant::now();
        // On a busy machine, the test continues for longer, until enough calls have overlapped.
        while start.elapsed() < SPAN || refused.load(Ordering::Relaxed) < 2 * case.callers {
            sleep(Duration::from_millis(20)).await;
            assert_eq!(used(&store, shared).await, 0, "{name}");
        }
        is_over.store(true, Ordering::Relaxed);
        callers.join_all().await;
        assert_eq!(used(&store, shared).await, 0, "{name}, at the end");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_calls_leave_the_limits_of_other_slots_alone() {
    let subjects = two_subjects().await;
    let mut all = Case::all().peekable();
    while all.peek().is_some() {
        let mut cases = JoinSet::new();
        for case in all.by_ref().take(CONCURRENT_CASES) {
            cases.spawn(case.run(subjects.clone()));
        }
        cases.join_all().await;
    }
}

/// A list of alternatives is refused, and another alternative has a shorter wait than the fair
/// pool. So the verdict on the pool is "skipped". The pool must still know the demand of the
/// member, and reserve its share in the next window.
#[tokio::test]
async fn a_pool_that_a_refused_list_skips_knows_the_demand() {
    const HOUR: u64 = 3_600_000_000;
    let clock = ManualClock::default();
    clock.set(Timestamp::from_micros(497_222 * HOUR));
    let store = patient(cluster().await).prefix(fresh_prefix()).clock(clock.clone());
    let store = store.build().unwrap();
    let [pool, plan, other] =
        ["pool: fair-pool 10/1h", "plan: fixed-window 1/1m", "other: fixed-window 100/1h"]
            .map(policy);
    let pool = |member: &'static str| Charge::new(&pool, member).tenant("shop");
    let plan = |subject: &'static str| Charge::new(&plan, subject).tenant("shop");
    let other = Charge::new(&other, "far");
    let fill = [pool("b").cost(10), plan("a")];
    assert!(store.decide(Call::acquire(&fill)).await.unwrap().is_allowed());

    let call = [other, plan("a").in_list(1), pool("a").in_list(1)];
    let refused = store.decide(Call::acquire(&call)).await.unwrap();
    let outcomes: Vec<_> = refused.verdicts().iter().map(|verdict| verdict.outcome()).collect();
    assert_eq!(outcomes, [Outcome::Allowed, Outcome::Denied, Outcome::Skipped]);
    // `other` refuses this call. The list has a payer, so the pool has no demand.
    let call = [other.cost(101), pool("c").in_list(1), plan("c").in_list(1)];
    assert!(store.decide(Call::acquire(&call)).await.unwrap().is_denied());

    // A refusal by the pool alone is a demand too.
    let call = [other, pool("d")];
    assert!(store.decide(Call::acquire(&call)).await.unwrap().is_denied());

    clock.set(Timestamp::from_micros(497_223 * HOUR));
    let next = store.decide(Call::new(Operation::Peek, &[pool("b")])).await.unwrap();
    assert_eq!(next.verdicts()[0].remaining(), 8);
}

/// All users share one bucket, and each user also has its own limit. One user has reached its own
/// limit and continues to make calls. The calls of the other users must still be admitted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_over_its_limit_does_not_use_up_the_shared_limit() {
    let cluster = cluster().await;
    let store = patient(cluster).prefix(fresh_prefix()).build().unwrap();
    let all = policy("all: token-bucket 100/1s burst 100");
    let user = policy("user: fixed-window 100/10d anchored");
    let [shared, greedy] = two_subjects().await;
    let used_up = [Charge::new(&user, &greedy).cost(100)];
    assert!(store.decide(Call::acquire(&used_up)).await.unwrap().is_allowed());

    let is_over = Arc::new(AtomicBool::new(false));
    let mut callers = JoinSet::new();
    // Every second caller of the user over its limit uses a cost above the limit, which is refused
    // after any wait.
    for cost in [1, 101].repeat(32) {
        let (store, all, user) = (store.clone(), all.clone(), user.clone());
        let (shared, greedy, is_over) = (shared.clone(), greedy.clone(), Arc::clone(&is_over));
        callers.spawn(async move {
            let charges = [Charge::new(&all, &shared), Charge::new(&user, &greedy).cost(cost)];
            while !is_over.load(Ordering::Relaxed) {
                assert!(store.decide(Call::acquire(&charges)).await.unwrap().is_denied());
            }
        });
    }
    let mut others = JoinSet::new();
    for number in 0..5 {
        let (store, all, user) = (store.clone(), all.clone(), user.clone());
        let (shared, name) = (shared.clone(), format!("user-{number}"));
        others.spawn(async move {
            let charges = [Charge::new(&all, &shared), Charge::new(&user, &name)];
            let mut turns = interval(Duration::from_millis(250));
            turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let mut admitted = 0;
            for _ in 0..10 {
                turns.tick().await;
                let decision = store.decide(Call::acquire(&charges)).await.unwrap();
                admitted += u32::from(decision.is_allowed());
            }
            admitted
        });
    }
    let admitted: u32 = others.join_all().await.into_iter().sum();
    is_over.store(true, Ordering::Relaxed);
    callers.join_all().await;
    // The five other users make 20 calls per second, and the shared bucket refills 100 tokens per
    // second. So at least 95 % of their calls must be admitted.
    assert!(admitted * 100 >= 5 * 10 * 95, "{admitted} of 50");
}

/// Many concurrent callers compete for the tokens of the bucket `narrow`. Their peeks can report
/// the same token, but only one caller gets it. The calls of the other callers must not charge the
/// shared limit in the other slot.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_that_race_for_the_rest_of_a_limit_leave_other_slots_alone() {
    const CALLERS: u64 = 64;
    let subjects = two_subjects().await;
    let narrow = policy("narrow: token-bucket 20/1s burst 20");
    for text in ["token-bucket 100/1s burst 1000", "gcra 100/1s burst 1000", "sliding-log 1000/1h"]
    {
        let shared = policy(&format!("shared: {text}"));
        let store = patient(cluster().await).prefix(fresh_prefix()).build().unwrap();
        let (is_over, admitted) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let mut callers = JoinSet::new();
        for _ in 0..CALLERS {
            let (store, shared, narrow) = (store.clone(), shared.clone(), narrow.clone());
            let (subjects, is_over) = (subjects.clone(), Arc::clone(&is_over));
            let admitted = Arc::clone(&admitted);
            callers.spawn(async move {
                let charges =
                    [Charge::new(&shared, &subjects[0]), Charge::new(&narrow, &subjects[1])];
                while !is_over.load(Ordering::Relaxed) {
                    let decision = store.decide(Call::acquire(&charges)).await.unwrap();
                    admitted.fetch_add(u64::from(decision.is_allowed()), Ordering::Relaxed);
                }
            });
        }
        let charge = Charge::new(&shared, &subjects[0]);
        let start = Instant::now();
        while start.elapsed() < SPAN * 2 {
            sleep(Duration::from_millis(50)).await;
            let used = used(&store, charge).await;
            let max = CALLERS + admitted.load(Ordering::Relaxed);
            assert!(used <= max, "{text}: {used} used, which is more than {max}");
        }
        is_over.store(true, Ordering::Relaxed);
        callers.join_all().await;
        let (used, admitted) = (used(&store, charge).await, admitted.load(Ordering::Relaxed));
        if text.starts_with("sliding-log") {
            assert_eq!(used, admitted, "only admitted calls may be charged");
        } else {
            // The shared bucket refills 100 tokens per second, and the calls use only 20 per
            // second. So almost nothing is used at the end.
            assert!(used <= 10, "{text}: {used} used at the end");
        }
    }
}

/// A refused call must not change a state that was written under an older setting of a policy. Only
/// an admitted call replaces such a state.
#[tokio::test]
async fn a_refused_call_leaves_states_of_older_settings_as_they_are() {
    let cluster = cluster().await;
    let subjects = two_subjects().await;
    let none = policy("none: fixed-window 0/1d");
    for (older, newer) in [
        ("p: gcra 1/1h", "p: gcra 1/1s"),
        ("p: token-bucket 10/1h", "p: token-bucket 20/1h"),
        ("p: token-bucket 10/1h by-interval", "p: token-bucket 10/1m by-interval"),
        ("p: sliding-log 10/10m", "p: sliding-log 10/20m"),
        ("p: sliding-log 10/10m", "p: sliding-counter 10/10m"),
        ("p: fixed-window 10/10m", "p: fixed-window 10/1h anchored"),
        ("p: sliding-counter 10/10m", "p: gcra 10/10m"),
    ] {
        let prefix = fresh_prefix();
        let clock = ManualClock::new(Timestamp::from_micros(1_790_000_000_000_123));
        let store = patient(cluster).prefix(&prefix).clock(clock.clone()).build().unwrap();
        let (older, newer) = (policy(older), policy(newer));
        let limit = older.limit();
        let used_up = [Charge::new(&older, &subjects[0]).cost(limit)];
        assert!(store.decide(Call::acquire(&used_up)).await.unwrap().is_allowed());
        clock.advance(Duration::from_secs(1));
        let before = dump(cluster, &prefix).await;
        for charges in [
            [Charge::new(&newer, &subjects[0]), Charge::new(&none, &subjects[1])],
            [Charge::new(&none, &subjects[1]), Charge::new(&newer, &subjects[0])],
        ] {
            assert!(store.decide(Call::acquire(&charges)).await.unwrap().is_denied());
            assert_eq!(dump(cluster, &prefix).await, before, "{older}, then {newer}");
        }
        assert_eq!(used(&store, Charge::new(&older, &subjects[0])).await, limit, "{older}");
    }
}

#[tokio::test]
async fn a_refusal_blocks_its_own_subject_and_charges_nothing_in_the_other_slot() {
    let clock = ManualClock::new(Timestamp::from_micros(1_790_000_000_000_123));
    let store =
        patient(cluster().await).prefix(fresh_prefix()).clock(clock.clone()).build().unwrap();
    let policies = [policy("all: gcra 5/1h"), policy("otp: fixed-window 1/1m block 15m")];
    let subjects = two_subjects().await;
    let charges = [0, 1].map(|n| Charge::new(&policies[n], &subjects[n]));
    assert!(store.decide(Call::acquire(&charges)).await.unwrap().is_allowed());
    for minutes in [15, 14, 13] {
        let decision = store.decide(Call::acquire(&charges)).await.unwrap();
        assert_eq!(decision.refused_by().collect::<Vec<_>>(), [1]);
        let block = decision.verdicts()[1].blocked_for();
        assert_eq!(block, Duration::from_secs(minutes * 60), "refusals do not extend it");
        assert_eq!(used(&store, charges[0]).await, 1);
        clock.advance(Duration::from_secs(60));
    }
}

#[tokio::test]
async fn refusals_across_slots_are_offenses_and_restart_blocks() {
    let clock = ManualClock::new(Timestamp::from_micros(1_790_000_000_000_123));
    let store =
        patient(cluster().await).prefix(fresh_prefix()).clock(clock.clone()).build().unwrap();
    let policies = [
        policy("all: gcra 5/1h"),
        policy("otp: fixed-window 1/1h block 1m x4 up to 1d forget 7d restart"),
    ];
    let subjects = two_subjects().await;
    let charges = [0, 1].map(|n| Charge::new(&policies[n], &subjects[n]));
    assert!(store.decide(Call::acquire(&charges)).await.unwrap().is_allowed());
    // The clock advances by these seconds before each refusal.
    for (seconds, level, block) in [(0, 1, 60), (59, 1, 60), (60, 2, 240), (100, 2, 240)] {
        clock.advance(Duration::from_secs(seconds));
        let decision = store.decide(Call::acquire(&charges)).await.unwrap();
        assert_eq!(decision.refused_by().collect::<Vec<_>>(), [1]);
        let verdict = decision.verdicts()[1];
        assert_eq!(verdict.block_level(), level);
        assert_eq!(verdict.blocked_for(), Duration::from_secs(block));
        assert_eq!(used(&store, charges[0]).await, 1);
    }
}

/// If one slot refuses a reservation, the store must make no reservation in the other slot, even if
/// the wait in the other slot would be short enough.
#[tokio::test]
async fn a_reservation_that_one_slot_refuses_books_nothing_in_the_other() {
    let clock = ManualClock::new(Timestamp::from_micros(1_790_000_000_000_123));
    let prefix = fresh_prefix();
    let store = patient(cluster().await).prefix(&prefix).clock(clock.clone()).build().unwrap();
    let policies = [policy("fast: token-bucket 1/1s"), policy("slow: token-bucket 1/10s")];
    let subjects = two_subjects().await;
    let charges = [0, 1].map(|n| Charge::new(&policies[n], &subjects[n]));
    let reserve = |max_wait| Operation::Reserve { max_wait: Duration::from_secs(max_wait) };
    assert!(store.decide(Call::new(reserve(0), &charges)).await.unwrap().is_allowed());
    let before = dump(cluster().await, &prefix).await;
    for max_wait in [0, 1, 9] {
        let decision = store.decide(Call::new(reserve(max_wait), &charges)).await.unwrap();
        let refused: Vec<_> = decision.refused_by().collect();
        assert_eq!(
            refused,
            if max_wait == 0 { vec![0, 1] } else { vec![1] },
            "within {max_wait} s"
        );
        assert_eq!(dump(cluster().await, &prefix).await, before);
    }
    let decision = store.decide(Call::new(reserve(10), &charges)).await.unwrap();
    assert_eq!(decision.wait(), Duration::from_secs(10));
}

#[tokio::test]
async fn alternatives_in_several_slots_are_unsupported() {
    let store = patient(cluster().await).prefix(fresh_prefix()).build().unwrap();
    let [one, other] = two_subjects().await;
    let (own, pool) = (policy("own: fixed-window 1/1d"), policy("pool: fixed-window 9/1d"));
    let apart = [Charge::new(&own, &one).in_list(1), Charge::new(&pool, &other).in_list(1)];
    let error = store.decide(Call::acquire(&apart)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains("with one tenant"), "{error}");
    assert_eq!(used(&store, apart[0].in_list(0)).await, 0);
    let together = apart.map(|charge| charge.tenant("acme"));
    for payer in [0, 1] {
        let decision = store.decide(Call::acquire(&together)).await.unwrap();
        assert_eq!(decision.verdicts()[payer].outcome(), Outcome::Allowed);
        assert_eq!(decision.verdicts()[1 - payer].outcome(), Outcome::Skipped);
    }
}

/// The slot of the list has possibly charged an alternative when the other slot refuses. The undo
/// must name only the alternative that has paid.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_in_one_slot_is_charged_with_a_charge_in_another_slot_or_not_at_all() {
    let store = patient(cluster().await).prefix(fresh_prefix()).build().unwrap();
    let [one, other] = two_subjects().await;
    let (own, pool) = (policy("own: fixed-window 3/10d"), policy("pool: fixed-window 99/10d"));
    let total = policy("total: fixed-window 20/10d");
    let list = [&own, &pool].map(|policy| Charge::new(policy, "s").tenant(&one).in_list(1));
    let mut admitted = 0;
    for _ in 0..5 {
        let mut callers = JoinSet::new();
        for _ in 0..16 {
            let (store, one, other) = (store.clone(), one.clone(), other.clone());
            let (own, pool, total) = (own.clone(), pool.clone(), total.clone());
            callers.spawn(async move {
                let list = [&own, &pool].map(|policy| Charge::new(policy, "s").tenant(&one));
                let [own, pool] = list.map(|charge| charge.in_list(1));
                let charges = [own, Charge::new(&total, &other), pool];
                store.decide(Call::acquire(&charges)).await.unwrap().is_allowed()
            });
        }
        admitted += callers.join_all().await.into_iter().filter(|is_admitted| *is_admitted).count();
    }
    let (own, pool) =
        (used(&store, list[0].in_list(0)).await, used(&store, list[1].in_list(0)).await);
    assert_eq!(own + pool, admitted as u64, "{own} and {pool}");
    assert_eq!(used(&store, Charge::new(&total, &other)).await, own + pool);
    assert!((1..=20).contains(&admitted), "{admitted}");
}
