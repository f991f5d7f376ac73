//! Checks the bounds of leases over many nodes in virtual time. Links are slow and lose calls,
//! clocks show any time and run slow or fast, and nodes end without notice.
//!
//! The tests record the true time of each admission, by a chunk or by the server. They compare the
//! admitted costs with formulas that do not use the code of leases.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use proptest::prelude::*;
use tidegate_core::{Call, Charge, Lease, Operation, Policy, Share, Store};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::world::{Link, NodeStore, Quality, Random, Server, micros_since, node_with};

/// The time during which the nodes make requests, in microseconds.
const DURATION: u64 = 1_000_000;

#[derive(Debug, Clone)]
struct Scenario {
    seed: u64,
    nodes: u64,
    /// The number of parts per million by which the clock of each node is fast or slow.
    ppm: i64,
    span: Duration,
    hot_after: u32,
    part: u32,
    quality: Quality,
    /// The mean time between two requests of a node, in microseconds.
    pause: u64,
    /// The number of nodes that end without notice.
    killed: u64,
    /// The steps of the server's clock: the time of each step, and the size of the step.
    steps: Vec<(u64, i64)>,
    /// Whether the nodes also make calls that are not acquires.
    mixed: bool,
}

impl Scenario {
    fn lease(&self) -> Lease {
        let share = Share::new(1, self.part).unwrap();
        Lease::new().span(self.span).max_share(share).hot_after(self.hot_after).sliding()
    }
}

fn scenarios() -> impl Strategy<Value = Scenario> {
    let link = (
        prop_oneof![Just(100_u64), Just(3_000), Just(60_000)],
        prop_oneof![3 => Just(0_u64), 1 => Just(10)],
    );
    let lease = (
        prop_oneof![Just(20_u64), Just(150), Just(700)],
        1..6_u32,
        prop_oneof![Just(1_u32), Just(4), Just(20)],
    );
    (
        any::<u64>(),
        1..6_u64,
        prop_oneof![Just(0_i64), Just(999)],
        link,
        lease,
        400..4_000_u64,
        0..3_u64,
    )
        .prop_map(
            |(seed, nodes, ppm, (max_delay, lost), (span, hot_after, part), pause, killed)| {
                Scenario {
                    seed,
                    nodes,
                    ppm,
                    span: Duration::from_millis(span),
                    hot_after,
                    part,
                    quality: Quality { max_delay, lost },
                    pause,
                    killed,
                    steps: vec![],
                    mixed: false,
                }
            },
        )
}

/// An admitted call, with the true time of the admission in microseconds, and the cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Admission {
    at: u64,
    cost: u64,
}

#[derive(Debug, Default)]
struct Outcome {
    admitted: Vec<Admission>,
    local: u64,
    /// The refunds, each with its true time and its refunded cost.
    refunded: Vec<Admission>,
    /// The number of windows of one second that have begun by the server's clock. If the clock
    /// steps back, no window begins until the clock has caught up.
    windows: u64,
}

