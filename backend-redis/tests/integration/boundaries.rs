//! Compares the store with the core in random calls. The limits, costs and times of the calls are
//! near values at which a comparison, a division or the exactness of a number can go wrong.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of a test that fails panics, as the test does"
)]

use std::fmt::Write;
use std::time::Duration;

use proptest::prelude::Rng;
use proptest::test_runner::TestRng;
use tidegate_redis::{
    Call, Charge, Decision, Error, ManualClock, Operation, Policy, RedisStore, Store, Timestamp,
};
use tidegate_testkit::ModelStore;
use tidegate_testkit::generate::seeded_rng;

use crate::common::{policy, store_at};

/// Families of policies with the same name, and the costs of their charges. The test also uses
/// costs near the limits.
const FAMILIES: &[(&[&str], &[u64])] = &[
    // The buckets of the first families have different rates, units per token and ticks (1 and 10
    // µs).
    (&["p: token-bucket 2/3us burst 4 block 1us", "p: gcra 1/2us burst 1"], &[]),
    (
        &[
            "p: token-bucket 3/7us burst 5",
            "p: token-bucket 1/1us burst 3",
            "p: gcra 1/9us burst 2",
        ],
        &[],
    ),
    (
        &[
            "p: token-bucket 7/100us burst 9",
            "p: token-bucket 70368744177665/100us burst 1125899906842624",
        ],
        &[1 << 45, 1 << 49],
    ),
    (
        &[
            "p: token-bucket 70368744177665/100us burst 140737488355328",
            "p: token-bucket 70368744177665/100us burst 1125899906842624",
        ],
        &[1, 7, 703_687_441_777, 7_036_874_417_767, 14_073_748_835_532, 1 << 46, 1 << 47],
    ),
    // In the bucket with one token per 134217728 µs, a token has 2^27 units.
    (&["p: token-bucket 1/134217728us burst 9"], &[]),
    // Reservations make the debt of the next two buckets as large as 2^52 units.
    (
        &["p: token-bucket 562949953421312/1us burst 2251799813685248"],
        &[1 << 48, 1 << 49, 1 << 50, 1 << 51],
    ),
    (
        &["p: token-bucket 562949953421312/1us by-interval burst 2251799813685248"],
        &[1 << 48, 1 << 49, 1 << 50, 1 << 51],
    ),
    (
        &["p: token-bucket 2/3us by-interval burst 4", "p: token-bucket 3/3us by-interval burst 7"],
        &[2, 4, 6],
    ),
    (&["p: token-bucket 1/5us by-interval burst 3 block 1us"], &[]),
    (&["p: fixed-window 3/5us", "p: fixed-window 5/5us"], &[]),
    (&["p: fixed-window 3/5us phased", "p: fixed-window 5/4us anchored block 2us"], &[]),
    (&["p: fixed-window 4503599627370496/9us", "p: fixed-window 9/9us"], &[1 << 50, 1 << 51]),
    (&["p: sliding-counter 3/5us", "p: sliding-counter 7/5us"], &[]),
    (&["p: sliding-counter 9/7us block 1us"], &[]),
    // The first of these two sliding counters has ticks of 1 µs, the second has ticks of 10 µs.
    (
        &["p: sliding-counter 112589990684262/40us", "p: sliding-counter 1125899906842624/40us"],
        &[1 << 40, 1 << 45, 1 << 48, 1 << 49],
    ),
    (&["p: sliding-log 4/9us", "p: sliding-log 7/9us"], &[]),
    (&["p: sliding-log 5/9us grain 2us block 1us", "p: sliding-log 2/9us grain 2us"], &[]),
    // A log of the first policy is stored as a string, and a log of the second policy as a list.
    (&["p: sliding-log 60/90us", "p: sliding-log 150/90us block 1us"], &[1, 1, 1, 8]),
    (&["p: sliding-log 300/500us"], &[1, 2, 3]),
    (&["p: sliding-log 100/250us", "p: sliding-log 128/250us"], &[1]),
    // The running totals of these logs wrap around. Some totals become exactly 0.
    (
        &[
            "p: sliding-log 4503599627370496/40us grain 1us",
            "p: sliding-log 4503599627370000/40us grain 1us",
        ],
        &[1 << 47, 1 << 48, 1 << 49],
    ),
    (&["p: sliding-log 4503599627370496/250us grain 1us"], &[1 << 46, 1 << 47, 1 << 48]),
    (
        &["p: sliding-log 4503599627370496/400us grain 1us", "p: sliding-log 120/400us grain 1us"],
        &[1 << 44, 1 << 44, 1 << 45, 1 << 46],
    ),
];

