//! Tests limit sets, which replace policies while a program runs.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of a test that fails panics, as the test does"
)]

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use tidegate_core::layers::AdjustedStore;
use tidegate_core::{
    Answer, Call, CallId, Charge, Clock, CurrentLimits, Decision, DenyCache, Error, ErrorKind,
    Lease, LimitSet, Limiter, Lists, ManualClock, Operation, Outcome, OverrideFor, Policy,
    PolicyLists, Store, StoreExt, Timestamp, Verdict, Warnings,
};
use tidegate_memory::MemoryStore;

const HOUR: Duration = Duration::from_secs(3600);

fn policy(text: &str) -> Policy {
    text.parse().unwrap()
}

fn set(text: &str) -> LimitSet {
    text.parse().unwrap()
}

fn memory() -> (ManualClock, MemoryStore<ManualClock>) {
    let clock = ManualClock::default();
    (clock.clone(), MemoryStore::builder().clock(clock).build())
}

/// Returns a memory store, and the limits that it applies.
fn adjusted(text: &str) -> (ManualClock, CurrentLimits, AdjustedStore<MemoryStore<ManualClock>>) {
    let (clock, store) = memory();
    let limits = CurrentLimits::with_clock(set(text), clock.clone());
    (clock, limits.clone(), store.adjusted(limits))
}

fn answer(store: &impl Store, call: Call<'_>) -> Result<Decision, Error> {
    store.decide(call).into_ready().unwrap()
}

fn now(store: &impl Store, call: Call<'_>) -> Decision {
    answer(store, call).unwrap()
}

fn limit(store: &impl Store, tenant: &str, subject: &str) -> u64 {
    let policy = policy("p: fixed-window 1/1h");
    let charges = [Charge::new(&policy, subject).tenant(tenant)];
    now(store, Call::new(Operation::Peek, &charges)).verdicts()[0].limit()
}

#[test]
fn the_most_specific_limit_applies_until_it_ends() {
    let (clock, limits, store) = adjusted(
        "p: fixed-window 2/1h\n\
         p: fixed-window 3/1h until 1970-01-01T00:00:10Z for subject alice\n\
         p: fixed-window 4/1h until 1970-01-01T00:00:20Z for tenant acme\n\
         p: fixed-window 5/1h until 1970-01-01T00:00:10Z for tenant acme subject alice\n\
         other: fixed-window 9/1h for subject bob\n",
    );
    clock.set(Timestamp::EPOCH);
    let all = [("", "alice"), ("", "bob"), ("acme", "alice"), ("acme", "bob"), ("b", "alice")];
    let found = || all.map(|(tenant, subject)| limit(&store, tenant, subject));
    assert_eq!(found(), [3, 2, 5, 4, 2]);
    clock.advance(Duration::from_secs(10) - Duration::from_micros(1));
    assert_eq!(found(), [3, 2, 5, 4, 2]);
    clock.advance(Duration::from_micros(1));
    assert_eq!(found(), [2, 2, 4, 4, 2]);
    clock.advance(Duration::from_secs(10));
    assert_eq!(found(), [2, 2, 2, 2, 2]);
    // By the clock of the store, these overrides have not ended.
    limits.synchronize(Timestamp::from_micros(15_000_000));
    assert_eq!(found(), [2, 2, 4, 4, 2]);
    limits.replace(LimitSet::new());
    assert_eq!(found(), [1; 5]);
}

