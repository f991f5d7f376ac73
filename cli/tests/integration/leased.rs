//! Tests the replay on several nodes with leases: the requests that the nodes deny too early, the
//! limit that they must not exceed, and the calls to the store that they save.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    reason = "a test fails by panicking, and its numbers are small"
)]

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::{Command, Output};

use proptest::prelude::*;
use tidegate::replay::{Backend, Leasing, Replay};
use tidegate::report::{LeasedRun, PolicyReport};
use tidegate::trace::{By, Input, Options, Order, TimeUnit, replay_in_order};
use tidegate_core::Policy;

const SECOND: u64 = 1_000_000;

/// A time at which a minute begins, in microseconds.
const MINUTE: u64 = 1_700_000_040 * SECOND;

/// A request: its time in microseconds, its subject and its cost.
type Request = (u64, u8, u64);

fn leasing(nodes: u16) -> Leasing {
    Leasing {
        nodes,
        seed: None,
        span: "1s".parse().unwrap(),
        share: "1/200".parse().unwrap(),
        hot_after: 32,
        sliding: false,
    }
}

/// Replays the requests without leases and with leases. Returns both reports of each policy, the
/// report without leases first.
fn replay(
    requests: &[Request],
    policies: &[&str],
    leasing: Leasing,
    order: Order,
) -> Vec<(PolicyReport, LeasedRun)> {
    let mut csv = "time,subject,cost\n".to_owned();
    for (time, subject, cost) in requests {
        csv += &format!("{time},{subject},{cost}\n");
    }
    let options = Options {
        by: By::Field("subject".into()),
        cost: "cost".parse().unwrap(),
        time_unit: Some(TimeUnit::Microseconds),
        ..Options::default()
    };
    let policies: Vec<Policy> = policies.iter().map(|policy| policy.parse().unwrap()).collect();
    let replay = Replay::new(&policies, Backend::Memory, None, false, |_| {}).unwrap();
    let mut replay = replay.leased(Some(leasing));
    let inputs = vec![Input::once("requests", std::io::Cursor::new(csv.into_bytes()))];
    let summary = replay_in_order(inputs, &options, order, &mut replay).unwrap();
    assert_eq!(summary.malformed, 0);
    let leased = replay.leases().expect("leases are enabled");
    let reports = replay.policies(&summary).into_iter().zip(leased.runs);
    let free = requests.iter().filter(|(_, _, cost)| *cost == 0).count() as u64;
    reports.inspect(|(without, with)| check(without, with, free)).collect()
}

/// Checks equations and bounds that hold in every replay. `free` is the number of requests with a
/// cost of 0.
fn check(without: &PolicyReport, with: &LeasedRun, free: u64) {
    assert_eq!(with.policy, without.policy);
    assert_eq!(with.denied_without, without.denied);
    assert_eq!(with.requests(), without.requests());
    assert_eq!(with.cost_admitted + with.cost_denied, without.cost());
    assert_eq!(with.admitted + with.denied_too_early, without.admitted + with.admitted_instead);
    assert!(with.denied_too_early <= with.cost_denied_too_early + free);
    let in_chunks = with.granted - with.given_back - with.stranded;
    assert!(in_chunks + free >= with.from_chunks && in_chunks <= with.cost_admitted, "{with:?}");
    assert!(with.store_calls >= with.requests() - with.from_chunks + with.chunks, "{with:?}");
}

/// Replays one policy with leases.
fn replay_one(requests: &[Request], policy: &str, leasing: Leasing) -> LeasedRun {
    replay(requests, &[policy], leasing, Order::Time).remove(0).1
}

/// Returns `count` requests of one subject, `micros` microseconds apart.
fn every(micros: u64, count: u64) -> Vec<Request> {
    (0..count).map(|n| (MINUTE + n * micros, 0, 1)).collect()
}

#[test]
fn far_below_the_limit_nothing_is_denied_and_hot_subjects_hardly_go_to_the_store() {
    for policy in ["fixed-window 10000000/1m", "token-bucket 1000000/1s", "gcra 1000000/1s"] {
        let run = replay_one(&every(50, 20_000), policy, leasing(8));
        assert_eq!((run.admitted, run.denied), (20_000, 0), "{policy}");
        // Each node sends 32 requests to the store before it leases chunks.
        assert!((19_000..=20_000 - 8 * 32).contains(&run.from_chunks), "{run:?}");
        assert!(run.store_calls < 1_000, "{run:?}");
    }
}

