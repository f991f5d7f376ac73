//! A store whose limits are kept in shards: never more than the limit, whoever asks what.

use std::time::Duration;

use proptest::prelude::*;
use tidegate_core::layers::ShardedStore;
use tidegate_core::{
    Call, Charge, Clock, Decision, Error, ErrorKind, ManualClock, Operation, Outcome, Policy,
    Shards, Store, Timestamp,
};
use tidegate_testkit::ModelStore;
use tidegate_testkit::generate::{Kind, policy};

use super::bounds::{Passed, START, check, now, pause};
use crate::stubs::Stub;

#[derive(Debug, Clone)]
struct Step {
    client: prop::sample::Index,
    policy: prop::sample::Index,
    subject: u8,
    cost: u64,
    /// In parts of the policy's span.
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

/// Without what excludes shards.
fn policies() -> impl Strategy<Value = Policy> {
    let any = Kind::any().prop_flat_map(|kind| policy(kind, "p"));
    any.prop_map(|policy| {
        let plain = Policy::new("p", policy.algorithm().clone()).unwrap();
        if policy.is_shadow() { plain.shadow() } else { plain }
    })
}

/// A clock, and clients of one store.
fn clients(count: usize) -> (ManualClock, Vec<ShardedStore<std::sync::Arc<ModelStore>>>) {
    let clock = ManualClock::new(Timestamp::from_micros(START));
    let store = std::sync::Arc::new(ModelStore::new(clock.clone()));
    let client = |_| ShardedStore::new(std::sync::Arc::clone(&store));
    (clock, (0..count).map(client).collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    /// Also while the number of shards changes: then under each setting, and so together at most
    /// what both settings admit.
    #[test]
    fn never_more_than_the_limit_passes(
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
        let mut passed: Vec<Passed> = vec![vec![]; settings.len()];
        for step in &steps {
            clock.advance(pause(&policy, step.pause));
            let which = step.policy.index(settings.len());
            let sharded = &settings[which];
            // One limit: of the tenant, or of one subject.
            let subject = if sharded.is_per_tenant() { [step.subject] } else { *b"s" };
            let charges = [Charge::new(sharded, &subject).cost(step.cost)];
            let client = &clients[step.client.index(clients.len())];
            let decision = now(client.decide(Call::acquire(&charges))).unwrap();
            let verdict = decision.verdicts()[0];
            prop_assert_eq!(verdict.limit(), policy.limit());
            prop_assert!(verdict.remaining() <= policy.limit());
            if verdict.outcome() == Outcome::Allowed {
                passed[which].push((clock.now().as_micros(), step.cost));
            }
        }
        for (sharded, passed) in settings.iter().zip(&passed) {
            let of_one = settings.iter().filter(|other| other.shards() == sharded.shards());
            if of_one.count() == 1 {
                let whole = [sharded.clone()];
                let shares = sharded.shares();
                let subject: &[u8] = if sharded.is_per_tenant() { b"" } else { b"s" };
                check(&policy, subject, if shares.is_empty() { &whole } else { shares }, passed)?;
            }
        }
    }

    #[test]
    fn a_client_alone_uses_all_of_the_limit(limit in 0..200_u64, count in 1..40_u32) {
        let policy: Policy = format!("p: sliding-log {limit}/1m shards {count}").parse().unwrap();
        let (_, clients) = clients(1);
        let passes = || acquire(&clients[0], &policy, "s").unwrap().is_allowed();
        let admitted = (0..limit).filter(|_| passes()).count();
        prop_assert_eq!(u64::try_from(admitted).unwrap(), limit);
        prop_assert!(!passes());
    }

    #[test]
    fn a_batch_is_decided_as_its_calls(
        limit in 1..12_u64,
        count in 1..6_u32,
        subjects in prop::collection::vec(0..3_u8, 1..30),
    ) {
        let of = |how: &str| -> Policy {
            format!("p: sliding-log {limit}/1m shards {count}{how}").parse().unwrap()
        };
        for policy in [of(""), of(" by-subject"), of(" whole")] {
            let (_, clients) = clients(1);
            let subjects: Vec<_> = subjects.iter().map(|subject| [*subject]).collect();
            let charges: Vec<_> =
                subjects.iter().map(|s| [Charge::new(&policy, s).tenant("t")]).collect();
            let mut calls: Vec<_> = charges.iter().map(|charge| Call::acquire(charge)).collect();
            calls.insert(1, Call::acquire(&[]));
            let answers = now(clients[0].decide_many(&calls));
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
    ask(store, Operation::Acquire, policy, subject, 1)
}

fn ask(
    store: &impl Store,
    operation: Operation,
    policy: &Policy,
    subject: &str,
    cost: u64,
) -> Result<Decision, Error> {
    let charges = [Charge::new(policy, subject).tenant("t").cost(cost)];
    now(store.decide(Call::new(operation, &charges)))
}

fn read(policy: &str) -> Policy {
    policy.parse().unwrap()
}

/// A store that remembers what it was asked, and a client of it.
fn asked() -> (ManualClock, Stub, ShardedStore<Stub>) {
    let clock = ManualClock::new(Timestamp::from_micros(START));
    let stub = Stub::new(&clock);
    (clock, stub.clone(), ShardedStore::new(stub))
}

#[test]
fn before_it_is_refused_a_request_goes_to_a_second_shard() {
    let (_, stub, store) = asked();
    let policy = read("p: sliding-log 2/1m shards 2");
    // Takes one shard's all, wherever the turns begin.
    let taken = ask(&ShardedStore::new(stub.clone()), Operation::Acquire, &policy, "s", 1).unwrap();
    assert!(taken.is_allowed());
    stub.asked();
    assert!(acquire(&store, &policy, "s").unwrap().is_allowed());
    let before = stub.asked().len();
    assert!(before <= 2);
    let refused = acquire(&store, &policy, "s").unwrap();
    assert!(refused.is_denied());
    assert_eq!(
        stub.asked(),
        [[Operation::Acquire], [Operation::Acquire]],
        "two tries, and no more"
    );
    assert_eq!(refused.verdicts()[0].limit(), 2);
    assert_eq!(refused.verdicts()[0].remaining(), 0);
}

#[test]
fn a_second_try_that_cannot_help_is_not_made() {
    let (_, stub, store) = asked();
    let split = read("split: sliding-log 8/1m shards 4");
    let plain = read("plain: sliding-log 1/1m");
    // A cost that no share has room for.
    let never = ask(&store, Operation::Acquire, &split, "s", 3).unwrap();
    assert!(never.is_denied() && never.retry_after().is_none());
    assert_eq!(never.verdicts()[0].limit(), 8);
    assert_eq!(stub.asked().len(), 1);
    // Another policy refuses too.
    let charges = [Charge::new(&plain, "s").cost(2), Charge::new(&split, "s").cost(3)];
    assert!(now(store.decide(Call::acquire(&charges))).unwrap().is_denied());
    assert_eq!(stub.asked().len(), 1);
    assert!(stub.model().is_empty(), "a refusal charges no shard");
    // A subject's own shard refuses.
    let own = read("own: sliding-log 4/1m shards 4 by-subject");
    assert!(acquire(&store, &own, "s").unwrap().is_allowed());
    assert!(acquire(&store, &own, "s").unwrap().is_denied());
    assert_eq!(stub.asked().len(), 2);
}

#[test]
fn a_cost_goes_to_a_share_that_has_room_for_it() {
    let (_, _, store) = asked();
    let policy = read("p: sliding-log 11/1m shards 10"); // one share of 2
    assert!(ask(&store, Operation::Acquire, &policy, "s", 2).unwrap().is_allowed());
    let second = ask(&store, Operation::Acquire, &policy, "s", 2).unwrap();
    assert_eq!(second.retry_after(), Some(Duration::from_secs(60)));
}

#[test]
fn policies_with_as_many_shards_meet_in_one() {
    let (_, stub, store) = asked();
    let policies = [read("a: fixed-window 40/1m shards 4"), read("b: sliding-log 8/1m shards 4")];
    for _ in 0..8 {
        let charges = policies.each_ref().map(|policy| Charge::new(policy, "s"));
        assert!(now(store.decide(Call::acquire(&charges))).unwrap().is_allowed());
    }
    assert_eq!(stub.asked().len(), 8);
    // Every shard of both, and so each time the same of both: else the second would have refused.
    assert_eq!(stub.model().len(), 8);
    let limits = policies.each_ref().map(|policy| Charge::new(policy, "s"));
    let refused = now(store.decide(Call::acquire(&limits))).unwrap();
    assert_eq!(refused.refused_by().collect::<Vec<_>>(), [1]);
    assert_eq!(refused.verdicts()[0].limit(), 40);
}

#[test]
fn of_two_refusals_the_earlier_end_is_told() {
    let (clock, stub, store) = asked();
    let policy = read("p: fixed-window 2/1m anchored shards 2");
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
fn a_subject_goes_to_always_the_same_shard_on_every_machine() {
    let policy = read("p: sliding-log 1000/1m shards 8 by-subject");
    let spread = read("q: sliding-log 1000/1m shards 8 whole");
    let few = read("r: sliding-log 3/1m shards 8 by-subject");
    let shard = |policy, subject: &str| {
        Charge::new(policy, subject).tenant("acme").share_of_subject().unwrap()
    };
    // States in a cluster depend on these: they must never change.
    let places = ["alice", "bob", "carol", "dave", ""].map(|subject| shard(&policy, subject));
    assert_eq!(places, [3, 2, 1, 3, 6]);
    for subject in ["alice", "bob", "carol", "dave", ""] {
        assert_eq!(shard(&policy, subject), shard(&spread, subject), "both meet in one slot");
        assert!(shard(&few, subject) < 3, "a share of nothing is never chosen");
    }
    let mut seen = [0; 8];
    (0..8_000).for_each(|n| seen[shard(&policy, &n.to_string())] += 1);
    assert!(seen.iter().all(|&seen| (800..1_200).contains(&seen)), "{seen:?}");
    let any = read("p: sliding-log 1000/1m shards 8");
    assert_eq!(Charge::new(&any, "alice").share_of_subject(), None);
}

#[test]
fn a_limit_of_the_tenant_is_shared_by_its_subjects() {
    let policy = read("p: sliding-log 6/1m shards 3 by-subject");
    let (clock, _, store) = asked();
    let whole = ModelStore::new(clock);
    let admitted = |store: &dyn Store| {
        let subjects: Vec<String> = (0..40).map(|n| n.to_string()).collect();
        subjects.iter().filter(|s| acquire(&store, &policy, s).unwrap().is_allowed()).count()
    };
    assert_eq!(admitted(&store), 6);
    assert_eq!(admitted(&whole), 6, "where there are no shards too");
    let other = [Charge::new(&policy, "0").tenant("another")];
    assert!(now(store.decide(Call::acquire(&other))).unwrap().is_allowed());
}

#[test]
fn a_whole_limit_is_each_subjects_own() {
    let policy = read("p: sliding-log 2/1m block 5m shards 3 whole");
    let (_, stub, store) = asked();
    for subject in ["a", "b", "c", "d", "e"] {
        assert!(acquire(&store, &policy, subject).unwrap().is_allowed());
        assert!(acquire(&store, &policy, subject).unwrap().is_allowed());
        assert!(acquire(&store, &policy, subject).unwrap().is_denied());
        let blocked = ask(&store, Operation::Peek, &policy, subject, 1).unwrap();
        assert_eq!(blocked.verdicts()[0].outcome(), Outcome::Blocked);
        assert!(ask(&store, Operation::Reset, &policy, subject, 1).unwrap().is_allowed());
        assert!(acquire(&store, &policy, subject).unwrap().is_allowed());
    }
    assert!(stub.asked().iter().all(|asked| asked.len() == 1), "each for one shard");
}

#[test]
fn a_peek_sees_what_an_acquire_will_get() {
    let (_, stub, store) = asked();
    let policy = read("p: sliding-log 7/1m shards 3");
    for _ in 0..30 {
        let peeked = ask(&store, Operation::Peek, &policy, "s", 1).unwrap();
        let before = stub.model().snapshot();
        let _ = ask(&store, Operation::Peek, &policy, "s", 1).unwrap();
        assert_eq!(stub.model().snapshot(), before);
        let got = acquire(&store, &policy, "s").unwrap();
        assert_eq!(peeked.is_allowed(), got.is_allowed());
        assert_eq!(peeked.retry_after(), got.retry_after());
    }
}

#[test]
fn what_is_given_back_can_be_taken_again_and_no_more() {
    let (_, _, store) = asked();
    let policy = read("p: sliding-log 7/1m shards 3");
    for _ in 0..20 {
        assert!(acquire(&store, &policy, "s").unwrap().is_allowed());
        let _ = ask(&store, Operation::Refund, &policy, "s", 1).unwrap();
    }
    let admitted = (0..20).filter(|_| acquire(&store, &policy, "s").unwrap().is_allowed()).count();
    assert_eq!(admitted, 7);
    // At most what was taken, whichever shard it goes to.
    for _ in 0..3 {
        let _ = ask(&store, Operation::Refund, &policy, "s", 100).unwrap();
    }
    let again = (0..20).filter(|_| acquire(&store, &policy, "s").unwrap().is_allowed()).count();
    assert!(again <= 7, "{again}");
}

/// In another shard there is nothing that was taken then.
#[test]
fn what_is_undone_is_what_the_client_took_last() {
    for rule in ["sliding-log 2/1m", "token-bucket 2/1m burst 2"] {
        let (clock, clients) = clients(1);
        let (store, policy) = (&clients[0], read(&format!("p: {rule} shards 2")));
        assert!(acquire(store, &policy, "s").unwrap().is_allowed());
        clock.advance(Duration::from_secs(1));
        assert!(acquire(store, &policy, "s").unwrap().is_allowed());
        let undo = Operation::Undo { at: clock.now() };
        let _ = ask(store, undo, &policy, "s", 1).unwrap();
        assert!(acquire(store, &policy, "s").unwrap().is_allowed(), "{policy}");
        assert!(acquire(store, &policy, "s").unwrap().is_denied(), "{policy}");
    }
}

#[test]
fn a_reset_and_a_block_are_of_all_shards() {
    for how in ["", " by-subject"] {
        let policy = read(&format!("p: sliding-log 7/1m shards 3{how}"));
        let (_, stub, store) = asked();
        for n in 0..40 {
            let subject = if how.is_empty() { "s".to_owned() } else { n.to_string() };
            let _ = acquire(&store, &policy, &subject).unwrap();
        }
        assert_eq!(stub.model().len(), 3);
        stub.asked();
        let reset = ask(&store, Operation::Reset, &policy, "s", 1).unwrap();
        assert_eq!(stub.asked(), [[Operation::Reset; 3]], "in one batch");
        assert!(stub.model().is_empty());
        assert_eq!((reset.verdicts()[0].limit(), reset.verdicts()[0].remaining()), (7, 7));

        let span = Duration::from_secs(600);
        let shorter = Operation::BlockAtLeast { span: Duration::from_secs(1) };
        for operation in [Operation::Block { span }, shorter] {
            let blocked = ask(&store, operation, &policy, "s", 1).unwrap();
            assert_eq!(blocked.verdicts()[0].blocked_for(), span);
        }
        for n in 0..10 {
            let subject = if how.is_empty() { "s".to_owned() } else { n.to_string() };
            let verdict = acquire(&store, &policy, &subject).unwrap().verdicts()[0];
            assert_eq!(verdict.outcome(), Outcome::Blocked);
        }
    }
}

#[test]
fn operations_on_whole_states_reach_all_that_a_call_names() {
    let (_, stub, store) = asked();
    let (split, plain) = (read("a: sliding-log 2/1m shards 2"), read("b: sliding-log 5/1m"));
    let whole = read("c: sliding-log 5/1m shards 4 whole");
    let charges = [&plain, &split, &whole].map(|policy| Charge::new(policy, "s"));
    for _ in 0..2 {
        assert!(now(store.decide(Call::acquire(&charges))).unwrap().is_allowed());
    }
    let reset = now(store.decide(Call::new(Operation::Reset, &charges))).unwrap();
    assert!(stub.model().is_empty());
    let remaining = reset.verdicts().iter().map(|verdict| verdict.remaining());
    assert_eq!(remaining.collect::<Vec<_>>(), [5, 2, 5]);
}

#[test]
fn a_place_is_reserved_only_where_a_subject_has_its_shard() {
    let (clock, _, store) = asked();
    let reserve = Operation::Reserve { max_wait: Duration::from_secs(60) };
    let any = read("p: token-bucket 2/1s shards 2");
    let model = ModelStore::new(clock);
    for store in [&store as &dyn Store, &model] {
        let error = ask(&store, reserve, &any, "s", 1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("a shard does not know"), "{error}");
    }
    let own = read("p: token-bucket 2/1s shards 2 by-subject");
    assert_eq!(ask(&store, reserve, &own, "s", 1).unwrap().wait(), Duration::ZERO);
    // The shard has half of the rate.
    assert_eq!(ask(&store, reserve, &own, "s", 1).unwrap().wait(), Duration::from_secs(1));
}

#[test]
fn a_shadow_tries_a_second_shard_if_nothing_was_taken() {
    let (_, stub, store) = asked();
    let shadow = read("p: sliding-log 2/1m shards 2 shadow");
    let passes = || acquire(&store, &shadow, "s").unwrap().verdicts()[0].outcome();
    assert_eq!(
        [passes(), passes(), passes()],
        [Outcome::Allowed, Outcome::Allowed, Outcome::Denied]
    );
    assert_eq!(stub.asked().len(), 4);
    // With another that admits: what it has taken must not be taken twice.
    let plain = read("q: sliding-log 9/1m");
    let charges = [Charge::new(&plain, "s"), Charge::new(&shadow, "s").tenant("t")];
    let decision = now(store.decide(Call::acquire(&charges))).unwrap();
    assert!(decision.is_allowed());
    assert_eq!(decision.verdicts()[0].remaining(), 8);
    assert_eq!(stub.asked().len(), 1);
}

#[test]
fn what_has_no_shards_passes_through() {
    let (_, stub, store) = asked();
    let plain = read("p: sliding-log 2/1m block 1m");
    let tenant = read("q: sliding-log 2/1m shards 1 by-subject");
    assert!(store.supports(&tenant).is_ok());
    let charges = [Charge::new(&plain, "a"), Charge::new(&tenant, "a")];
    assert!(now(store.decide(Call::acquire(&charges))).unwrap().is_allowed());
    let calls = [Call::acquire(&charges), Call::new(Operation::Peek, &charges)];
    assert_eq!(now(store.decide_many(&calls)).len(), 2);
    assert_eq!(stub.asked(), [vec![Operation::Acquire], vec![Operation::Acquire, Operation::Peek]]);
}

#[test]
fn an_error_of_either_try_is_the_answer() {
    use crate::stubs::Mood;
    let (_, stub, store) = asked();
    let policy = read("p: sliding-log 2/1m shards 2");
    stub.set(Mood::Down(ErrorKind::Timeout));
    assert_eq!(acquire(&store, &policy, "s").unwrap_err().kind(), ErrorKind::Timeout);
    let reset = ask(&store, Operation::Reset, &policy, "s", 1).unwrap_err();
    assert_eq!(reset.kind(), ErrorKind::Timeout);
}
