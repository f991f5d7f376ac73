//! Tests lists that allow and deny subjects.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of a test that fails panics, as the test does"
)]

use std::time::Duration;

use proptest::prelude::*;
use tidegate_core::layers::ShardedStore;
use tidegate_core::{
    Call, CallId, Charge, Decision, ErrorKind, Limiter, ListAction, Lists, ManualClock, Operation,
    Outcome, Policy, PolicyLists, Store, StoreExt, Verdict,
};
use tidegate_memory::MemoryStore;
use tidegate_testkit::faults::Faults;
use tokio::runtime::Runtime;

const HOUR: Duration = Duration::from_secs(3600);

fn policy(text: &str) -> Policy {
    text.parse().unwrap()
}

/// Lists of the policies `a` and `b`, which deny and allow the subjects with these names.
fn lists() -> PolicyLists {
    let lists: Lists = "deny subject denied\nallow subject allowed".parse().unwrap();
    PolicyLists::new().with("a", lists.clone()).with("b", lists)
}

fn memory() -> (ManualClock, MemoryStore<ManualClock>) {
    let clock = ManualClock::default();
    (clock.clone(), MemoryStore::builder().clock(clock).build())
}

fn now(store: &impl Store, call: Call<'_>) -> Decision {
    store.decide(call).into_ready().unwrap().unwrap()
}

fn outcomes(decision: &Decision) -> Vec<Outcome> {
    decision.verdicts().iter().map(Verdict::outcome).collect()
}

#[test]
fn an_allowed_subject_is_counted_beyond_the_limit_of_each_algorithm() {
    for text in [
        "a: fixed-window 5/1m block 1h",
        "a: fixed-window 5/1m anchored",
        "a: sliding-log 5/1m block 1h",
        "a: sliding-log 5/1m grain 1s",
        "a: sliding-counter 5/1d",
        "a: gcra 5/1m burst 5",
        "a: token-bucket 1/1d burst 5 by-interval",
        "a: sliding-log 11/1m shards 4",
        "a: quota 5/month in Asia/Tokyo",
    ] {
        let (clock, store) = memory();
        let listed = store.listed(lists());
        let policy = policy(text);
        let charge = [Charge::new(&policy, "allowed").cost(2)];
        for count in 1..=20_u64 {
            let decision = now(&listed, Call::acquire(&charge));
            let verdict = decision.verdicts()[0];
            assert_eq!(verdict.outcome(), Outcome::Allowed, "{text}");
            assert_eq!(verdict.list_action(), Some(ListAction::Allow));
            let remaining = policy.limit().saturating_sub(2 * count);
            assert_eq!(
                (verdict.limit(), verdict.remaining()),
                (policy.limit(), remaining),
                "{text}"
            );
            let peek = now(&listed, Call::new(Operation::Peek, &charge));
            assert!(peek.is_allowed() && peek.verdicts()[0].remaining() == remaining, "{text}");
        }
        // The charges count: without the list, the subject is far above the limit.
        let store = listed.inner();
        let refund = Call::new(Operation::Refund, &charge);
        for _ in 0..18 {
            assert_eq!(now(store, refund).amounts(), [2], "{text}");
        }
        assert_eq!(now(store, refund).verdicts()[0].remaining(), policy.limit() - 2, "{text}");
        clock.advance(Duration::from_secs(1));
    }
}

#[test]
fn an_allowed_subject_is_counted_beyond_the_limit_of_each_shard() {
    let listed = ShardedStore::new(memory().1).listed(lists());
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for text in ["a: fixed-window 8/1h shards 4", "a: gcra 8/1h burst 8 shards 4 by-subject"] {
        let policy = policy(text);
        for subject in ["allowed", "x"] {
            let charge = [Charge::new(&policy, subject).tenant("t")];
            let mut admitted = 0;
            for _ in 0..40 {
                let decision = runtime.block_on(listed.decide(Call::acquire(&charge))).unwrap();
                let verdict = decision.verdicts()[0];
                // The verdict describes one shard, whose share of the limit is 2.
                assert!(verdict.limit() == 8 && verdict.remaining() < 2, "{verdict:?}");
                admitted += u64::from(decision.is_allowed());
            }
            assert!(
                if subject == "x" { admitted <= 8 } else { admitted == 40 },
                "{text} {admitted}"
            );
        }
    }
}