fn play(scenario: &Scenario, policy: &Policy) -> Outcome {
    crate::run(async {
        let server = Server::new();
        let local = Arc::new(Mutex::new(vec![]));
        let mut nodes = vec![];
        let mut tasks = JoinSet::new();
        let mut random = Random(scenario.seed);
        for number in 0..scenario.nodes {
            let ppm = scenario.ppm;
            let ppm = i64::try_from(random.below(2)).unwrap() * 2 * ppm - ppm;
            let (store, link) =
                node_with(&server, scenario.lease(), scenario.quality, random.next(), ppm);
            // Each node has several callers, so that requests overlap.
            for _ in 0..3 {
                let (store, policy) = (store.clone(), policy.clone());
                let (random, local) = (Random(random.next()), Arc::clone(&local));
                let (server, scenario) = (Arc::clone(&server), scenario.clone());
                tasks.spawn(async move {
                    requests(&store, &policy, random, &server, &scenario, &local).await;
                });
            }
            let killed_at = (number < scenario.killed).then(|| random.below(DURATION));
            nodes.push((store, link, killed_at));
        }
        let (last_window, windows) = (Mutex::new(None), Mutex::new(0));
        // A tick is a millisecond. The clock steps and nodes end at whole ticks.
        for tick in 0..DURATION / 1_000 {
            for (_, step) in scenario.steps.iter().filter(|(at, _)| at / 1_000 == tick) {
                server.clock.step(*step);
            }
            for (_, link, killed_at) in &nodes {
                if killed_at.is_some_and(|at| at / 1_000 == tick) {
                    link.kill();
                }
            }
            sleep(Duration::from_millis(1)).await;
        }
        tasks.abort_all();
        close(nodes).await;
        let executed = server.executed();
        for call in &executed {
            let window = Some(call.server_time / 1_000_000);
            let mut last = last_window.lock().unwrap();
            if window > *last {
                *last = window;
                *windows.lock().unwrap() += 1;
            }
        }
        let local = std::mem::take(&mut *local.lock().unwrap());
        let count = local.len() as u64;
        let admitted_by_server = executed.iter().filter_map(|call| {
            let cost = match call.operation {
                Operation::Acquire if call.is_allowed => call.cost,
                Operation::AcquireUpTo { .. } if call.is_allowed => call.amount,
                _ => return None,
            };
            Some(Admission { at: call.at, cost })
        });
        let refunds = executed.iter().filter(|call| call.operation == Operation::Refund);
        let refunded = refunds.map(|call| Admission { at: call.at, cost: call.amount }).collect();
        let mut admitted: Vec<_> = local.into_iter().chain(admitted_by_server).collect();
        admitted.sort_unstable();
        let windows = *windows.lock().unwrap();
        Outcome { admitted, local: count, refunded, windows }
    })
}

/// Closes the nodes that were not killed, so that they return their chunks.
async fn close(nodes: Vec<(NodeStore, Link, Option<u64>)>) {
    for (store, _, _) in nodes.iter().filter(|(_, _, killed_at)| killed_at.is_none()) {
        store.close().await;
    }
}

async fn requests(
    store: &NodeStore,
    policy: &Policy,
    mut random: Random,
    server: &Server,
    scenario: &Scenario,
    local: &Mutex<Vec<Admission>>,
) {
    // Each caller makes bursts of requests, with pauses between the bursts.
    let mut burst = 0;
    loop {
        if burst == 0 {
            burst = random.below(20);
            sleep(Duration::from_micros(random.below(scenario.pause * 6 * (burst + 1)))).await;
        }
        burst = burst.saturating_sub(1);
        let cost = 1 + random.below(2) * random.below(3);
        let charges = [Charge::new(policy, "s").cost(cost)];
        let operation = match random.below(60) {
            _ if !scenario.mixed => Operation::Acquire,
            0 => Operation::Peek,
            1 => Operation::AcquireUpTo { min: 1 },
            2 => Operation::Block { span: Duration::from_millis(random.below(30)) },
            3 => Operation::BlockAtLeast { span: Duration::from_millis(random.below(5)) },
            _ => Operation::Acquire,
        };
        let call = Call::new(operation, &charges);
        if scenario.mixed && random.below(20) == 0 {
            let batch = [call, Call::acquire(&charges), call];
            // The answer to a batch does not show whether a chunk admitted the call. So the test
            // does not count the calls that chunks admit in a batch.
            let answers = store.decide_many(&batch[..1]).await;
            assert_eq!(answers.len(), 1);
            continue;
        }
        match store.decide(call).into_ready() {
            Ok(decision) => {
                assert!(decision.unwrap().is_allowed(), "no refusal is local");
                let admission = Admission { at: micros_since(server.started), cost };
                local.lock().unwrap().push(admission);
            }
            Err(later) => {
                let admitted = later.await.is_ok_and(|decision| decision.is_allowed());
                // The caller refunds only a cost that the server has admitted before.
                if admitted
                    && scenario.mixed
                    && call.operation == Operation::Acquire
                    && random.below(8) == 0
                {
                    let _ = store.decide(Call::new(Operation::Refund, &charges)).await;
                }
            }
        }
    }
}

fn policy(text: &str) -> Policy {
    text.parse().unwrap()
}

