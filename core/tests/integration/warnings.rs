//! Tests decisions that warn, and the layer that reports them once per window.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of a test that fails panics, as the test does"
)]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use proptest::prelude::*;
use tidegate_core::layers::WarnedStore;
use tidegate_core::{
    Call, CallId, Charge, Clock, Decision, ErrorKind, ManualClock, Operation, Policy, PolicyLists,
    Share, Store, StoreExt, Timestamp, Warnings,
};
use tidegate_memory::MemoryStore;
use tidegate_testkit::ModelStore;
use tidegate_testkit::faults::{Fault, Faults};

fn policy(text: &str) -> Policy {
    text.parse().unwrap()
}

fn now(store: &impl Store, call: Call<'_>) -> Decision {
    store.decide(call).into_ready().unwrap().unwrap()
}

fn warns(store: &impl Store, operation: Operation, policy: &Policy, cost: u64) -> bool {
    let charge = [Charge::new(policy, "alice").cost(cost)];
    let decision = now(store, Call::new(operation, &charge));
    let warns: Vec<usize> = decision.warnings().collect();
    assert_eq!(warns == [0], decision.verdicts()[0].warns());
    !warns.is_empty()
}

#[test]
fn a_decision_warns_from_the_percentage_of_the_limit_on() {
    for text in [
        "fixed-window 10/1h",
        "fixed-window 10/1h anchored",
        "sliding-log 10/1h",
        "sliding-log 10/1h grain 1m",
        "sliding-counter 10/1h",
        "gcra 10/1h burst 10",
        "token-bucket 10/1h burst 10 by-interval",
        "quota 10/month in Europe/Amsterdam",
        "credits 10",
        "fixed-window 10/1h shadow",
    ] {
        let policy =
            policy(&format!("{text} warn 75 %").replace("shadow warn 75 %", "warn 75% shadow"));
        let store =
            MemoryStore::builder().clock(ManualClock::new(Timestamp::from_micros(0))).build();
        let warns = |operation, cost| warns(&store, operation, &policy, cost);
        assert!(!warns(Operation::Peek, 0), "{text}");
        assert!(!warns(Operation::Acquire, 7), "{text}: 7 of 10");
        assert!(warns(Operation::Acquire, 1), "{text}: 8 of 10");
        assert!(warns(Operation::Peek, 0), "{text}");
        assert!(!warns(Operation::Refund, 1), "{text}: 7 of 10 again");
        assert!(warns(Operation::Charge, 9), "{text}: 16 of 10");
        assert!(warns(Operation::Acquire, 1), "{text}: denied");
    }
}

#[test]
fn a_blocked_subject_does_not_warn() {
    let policy = policy("a: fixed-window 1/1h block 1m warn 1%");
    let store = MemoryStore::builder().clock(ManualClock::default()).build();
    for (operation, expected) in
        [(Operation::Acquire, true), (Operation::Acquire, false), (Operation::Peek, false)]
    {
        assert_eq!(warns(&store, operation, &policy, 1), expected);
    }
}

#[tokio::test]
async fn a_hold_that_is_too_large_warns_like_a_peek() {
    let policy = policy("a: fixed-window 10/1h max-hold 1/4 warn 50%");
    let store = MemoryStore::builder().clock(ManualClock::default()).build();
    let charge = [Charge::new(&policy, "alice").cost(5)];
    let hold = Call::new(Operation::Hold, &charge);
    assert!(hold.exceeds_max_hold(&store).await);
    for expected in [false, true] {
        let peek = now(&store, Call::new(Operation::Peek, &charge));
        assert_eq!(hold.max_hold_refusal(&peek).verdicts()[0].warns(), expected);
        assert!(now(&store, Call::acquire(&charge)).is_allowed());
    }
}

#[test]
fn grants_count_for_the_percentage() {
    let policy = policy("plan: quota 10/month in UTC warn 80%");
    let store = MemoryStore::builder().clock(ManualClock::new(Timestamp::from_micros(0))).build();
    assert!(warns(&store, Operation::Acquire, &policy, 8));
    let charge = [Charge::new(&policy, "alice").cost(10)];
    let grant = Call::new(Operation::Grant { ends_at: None }, &charge);
    let id = CallId::new(b"a", Duration::from_secs(9));
    assert_eq!(now(&store, grant.with_id(id)).warnings().count(), 0, "8 of 20");
    assert!(!warns(&store, Operation::Acquire, &policy, 7), "15 of 20");
    assert!(warns(&store, Operation::Acquire, &policy, 1), "16 of 20");
}

