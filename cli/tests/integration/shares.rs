//! Tests the shares of fair pools in the report of a replay.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking, and so do its helpers"
)]

use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Command, Output, Stdio};

use proptest::prelude::*;
use serde_json::{Value, json};
use tidegate::replay::{Backend, Leasing, Replay};
use tidegate::report::{LeasedReport, Member, PolicyReport, SharesReport};
use tidegate::trace::{By, Input, Options, Order, TimeUnit, replay_in_order};
use tidegate_core::{Call, Charge, ManualClock, Outcome, Policy, Timestamp};
use tidegate_memory::MemoryStore;

/// A time at which a minute begins, in seconds.
const MINUTE: u64 = 1_700_000_040;

/// A request: its time after the minute in seconds, its subject, and its cost.
type Request = (u64, u8, u64);

/// Replays requests against policies, and on eight nodes with leases.
fn replay(
    requests: &[Request],
    policies: &[Policy],
    pool: Option<&Policy>,
) -> (Vec<PolicyReport>, Option<LeasedReport>) {
    let mut csv = "time,subject,cost\n".to_owned();
    for (time, subject, cost) in requests {
        csv += &format!("{},{subject},{cost}\n", MINUTE + time);
    }
    let options = Options {
        by: By::Field("subject".into()),
        cost: "cost".parse().unwrap(),
        time_unit: Some(TimeUnit::Seconds),
        ..Options::default()
    };
    let replay = Replay::new(policies, Backend::Memory, None, false, |_| {}).unwrap();
    let leasing = Leasing {
        nodes: 8,
        seed: None,
        span: "1s".parse().unwrap(),
        share: "1/2".parse().unwrap(),
        hot_after: 1,
        sliding: true,
    };
    let replay = replay.spilling_to(pool).unwrap();
    let mut replay = replay.leased(pool.is_none().then_some(leasing));
    let inputs = vec![Input::once("requests", std::io::Cursor::new(csv.into_bytes()))];
    let summary = replay_in_order(inputs, &options, Order::Time, &mut replay).unwrap();
    assert_eq!(summary.malformed, 0);
    (replay.policies(&summary), replay.leases())
}

/// Decides requests one after the other in one store. Returns the demand and the admitted cost of
/// each of ten subjects, and the numbers of windows with requests and with refusals.
fn decide(requests: &[Request], policy: &Policy, window: u64) -> ([(u64, u64); 10], [usize; 2]) {
    let clock = ManualClock::default();
    let store = MemoryStore::builder().clock(clock.clone()).build();
    let mut sums = [(0, 0); 10];
    let (mut windows, mut refused) = (BTreeSet::new(), BTreeSet::new());
    let mut sorted = requests.to_vec();
    sorted.sort_by_key(|(time, ..)| *time);
    for (time, subject, cost) in sorted {
        clock.set(Timestamp::from_micros((MINUTE + time) * 1_000_000));
        let text = subject.to_string();
        let charge = [Charge::new(policy, &text).cost(cost)];
        let outcome = store.decide_now(&Call::acquire(&charge)).unwrap().verdicts()[0].outcome();
        let (demand, admitted) = &mut sums[usize::from(subject)];
        *demand += cost;
        windows.insert((MINUTE + time) / window);
        match outcome {
            Outcome::Allowed => *admitted += cost,
            Outcome::Denied => drop(refused.insert((MINUTE + time) / window)),
            outcome => assert_eq!(outcome, Outcome::TooLarge),
        }
    }
    (sums, [windows.len(), refused.len()])
}