#[test]
fn an_allowed_subject_passes_when_its_state_cannot_count_more() {
    for text in [
        "a: sliding-log 5/1h",
        "a: sliding-counter 5/1d",
        "a: token-bucket 1/365d burst 1",
        "a: fixed-window 5/1h",
    ] {
        let listed = memory().1.listed(lists());
        let (policy, other) = (policy(text), policy("c: fixed-window 3/1h"));
        let full = [Charge::new(&policy, "allowed").cost(1 << 52)];
        let _ = now(&listed, Call::new(Operation::Charge, &full));
        let charges = [Charge::new(&policy, "allowed"), Charge::new(&other, "x")];
        for remaining in [2, 1, 0] {
            let decision = now(&listed, Call::acquire(&charges));
            assert_eq!(outcomes(&decision), [Outcome::Allowed, Outcome::Allowed], "{text}");
            assert_eq!(decision.verdicts()[1].remaining(), remaining, "{text}");
            assert_eq!(decision.verdicts()[0].remaining(), 0);
        }
        let decision = now(&listed, Call::acquire(&charges));
        assert_eq!(outcomes(&decision), [Outcome::Allowed, Outcome::Denied], "{text}");
        assert!(now(&listed, Call::acquire(&charges[..1])).is_allowed(), "{text}");
        let up_to = Call::new(Operation::AcquireUpTo { min: 1 }, &charges[..1]);
        let decision = now(&listed, up_to);
        assert_eq!(decision.is_allowed(), decision.amounts() == [1], "{text}");
    }
}

#[test]
fn only_the_charges_of_the_allowed_subject_pass() {
    let listed = memory().1.listed(lists());
    let (a, b) = (policy("a: fixed-window 1/1h"), policy("b: fixed-window 1/1h"));
    let charges = [Charge::new(&a, "allowed"), Charge::new(&b, "x")];
    assert!(now(&listed, Call::acquire(&charges)).is_allowed());
    let refused = now(&listed, Call::acquire(&charges));
    assert_eq!(outcomes(&refused), [Outcome::Allowed, Outcome::Denied]);
    // The refused call charged nothing.
    let refund = Call::new(Operation::Refund, &charges[..1]);
    assert_eq!(now(&listed, refund).amounts(), [1]);
    assert_eq!(now(&listed, refund).amounts(), [0]);
}

#[test]
fn a_ban_beats_allow_and_nothing_is_charged() {
    let listed = memory().1.listed(lists());
    let (a, b) = (policy("a: fixed-window 1/1h"), policy("b: fixed-window 1/1h"));
    let charges = [Charge::new(&a, "allowed"), Charge::new(&b, "x")];
    let _ = now(&listed, Call::new(Operation::Block { span: HOUR }, &charges[..1]));
    for operation in [Operation::Acquire, Operation::Peek] {
        let decision = now(&listed, Call::new(operation, &charges));
        assert!(decision.is_denied());
        assert_eq!(outcomes(&decision), [Outcome::Blocked, Outcome::Allowed]);
        assert_eq!(decision.retry_after(), Some(HOUR));
        assert_eq!(decision.verdicts()[0].list_action(), Some(ListAction::Allow));
        assert_eq!(decision.verdicts()[0].limit(), 1);
    }
    let _ = now(&listed, Call::new(Operation::Block { span: Duration::ZERO }, &charges[..1]));
    assert!(now(&listed, Call::acquire(&charges)).is_allowed());
}