#[test]
fn a_subject_that_is_not_hot_goes_to_the_store_as_without_leases() {
    // Each node gets 31 requests of the subject per second, but would lease chunks only after 32.
    let run =
        replay_one(&every(SECOND.div_ceil(8 * 31), 2_000), "fixed-window 10000/1m", leasing(8));
    assert_eq!((run.store_calls, run.from_chunks, run.chunks), (2_000, 0, 0));
    let run = replay_one(&every(SECOND / (8 * 34), 2_000), "fixed-window 10000/1m", leasing(8));
    assert!(run.chunks > 0, "{run:?}");
}

#[test]
fn one_node_denies_nothing_too_early() {
    for limit in [10, 999, 1_000, 2_999, 3_000] {
        let policy = format!("fixed-window {limit}/1m");
        let run = replay_one(&every(1_000, 3_000), &policy, leasing(1));
        assert_eq!((run.admitted, run.denied), (limit, 3_000 - limit), "{policy}");
        assert_eq!((run.denied_too_early, run.admitted_instead), (0, 0), "{policy}");
        assert!(limit < 900 || run.from_chunks > 100, "{run:?}");
    }
}

#[test]
fn eight_nodes_deny_little_too_early_when_the_limit_arrives() {
    let run = replay_one(&every(2_500, 24_000), "fixed-window 24000/1m", leasing(8));
    assert!(run.chunks > 100, "{run:?}");
    assert!(run.denied_too_early <= 24_000 / 200, "{run:?}");
    // With the share 1/1, a chunk can be the whole remaining amount. Then one node holds an amount
    // that another node needs.
    let greedy = Leasing { share: "1/1".parse().unwrap(), ..leasing(8) };
    let greedy = Leasing { span: "10s".parse().unwrap(), ..greedy };
    let run = replay_one(&every(500, 12_000), "fixed-window 10000/1m", greedy);
    assert!(run.denied_too_early > 0, "{run:?}");
    // The nodes return the unused parts of their chunks, so later requests are admitted that would
    // be denied without leases.
    assert!(run.admitted_instead > 0, "{run:?}");
    assert!(run.admitted <= 10_000, "{run:?}");
}

#[test]
fn policies_that_are_not_leased_decide_as_without() {
    let policies = [
        "sliding-log 500/1m",
        "sliding-counter 500/1m",
        "fixed-window 500/1m block 10s",
        "token-bucket 5/1s burst 100 block 1s",
    ];
    for (without, with) in replay(&every(1_000, 3_000), &policies, leasing(8), Order::Time) {
        assert_eq!((with.admitted, with.denied), (without.admitted, without.denied));
        assert_eq!((with.denied_too_early, with.admitted_instead, with.chunks), (0, 0, 0));
        assert_eq!(with.store_calls, 3_000);
    }
    let share = "1/20".parse().unwrap();
    let sliding = Leasing { sliding: true, share, ..leasing(8) };
    for (without, with) in replay(&every(1_000, 3_000), &policies[..2], sliding, Order::Time) {
        assert!(with.chunks > 0 && with.admitted <= without.admitted, "{with:?}");
    }
}

#[test]
fn the_order_of_the_lines_makes_no_difference_to_an_order_of_time() {
    let sorted = every(777, 5_000);
    let policies = ["fixed-window 3000/1m", "token-bucket 2000/1s", "gcra 900/1s burst 3000"];
    let expected = replay(&sorted, &policies, leasing(8), Order::Time);
    let mut swapped = sorted.clone();
    swapped.chunks_mut(7).for_each(<[_]>::reverse);
    assert_eq!(replay(&swapped, &policies, leasing(8), Order::Time), expected);
    // With `Order::File`, a request that is earlier than a previous request gets the latest
    // previous time.
    let by_line = replay(&swapped, &policies, leasing(8), Order::File);
    assert!(by_line.iter().all(|(_, run)| run.requests() == 5_000 && run.chunks > 0));
}