/// Other layers and pointers are around the store, and must all forward the policy of the set.
#[tokio::test]
async fn the_maximum_hold_is_that_of_the_set() {
    let (_, _, store) = adjusted(
        "p: fixed-window 1000/1h max-hold 1/4 for subject large\n\
         p: fixed-window 100/1h max-hold 1/10 for subject small\n\
         p: fixed-window 100/1h for subject any\n\
         p: fixed-window 100/1h max-hold 1/10 shadow for subject shadow\n",
    );
    let store: Arc<dyn Store> = Arc::new(store);
    let store = store.listed(PolicyLists::new()).leased(Lease::new());
    let store = Box::new(store.adjusted(CurrentLimits::default()).timeout(HOUR));
    let policy = policy("p: fixed-window 100/1h max-hold 1/4");
    let limiter = Limiter::new(store, [policy]).unwrap();
    let cases = [
        ("large", 250, true),
        ("small", 10, true),
        ("any", 100, true),
        ("shadow", 10, false),
        ("x", 25, true),
    ];
    for (subject, max, is_enforced) in cases {
        let request = |cost| limiter.subject(subject).cost(cost);
        let refused = request(max + 1).hold("one", HOUR).await.unwrap();
        let expected = if max == 100 { Outcome::Denied } else { Outcome::TooLarge };
        let verdict = refused.decision().verdicts()[0];
        match is_enforced {
            true => assert_eq!(verdict.outcome(), expected, "{subject}"),
            false => assert!(refused.ticket().is_some(), "{subject}"),
        }
        // The refusal has the limit of the set.
        let peek = request(0).peek().await.unwrap();
        let limits = [refused.decision(), &peek].map(|decision| {
            let verdict = limiter.verdicts(decision).next().unwrap();
            (verdict.limit(), verdict.policy().to_string())
        });
        assert_eq!(limits[0], limits[1], "{subject}");
        assert!(request(max).hold("two", HOUR).await.unwrap().ticket().is_some(), "{subject}");
        limiter.subject(subject).reset().await.unwrap();
        let up_to = request(2_000).hold_up_to(1, "three", HOUR).await.unwrap();
        let ticket = up_to.into_ticket().unwrap();
        // A shadow does not lower the cost. It denies a cost above its limit, and then holds
        // nothing.
        let held = if is_enforced { max } else { 0 };
        assert_eq!(ticket.held().collect::<Vec<_>>(), [("p", held)], "{subject}");
    }
}

#[test]
fn a_policy_without_a_name_and_a_policy_of_another_kind_stay() {
    let (_, _, store) =
        adjusted("p: fixed-window 9/1h\nslots: fixed-window 9/1h\njobs: concurrent 9 lease 1m");
    for (text, expected) in [
        ("fixed-window 1/1h", 1),
        ("slots: concurrent 2 lease 1m", 2),
        ("jobs: fixed-window 1/1h", 1),
        ("jobs: concurrent 2 lease 1m", 9),
        ("p: gcra 1/1h", 9),
    ] {
        let policy = policy(text);
        let charges = [Charge::new(&policy, "alice")];
        let decision = now(&store, Call::new(Operation::Peek, &charges));
        assert_eq!(decision.verdicts()[0].limit(), expected, "{text}");
        assert_eq!(decision.adjusted_policy(0).is_some(), expected == 9, "{text}");
    }
}

#[test]
fn a_limit_per_tenant_has_overrides_only_for_tenants() {
    let (_, _, store) = adjusted(
        "p: fixed-window 20/1h shards 2 by-subject for tenant acme\n\
         p: fixed-window 5/1h for tenant acme subject alice",
    );
    let per_tenant = policy("p: fixed-window 8/1h shards 2 by-subject");
    for (tenant, limit) in [("acme", 20), ("other", 8)] {
        let charges = [Charge::new(&per_tenant, "alice").tenant(tenant)];
        let decision = now(&store, Call::new(Operation::Peek, &charges));
        assert_eq!(decision.verdicts()[0].limit(), limit);
    }
    // A share of a limit is a part of an adjusted policy already.
    let shares = per_tenant.shares();
    let charges = [Charge::new(&shares[0], "alice").tenant("acme")];
    let decision = now(&store, Call::new(Operation::Peek, &charges));
    assert_eq!(decision.verdicts()[0].limit(), 4);
}