fn below(rng: &mut TestRng, bound: u64) -> u64 {
    rng.next_u64() % bound
}

fn one_of<'a, T>(rng: &mut TestRng, all: &'a [T]) -> &'a T {
    &all[usize::try_from(below(rng, all.len() as u64)).unwrap()]
}

/// A subject of the test. Each subject is charged under the policies of one family.
struct Lane<'f> {
    policies: &'f [Policy],
    costs: &'f [u64],
    /// The latest charges: the time, the policy and the cost.
    charges: Vec<(u64, &'f Policy, u64)>,
    remaining: u64,
    history: String,
}

impl<'f> Lane<'f> {
    fn new((policies, costs): &'f (Vec<Policy>, Vec<u64>)) -> Self {
        Self { policies, costs, charges: vec![], remaining: 0, history: String::new() }
    }

    fn cost(&self, rng: &mut TestRng, policy: &Policy) -> u64 {
        let limit = policy.limit();
        // If the family has its own costs, costs near the limit are rare, because they exhaust the
        // limit for a long time.
        let near_the_limit = if self.costs.is_empty() { 4 } else { 40 };
        match below(rng, near_the_limit) {
            0 => limit.saturating_sub(2) + below(rng, 4),
            1 => limit / (1 + below(rng, 4)) + below(rng, 2),
            2 => self.remaining + below(rng, 2),
            3 => below(rng, 4),
            4..8 => *one_of(rng, self.costs) + below(rng, 3) - 1,
            _ => *one_of(rng, self.costs),
        }
    }

    fn operation(&mut self, rng: &mut TestRng, now: u64) -> (Operation, &'f Policy, u64) {
        let policy = one_of(rng, self.policies);
        let mut cost = self.cost(rng, policy);
        let mut charged = policy;
        let operation = match below(rng, 37) {
            0 => Operation::Reset,
            1 => Operation::Block { span: Duration::from_micros(below(rng, 6)) },
            2 => Operation::BlockAtLeast { span: Duration::from_micros(below(rng, 6)) },
            3..5 => Operation::Refund,
            5..9 if !self.charges.is_empty() => {
                let (at, by, charged_cost) = *one_of(rng, &self.charges);
                if below(rng, 4) > 0 {
                    (charged, cost) = (by, charged_cost);
                }
                let offset =
                    [0, 0, 0, 0, 0, 0, -1, 1, -7, 5][usize::try_from(below(rng, 10)).unwrap()];
                Operation::Undo { at: Timestamp::from_micros(at.saturating_add_signed(offset)) }
            }
            9 | 10 => Operation::Peek,
            11..16 if policy.rule().can_reserve() => {
                let bound = *one_of(rng, &[12, 12, 120, 400]);
                Operation::Reserve { max_wait: Duration::from_micros(below(rng, bound)) }
            }
            16 | 17 => {
                // Costs near the maximum that a state can hold are rare, because a state with such
                // a cost recovers slowly.
                if below(rng, 20) == 0 {
                    let max = [1 << 51, 1 << 52, u64::MAX];
                    cost = one_of(rng, &max).saturating_sub(below(rng, 2) + self.remaining);
                }
                Operation::Charge
            }
            18..21 => Operation::AcquireUpTo { min: 1 + below(rng, cost.clamp(1, 9)) },
            _ => Operation::Acquire,
        };
        let _ = writeln!(self.history, "{now}: {operation:?} {cost} of `{charged}`");
        (operation, charged, cost)
    }