fn requests() -> impl Strategy<Value = Vec<Request>> {
    // Some subjects send more requests than others.
    let subject = prop::sample::select(vec![0, 0, 0, 0, 1, 1, 2, 3, 4, 9]);
    prop::collection::vec((0..60_u64, subject, 0..4_u64), 0..200)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_shares_are_those_of_one_store_that_decides_all_requests_in_order(
        requests in requests(),
        limit in 0..40_u64,
        window in 1..20_u64,
    ) {
        let policy: Policy = format!("fair-pool {limit}/{window}s").parse().unwrap();
        let (sums, [windows, refused]) = decide(&requests, &policy, window);
        let (reports, leased) = replay(&requests, std::slice::from_ref(&policy), None);
        let shares = reports[0].shares.clone().unwrap();
        for member in &shares.members {
            let subject: usize = member.subject.parse().unwrap();
            prop_assert_eq!((member.demand, member.admitted), sums[subject]);
        }
        prop_assert!(shares.members.is_sorted_by(|one, next| one.demand >= next.demand));
        let (demand, admitted) = sums.iter().fold((0, 0), |all, sum| (all.0 + sum.0, all.1 + sum.1));
        prop_assert_eq!((shares.demand, shares.admitted), (demand, admitted));
        prop_assert_eq!((shares.windows, shares.windows_refused), (windows as u64, refused as u64));
        prop_assert_eq!(shares.subjects, shares.members.len() as u64);

        // The nodes never lease a pool, and share one store.
        let leased = leased.unwrap();
        prop_assert_eq!(leased.runs[0].cost_admitted, admitted);
        prop_assert_eq!((leased.runs[0].denied_too_early, leased.runs[0].chunks), (0, 0));

        // A fair pool as the pool of a policy that admits nothing has the same members.
        let nothing = ["other: fixed-window 0/1m".parse().unwrap()];
        let (reports, _) = replay(&requests, &nothing, Some(&policy));
        let pool = reports[0].pool.as_ref().unwrap();
        prop_assert_eq!(pool.cost_admitted, admitted);
        let pool_shares = pool.shares.as_ref().unwrap();
        prop_assert_eq!((pool_shares.demand, pool_shares.admitted), (demand, admitted));
        prop_assert_eq!(pool_shares.windows_refused, refused as u64);
        // The policy admits requests without cost.
        let with_demand = |members: &[Member]| -> Vec<Member> {
            members.iter().filter(|member| member.demand > 0).cloned().collect()
        };
        prop_assert_eq!(with_demand(&pool_shares.members), with_demand(&shares.members));
    }
}

#[test]
fn a_list_of_members_is_cut_and_the_others_are_summed() {
    let requests: Vec<Request> = (0..=99)
        .flat_map(|subject| vec![(0, subject, u64::from(subject % 50)), (60, subject, 1)])
        .collect();
    let (reports, _) = replay(&requests, &["fair-pool 1000/1m".parse().unwrap()], None);
    let shares = reports[0].shares.clone().unwrap();
    let SharesReport { subjects, demand, windows, windows_refused, members, .. } = &shares;
    assert_eq!((subjects, demand, windows, windows_refused), (&100, &2_550, &2, &1));
    let listed: Vec<(&str, u64)> =
        members.iter().map(|member| (member.subject.as_str(), member.demand)).collect();
    assert_eq!(listed[..3], [("49", 50), ("99", 50), ("48", 49)]);
    assert_eq!(listed.len(), 20);
    let others = shares.others().unwrap();
    assert_eq!(others.subject, "80 others");
    assert_eq!(others.demand, 2_550 - 2 * (41..=50).sum::<u64>());
}

fn tidegate(arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["replay", "-", "--by", "tenant", "--time-unit", "s"])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // If the program ends before it has read all input, the write fails.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Returns a log of two minutes. In each minute, `acme` sends 200 requests and `globex` sends 80.
fn log() -> String {
    let lines = |minute: u64, tenant: &str, count: usize| {
        format!("{},{tenant}\n", MINUTE + 60 * minute).repeat(count)
    };
    let minute = |minute| lines(minute, "acme", 200) + &lines(minute, "globex", 80);
    format!("time,tenant\n{}{}", minute(0), minute(1))
}