/// Fails if more than `burst + rate · t` was admitted in any time `t`. `rate` is the refill per
/// second.
fn within_curve(admitted: &[Admission], burst: u64, rate: u64) -> Result<(), TestCaseError> {
    // The debt of a bucket with the capacity `burst`, in millionths of a token.
    let (mut debt, mut last) = (0_u128, 0);
    for admission in admitted {
        debt = debt.saturating_sub(u128::from(rate) * u128::from(admission.at - last));
        debt += u128::from(admission.cost) * 1_000_000;
        last = admission.at;
        prop_assert!(
            debt <= u128::from(burst) * 1_000_000,
            "at {} us the debt is {debt} millionths; it must be at most {burst} tokens",
            admission.at
        );
    }
    Ok(())
}

/// Fails if more than `limit` was admitted in any half-open interval of `length`.
fn within_any(admitted: &[Admission], limit: u64, length: u64) -> Result<(), TestCaseError> {
    let (mut first, mut sum) = (0, 0);
    for admission in admitted {
        sum += admission.cost;
        while admission.at - admitted[first].at >= length {
            sum -= admitted[first].cost;
            first += 1;
        }
        prop_assert!(sum <= limit, "{sum} are admitted within {length} us before {}", admission.at);
    }
    Ok(())
}

fn span_micros(scenario: &Scenario) -> u64 {
    u64::try_from(scenario.span.as_micros()).unwrap()
}

