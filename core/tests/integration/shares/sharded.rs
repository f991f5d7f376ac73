//! Tests of a store with limits that are split over shards. The store never admits more than the
//! limit, for any clients and calls.

use std::time::Duration;

use proptest::prelude::*;
use tidegate_core::layers::ShardedStore;
use tidegate_core::{
    Call, Charge, Clock, Decision, Error, ErrorKind, ManualClock, Operation, Outcome, Policy,
    Shards, Store, Timestamp,
};
use tidegate_testkit::ModelStore;
use tidegate_testkit::generate::{Kind, policy};

use super::bounds::{Admitted, START, check, pause, ready};
use crate::stubs::Stub;

#[derive(Debug, Clone)]
struct Step {
    client: prop::sample::Index,
    policy: prop::sample::Index,
    subject: u8,
    cost: u64,
    /// The pause before the call, as a fraction of the window or period of the policy.
    pause: (u64, u32),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let pause =
        prop_oneof![3 => Just((0, 1)), 3 => (1..4_u64, 1..9_u32), 1 => (1..30_u64, 1..2_u32)];
    let index = any::<prop::sample::Index>;
    let step = (index(), index(), 0..4_u8, prop_oneof![3 => Just(1), 1 => 1..4_u64], pause);
    let step = step.prop_map(|(client, policy, subject, cost, pause)| Step {
        client,
        policy,
        subject,
        cost,
        pause,
    });
    prop::collection::vec(step, 1..160)
}

fn kinds_of_shards() -> impl Strategy<Value = Shards> {
    (1..12_u32, 0..2_u8).prop_map(|(count, by)| {
        if by == 0 { Shards::any(count) } else { Shards::by_subject(count) }
    })
}

/// Returns policies without options such as `block`, which exclude shards.
fn policies() -> impl Strategy<Value = Policy> {
    let any = Kind::any().prop_flat_map(|kind| policy(kind, "p"));
    any.prop_map(|policy| {
        let plain = Policy::new("p", policy.algorithm().clone()).unwrap();
        if policy.is_shadow() { plain.shadow() } else { plain }
    })
}