#[test]
fn requests_of_one_instant_are_made_in_their_order() {
    let instant: Vec<Request> = (0..5_000).map(|_| (MINUTE + 5, 0, 1)).collect();
    let run = replay_one(&instant, "fixed-window 1000000/1m", leasing(8));
    assert_eq!((run.admitted, run.denied), (5_000, 0));
    assert!(run.from_chunks > 4_000, "{run:?}");
    let run = replay_one(&instant, "fixed-window 1000/1m", leasing(1));
    assert_eq!((run.admitted, run.denied_too_early), (1_000, 0));
}

#[test]
fn gaps_of_years_are_jumped_over_and_leases_end_in_them() {
    let year = 365 * 86_400 * SECOND;
    let burst = |start: u64| (0..1_000).map(move |n| (start + n * 100, 0, 1));
    let starts = [0, SECOND / 2, 3 * year, 60 * year, 60 * year + 86_400 * SECOND];
    let requests: Vec<Request> = starts.into_iter().flat_map(|at| burst(MINUTE + at)).collect();
    for span in ["1ms", "1s", "1h"] {
        let leasing = Leasing { span: span.parse().unwrap(), ..leasing(8) };
        let run = replay_one(&requests, "fixed-window 1000000/1d", leasing);
        assert_eq!((run.admitted, run.denied), (5_000, 0));
        assert!(run.chunks > 0 || span == "1ms", "{span}: {run:?}");
        assert_eq!(run.granted, run.from_chunks + run.given_back + run.stranded, "{span}: {run:?}");
    }
    // The second burst begins half a second after the first burst, when all chunks of 100 ms have
    // ended. The nodes have returned the unused parts, so the second burst can use these parts.
    let short = Leasing { span: "100ms".parse().unwrap(), ..leasing(8) };
    let run = replay_one(&requests[..2_000], "fixed-window 2000/1d", short);
    assert!(run.chunks > 0 && run.denied_too_early <= 10, "{run:?}");
}

#[test]
fn a_log_has_the_same_result_each_time() {
    // The requests come in two bursts, from 60 subjects. The nodes lease chunks for some subjects.
    let requests: Vec<Request> = (0..8_000_u64)
        .map(|n| (MINUTE + n * 150 + n / 4_000 * SECOND, (n * n % 97 % 60) as u8, 1 + n % 3))
        .collect();
    let policies = ["fixed-window 180/1s", "token-bucket 150/1s burst 300"];
    let run = |seed| {
        let leasing = Leasing { seed, hot_after: 4, share: "1/4".parse().unwrap(), ..leasing(8) };
        replay(&requests, &policies, leasing, Order::Time)
    };
    let (in_turn, at_random) = (run(None), run(Some(7)));
    for _ in 0..5 {
        assert_eq!(run(None), in_turn);
        assert_eq!(run(Some(7)), at_random);
    }
    assert_ne!(run(Some(8)), at_random);
    assert_ne!(in_turn, at_random);
    assert!(in_turn.iter().all(|(_, run)| run.chunks > 100));
    assert!(in_turn[0].1.denied_too_early > 0, "{in_turn:?}");
}

#[test]
fn a_thousand_nodes_can_be_replayed() {
    let greedy = Leasing { hot_after: 1, ..leasing(1_000) };
    let run = replay_one(&every(10, 20_000), "fixed-window 1000000/1m", greedy);
    assert_eq!((run.admitted, run.denied), (20_000, 0));
    assert!(run.chunks >= 1_000, "{run:?}");
}

#[test]
fn no_requests_make_an_empty_report() {
    let run = replay_one(&[], "fixed-window 10/1m", leasing(8));
    assert_eq!(run, LeasedRun { policy: "fixed-window 10/1m".into(), ..LeasedRun::default() });
}

prop_compose! {
    /// Generates requests of up to three subjects. Most requests follow the previous request within
    /// 2 ms.
    fn requests()(
        requests in prop::collection::vec(
            (prop_oneof![8 => 0..2_000_u64, 2 => 0..300_000_u64, 1 => 0..3 * SECOND], 0..3_u8, 0..4_u64),
            1..1_500,
        ),
    ) -> Vec<Request> {
        let mut time = MINUTE;
        let mut after = |gap: u64| { time += gap; time };
        requests.into_iter().map(|(gap, subject, cost)| (after(gap), subject, cost)).collect()
    }
}