#[test]
fn a_hold_is_settled_after_any_change_of_its_limit() {
    let base = policy("p: token-bucket 10/1h burst 10");
    let double = "p: token-bucket 20/1h burst 20 for subject alice";
    let ending = "p: token-bucket 40/1h burst 40 until 1970-01-01T00:00:10Z for subject alice";
    for (before, after) in
        [("", double), (double, ""), (double, ending), (ending, ""), (ending, ending), ("", "")]
    {
        for is_ticket in [false, true] {
            let (clock, limits, store) = adjusted(before);
            clock.set(Timestamp::EPOCH);
            let limiter = Limiter::new(store, [base.clone()]).unwrap();
            let charges = [Charge::new(&base, "alice").cost(8)];
            let id = CallId::new("id", HOUR);
            let hold = limiter.subject("alice").cost(8).hold("id", HOUR);
            let hold = futures_executor(hold).unwrap();
            let full = hold.decision().verdicts()[0].limit();
            limits.replace(set(after));
            clock.advance(Duration::from_secs(20));
            // A repetition of the hold charges nothing.
            let again = now(limiter.store(), Call::new(Operation::Hold, &charges).with_id(id));
            assert_eq!(again.verdicts(), hold.decision().verdicts(), "{before} -> {after}");
            let given_back = if is_ticket {
                let ticket = hold.ticket().unwrap();
                // A ticket finds its hold after two changes too.
                limits.replace(LimitSet::new());
                limits.replace(set("p: token-bucket 7/1h burst 7"));
                futures_executor(limiter.settle(ticket, [("p", 3)])).unwrap().given_back("p")
            } else {
                let charges = [charges[0].cost(3)];
                let settle = Call::new(Operation::Settle, &charges).with_id(id);
                now(limiter.store(), settle).amounts()[0]
            };
            assert_eq!(given_back, 5, "{before} -> {after}");
            limits.replace(set(before));
            clock.set(Timestamp::EPOCH);
            let peek = now(limiter.store(), Call::new(Operation::Peek, &charges));
            assert_eq!(peek.verdicts()[0].remaining(), full - 3, "{before} -> {after}");
        }
    }
}

#[test]
fn an_id_of_another_call_is_still_rejected() {
    let (_, _, store) = adjusted("p: fixed-window 5/1h");
    let (p, q) = (policy("p: fixed-window 9/1h"), policy("q: fixed-window 9/1h"));
    let id = CallId::new("id", HOUR);
    let other = [Charge::new(&q, "alice")];
    assert!(now(&store, Call::acquire(&other).with_id(id)).is_allowed());
    let own = [Charge::new(&p, "alice")];
    let error = answer(&store, Call::acquire(&own).with_id(id)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::IdReused);
    let peek = now(&store, Call::new(Operation::Peek, &own));
    assert_eq!(peek.verdicts()[0].remaining(), 5);
}