#[test]
fn a_denied_subject_is_refused_without_a_call_to_the_store() {
    #[derive(Debug)]
    struct Down;
    impl Store for Down {
        fn decide<'a>(
            &'a self,
            _: Call<'a>,
        ) -> tidegate_core::Answer<'a, Result<Decision, tidegate_core::Error>> {
            tidegate_core::Answer::ready(Err(tidegate_core::Error::new(
                ErrorKind::Unavailable,
                "down",
            )))
        }

        fn now(
            &self,
        ) -> tidegate_core::Answer<'_, Result<tidegate_core::Timestamp, tidegate_core::Error>>
        {
            tidegate_core::Answer::ready(Ok(tidegate_core::Timestamp::from_micros(0)))
        }

        fn answers_immediately(&self) -> bool {
            true
        }
    }
    let listed = Down.listed(lists());
    let (a, c) = (policy("a: fixed-window 1/1h"), policy("c: fixed-window 1/1h"));
    let charges = [Charge::new(&a, "denied"), Charge::new(&c, "x")];
    for operation in [Operation::Acquire, Operation::Peek, Operation::AcquireUpTo { min: 1 }] {
        let decision = now(&listed, Call::new(operation, &charges[..1]));
        assert_eq!(outcomes(&decision), [Outcome::DenyListed]);
        assert_eq!((decision.retry_after(), decision.retry_after_secs()), (None, None));
        assert_eq!(decision.verdicts()[0].outcome().as_str(), "deny-listed");
    }
    // The other charge needs the store.
    let answer = listed.decide(Call::acquire(&charges)).into_ready().unwrap();
    assert_eq!(answer.unwrap_err().kind(), ErrorKind::Unavailable);
    // A call that is not valid is an error.
    let hold = Call::new(Operation::Hold, &charges[..1]);
    let answer = listed.decide(hold).into_ready().unwrap();
    assert_eq!(answer.unwrap_err().kind(), ErrorKind::InvalidCall);
}

#[test]
fn a_denied_charge_refuses_the_call_and_charges_nothing() {
    let listed = memory().1.listed(lists());
    let (a, b) = (policy("a: fixed-window 2/1h"), policy("b: fixed-window 2/1h block 1h"));
    for subject in ["x", "allowed"] {
        let charges = [Charge::new(&b, subject).cost(2), Charge::new(&a, "denied")];
        for _ in 0..3 {
            let decision = now(&listed, Call::acquire(&charges));
            assert_eq!(outcomes(&decision), [Outcome::Allowed, Outcome::DenyListed]);
            assert_eq!(decision.retry_after(), None);
            assert_eq!(decision.verdicts()[0].remaining(), 2);
        }
        assert!(now(&listed, Call::acquire(&charges[..1])).is_allowed());
    }
}

#[test]
fn a_shadow_reports_an_entry_that_denies_and_refuses_nothing() {
    let listed = memory().1.listed(lists());
    let a = policy("a: fixed-window 1/1h shadow");
    for outcome in [Outcome::Allowed, Outcome::Denied] {
        let decision = now(&listed, Call::acquire(&[Charge::new(&a, "denied")]));
        assert!(decision.is_allowed());
        let verdict = decision.verdicts()[0];
        assert_eq!((verdict.outcome(), verdict.list_action()), (outcome, Some(ListAction::Deny)));
    }
}

#[test]
fn operations_that_no_policy_refuses_ignore_the_lists() {
    let listed = memory().1.listed(lists());
    let a = policy("a: fixed-window 5/1h");
    for subject in ["denied", "allowed"] {
        let charges = [Charge::new(&a, subject).cost(7)];
        assert_eq!(now(&listed, Call::new(Operation::Charge, &charges)).amounts(), [7]);
        assert_eq!(now(&listed, Call::new(Operation::Refund, &charges)).amounts(), [7]);
        let reset = now(&listed, Call::new(Operation::Reset, &charges));
        assert_eq!(reset.verdicts()[0].list_action(), None);
    }
}