prop_compose! {
    fn settings()(
        nodes in 1..6_u16,
        seed in prop::option::of(any::<u64>()),
        span in prop::sample::select(vec!["1ms", "30ms", "1s", "7s"]),
        share in prop::sample::select(vec!["1/1", "1/2", "1/20", "1/200"]),
        hot_after in 1..6_u32,
    ) -> Leasing {
        let (span, share) = (span.parse().unwrap(), share.parse().unwrap());
        Leasing { nodes, seed, span, share, hot_after, sliding: false }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn leases_admit_no_more_than_fixed_windows_and_shifted_buckets_allow(
        requests in requests(),
        leasing in settings(),
        limit in 1..1_000_u64,
    ) {
        let (per_second, span) = (limit.div_ceil(10), leasing.span.duration().as_micros() as u64);
        let window = format!("fixed-window {limit}/1s");
        let bucket = format!("token-bucket {per_second}/1s burst {limit}");
        let runs = replay(&requests, &[&window, &bucket], leasing, Order::Time);
        // In each window, the policy admits at most its limit, and at most the sum of the costs of
        // the requests in this window.
        let mut windows: HashMap<(u8, u64), u64> = HashMap::new();
        let mut times: HashMap<u8, (u64, u64)> = HashMap::new();
        for (time, subject, cost) in requests {
            *windows.entry((subject, time / SECOND)).or_default() += cost;
            times.entry(subject).or_insert((time, time)).1 = time;
        }
        let max: u64 = windows.values().map(|cost| (*cost).min(limit)).sum();
        prop_assert!(runs[0].1.cost_admitted <= max, "{} > {max}", runs[0].1.cost_admitted);
        let refilled = |(first, last): &(u64, u64)| (last - first + span) * per_second / SECOND;
        let max: u64 = times.values().map(|times| limit + refilled(times)).sum();
        prop_assert!(runs[1].1.cost_admitted <= max, "{} > {max}", runs[1].1.cost_admitted);
    }
}

fn tidegate(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .current_dir(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../samples"))
        .args(["replay", "shop.log.zst"])
        .args(arguments)
        .env("COLUMNS", "100")
        .output()
        .unwrap()
}

#[test]
fn bad_settings_are_usage_errors_that_name_the_value_and_the_bound() {
    for (arguments, message) in [
        (&["--leased", "--nodes", "0"][..], "0 is not in 1..=1000"),
        (&["--leased", "--nodes", "1001"], "1001 is not in 1..=1000"),
        (&["--leased", "--lease-span", "2h"], "2h is above 1h, the maximum"),
        (&["--leased", "--lease-span", "999us"], "999us is below 1ms, the minimum"),
        (&["--leased", "--lease-span", "soon"], "soon"),
        (&["--leased", "--lease-share", "3/2"], "3/2 is not a valid share"),
        (&["--leased", "--lease-share", "0.5"], "`0.5` is not a share"),
        (&["--leased", "--lease-hot-after", "0"], "0 is not in 1..=4294967295"),
        (&["--nodes", "4"], "--leased"),
        (&["--seed", "4"], "--leased"),
        (&["--lease-sliding"], "--leased"),
    ] {
        let output = tidegate(arguments);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        assert!(error.contains(message), "{arguments:?}: {error}");
    }
}

/// Checks that docs/guide/throughput.md contains the table that the program prints here.
#[test]
fn the_sample_of_a_shop_is_replayed_like_this() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("report.html");
    let mut arguments = vec!["--by", "all", "-p", "fixed-window 15000/1d"];
    arguments.extend(["-p", "token-bucket 600/1h burst 5000", "--leased", "--nodes", "8"]);
    arguments.extend(["--lease-span", "10m", "--lease-hot-after", "8"]);
    arguments.extend(["--html", page.to_str().unwrap()]);
    let output = tidegate(&arguments);
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
    let table = String::from_utf8(output.stdout).unwrap();
    let guide = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/guide/throughput.md");
    let guide = std::fs::read_to_string(guide).unwrap();
    let leased = table.split_once("WITH LEASES\n").unwrap().1;
    assert!(guide.contains(leased), "the guide does not show this:\n{leased}");
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("<h2 id=\"leased\">"), "the page has the table");
}