#[test]
fn a_policy_without_quota_yet_does_not_warn() {
    let policy = policy("plan: quota 10/month in UTC since 2026-01-01T00:00 warn 1%");
    let store = MemoryStore::builder().clock(ManualClock::new(Timestamp::from_micros(0))).build();
    assert!(!warns(&store, Operation::Acquire, &policy, 1), "the limit is 0");
    let none = self::policy("fixed-window 0/1h warn 1%");
    assert!(!warns(&store, Operation::Acquire, &none, 1), "the limit is 0");
}

#[test]
fn a_subject_that_is_counted_beyond_the_limit_warns_from_the_percentage_of_the_limit_on() {
    let policy = policy("a: fixed-window 10/1h warn 80%");
    let lists = PolicyLists::new().with("a", "allow subject alice".parse().unwrap());
    let store = MemoryStore::builder().clock(ManualClock::default()).build().listed(lists);
    for (cost, expected) in [(7, false), (1, true), (90, true)] {
        assert_eq!(warns(&store, Operation::Acquire, &policy, cost), expected);
    }
}

#[test]
fn the_parts_of_a_policy_warn_too() {
    let text = "a: fixed-window 20/1h shards 2 warn 80%";
    let policy = policy(text);
    assert_eq!(policy.to_string(), text);
    assert!(policy.shares().iter().all(|share| share.warn_percent() == Some(80)));
    let half = self::policy("a: gcra 4/1s burst 4 warn 80%");
    let half = half.scaled_to(Share::new(1, 2).unwrap()).unwrap().unwrap();
    assert_eq!(half.to_string(), "a: gcra 2/1s burst 2 warn 80%");
    // A shard admits ten. The peek of both shards warns only if both of them warn.
    let store = MemoryStore::builder().clock(ManualClock::default()).build();
    let store = tidegate_core::layers::ShardedStore::new(store);
    let warns = |operation, cost| {
        let charge = [Charge::new(&policy, "alice").cost(cost)];
        let call = Call::new(operation, &charge);
        super::run(async { store.decide(call).await }).unwrap().warnings().count() > 0
    };
    assert!(warns(Operation::Acquire, 8));
    assert!(!warns(Operation::Peek, 0));
    assert!(warns(Operation::Acquire, 8));
    assert!(warns(Operation::Peek, 0));
}

#[test]
fn an_invalid_percentage_is_named() {
    for (text, wanted) in [
        ("fixed-window 10/1h warn 0%", "the percentage of `warn` is 0; it must be 1 to 100"),
        ("fixed-window 10/1h warn 101%", "the percentage of `warn` is 101"),
        ("fixed-window 10/1h warn 999%", "the percentage of `warn` is 255"),
        ("fixed-window 10/1h warn 80", "`80` is not a percentage, such as `80%`"),
        ("fixed-window 10/1h warn 80 shadow", "`80` is not a percentage"),
        ("fixed-window 10/1h warn %", "there is no number here"),
        ("fixed-window 10/1h warn 8.5%", "`8.5` is not a whole number"),
        ("fixed-window 10/1h warn", "a percentage after `warn`"),
        ("fixed-window 10/1h warn 8% warn 9%", "`warn` is given twice"),
    ] {
        let error = text.parse::<Policy>().unwrap_err().to_string();
        assert!(error.contains(wanted), "{text}: {error}");
    }
    let bare = policy("fixed-window 10/1h");
    assert!(bare.clone().warn_at(101).is_err() && bare.warn_at(0).is_err());
}

/// The reports of several layers: the policy, the tenant, the subject and the remaining amount.
#[derive(Debug, Clone, Default)]
struct Reports(Arc<Mutex<Vec<String>>>);