/// Returns a clock, and clients of one store.
fn clients(count: usize) -> (ManualClock, Vec<ShardedStore<std::sync::Arc<ModelStore>>>) {
    let clock = ManualClock::new(Timestamp::from_micros(START));
    let store = std::sync::Arc::new(ModelStore::new(clock.clone()));
    let client = |_| ShardedStore::new(std::sync::Arc::clone(&store));
    (clock, (0..count).map(client).collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    /// The number of shards of a policy can change. Then the old shards together admit at most the
    /// limit, and so do the new shards.
    #[test]
    fn never_more_than_the_limit_is_admitted(
        policy in policies(),
        settings in prop::collection::vec(kinds_of_shards(), 1..3),
        count in 1..6_usize,
        steps in steps(),
    ) {
        let settings: Result<Vec<_>, _> =
            settings.into_iter().map(|shards| policy.clone().sharded(shards)).collect();
        let Ok(settings) = settings else {
            return Ok(());
        };
        let (clock, clients) = clients(count);
        let mut admitted: Vec<Admitted> = vec![vec![]; settings.len()];
        for step in &steps {
            clock.advance(pause(&policy, step.pause));
            let setting = step.policy.index(settings.len());
            let sharded = &settings[setting];
            // All calls charge one limit. If the limit belongs to the tenant, the subjects of the
            // calls differ. Otherwise all calls have the same subject.
            let subject = if sharded.is_per_tenant() { [step.subject] } else { *b"s" };
            let charges = [Charge::new(sharded, &subject).cost(step.cost)];
            let client = &clients[step.client.index(clients.len())];
            let decision = ready(client.decide(Call::acquire(&charges))).unwrap();
            let verdict = decision.verdicts()[0];
            prop_assert_eq!(verdict.limit(), policy.limit());
            // Quota that was rolled over is added to the limit.
            prop_assert!(verdict.remaining() <= policy.limit() || policy.is_quota());
            if verdict.outcome() == Outcome::Allowed {
                admitted[setting].push((clock.now().as_micros(), step.cost));
            }
        }
        for (sharded, admitted) in settings.iter().zip(&admitted) {
            let equal = settings.iter().filter(|other| other.shards() == sharded.shards());
            if equal.count() == 1 {
                let whole = [sharded.clone()];
                let shares = sharded.shares();
                let subject: &[u8] = if sharded.is_per_tenant() { b"" } else { b"s" };
                check(&policy, subject, if shares.is_empty() { &whole } else { shares }, admitted)?;
            }
        }
    }

    #[test]
    fn a_client_alone_uses_all_of_the_limit(limit in 0..200_u64, count in 1..40_u32) {
        let policy: Policy = format!("p: sliding-log {limit}/1m shards {count}").parse().unwrap();
        let (_, clients) = clients(1);
        let is_allowed = || acquire(&clients[0], &policy, "s").unwrap().is_allowed();
        let admitted = (0..limit).filter(|_| is_allowed()).count();
        prop_assert_eq!(u64::try_from(admitted).unwrap(), limit);
        prop_assert!(!is_allowed());
    }

    #[test]
    fn a_batch_is_decided_like_its_calls(
        limit in 1..12_u64,
        count in 1..6_u32,
        subjects in prop::collection::vec(0..3_u8, 1..30),
    ) {
        let policy = |by: &str| -> Policy {
            format!("p: sliding-log {limit}/1m shards {count}{by}").parse().unwrap()
        };
        for policy in [policy(""), policy(" by-subject"), policy(" whole")] {
            let (_, clients) = clients(1);
            let subjects: Vec<_> = subjects.iter().map(|subject| [*subject]).collect();
            let charges: Vec<_> =
                subjects.iter().map(|s| [Charge::new(&policy, s).tenant("t")]).collect();
            let mut calls: Vec<_> = charges.iter().map(|charge| Call::acquire(charge)).collect();
            calls.insert(1, Call::acquire(&[]));
            let answers = ready(clients[0].decide_many(&calls));
            prop_assert_eq!(answers.len(), calls.len());
            prop_assert_eq!(answers[1].as_ref().unwrap_err().kind(), ErrorKind::InvalidCall);
            let mut admitted = [0, 0, 0, 0];
            for (call, answer) in calls.iter().zip(&answers) {
                if let (Some(charge), Ok(decision)) = (call.charges.get(0), answer) {
                    let key = if policy.is_per_tenant() { 3 } else { charge.subject[0] };
                    admitted[usize::from(key)] += u64::from(decision.is_allowed());
                }
            }
            prop_assert!(admitted.iter().all(|&sum| sum <= limit), "{:?}", admitted);
            let any = admitted.iter().sum::<u64>() > 0;
            prop_assert!(any);
        }
    }
}

fn acquire(store: &impl Store, policy: &Policy, subject: &str) -> Result<Decision, Error> {
    decide(store, Operation::Acquire, policy, subject, 1)
}

fn decide(
    store: &impl Store,
    operation: Operation,
    policy: &Policy,
    subject: &str,
    cost: u64,
) -> Result<Decision, Error> {
    let charges = [Charge::new(policy, subject).tenant("t").cost(cost)];
    ready(store.decide(Call::new(operation, &charges)))
}

fn parse(policy: &str) -> Policy {
    policy.parse().unwrap()
}

/// Returns a clock, a store that records its calls, and a client of this store.
fn recorded_store() -> (ManualClock, Stub, ShardedStore<Stub>) {
    let clock = ManualClock::new(Timestamp::from_micros(START));
    let stub = Stub::new(&clock);
    (clock, stub.clone(), ShardedStore::new(stub))
}

#[test]
fn a_request_is_sent_to_a_second_shard_before_it_is_refused() {
    let (_, stub, store) = recorded_store();
    let policy = parse("p: sliding-log 2/1m shards 2");
    // Another client exhausts one of the two shards. `store` does not know which shard is
    // exhausted.
    let acquired =
        decide(&ShardedStore::new(stub.clone()), Operation::Acquire, &policy, "s", 1).unwrap();
    assert!(acquired.is_allowed());
    stub.take_calls();
    assert!(acquire(&store, &policy, "s").unwrap().is_allowed());
    let before = stub.take_calls().len();
    assert!(before <= 2);
    let refused = acquire(&store, &policy, "s").unwrap();
    assert!(refused.is_denied());
    assert_eq!(
        stub.take_calls(),
        [[Operation::Acquire], [Operation::Acquire]],
        "exactly two tries"
    );
    assert_eq!(refused.verdicts()[0].limit(), 2);
    assert_eq!(refused.verdicts()[0].remaining(), 0);
}

#[test]
fn a_second_try_that_cannot_help_is_not_made() {
    let (_, stub, store) = recorded_store();
    let split = parse("split: sliding-log 8/1m shards 4");
    let plain = parse("plain: sliding-log 1/1m");
    // No second shard is tried if the cost exceeds every share.
    let never = decide(&store, Operation::Acquire, &split, "s", 3).unwrap();
    assert!(never.is_denied() && never.retry_after().is_none());
    assert_eq!(never.verdicts()[0].limit(), 8);
    assert_eq!(stub.take_calls().len(), 1);
    // No second shard is tried if another policy of the call denies too.
    let charges = [Charge::new(&plain, "s").cost(2), Charge::new(&split, "s").cost(3)];
    assert!(ready(store.decide(Call::acquire(&charges))).unwrap().is_denied());
    assert_eq!(stub.take_calls().len(), 1);
    assert!(stub.model().is_empty(), "a refusal charges no shard");
    // No second shard is tried if the subject has only one shard.
    let own = parse("own: sliding-log 4/1m shards 4 by-subject");
    assert!(acquire(&store, &own, "s").unwrap().is_allowed());
    assert!(acquire(&store, &own, "s").unwrap().is_denied());
    assert_eq!(stub.take_calls().len(), 2);
}

#[test]
fn a_cost_is_charged_to_a_share_that_has_room_for_it() {
    let (_, _, store) = recorded_store();
    // The limit of 11 is split into one share of 2 and nine shares of 1.
    let policy = parse("p: sliding-log 11/1m shards 10");
    assert!(decide(&store, Operation::Acquire, &policy, "s", 2).unwrap().is_allowed());
    let second = decide(&store, Operation::Acquire, &policy, "s", 2).unwrap();
    assert_eq!(second.retry_after(), Some(Duration::from_secs(60)));
}

#[test]
fn policies_with_equally_many_shards_use_the_same_shard() {
    let (_, stub, store) = recorded_store();
    let policies = [parse("a: fixed-window 40/1m shards 4"), parse("b: sliding-log 8/1m shards 4")];
    for _ in 0..8 {
        let charges = policies.each_ref().map(|policy| Charge::new(policy, "s"));
        assert!(ready(store.decide(Call::acquire(&charges))).unwrap().is_allowed());
    }
    assert_eq!(stub.take_calls().len(), 8);
    // The eight calls have used all four shards of both policies, and have exhausted each shard of
    // the second policy.
    assert_eq!(stub.model().len(), 8);
    let limits = policies.each_ref().map(|policy| Charge::new(policy, "s"));
    let refused = ready(store.decide(Call::acquire(&limits))).unwrap();
    assert_eq!(refused.refused_by().collect::<Vec<_>>(), [1]);
    assert_eq!(refused.verdicts()[0].limit(), 40);
}

#[test]
fn a_refusal_by_two_shards_reports_the_earlier_end() {
    let (clock, stub, store) = recorded_store();
    let policy = parse("p: fixed-window 2/1m anchored shards 2");
    let shares = policy.shares();
    assert!(acquire(&stub, &shares[0], "s").unwrap().is_allowed());
    clock.advance(Duration::from_secs(20));
    assert!(acquire(&stub, &shares[1], "s").unwrap().is_allowed());
    for _ in 0..4 {
        let refused = acquire(&store, &policy, "s").unwrap();
        assert_eq!(refused.retry_after(), Some(Duration::from_secs(40)));
    }
}

#[test]
fn a_subject_always_uses_the_same_shard_on_every_machine() {
    let policy = parse("p: sliding-log 1000/1m shards 8 by-subject");
    let spread = parse("q: sliding-log 1000/1m shards 8 whole");
    let few = parse("r: sliding-log 3/1m shards 8 by-subject");
    let shard = |policy, subject: &str| {
        Charge::new(policy, subject).tenant("acme").share_of_subject().unwrap()
    };
    // The keys of states in a cluster depend on the shards of subjects, so these shards must never
    // change.
    let shards = ["alice", "bob", "carol", "dave", ""].map(|subject| shard(&policy, subject));
    assert_eq!(shards, [3, 2, 1, 3, 6]);
    for subject in ["alice", "bob", "carol", "dave", ""] {
        assert_eq!(shard(&policy, subject), shard(&spread, subject), "both policies use one slot");
        assert!(shard(&few, subject) < 3, "a share of zero is never chosen");
    }
    let mut counts = [0; 8];
    (0..8_000).for_each(|n| counts[shard(&policy, &n.to_string())] += 1);
    assert!(counts.iter().all(|&count| (800..1_200).contains(&count)), "{counts:?}");
    let any = parse("p: sliding-log 1000/1m shards 8");
    assert_eq!(Charge::new(&any, "alice").share_of_subject(), None);
}

#[test]
fn a_limit_of_the_tenant_is_shared_by_its_subjects() {
    let policy = parse("p: sliding-log 6/1m shards 3 by-subject");
    let (clock, _, store) = recorded_store();
    let whole = ModelStore::new(clock);
    let admitted = |store: &dyn Store| {
        let subjects: Vec<String> = (0..40).map(|n| n.to_string()).collect();
        subjects.iter().filter(|s| acquire(&store, &policy, s).unwrap().is_allowed()).count()
    };
    assert_eq!(admitted(&store), 6);
    assert_eq!(admitted(&whole), 6, "a store without shards admits the same number");
    let other = [Charge::new(&policy, "0").tenant("another")];
    assert!(ready(store.decide(Call::acquire(&other))).unwrap().is_allowed());
}

#[test]
fn each_subject_has_the_whole_limit() {
    let policy = parse("p: sliding-log 2/1m block 5m shards 3 whole");
    let (_, stub, store) = recorded_store();
    for subject in ["a", "b", "c", "d", "e"] {
        assert!(acquire(&store, &policy, subject).unwrap().is_allowed());
        assert!(acquire(&store, &policy, subject).unwrap().is_allowed());
        assert!(acquire(&store, &policy, subject).unwrap().is_denied());
        let blocked = decide(&store, Operation::Peek, &policy, subject, 1).unwrap();
        assert_eq!(blocked.verdicts()[0].outcome(), Outcome::Blocked);
        assert!(decide(&store, Operation::Reset, &policy, subject, 1).unwrap().is_allowed());
        assert!(acquire(&store, &policy, subject).unwrap().is_allowed());
    }
    assert!(stub.take_calls().iter().all(|batch| batch.len() == 1), "each call reaches one shard");
}

#[test]
fn a_peek_reports_the_outcome_of_the_next_acquire() {
    let (_, stub, store) = recorded_store();
    let policy = parse("p: sliding-log 7/1m shards 3");
    for _ in 0..30 {
        let peeked = decide(&store, Operation::Peek, &policy, "s", 1).unwrap();
        let before = stub.model().snapshot();
        let _ = decide(&store, Operation::Peek, &policy, "s", 1).unwrap();
        assert_eq!(stub.model().snapshot(), before);
        let acquired = acquire(&store, &policy, "s").unwrap();
        assert_eq!(peeked.is_allowed(), acquired.is_allowed());
        assert_eq!(peeked.retry_after(), acquired.retry_after());
    }
}

#[test]
fn a_refund_can_be_acquired_again_and_no_more() {
    let (_, _, store) = recorded_store();
    let policy = parse("p: sliding-log 7/1m shards 3");
    for _ in 0..20 {
        assert!(acquire(&store, &policy, "s").unwrap().is_allowed());
        let _ = decide(&store, Operation::Refund, &policy, "s", 1).unwrap();
    }
    let admitted = (0..20).filter(|_| acquire(&store, &policy, "s").unwrap().is_allowed()).count();
    assert_eq!(admitted, 7);
    // A refund never exceeds the usage of the shard that it reaches.
    for _ in 0..3 {
        let _ = decide(&store, Operation::Refund, &policy, "s", 100).unwrap();
    }
    let again = (0..20).filter(|_| acquire(&store, &policy, "s").unwrap().is_allowed()).count();
    assert!(again <= 7, "{again}");
}

/// An undo must reach the shard of the client's last charge. Only this shard has a charge with the
/// time that the undo names.
#[test]
fn an_undo_reaches_the_shard_of_the_clients_last_charge() {
    for rule in ["sliding-log 2/1m", "token-bucket 2/1m burst 2"] {
        let (clock, clients) = clients(1);
        let (store, policy) = (&clients[0], parse(&format!("p: {rule} shards 2")));
        assert!(acquire(store, &policy, "s").unwrap().is_allowed());
        clock.advance(Duration::from_secs(1));
        assert!(acquire(store, &policy, "s").unwrap().is_allowed());
        let undo = Operation::Undo { at: clock.now() };
        let _ = decide(store, undo, &policy, "s", 1).unwrap();
        assert!(acquire(store, &policy, "s").unwrap().is_allowed(), "{policy}");
        assert!(acquire(store, &policy, "s").unwrap().is_denied(), "{policy}");
    }
}

#[test]
fn a_reset_and_a_block_apply_to_all_shards() {
    for by in ["", " by-subject"] {
        let policy = parse(&format!("p: sliding-log 7/1m shards 3{by}"));
        let (_, stub, store) = recorded_store();
        for n in 0..40 {
            let subject = if by.is_empty() { "s".to_owned() } else { n.to_string() };
            let _ = acquire(&store, &policy, &subject).unwrap();
        }
        assert_eq!(stub.model().len(), 3);
        stub.take_calls();
        let reset = decide(&store, Operation::Reset, &policy, "s", 1).unwrap();
        assert_eq!(stub.take_calls(), [[Operation::Reset; 3]], "all shards are reset in one batch");
        assert!(stub.model().is_empty());
        assert_eq!((reset.verdicts()[0].limit(), reset.verdicts()[0].remaining()), (7, 7));

        let span = Duration::from_secs(600);
        let shorter = Operation::BlockAtLeast { span: Duration::from_secs(1) };
        for operation in [Operation::Block { span }, shorter] {
            let blocked = decide(&store, operation, &policy, "s", 1).unwrap();
            assert_eq!(blocked.verdicts()[0].blocked_for(), span);
        }
        for n in 0..10 {
            let subject = if by.is_empty() { "s".to_owned() } else { n.to_string() };
            let verdict = acquire(&store, &policy, &subject).unwrap().verdicts()[0];
            assert_eq!(verdict.outcome(), Outcome::Blocked);
        }
    }
}

#[test]
fn operations_on_whole_states_reach_all_shards_of_a_call() {
    let (_, stub, store) = recorded_store();
    let (split, plain) = (parse("a: sliding-log 2/1m shards 2"), parse("b: sliding-log 5/1m"));
    let whole = parse("c: sliding-log 5/1m shards 4 whole");
    let charges = [&plain, &split, &whole].map(|policy| Charge::new(policy, "s"));
    for _ in 0..2 {
        assert!(ready(store.decide(Call::acquire(&charges))).unwrap().is_allowed());
    }
    let reset = ready(store.decide(Call::new(Operation::Reset, &charges))).unwrap();
    assert!(stub.model().is_empty());
    let remaining = reset.verdicts().iter().map(|verdict| verdict.remaining());
    assert_eq!(remaining.collect::<Vec<_>>(), [5, 2, 5]);
}

#[test]
fn a_reservation_needs_a_shard_by_subject() {
    let (clock, _, store) = recorded_store();
    let reserve = Operation::Reserve { max_wait: Duration::from_secs(60) };
    let any = parse("p: token-bucket 2/1s shards 2");
    let model = ModelStore::new(clock);
    for store in [&store as &dyn Store, &model] {
        let error = decide(&store, reserve, &any, "s", 1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("a shard does not know"), "{error}");
    }
    let own = parse("p: token-bucket 2/1s shards 2 by-subject");
    assert_eq!(decide(&store, reserve, &own, "s", 1).unwrap().wait(), Duration::ZERO);
    // The only shard of the subject has half of the rate, so the wait is twice as long.
    assert_eq!(decide(&store, reserve, &own, "s", 1).unwrap().wait(), Duration::from_secs(1));
}

#[test]
fn a_shadow_tries_a_second_shard_if_nothing_was_charged() {
    let (_, stub, store) = recorded_store();
    let shadow = parse("p: sliding-log 2/1m shards 2 shadow");
    let outcome = || acquire(&store, &shadow, "s").unwrap().verdicts()[0].outcome();
    assert_eq!(
        [outcome(), outcome(), outcome()],
        [Outcome::Allowed, Outcome::Allowed, Outcome::Denied]
    );
    assert_eq!(stub.take_calls().len(), 4);
    // The policy `q` admits the call and is charged. A second try would charge `q` twice.
    let plain = parse("q: sliding-log 9/1m");
    let charges = [Charge::new(&plain, "s"), Charge::new(&shadow, "s").tenant("t")];
    let decision = ready(store.decide(Call::acquire(&charges))).unwrap();
    assert!(decision.is_allowed());
    assert_eq!(decision.verdicts()[0].remaining(), 8);
    assert_eq!(stub.take_calls().len(), 1);
}

#[test]
fn calls_without_shards_are_forwarded_unchanged() {
    let (_, stub, store) = recorded_store();
    let plain = parse("p: sliding-log 2/1m block 1m");
    let tenant = parse("q: sliding-log 2/1m shards 1 by-subject");
    assert!(store.supports(&tenant).is_ok());
    let charges = [Charge::new(&plain, "a"), Charge::new(&tenant, "a")];
    assert!(ready(store.decide(Call::acquire(&charges))).unwrap().is_allowed());
    let calls = [Call::acquire(&charges), Call::new(Operation::Peek, &charges)];
    assert_eq!(ready(store.decide_many(&calls)).len(), 2);
    assert_eq!(
        stub.take_calls(),
        [vec![Operation::Acquire], vec![Operation::Acquire, Operation::Peek]]
    );
}

#[test]
fn an_error_of_a_try_is_the_answer() {
    use crate::stubs::Mood;
    let (_, stub, store) = recorded_store();
    let policy = parse("p: sliding-log 2/1m shards 2");
    stub.set(Mood::Down(ErrorKind::Timeout));
    assert_eq!(acquire(&store, &policy, "s").unwrap_err().kind(), ErrorKind::Timeout);
    let reset = decide(&store, Operation::Reset, &policy, "s", 1).unwrap_err();
    assert_eq!(reset.kind(), ErrorKind::Timeout);
}