    fn record(
        &mut self,
        decision: &Decision,
        operation: Operation,
        now: u64,
        policy: &'f Policy,
        cost: u64,
    ) {
        self.remaining = decision.verdicts()[0].remaining();
        let cost = match operation {
            Operation::Acquire | Operation::Reserve { .. } => cost,
            Operation::AcquireUpTo { .. } | Operation::Charge => decision.amounts()[0],
            _ => 0,
        };
        if cost > 0 && decision.is_allowed() {
            self.charges.push((now, policy, cost));
            if self.charges.len() > 6 {
                self.charges.remove(0);
            }
        }
    }
}

type Answers = (Result<Decision, Error>, Result<Decision, Error>);

/// The store and the core, which receive the same calls at the same time.
struct Both {
    store: RedisStore,
    model: ModelStore,
    clock: ManualClock,
}

impl Both {
    async fn new() -> Self {
        let clock = ManualClock::default();
        let (store, model) = (store_at(&clock).await, ModelStore::keeping_all(clock.clone()));
        Self { store, model, clock }
    }

    fn set(&self, now: u64) {
        self.clock.set(Timestamp::from_micros(now));
    }

    async fn decide(&self, calls: &[Call<'_>]) -> Vec<Answers> {
        let expected = self.model.decide_many(calls).await;
        let answers = match calls {
            [call] => vec![self.store.decide(*call).await],
            calls => self.store.decide_many(calls).await,
        };
        expected.into_iter().zip(answers).collect()
    }
}

fn agree((expected, answer): &Answers) -> bool {
    match (expected, answer) {
        (Ok(expected), Ok(answer)) => expected == answer,
        (Err(expected), Err(answer)) => expected.kind() == answer.kind(),
        _ => false,
    }
}

/// Makes `steps` steps of random calls. `stream` selects the random numbers.
async fn run(start: u64, steps: u64, stream: u64, moves: bool) {
    let families: Vec<(Vec<Policy>, Vec<u64>)> = FAMILIES
        .iter()
        .map(|(texts, costs)| (texts.iter().map(|text| policy(text)).collect(), costs.to_vec()))
        .collect();
    let full = policy("full: gcra 1/20us burst 1");
    let subjects: Vec<String> = (0..2 * families.len()).map(|index| index.to_string()).collect();
    let mut lanes: Vec<Lane<'_>> =
        (0..subjects.len()).map(|index| Lane::new(&families[index / 2])).collect();
    let mut rng = seeded_rng(stream);
    let both = Both::new().await;
    let mut now = start;
    for _ in 0..steps {
        let elapsed = match below(&mut rng, 24) {
            0 => -below(&mut rng, 9).cast_signed(),
            1 => below(&mut rng, 40).cast_signed(),
            2 => below(&mut rng, 150).cast_signed(),
            3..7 => below(&mut rng, 10).cast_signed(),
            7..15 => 1,
            _ => 0,
        };
        now = now.saturating_add_signed(if moves { elapsed } else { 0 });
        both.set(now);
        // Half of the steps make one batch, with one or two calls for each subject. The other steps
        // make a few single calls.
        let is_batch = below(&mut rng, 2) == 0;
        let mut requests = vec![];
        for (index, lane) in lanes.iter_mut().enumerate() {
            let times = match (is_batch, below(&mut rng, 8)) {
                (true, 0..2) => 2,
                (true, _) | (false, 0) => 1,
                _ => 0,
            };
            for _ in 0..times {
                let (operation, policy, cost) = lane.operation(&mut rng, now);
                // Some calls have a second charge, to a policy that usually denies.
                let is_two = policy.rule().can_reserve() && below(&mut rng, 6) == 0;
                // Some charges are check-only. A check-only charge can cause a refusal of the call,
                // but the store does not make this charge.
                let is_check_only = below(&mut rng, 12) == 0;
                requests.push((index, operation, policy, cost, is_two, is_check_only));
            }
        }
        let charges: Vec<Vec<Charge<'_>>> = requests
            .iter()
            .map(|(index, _, policy, cost, is_two, is_check_only)| {
                let subject = &subjects[*index];
                let mut charge = Charge::new(policy, subject).cost(*cost);
                if *is_check_only {
                    charge = charge.check_only();
                }
                if *is_two { vec![charge, Charge::new(&full, subject)] } else { vec![charge] }
            })
            .collect();
        let calls: Vec<Call<'_>> = requests
            .iter()
            .zip(&charges)
            .map(|(request, charges)| Call::new(request.1, charges))
            .collect();
        let chunk = if is_batch { calls.len().max(1) } else { 1 };
        for (calls, requests) in calls.chunks(chunk).zip(requests.chunks(chunk)) {
            for (answers, request) in both.decide(calls).await.iter().zip(requests) {
                let (index, operation, policy, cost, _, is_check_only) = *request;
                let lane = &mut lanes[index];
                assert!(
                    agree(answers),
                    "{}\nthe answers of the core and the store to the last call: {answers:#?}",
                    lane.history
                );
                if let (Ok(decision), _) = answers
                    && !is_check_only
                {
                    lane.record(decision, operation, now, policy, cost);
                }
            }
        }
    }
}

#[tokio::test]
async fn numbers_at_their_boundaries_are_decided_as_in_the_core() {
    run(1_790_000_000_000_000, 1_400, 1, true).await;
}

#[tokio::test]
async fn the_first_and_the_last_times_are_decided_as_in_the_core() {
    run(0, 100, 2, false).await;
    run(0, 200, 3, true).await;
    run(Timestamp::MAX.as_micros() - 300, 200, 4, true).await;
}

/// A block that has ended applies again if the clock steps back. So an undo that changes nothing
/// must not remove a block that has ended.
#[tokio::test]
async fn an_undo_that_changes_nothing_leaves_a_block_as_in_the_core() {
    const START: u64 = 1_790_000_000_000_000;
    let both = Both::new().await;
    for text in [
        "p: fixed-window 9/20us",
        "p: fixed-window 9/20us anchored",
        "p: sliding-log 9/20us",
        "p: sliding-log 200/20us",
        "p: sliding-counter 9/20us",
        "p: token-bucket 1/5us burst 9",
        "p: token-bucket 2/10us by-interval burst 9",
    ] {
        let policy = policy(text);
        // For each undo, the age and the cost of the charge that is undone.
        let undone: Vec<_> = [0, 1, 4, 5, 6, 9, 10, 11, 15, 19, 20, 21, 25, 35, 50]
            .into_iter()
            .flat_map(|ago| [1, 2, 3, 4].map(|cost| (ago, cost)))
            .collect();
        let subjects: Vec<String> = undone.iter().map(|undone| format!("{undone:?}")).collect();
        let steps = [
            (0, 3, Step::Acquire),
            (10, 4, Step::Acquire),
            (10, 0, Step::Block),
            (15, 0, Step::Undo),
        ];
        for (after, cost, step) in
            steps.into_iter().chain([(12, 1, Step::Peek), (16, 1, Step::Peek)])
        {
            both.set(START + after);
            let charges: Vec<_> = undone
                .iter()
                .zip(&subjects)
                .map(|((_, undone), subject)| {
                    let cost = if step == Step::Undo { *undone } else { cost };
                    [Charge::new(&policy, subject).cost(cost)]
                })
                .collect();
            let calls: Vec<_> = undone
                .iter()
                .zip(&charges)
                .map(|((ago, _), charge)| {
                    let at = Timestamp::from_micros(START + 15 - ago);
                    let operation = match step {
                        Step::Acquire => Operation::Acquire,
                        Step::Block => Operation::Block { span: Duration::from_micros(4) },
                        Step::Undo => Operation::Undo { at },
                        Step::Peek => Operation::Peek,
                    };
                    Call::new(operation, charge)
                })
                .collect();
            for (decisions, subject) in both.decide(&calls).await.iter().zip(&subjects) {
                assert!(
                    agree(decisions),
                    "{text}, {subject}, {step:?} after {after}: {decisions:?}"
                );
            }
        }
    }
}

/// If a policy with finer ticks wrote the time of a bucket, a policy with coarser ticks counts from
/// the end of the tick that contains this time. The test checks the wait of a reservation. It also
/// checks an undo, which depends on the refill since the charge.
#[tokio::test]
async fn a_change_to_coarser_ticks_is_decided_as_in_the_core() {
    let both = Both::new().await;
    let fine = policy("p: token-bucket 50000000/30s burst 1000000000000");
    // The policy `coarse` has ticks of one second.
    let coarse = policy("p: token-bucket 1400003/30s burst 100000000000000");
    for offset in [0, 1, 300_000, 500_000, 999_999] {
        let charged_at = 1_790_000_000_000_000 + offset;
        let reserve = Operation::Reserve { max_wait: Duration::MAX };
        let undo = Operation::Undo { at: Timestamp::from_micros(charged_at) };
        for (operation, cost) in [(reserve, coarse.limit()), (undo, 1_000_000_000)] {
            for after in [0, 1, 500_001, 1_000_000] {
                let subject = format!("{offset} {cost} {after}");
                for (now, operation, policy, cost) in [
                    (charged_at, Operation::Acquire, &fine, 1_000_000_000),
                    (charged_at + after, operation, &coarse, cost),
                    (charged_at + after, Operation::Peek, &coarse, coarse.limit()),
                ] {
                    both.set(now);
                    let charges = [Charge::new(policy, &subject).cost(cost)];
                    let answers = both.decide(&[Call::new(operation, &charges)]).await;
                    assert!(agree(&answers[0]), "{operation:?} {after}: {:#?}", answers[0]);
                }
            }
        }
    }
}

/// An undo must not change a charge that has expired, because the charge counts again if the clock
/// steps back. The test also covers the time 0, in 1970.
#[tokio::test]
async fn an_undo_of_an_expired_charge_changes_nothing_as_in_the_core() {
    let both = Both::new().await;
    for text in [
        "p: fixed-window 9/20us anchored",
        "p: sliding-log 9/20us",
        "p: sliding-log 200/20us",
        "p: sliding-counter 9/20us",
        "p: token-bucket 1/5us burst 9",
        "p: token-bucket 2/10us by-interval burst 9",
    ] {
        let policy = policy(text);
        for start in [0, 1_790_000_000_000_000] {
            let charges = [Charge::new(&policy, "s").cost(3)];
            let full = [charges[0].cost(policy.limit())];
            let undo = Operation::Undo { at: Timestamp::from_micros(start) };
            for (after, call) in [
                (0, Call::acquire(&charges)),
                (60, Call::new(undo, &charges)),
                (5, Call::new(Operation::Peek, &full)),
                (0, Call::new(Operation::Reset, &charges)),
            ] {
                both.set(start + after);
                let answers = both.decide(&[call]).await;
                assert!(agree(&answers[0]), "{text}: {call:?}: {:#?}", answers[0]);
            }
        }
    }
}

/// Charges beyond the limit fill a state up to its bound: the maximum amount that the state can
/// hold, or the maximum time until its debt is repaid.
#[tokio::test]
async fn a_charge_beyond_the_limit_fills_a_state_up_to_its_bound_as_in_the_core() {
    const START: u64 = 1_790_000_000_000_000;
    const MAX_EXACT: u64 = 1 << 52;
    let both = Both::new().await;
    for (text, max) in [
        ("p: fixed-window 9/20us", MAX_EXACT),
        ("p: fixed-window 9/20us phased", MAX_EXACT),
        ("p: fixed-window 4503599627370496/20us anchored", MAX_EXACT),
        ("p: sliding-log 9/20us", MAX_EXACT),
        ("p: sliding-log 1/20us", MAX_EXACT),
        ("p: sliding-log 4503599627370496/20us grain 1us", MAX_EXACT),
        ("p: sliding-log 200/20us", MAX_EXACT),
        ("p: sliding-counter 9/20us", MAX_EXACT),
        ("p: sliding-counter 1125899906842624/40us", MAX_EXACT),
        // The debt of the bucket with one token per microsecond is at most 2^51 µs.
        ("p: token-bucket 1/1us burst 9", 1 << 51),
        ("p: token-bucket 2/3us burst 9", 1_501_199_875_790_165),
        ("p: token-bucket 1/1d burst 9", 26_062),
        ("p: token-bucket 1/7us by-interval burst 9", 321_685_687_669_321),
        ("p: token-bucket 5/1d by-interval burst 9", 130_310),
        // The debts of the next three buckets are at most 2^52 units.
        ("p: token-bucket 70368744177665/100us burst 140737488355328", MAX_EXACT / 20),
        ("p: token-bucket 562949953421312/1us burst 2251799813685248", MAX_EXACT),
        ("p: token-bucket 562949953421312/1us by-interval burst 2251799813685248", MAX_EXACT),
        // A token of the last bucket has 100 units.
        ("p: token-bucket 7/100us burst 9", MAX_EXACT / 100),
    ] {
        let policy = policy(text);
        for before in [0, 1, 5] {
            let subject = format!("{text} {before}");
            let charge = Charge::new(&policy, &subject);
            let all = [charge.cost(u64::MAX)];
            let one = [charge];
            let three = [charge.cost(3)];
            let first = [charge.cost(before)];
            let mut recorded: Vec<u64> = vec![];
            for (after, call) in [
                (0, Call::new(Operation::Charge, &first)),
                (0, Call::new(Operation::Charge, &all)),
                (0, Call::new(Operation::Charge, &one)),
                (0, Call::acquire(&one)),
                (0, Call::new(Operation::AcquireUpTo { min: 1 }, &three)),
                (0, Call::new(Operation::Refund, &three)),
                (0, Call::new(Operation::Charge, &all)),
                (1, Call::new(Operation::Charge, &all)),
                (3, Call::new(Operation::Undo { at: Timestamp::from_micros(START) }, &three)),
                (3, Call::new(Operation::Charge, &three)),
                (19, Call::new(Operation::Charge, &all)),
                (20, Call::new(Operation::Charge, &all)),
                (45, Call::new(Operation::Peek, &one)),
                (0, Call::new(Operation::Refund, &all)),
            ] {
                both.set(START + after);
                let answers = both.decide(&[call]).await;
                assert!(agree(&answers[0]), "{text} {before}: {call:?}: {:#?}", answers[0]);
                let decision = answers.into_iter().next().unwrap().1.unwrap();
                recorded.extend(decision.amounts().first());
            }
            assert_eq!(recorded[..3], [before, max - before, 0], "{text}");
        }
    }
}

/// A debt is repaid within 2^51 microseconds. As soon as a part of the debt is repaid, the same
/// amount can be charged again.
#[tokio::test]
async fn a_debt_is_repaid_within_the_maximum_span_as_in_the_core() {
    const START: u64 = 1_000_000_000_000_000;
    const SPAN: u64 = 1 << 51;
    let both = Both::new().await;
    for text in [
        "p: token-bucket 1/1us burst 9",
        "p: token-bucket 7/100us burst 9",
        "p: token-bucket 1/1d burst 9",
        "p: token-bucket 1/7us by-interval burst 9",
        "p: token-bucket 5/1d by-interval burst 9",
    ] {
        let policy = policy(text);
        let charges = [Charge::new(&policy, text).cost(u64::MAX)];
        let [one, nine] = [1, 9].map(|cost| [Charge::new(&policy, text).cost(cost)]);
        for after in [0, 1, SPAN / 2, SPAN - 100, SPAN - 1, SPAN, SPAN + 100] {
            both.set(START + after);
            for call in [
                Call::new(Operation::Peek, &one),
                Call::new(Operation::Peek, &nine),
                Call::new(Operation::Charge, if after == 0 { &charges } else { &one }),
                Call::new(Operation::AcquireUpTo { min: 1 }, &nine),
            ] {
                let answers = both.decide(&[call]).await;
                assert!(agree(&answers[0]), "{text} {after}: {call:?}: {:#?}", answers[0]);
            }
        }
    }
}

/// An acquire of up to a cost charges the same amount to all charges: the maximum that all enforced
/// policies admit. Check-only charges are not made.
#[tokio::test]
async fn an_acquire_up_to_a_cost_is_decided_as_in_the_core() {
    let both = Both::new().await;
    both.set(1_790_000_000_000_000);
    let policies = [
        "a: fixed-window 90/20us",
        "b: sliding-log 80/20us",
        "c: sliding-counter 70/20us",
        "d: token-bucket 60/20us",
        "e: token-bucket 50/20us by-interval",
        "f: gcra 40/20us shadow",
        "g: gcra 30/20us burst 30 block 9us",
    ]
    .map(policy);
    // The cases differ in the amounts that are charged before the call, in the index of the
    // check-only charge, and in the minimum of the acquire.
    for used in [[0; 7], [85, 0, 0, 0, 0, 0, 0], [0, 0, 68, 0, 49, 0, 0], [0, 0, 0, 0, 0, 40, 29]] {
        for checked in [None, Some(0), Some(2), Some(4), Some(6)] {
            for min in [1, 5, 33] {
                let subject = format!("{used:?} {checked:?} {min}");
                let charge = |index: usize, cost: u64| {
                    let charge = Charge::new(&policies[index], &subject).cost(cost);
                    if checked == Some(index) { charge.check_only() } else { charge }
                };
                let before: Vec<_> = (0..7)
                    .map(|index| Charge::new(&policies[index], &subject).cost(used[index]))
                    .collect();
                let charges: Vec<_> =
                    (0..7).map(|index| charge(index, 33 + index as u64)).collect();
                let pairs: Vec<_> = (0..6).map(|index| [charges[index], charges[6]]).collect();
                let up_to = |charges| Call::new(Operation::AcquireUpTo { min }, charges);
                let mut calls = vec![Call::acquire(&before), up_to(&charges)];
                calls.extend(pairs.iter().map(|pair| up_to(pair)));
                calls.extend(charges.iter().map(|charge| up_to(std::slice::from_ref(charge))));
                calls.push(Call::new(Operation::Peek, &charges));
                for call in calls {
                    let answers = both.decide(&[call]).await;
                    assert!(agree(&answers[0]), "{call:?}: {:#?}", answers[0]);
                }
            }
        }
    }
}

/// A block after a refusal can last longer than 2^48 microseconds, which is 9 years.
#[tokio::test]
async fn a_block_of_years_ends_as_in_the_core() {
    let both = Both::new().await;
    for text in [
        "p: fixed-window 1/1h block 4000d",
        "p: sliding-log 1/1h block 4000d",
        "p: gcra 1/1h burst 1 block 26000d",
    ] {
        let policy = policy(text);
        let charges = [Charge::new(&policy, text)];
        let other = [Charge::new(&policy, "other")];
        let take = Call::acquire(&charges);
        for now in [0, 1, 4_000 * 86_400_000_000, 4_000 * 86_400_000_001] {
            both.set(1_790_000_000_000_000 + now);
            for calls in [&[take][..], &[take, Call::acquire(&other)]] {
                for answers in both.decide(calls).await {
                    assert!(agree(&answers), "{text} {now}: {answers:#?}");
                }
            }
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Acquire,
    Block,
    Undo,
    Peek,
}