impl Reports {
    fn layer<S: Store>(&self, store: S, clock: &ManualClock) -> WarnedStore<S, ManualClock> {
        let reports = self.0.clone();
        let warnings = Warnings::new(move |warning| {
            let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
            let (tenant, subject) = (text(warning.tenant), text(warning.subject));
            let remaining = warning.verdict.remaining();
            let name = warning.policy.name();
            reports.lock().unwrap().push(format!("{name} {tenant}/{subject} {remaining}"));
        });
        store.warned(warnings.clock(clock.clone()))
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

type Process = WarnedStore<Arc<MemoryStore<ManualClock>>, ManualClock>;

/// Returns several layers with one store, as in several processes.
fn processes<const N: usize>() -> (ManualClock, Reports, [Process; N]) {
    let clock = ManualClock::new(Timestamp::from_micros(1_000_000_000_000));
    let store = Arc::new(MemoryStore::builder().clock(clock.clone()).build());
    let reports = Reports::default();
    let processes = std::array::from_fn(|_| reports.layer(Arc::clone(&store), &clock));
    (clock, reports, processes)
}

#[test]
fn a_subject_is_reported_once_per_window_by_all_processes_together() {
    let hour = Duration::from_secs(3_600);
    // The bucket refills in the meantime, so it has no edge at which its usage is forgotten.
    for text in [
        "a: fixed-window 10/1h warn 80%",
        "a: fixed-window 10/1h anchored warn 80%",
        "a: quota 10/day in UTC warn 80%",
        "a: sliding-log 10/1h warn 80%",
        "a: gcra 10/1h burst 10 warn 80%",
    ] {
        let policy = policy(text);
        let (clock, reports, [one, other]) = processes();
        let charge = |store, operation, cost| warns(store, operation, &policy, cost);
        assert!(!charge(&one, Operation::Acquire, 7));
        assert_eq!(reports.take(), [""; 0]);
        assert!(charge(&one, Operation::Acquire, 1));
        assert_eq!(reports.take(), ["a /alice 2"], "{text}");
        // The usage falls below the percentage and reaches it again.
        assert!(!charge(&other, Operation::Refund, 1));
        assert!(charge(&other, Operation::Acquire, 2));
        assert!(charge(&one, Operation::Acquire, 9), "denied");
        assert_eq!(reports.take(), [""; 0], "{text}");
        clock.advance(if policy.is_quota() { 24 * hour } else { hour });
        assert!(charge(&other, Operation::Acquire, 8));
        assert!(charge(&one, Operation::Acquire, 1));
        assert_eq!(reports.take(), ["a /alice 2"], "{text}");
    }
}

/// A window that begins with a charge ends before a window of the same length that begins with the
/// report.
#[test]
fn the_next_window_is_reported_although_the_last_report_was_late() {
    let policy = policy("a: fixed-window 10/1h anchored warn 80%");
    let (clock, reports, [one]) = processes();
    assert!(!warns(&one, Operation::Acquire, &policy, 1));
    clock.advance(Duration::from_secs(3_590));
    assert!(warns(&one, Operation::Acquire, &policy, 9));
    clock.advance(Duration::from_secs(20));
    assert!(warns(&one, Operation::Acquire, &policy, 10));
    assert_eq!(reports.take(), ["a /alice 0"; 2]);
}

#[test]
fn credits_are_reported_again_only_after_a_grant_brought_the_usage_below_the_percentage() {
    let policy = policy("prepaid: credits 10 warn 80%");
    let (clock, reports, [one, other]) = processes();
    let grant = |amount, id: &[u8]| {
        let charge = [Charge::new(&policy, "alice").cost(amount)];
        let id = CallId::new(id, Duration::from_secs(9));
        let _ = now(&one, Call::new(Operation::Grant { ends_at: None }, &charge).with_id(id));
    };
    assert!(warns(&one, Operation::Acquire, &policy, 10));
    grant(1, b"a"); // 10 of 11
    clock.advance(Duration::from_secs(10 * 365 * 86_400));
    assert!(warns(&other, Operation::Acquire, &policy, 1));
    assert_eq!(reports.take(), ["prepaid /alice 0"]);
    grant(9, b"b"); // 11 of 20
    assert!(!warns(&one, Operation::Acquire, &policy, 1));
    // The other process knows of the grant at most a minute later.
    clock.advance(Duration::from_secs(60));
    assert!(warns(&other, Operation::Acquire, &policy, 4));
    assert!(warns(&one, Operation::Acquire, &policy, 1));
    assert_eq!(reports.take(), ["prepaid /alice 4"]);
}

#[test]
fn each_policy_tenant_and_subject_is_reported_and_a_peek_is_not() {
    let (_, reports, [store]) = processes();
    let (a, b) = (policy("a: fixed-window 1/1h warn 100%"), policy("b: fixed-window 9/1h"));
    let per_tenant = policy("c: fixed-window 1/1h shards 1 by-subject warn 100%");
    let charges = [
        Charge::new(&a, "x"),
        Charge::new(&b, "x").cost(9),
        Charge::new(&a, "x").tenant("t"),
        Charge::new(&per_tenant, "y").tenant("t"),
    ];
    let decision = now(&store, Call::acquire(&charges));
    assert_eq!(decision.warnings().collect::<Vec<_>>(), [0, 2, 3]);
    assert_eq!(reports.take(), ["a /x 0", "a t/x 0", "c t/y 0"]);
    let other = [Charge::new(&per_tenant, "z").tenant("t")];
    assert!(now(&store, Call::acquire(&other)).warnings().next().is_some());
    assert_eq!(reports.take(), [""; 0], "the limit belongs to the tenant");
    let _ = now(store.inner(), Call::acquire(&[Charge::new(&a, "peeked")]));
    let peeked = [Charge::new(&a, "peeked")];
    assert_eq!(now(&store, Call::new(Operation::Peek, &peeked)).warnings().count(), 1);
    assert_eq!(reports.take(), [""; 0]);
    let calls = [Call::acquire(&peeked), Call::acquire(&charges[..1])];
    let answers = super::run(store.decide_many(&calls));
    assert!(answers.iter().all(Result::is_ok));
    assert_eq!(reports.take(), ["a /peeked 0"]);
}

#[test]
fn a_report_that_fails_is_made_at_the_next_warning() {
    let clock = ManualClock::default();
    let faults = vec![Fault::None, Fault::Before(ErrorKind::Unavailable)];
    let reports = Reports::default();
    let store = ModelStore::new(clock.clone()).layer(Faults::new(faults));
    let store =
        reports.layer(store.or_fall_back_to(MemoryStore::new(), Share::new(1, 1).unwrap()), &clock);
    let policy = policy("a: fixed-window 1/1h warn 100%");
    let charge = [Charge::new(&policy, "alice")];
    super::run(async {
        let _ = store.decide(Call::acquire(&charge)).await.unwrap();
        assert_eq!(reports.take(), [""; 0]);
        let _ = store.decide(Call::acquire(&charge)).await.unwrap();
        assert_eq!(reports.take(), ["a /alice 0"]);
    });
}

/// The store has another clock than the layer. After the clock of the layer has stepped back, the
/// layer does not remember the subject until that clock has caught up.
#[test]
fn a_clock_of_the_layer_that_steps_back_delays_no_report() {
    let (store_clock, clock) = (ManualClock::default(), ManualClock::default());
    let store = MemoryStore::builder().clock(store_clock.clone()).build();
    let reports = Reports::default();
    clock.set(Timestamp::from_micros(1_000_000_000_000));
    let store = reports.layer(store, &clock);
    let policy = policy("a: fixed-window 1/1h warn 1%");
    assert!(warns(&store, Operation::Acquire, &policy, 1));
    clock.set(Timestamp::from_micros(0));
    store_clock.advance(Duration::from_secs(3_600));
    assert!(warns(&store, Operation::Acquire, &policy, 1));
    assert_eq!(reports.take().len(), 2);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Several processes charge, refund and wait at random. In each window with a decision that
    /// warns, one report is made, at the first such decision.
    #[test]
    fn the_first_warning_of_each_window_is_reported(
        steps in prop::collection::vec((0..3_usize, 0..3_u8, 1..5_u64, 0..900_u64), 1..80),
        percent in 1..=100_u8,
        is_anchored in any::<bool>(),
    ) {
        let anchored = if is_anchored { " anchored" } else { "" };
        let policy = policy(&format!("a: fixed-window 10/1h{anchored} warn {percent}%"));
        let (clock, reports, processes) = processes::<3>();
        // The end of the window of the last report.
        let mut reported_until = 0;
        for (process, operation, cost, pause) in steps {
            let operation = match operation {
                0 => Operation::Acquire,
                1 => Operation::Charge,
                _ => Operation::Refund,
            };
            let charge = [Charge::new(&policy, "alice").cost(cost)];
            let decision = now(&processes[process], Call::new(operation, &charge));
            let time = clock.now().as_micros();
            let expected = decision.verdicts()[0].warns() && time >= reported_until;
            if expected {
                let left = decision.verdicts()[0].reset_after();
                reported_until = time + u64::try_from(left.as_micros()).unwrap();
            }
            prop_assert_eq!(reports.take().len(), usize::from(expected));
            clock.advance(Duration::from_secs(pause));
        }
    }
}