#[test]
fn a_hold_of_an_allowed_subject_is_settled_with_or_without_the_list() {
    for text in [
        "a: token-bucket 5/1h burst 5 refund-lapsed",
        "a: sliding-log 5/1h",
        "a: concurrent 1 lease 1h",
    ] {
        let shared = lists();
        let listed = memory().1.listed(shared.clone());
        let a = policy(text);
        let cost = if a.is_concurrent() { 1 } else { 20 };
        let charges = [Charge::new(&a, "allowed").cost(cost)];
        let ids = ["1", "2", "3"].map(|id| CallId::new(id, HOUR));
        for id in ids {
            let hold = Call::new(Operation::Hold, &charges).with_id(id);
            assert!(now(&listed, hold).is_allowed(), "{text}");
            assert!(now(&listed, hold).is_allowed(), "{text}");
        }
        let free = [charges[0].cost(0)];
        for (index, id) in ids.into_iter().enumerate() {
            if index == 1 {
                shared.replace([]);
            }
            let settled = now(&listed, Call::new(Operation::Settle, &free).with_id(id));
            assert_eq!(settled.amounts(), [cost], "{text}");
        }
        assert_eq!(
            now(&listed, Call::new(Operation::Peek, &free)).verdicts()[0].remaining(),
            a.limit()
        );
    }
}

#[test]
fn charges_on_one_state_pass_only_if_each_subject_is_allowed() {
    let listed = memory().1.listed(lists());
    let a = policy("a: sliding-log 4/1h shards 2 by-subject");
    let charge = |subject: &'static str| Charge::new(&a, subject).tenant("t").cost(3);
    assert!(now(&listed, Call::acquire(&[charge("allowed"), charge("allowed")])).is_allowed());
    assert!(now(&listed, Call::acquire(&[charge("allowed"), charge("x")])).is_denied());
}

#[test]
fn new_lists_take_effect_with_the_next_call() {
    let shared = PolicyLists::new();
    let limiter =
        Limiter::new(memory().1.listed(shared.clone()), [policy("ip: fixed-window 1/1h")]).unwrap();
    let passes = |subject| limiter.acquire(subject).into_ready().unwrap().unwrap().is_allowed();
    assert!(passes("10.0.0.1") && !passes("10.0.0.1"));
    shared.replace([("ip".to_owned(), "allow 10.0.0.0/8\ndeny ::/0".parse().unwrap())]);
    assert!(passes("10.0.0.1") && passes("::ffff:10.0.0.1") && !passes("::1"));
    shared.replace([]);
    assert!(!passes("10.0.0.1") && passes("::1"));
}

#[test]
fn a_list_inside_of_another_list_converts_a_verdict_once() {
    let listed = memory().1.listed(lists()).listed(lists());
    let a = policy("a: fixed-window 5/1h");
    for remaining in [4, 3] {
        let decision = now(&listed, Call::acquire(&[Charge::new(&a, "allowed")]));
        assert_eq!(
            (decision.verdicts()[0].limit(), decision.verdicts()[0].remaining()),
            (5, remaining)
        );
    }
}