#[test]
fn all_layers_receive_the_policy_of_the_set() {
    let (clock, store) = memory();
    let (sender, reports) = std::sync::mpsc::channel();
    let lists: Lists = "allow subject allowed".parse().unwrap();
    let limits = set("p: fixed-window 4/1h warn 50%");
    let store = store
        .deny_cache(DenyCache::new().clock(clock.clone()))
        .listed(PolicyLists::new().with("p", lists))
        .warned(
            Warnings::new(move |warning: &tidegate_core::Warning<'_>| {
                sender.send(warning.verdict.limit()).unwrap();
            })
            .clock(clock.clone()),
        )
        .adjusted(CurrentLimits::with_clock(limits, clock));
    let base = policy("p: fixed-window 1/1h");
    let charges = [Charge::new(&base, "alice")];
    let outcomes: Vec<Outcome> =
        (0..6).map(|_| now(&store, Call::acquire(&charges)).verdicts()[0].outcome()).collect();
    assert_eq!(outcomes[..4], [Outcome::Allowed; 4]);
    assert_eq!(outcomes[4..], [Outcome::Denied; 2]);
    assert_eq!(reports.try_iter().collect::<Vec<_>>(), [4]);
    let charges = [Charge::new(&base, "allowed").cost(9)];
    let decision = now(&store, Call::acquire(&charges));
    assert!(decision.is_allowed());
    assert_eq!(decision.verdicts()[0].limit(), 4);
    let texts: Vec<_> =
        decision.verdicts_of([&base]).map(|verdict| verdict.policy().to_string()).collect();
    assert_eq!(texts, ["p: fixed-window 4/1h warn 50%"]);

    // In the opposite order, the set replaces the policy of a charge beyond the limit.
    let (clock, store) = memory();
    let limits = CurrentLimits::with_clock(set("p: fixed-window 4/1h"), clock);
    let lists: Lists = "allow subject allowed".parse().unwrap();
    let store = store.adjusted(limits).listed(PolicyLists::new().with("p", lists));
    for _ in 0..2 {
        assert!(now(&store, Call::acquire(&charges)).is_allowed());
    }
}

/// Runs a future that never waits.
fn futures_executor<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match future.as_mut().poll(&mut context) {
        std::task::Poll::Ready(value) => value,
        std::task::Poll::Pending => panic!("the future waits"),
    }
}

const NAMES: [&str; 2] = ["p", "q"];
const TENANTS: [&str; 2] = ["", "t"];
const SUBJECTS: [&str; 2] = ["alice", "bob"];
const RULES: [&str; 4] =
    ["fixed-window 5/10s", "sliding-log 3/10s block 5s", "gcra 2/5s burst 4", "gcra 1/9s burst 6"];

/// A limit of a set: the indices of its name, rule, tenant and subject, and its end in seconds.
#[derive(Debug, Clone)]
struct Line {
    name: usize,
    rule: usize,
    target: Option<(usize, Option<usize>)>,
    end: Option<u64>,
}

impl Line {
    fn policy(&self) -> Policy {
        policy(&format!("{}: {}", NAMES[self.name], RULES[self.rule]))
    }

    /// Returns a number that is higher for a more specific limit, or `None` if the limit does not
    /// apply.
    fn rank(&self, name: usize, tenant: usize, subject: usize, at: u64) -> Option<u8> {
        if self.name != name || self.end.is_some_and(|end| end <= at) {
            return None;
        }
        match self.target {
            None => Some(0),
            Some((of, None)) if of == tenant => Some(1),
            Some((of, Some(other))) if of == tenant && other == subject => Some(2),
            Some(_) => None,
        }
    }
}

fn line() -> impl Strategy<Value = Line> {
    let target = prop_oneof![
        Just(Some((1, None))),
        (0..2_usize, 0..2_usize).prop_map(|(tenant, subject)| Some((tenant, Some(subject)))),
    ];
    let override_ = (0..2_usize, 0..4_usize, target, prop::option::of(0..60_u64))
        .prop_map(|(name, rule, target, end)| Line { name, rule, target, end });
    let whole = (0..2_usize, 0..4_usize).prop_map(|(name, rule)| Line {
        name,
        rule,
        target: None,
        end: None,
    });
    prop_oneof![3 => override_, 1 => whole]
}

/// Builds a set of the lines. A later line replaces an earlier line for the same subjects.
fn build(lines: &[Line]) -> (LimitSet, Vec<Line>) {
    let (mut set, mut used): (_, Vec<Line>) = (LimitSet::new(), vec![]);
    for line in lines {
        let end = line.end.map(|end| Timestamp::from_micros(end * 1_000_000));
        let target = line.target.map(|(tenant, subject)| {
            let tenant = TENANTS[tenant].as_bytes();
            match subject.map(|subject| SUBJECTS[subject].as_bytes()) {
                None => OverrideFor::Tenant(tenant),
                Some(subject) if tenant.is_empty() => OverrideFor::Subject(subject),
                Some(subject) => OverrideFor::SubjectOfTenant { tenant, subject },
            }
        });
        match target {
            None => set.set_policy(line.policy()).unwrap(),
            Some(target) => set.set_override(line.policy(), target, end).unwrap(),
        }
        used.retain(|other| (other.name, other.target) != (line.name, line.target));
        used.push(line.clone());
    }
    (set, used)
}