#[test]
fn the_program_shows_the_share_of_each_tenant() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html");
    let set = folder.path().join("limits.txt");
    let json = |options: &[&str]| -> Value {
        let output = tidegate(&[options, &["--json"]].concat(), &log());
        assert!(output.status.success(), "{}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let alone = json(&["--share", "100/1m"]);
    assert_eq!(alone["policies"].as_array().unwrap().len(), 1);
    assert_eq!(alone["policies"][0]["policy"], "fair-pool 100/1m");
    // In the first minute, acme uses the whole pool. In the second minute, each has a half.
    let expected = json!({
        "subjects": 2, "demand": 560, "admitted": 200, "windows": 2, "windows_refused": 2,
        "members": [
            {"subject": "acme", "demand": 400, "admitted": 150},
            {"subject": "globex", "demand": 160, "admitted": 50},
        ],
    });
    assert_eq!(alone["policies"][0]["shares"], expected);
    let several =
        json(&["--share", "100/1m", "-p", "gcra 1/1s burst 1", "--share", "pool: fair-pool 1/1m"]);
    let names: Vec<_> =
        several["policies"].as_array().unwrap().iter().map(|policy| &policy["policy"]).collect();
    assert_eq!(names, ["gcra 1/1s burst 1", "fair-pool 100/1m", "pool: fair-pool 1/1m"]);
    assert!(several["policies"][0].get("shares").is_none(), "only fair pools have shares");
    assert_eq!(several["policies"][1]["shares"], expected);

    // An override gives a tenant another weight.
    std::fs::write(&set, "pool: fair-pool 100/1m weight 3 for subject acme\n").unwrap();
    let set = ["--share", "pool: fair-pool 100/1m", "--limit-set", set.to_str().unwrap()];
    let members = &json(&set)["policies"][0]["shares"]["members"];
    assert_eq!((&members[0]["admitted"], &members[1]["admitted"]), (&175.into(), &25.into()));

    let output = tidegate(&["--share", "100/1m", "--html", page.to_str().unwrap()], &log());
    let table = text(&output.stdout);
    let rows = "
SHARES OF fair-pool 100/1m
The pool has 2 members. It refused requests in 2 of 2 windows.
SUBJECT  DEMAND  ADMITTED  OF DEMAND  OF POOL
acme        400       150     37.5 %   75.0 %
globex      160        50     31.3 %   25.0 %
";
    assert!(table.ends_with(rows), "{table}");
    assert!(std::fs::read_to_string(&page).unwrap().contains("Shares of fair-pool 100/1m</h2>"));

    // Each tenant has 40 requests a minute, and a share of the pool for the others.
    let options = ["-p", "fixed-window 40/1m", "--pool", "fair-pool 60/1m"];
    let expected = json!({
        "subjects": 2, "demand": 400, "admitted": 120, "windows": 2, "windows_refused": 2,
        "members": [
            {"subject": "acme", "demand": 320, "admitted": 90},
            {"subject": "globex", "demand": 80, "admitted": 30},
        ],
    });
    assert_eq!(json(&options)["policies"][0]["pool"]["shares"], expected);
    let options = [&options[..], &["--html", page.to_str().unwrap()]].concat();
    let table = text(&tidegate(&options, &log()).stdout);
    let title = "hares of fair-pool 60/1m, after fixed-window 40/1m";
    assert!(table.to_lowercase().contains(title), "{table}");
    assert!(std::fs::read_to_string(page).unwrap().contains(title));
}

#[test]
fn bad_shares_are_named_with_what_is_expected() {
    for (share, says) in [
        ("1000", "`1000` is not a rate"),
        ("x/1m", "`x` is not a whole number"),
        ("1000/1x", "`1x` is not a span of time"),
        ("99999999999/1m", "must be at most 2^32"),
        ("pool: fair-pool 1/1m weight 0", "the weight is 0; it must be 1 to 1000"),
        ("fair-pool: gcra 1/1s", "`fair-pool: gcra 1/1s burst 1` is not a fair pool"),
    ] {
        let output = tidegate(&["--share", share], "");
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{share}: {errors}");
        let value = format!(
            "invalid value '{share}' for '--share <COUNT/SPAN>': a share is a limit such as `1000/1m`"
        );
        assert!(errors.contains(&value) && errors.contains(says), "{share}: {errors}");
    }
    for (options, says) in [
        (&["--share", "9/1m", "--late-cost", "a"][..], "`fair-pool 9/1m` is a fair pool"),
        (&["-p", "fair-pool 9/1m", "--late-cost", "a"], "`fair-pool 9/1m` is a fair pool"),
        (&["--share", "9/1m", "--limit", "9/1m"], "cannot be used with '--limit <COUNT/SPAN>'"),
        (&["--share", "9/1m", "--limit-set", "x"], "`fair-pool 9/1m` has no name"),
    ] {
        let output = tidegate(options, "");
        assert_eq!(output.status.code(), Some(2), "{options:?}");
        assert!(text(&output.stderr).contains(says), "{options:?}: {}", text(&output.stderr));
    }
}