/// Returns the number of tokens that are refilled within a span, rounded up.
fn refill_in_span(scenario: &Scenario, rate: u64) -> u64 {
    (rate * span_micros(scenario)).div_ceil(1_000_000)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// With leases, a fixed window admits at most its limit, also if nodes make other operations
    /// than acquires. A refunded cost can be admitted once more.
    #[test]
    fn never_more_than_the_limit_in_a_fixed_window(
        scenario in scenarios(), limit in 20..400_u64, mixed: bool, window in prop_oneof![Just(1_000_000_u64), Just(250_000)],
    ) {
        let scenario = Scenario { mixed, ..scenario };
        let outcome = play(&scenario, &policy(&format!("p: fixed-window {limit}/{window}us")));
        for start in (0..DURATION).step_by(usize::try_from(window).unwrap()) {
            let sum = |all: &[Admission]| -> u64 {
                let in_window = all.iter().filter(|event| (start..start + window).contains(&event.at));
                in_window.map(|event| event.cost).sum()
            };
            let (admitted, refunded) = (sum(&outcome.admitted), sum(&outcome.refunded));
            prop_assert!(admitted <= limit + refunded, "{admitted} in the window at {start} us");
        }
    }

    /// With anchored windows, an interval with the length of a window overlaps at most two windows.
    /// So at most `2 · limit` is admitted in the interval.
    #[test]
    fn never_more_than_the_limit_in_an_anchored_window(scenario in scenarios(), limit in 20..200_u64) {
        let outcome = play(&scenario, &policy(&format!("p: fixed-window {limit}/300ms anchored")));
        within_any(&outcome.admitted, 2 * limit, 300_000)?;
    }

    /// If the server's clock steps forwards and back, each window that begins by this clock admits
    /// at most the limit.
    #[test]
    fn never_more_than_the_limit_when_the_servers_clock_steps(
        scenario in scenarios(), limit in 20..200_u64,
        steps in prop::collection::vec((0..DURATION, -3_000_000..3_000_000_i64), 0..6),
    ) {
        let scenario = Scenario { steps, ..scenario };
        let outcome = play(&scenario, &policy(&format!("p: fixed-window {limit}/1s")));
        let admitted: u64 = outcome.admitted.iter().map(|admission| admission.cost).sum();
        prop_assert!(admitted <= limit * outcome.windows, "{admitted} in {} windows", outcome.windows);
    }

    /// With leases, a bucket of burst `B` and rate `R` admits at most `B + R·(t + span)` in any
    /// time `t`.
    #[test]
    fn a_bucket_is_shifted_by_the_span_at_most(scenario in scenarios(), burst in 20..200_u64, rate in 50..2_000_u64) {
        for name in ["token-bucket", "gcra"] {
            let outcome = play(&scenario, &policy(&format!("p: {name} {rate}/1s burst {burst}")));
            within_curve(&outcome.admitted, burst + refill_in_span(&scenario, rate), rate)?;
        }
    }

    /// Under the stricter policy of [`Lease::exact`], a bucket of burst `B` and rate `R` admits at
    /// most `B + R·t` in any time `t`, even with leases.
    #[test]
    fn a_bucket_under_the_exact_policy_is_not_shifted(scenario in scenarios(), more in 5..200_u64, rate in 50..2_000_u64) {
        let burst = refill_in_span(&scenario, rate) + more;
        let whole = policy(&format!("p: token-bucket {rate}/1s burst {burst}"));
        let exact = scenario.lease().exact(&whole).unwrap();
        prop_assert_eq!(exact.limit(), more);
        prop_assert!(exact.shares_state_with(&whole));
        let outcome = play(&scenario, &exact);
        within_curve(&outcome.admitted, burst, rate)?;
    }

    /// With leases, a bucket by intervals of `P` with burst `B` and refill `R` admits at most
    /// `B + R·(⌊(t + span)/P⌋ + 1)` in any time `t`. Under the stricter policy of [`Lease::exact`],
    /// it admits at most `B + R·(⌊t/P⌋ + 1)`.
    #[test]
    fn a_bucket_by_intervals_is_shifted_by_the_span_at_most(scenario in scenarios(), burst in 20..200_u64, refill in 5..60_u64) {
        let period = 100_000;
        let text = |burst| policy(&format!("p: token-bucket {refill}/100ms burst {burst} by-interval"));
        let lost = refill * span_micros(&scenario).div_ceil(period);
        let exact = scenario.lease().exact(&text(burst + lost)).unwrap();
        prop_assert_eq!(exact.limit(), burst);
        for (policy, burst, span) in [(text(burst), burst, span_micros(&scenario)), (exact, burst + lost, 0)] {
            let admitted = play(&scenario, &policy).admitted;
            for (index, first) in admitted.iter().enumerate() {
                let mut sum = 0;
                for last in &admitted[index..] {
                    sum += last.cost;
                    let max = burst + refill * ((last.at - first.at + span) / period + 1);
                    prop_assert!(sum <= max, "{sum} from {} to {} us", first.at, last.at);
                }
            }
        }
    }

    /// With leases, a sliding log of limit `L` and window `W` admits at most `L` in any time of
    /// `W − span`. Under the stricter policy of [`Lease::exact`], it admits at most `L` in any time
    /// of `W`.
    #[test]
    fn a_log_is_shortened_by_the_span_at_most(scenario in scenarios(), limit in 20..300_u64) {
        let log = policy(&format!("p: sliding-log {limit}/800ms"));
        let outcome = play(&scenario, &log);
        within_any(&outcome.admitted, limit, 800_000 - span_micros(&scenario))?;
        let outcome = play(&scenario, &scenario.lease().exact(&log).unwrap());
        within_any(&outcome.admitted, limit, 800_000)?;
    }

    /// With leases, a sliding counter admits in any time `t` at most the cost that it admits in
    /// `t + span` without leases.
    #[test]
    fn a_counter_is_shifted_by_the_span_at_most(scenario in scenarios(), limit in 20..300_u64) {
        let counter = policy(&format!("p: sliding-counter {limit}/200ms"));
        // An interval with the length of two windows overlaps at most three windows. Each window
        // admits at most the limit.
        for (policy, length) in [
            (counter.clone(), 400_000_u64.saturating_sub(span_micros(&scenario))),
            (scenario.lease().exact(&counter).unwrap(), 400_000),
        ] {
            if length > 0 {
                within_any(&play(&scenario, &policy).admitted, 3 * limit, length)?;
            }
        }
    }
}

/// Checks that the scenarios use chunks. Without chunks, the properties would test only the store.
#[test]
fn most_requests_of_a_scenario_are_admitted_from_chunks() {
    let scenario = Scenario {
        seed: 1,
        nodes: 4,
        ppm: 999,
        span: Duration::from_millis(150),
        hot_after: 3,
        part: 4,
        quality: Quality { max_delay: 3_000, lost: 10 },
        pause: 500,
        killed: 1,
        steps: vec![],
        mixed: false,
    };
    for text in ["p: fixed-window 4000/1s", "p: gcra 4000/1s burst 2000", "p: sliding-log 4000/1s"]
    {
        let outcome = play(&scenario, &policy(text));
        let count = outcome.admitted.len() as u64;
        assert!(outcome.local > count / 2, "{text}: {} of {count}", outcome.local);
    }
}