#[derive(Debug, Clone)]
enum Step {
    Replace(Vec<Line>),
    Wait(u64),
    Decide { tenant: usize, subject: usize, cost: u64, operation: Operation },
}

fn step() -> impl Strategy<Value = Step> {
    let operation = prop::sample::select(vec![
        Operation::Acquire,
        Operation::Acquire,
        Operation::Peek,
        Operation::Refund,
        Operation::Charge,
        Operation::Block { span: Duration::from_secs(3) },
        Operation::Reset,
    ]);
    prop_oneof![
        1 => prop::collection::vec(line(), 0..8).prop_map(Step::Replace),
        2 => (0..9_u64).prop_map(Step::Wait),
        9 => (0..2_usize, 0..2_usize, 0..4_u64, operation).prop_map(
            |(tenant, subject, cost, operation)| Step::Decide { tenant, subject, cost, operation }
        ),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// The store with a set answers like a store that receives the policies of the set, which are
    /// found by a scan of all lines.
    #[test]
    fn a_set_decides_like_the_policies_that_a_scan_finds(
        steps in prop::collection::vec(step(), 1..60),
        is_batch in any::<bool>(),
    ) {
        let (clock, limits, store) = adjusted("");
        clock.set(Timestamp::EPOCH);
        let plain = MemoryStore::builder().clock(clock.clone()).build();
        let own = NAMES.map(|name| policy(&format!("{name}: fixed-window 2/10s")));
        let mut lines = vec![];
        for step in steps {
            match step {
                Step::Replace(new) => {
                    let (set, used) = build(&new);
                    prop_assert_eq!(&set.to_string().parse::<LimitSet>().unwrap(), &set);
                    // The changes turn the old set into the new set.
                    let mut changed = (*limits.set()).clone();
                    let changes = changed.changes_to(&set);
                    for (before, after) in &changes {
                        let found = match after {
                            Some(line) => changed.set_line(line).unwrap(),
                            None => {
                                let line = before.as_ref().unwrap();
                                prop_assert!(changed.remove_line(line).unwrap());
                                before.clone()
                            }
                        };
                        prop_assert_eq!(&found, before);
                    }
                    prop_assert_eq!(&changed, &set);
                    limits.replace(changed);
                    lines = used;
                }
                Step::Wait(secs) => clock.advance(Duration::from_secs(secs)),
                Step::Decide { tenant, subject, cost, operation } => {
                    let at = clock.now().as_micros() / 1_000_000;
                    let found = [0, 1].map(|name| {
                        let rank = |line: &&Line| line.rank(name, tenant, subject, at);
                        let best = lines.iter().filter(|line| rank(line).is_some()).max_by_key(rank);
                        best.map_or_else(|| own[name].clone(), Line::policy)
                    });
                    let (tenant, subject) = (TENANTS[tenant], SUBJECTS[subject]);
                    let charge =
                        |policy| Charge::new(policy, subject).tenant(tenant).cost(cost);
                    let (charges, expected) = (own.each_ref().map(charge), found.each_ref().map(charge));
                    let (call, expected_call) =
                        (Call::new(operation, &charges), Call::new(operation, &expected));
                    let decision = match is_batch {
                        false => answer(&store, call),
                        true => store.decide_many(&[call]).into_ready().unwrap_or_else(|later| {
                            futures_executor(later)
                        }).pop().unwrap(),
                    };
                    let expected = answer(&plain, expected_call);
                    match (&decision, &expected) {
                        (Ok(decision), Ok(expected)) => {
                            prop_assert_eq!(decision.verdicts(), expected.verdicts());
                            prop_assert_eq!(decision.amounts(), expected.amounts());
                            let policies = decision.verdicts_of(&own).map(|one| one.policy().clone());
                            prop_assert!(policies.eq(found.iter().cloned()));
                        }
                        _ => prop_assert_eq!(
                            decision.map_err(|error| error.to_string()).map(drop),
                            expected.map_err(|error| error.to_string()).map(drop)
                        ),
                    }
                }
            }
        }
    }
}

#[test]
fn the_time_is_the_same_for_all_calls_of_a_batch() {
    let (_, _, store) =
        adjusted("p: fixed-window 9/1h until 2100-01-01T00:00:00Z for subject alice");
    let base = policy("p: fixed-window 1/1h");
    let charges = ["alice", "bob"].map(|subject| [Charge::new(&base, subject)]);
    let calls = charges.each_ref().map(|charges| Call::acquire(charges));
    let decisions = futures_executor(store.decide_many(&calls));
    let limits: Vec<u64> = decisions
        .into_iter()
        .flat_map(|decision| {
            decision.unwrap().verdicts().iter().map(Verdict::limit).collect::<Vec<_>>()
        })
        .collect();
    assert_eq!(limits, [9, 1]);
}

/// After a change of the shards, the store does not find the record of the hold at first.
#[test]
fn a_hold_is_settled_after_a_change_of_its_shards() {
    let (_, limits, store) = adjusted("");
    let limiter = Limiter::new(store, [policy("p: fixed-window 100/1h")]).unwrap();
    let hold = futures_executor(limiter.subject("alice").cost(8).hold("id", HOUR)).unwrap();
    limits.replace(set("p: fixed-window 100/1h shards 2 by-subject"));
    let ticket = hold.into_ticket().unwrap();
    let settlement = futures_executor(limiter.settle(&ticket, [("p", 3)])).unwrap();
    assert_eq!(settlement.given_back("p"), 5);
}

/// Such a policy would make each call with the list an error.
#[test]
fn a_limit_that_cannot_be_an_alternative_has_no_effect_on_alternatives() {
    let (own, pool) = (policy("own: fixed-window 1/1h"), policy("pool: fixed-window 9/1h"));
    for options in ["block 1m", "shadow", "shards 4"] {
        let (_, _, store) = adjusted(&format!("own: fixed-window 8/1h {options}"));
        let list = [Charge::new(&own, "a").in_list(1), Charge::new(&pool, "b").in_list(1)];
        assert_eq!(now(&store, Call::acquire(&list)).verdicts()[0].limit(), 1, "{options}");
    }
}

/// A store whose maximum hold is raised after the limiter has checked it.
#[derive(Debug)]
struct Raised(MemoryStore<ManualClock>);

impl Store for Raised {
    fn decide<'a>(&'a self, call: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
        self.0.decide(call)
    }

    fn now(&self) -> Answer<'_, Result<Timestamp, Error>> {
        self.0.now()
    }

    fn adjusted_policy<'a>(&'a self, _: Charge<'a>) -> Answer<'a, Option<Policy>> {
        Answer::ready(Some(policy("p: fixed-window 1000/1h max-hold 1/10")))
    }
}

#[test]
fn a_hold_whose_maximum_is_raised_after_the_check_is_charged() {
    let limiter = Limiter::new(Raised(memory().1), [policy("p: fixed-window 1000/1h")]).unwrap();
    let request = limiter.subject("alice").cost(300);
    let hold = futures_executor(request.hold("id", HOUR)).unwrap();
    let ticket = hold.into_ticket().unwrap();
    let settlement = futures_executor(limiter.settle(&ticket, [("p", 100)])).unwrap();
    assert_eq!(settlement.given_back("p"), 200);
}