#[test]
fn verdicts_by_a_list_are_counted() {
    let recorder = tidegate_testkit::Recorder::default();
    metrics::with_local_recorder(&recorder, || {
        let listed = memory().1.listed(lists());
        let a = policy("a: fixed-window 5/1h");
        for subject in ["denied", "allowed", "allowed", "x"] {
            drop(now(&listed, Call::acquire(&[Charge::new(&a, subject)])));
            drop(now(&listed, Call::new(Operation::Peek, &[Charge::new(&a, subject)])));
        }
    });
    let count =
        |list| recorder.counter(&format!(r#"tidegate_listed_total{{list="{list}",policy="a"}}"#));
    assert_eq!((count("deny"), count("allow")), (Some(1), Some(2)));
}

const SUBJECTS: [&str; 4] = ["x", "y", "allowed", "denied"];

#[derive(Debug, Clone)]
struct Step {
    pass: u64,
    operation: usize,
    /// The indices of the policy and the subject, and the cost.
    charges: Vec<(usize, usize, u64)>,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let charge = (0..3_usize, 0..4_usize, 0..4_u64);
    let step = (0..40_000_000_u64, 0..8_usize, prop::collection::vec(charge, 1..4))
        .prop_map(|(pass, operation, charges)| Step { pass, operation, charges });
    prop::collection::vec(step, 1..60)
}

/// Decides a call as the documentation of the lists says, in several calls to a store without
/// lists.
fn expected(
    store: &impl Store,
    operation: Operation,
    charges: &[Charge<'_>],
) -> Vec<(Outcome, u64)> {
    let is_listed = |charge: &Charge<'_>, name: &str| {
        charge.policy.name() != "c" && charge.subject == name.as_bytes()
    };
    let select = |is: &dyn Fn(&Charge<'_>) -> bool| -> Vec<Charge<'_>> {
        charges.iter().copied().filter(is).collect()
    };
    let denied = select(&|charge| is_listed(charge, "denied") && !charge.policy.is_shadow());
    let allowed = select(&|charge| is_listed(charge, "allowed"));
    let others = select(&|charge| !denied.contains(charge) && !is_listed(charge, "allowed"));
    let ask = |operation, charges: &[Charge<'_>]| now(store, Call::new(operation, charges));
    let banned = |charge: &Charge<'_>| {
        ask(Operation::Peek, &[charge.cost(0)]).verdicts()[0].outcome() == Outcome::Blocked
    };
    let is_banned = allowed.iter().any(|charge| !charge.policy.is_shadow() && banned(charge));
    let before: Vec<bool> = allowed.iter().map(banned).collect();
    let mut own = vec![];
    let mut passes = denied.is_empty() && !is_banned;
    if !others.is_empty() {
        let peek = ask(Operation::Peek, &others);
        // A refusal of the store can block subjects, so it is sent even if the call is refused
        // anyway.
        let is_sent =
            denied.is_empty() && (passes || peek.is_denied()) && operation == Operation::Acquire;
        let decision = if is_sent { ask(Operation::Acquire, &others) } else { peek };
        passes &= decision.is_allowed();
        own = decision
            .verdicts()
            .iter()
            .map(|verdict| (verdict.outcome(), verdict.remaining()))
            .collect();
    }
    // A shadow does not charge a blocked subject.
    let charged: Vec<_> = allowed.iter().copied().filter(|charge| !banned(charge)).collect();
    if passes && operation == Operation::Acquire && !charged.is_empty() {
        let _ = ask(Operation::Charge, &charged);
    }
    let (mut own, mut before) = (own.into_iter(), before.into_iter());
    charges
        .iter()
        .map(|charge| {
            if denied.contains(charge) {
                (Outcome::DenyListed, 0)
            } else if allowed.contains(charge) {
                let is_banned = before.next().unwrap();
                let remaining = ask(Operation::Peek, &[charge.cost(0)]).verdicts()[0].remaining();
                (if is_banned { Outcome::Blocked } else { Outcome::Allowed }, remaining)
            } else {
                own.next().unwrap()
            }
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn listed_calls_are_decided_as_several_calls_without_lists(
        texts in (
            prop::sample::select(vec![
                "a: fixed-window 5/1m block 30s", "a: gcra 7/1m burst 3", "a: sliding-counter 4/1m",
            ]),
            prop::sample::select(vec![
                "b: sliding-counter 5/1m shadow", "b: token-bucket 2/10s burst 4 by-interval",
                "b: sliding-log 4/1m grain 1s",
            ]),
            prop::sample::select(vec!["c: fixed-window 9/1m", "c: sliding-log 6/1m block 10s"]),
        ),
        steps in steps(),
    ) {
        let policies = [policy(texts.0), policy(texts.1), policy(texts.2)];
        let (clock, store) = memory();
        let plain = MemoryStore::builder().clock(clock.clone()).build();
        let listed = store.listed(lists());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for step in steps {
            clock.advance(Duration::from_micros(step.pass));
            let mut charges: Vec<Charge<'_>> = vec![];
            for (policy, subject, cost) in &step.charges {
                let charge = Charge::new(&policies[*policy], SUBJECTS[*subject]).cost(*cost);
                if !charges.iter().any(|other| other.shares_state_with(&charge)) {
                    charges.push(charge);
                }
            }
            let operation = match step.operation {
                0 => Operation::Peek,
                1 => Operation::Block { span: Duration::from_secs(20) },
                2 => Operation::Refund,
                _ => Operation::Acquire,
            };
            let decision = now(&listed, Call::new(operation, &charges));
            if operation.can_be_refused() {
                let own: Vec<_> =
                    decision.verdicts().iter().map(|verdict| (verdict.outcome(), verdict.remaining())).collect();
                prop_assert_eq!(own, expected(&plain, operation, &charges), "{:?}", charges);
            } else {
                prop_assert_eq!(decision, now(&plain, Call::new(operation, &charges)));
            }
            // Batches are decided in the same way, and no decision changes what it only reads.
            let peek = Call::new(Operation::Peek, &charges);
            let answers = runtime.block_on(listed.decide_many(&[peek, peek]));
            for answer in answers {
                prop_assert_eq!(answer.unwrap(), now(&listed, peek));
            }
        }
    }
}

const DAY: Duration = Duration::from_secs(86_400);

/// Returns the remaining amount of the subject `allowed` without the lists.
fn plain_remaining(store: &MemoryStore<ManualClock>, policy: &Policy) -> u64 {
    let peek = [Charge::new(policy, "allowed").cost(0)];
    now(store, Call::new(Operation::Peek, &peek)).verdicts()[0].remaining()
}

/// The charges of an allowed subject use up its quota and its grants, and the unused quota still
/// rolls over.
#[test]
fn a_call_of_an_allowed_subject_keeps_the_grants_and_the_rollover_exact() {
    for (text, granted, used, next_day) in [
        // 51 are used: 10 of the day and 41 of the grant.
        ("a: quota 10/day in UTC", 100, 50, 10 + 59),
        ("a: quota 10/day in UTC rollover 1/2", 100, 50, 10 + 59),
        // 3 are used, and half of the other 7 roll over.
        ("a: quota 10/day in UTC rollover 1/2", 0, 2, 10 + 3),
        // 3 are used of the 5 in the second half of the first day.
        ("a: quota 10/day in UTC since 1970-01-02T12:00 rollover 1/2", 0, 2, 10 + 1),
    ] {
        let policy = policy(text);
        let (clock, store) = memory();
        clock.advance(DAY);
        let charge = [Charge::new(&policy, "allowed")];
        let id = CallId::new("invoice 17", HOUR);
        let grants = [charge[0].cost(granted)];
        let grant = Call::new(Operation::Grant { ends_at: None }, &grants).with_id(id);
        if granted > 0 {
            assert!(now(&store, grant).is_allowed());
        }
        assert!(now(&store, Call::acquire(&[charge[0].cost(used)])).is_allowed(), "{text}");
        let listed = (&store).listed(lists());
        assert!(now(&listed, Call::acquire(&charge)).is_allowed());
        clock.advance(DAY);
        assert_eq!(plain_remaining(&store, &policy), next_day, "{text}");
    }
}

/// The pro-rated limit of the first window is the limit that the verdict and the warning use. A
/// charge before the subscription begins is counted too.
#[test]
fn an_allowed_subject_has_the_verdict_of_its_pro_rated_quota() {
    let policy = policy("a: quota 10/day in UTC since 1970-01-02T12:00 warn 50%");
    let (clock, store) = memory();
    let listed = store.layer(Faults::new(vec![])).listed(lists());
    let charge = [Charge::new(&policy, "allowed")];
    let acquire = || {
        let answer = Runtime::new().unwrap().block_on(listed.decide(Call::acquire(&charge)));
        answer.unwrap().verdicts()[0]
    };
    assert!(acquire().outcome() == Outcome::Allowed && acquire().remaining() == 0);
    assert_eq!(listed.inner().as_layer().calls(), 2, "one call counts the charge");

    clock.advance(DAY);
    let answers = [acquire(), acquire(), acquire(), acquire(), acquire(), acquire()];
    assert_eq!(answers.map(|verdict| verdict.remaining()), [4, 3, 2, 1, 0, 0]);
    assert_eq!(answers.map(|verdict| verdict.warns()), [false, false, true, true, true, true]);
}
