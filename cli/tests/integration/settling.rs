//! Tests the replay of late costs, which are known only when a request ends: the requests that are
//! admitted in each of the three ways, and the overshoot and the idle amounts.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking, and so do its helpers"
)]

use std::path::PathBuf;
use std::process::Command;

use proptest::prelude::*;
use tidegate::replay::{Backend, Error, Replay, Settling};
use tidegate::report::{SettlingReport, SettlingRun, Way};
use tidegate::trace::{By, Input, Options, Order, TimeUnit, replay_in_order};
use tidegate_core::Policy;

/// A time at which a minute begins, in seconds.
const MINUTE: u64 = 1_700_000_040;

/// A request: its time in microseconds, its subject, the cost that is known at its beginning, and
/// its late cost.
type Request = (u64, u8, u64, u32);

fn settling(estimate: Option<u64>) -> Settling {
    Settling {
        late_cost_of: "out".into(),
        estimate,
        pace: "10/1s".parse().unwrap(),
        cover: "9/10".parse().unwrap(),
    }
}

fn report(
    requests: &[Request],
    policies: &[&str],
    settling: Settling,
) -> Result<SettlingReport, Error> {
    let mut csv = "time,subject,in,out\n".to_owned();
    for (time, subject, known, late) in requests {
        csv += &format!("{time},{subject},{known},{late}\n");
    }
    let options = Options {
        by: By::Field("subject".into()),
        cost: "in".parse().unwrap(),
        late_cost: vec!["out".into()],
        time_unit: Some(TimeUnit::Microseconds),
        ..Options::default()
    };
    let policies: Vec<Policy> = policies.iter().map(|policy| policy.parse().unwrap()).collect();
    let replay = Replay::new(&policies, Backend::Memory, None, false, |_| {}).unwrap();
    let mut replay = replay.settling(Some(settling));
    let inputs = vec![Input::once("requests", std::io::Cursor::new(csv.into_bytes()))];
    let summary = replay_in_order(inputs, &options, Order::Time, &mut replay)?;
    assert_eq!(summary.malformed, 0);
    replay.settlings(&summary).map(|report| report.expect("there are late costs"))
}

/// Replays one policy in the three ways.
fn ways(requests: &[Request], policy: &str, settling: Settling) -> [SettlingRun; 3] {
    let runs = report(requests, &[policy], settling).unwrap().runs;
    assert_eq!([0, 1, 2].map(|way| runs[way].way), [Way::Check, Way::Fixed, Way::Learned]);
    runs.try_into().expect("three")
}

/// Returns the numbers of a run: the admitted and denied requests and their costs, the overshoot
/// and the part that overage causes, the falsely denied requests, and the idle amounts.
fn numbers(run: &SettlingRun) -> [u64; 9] {
    [
        run.admitted,
        run.denied,
        run.cost_admitted,
        run.cost_denied,
        run.overshoot,
        run.overshoot_of_overage,
        run.falsely_denied,
        run.idle_cost_seconds,
        run.idle_cost,
    ]
}

/// Returns four requests in one minute. They begin at 0, 1, 3 and 6 s, run for 2, 4, 4 and 0.5 s,
/// and cost 30, 60, 50 and 10.
fn four() -> Vec<Request> {
    let at = |seconds: u64| (MINUTE + seconds) * 1_000_000;
    vec![(at(0), 0, 10, 20), (at(1), 0, 20, 40), (at(3), 0, 10, 40), (at(6), 0, 5, 5)]
}

#[test]
fn an_example_that_can_be_followed_by_hand() {
    let [check, fixed, _] = ways(&four(), "fixed-window 100/1m", settling(None));
    // At the beginning of each request, the limit of 100 has an amount left, so all four requests
    // are admitted. The charges are 30 at 2 s, 60 at 5 s, 10 at 6.5 s and 50 at 7 s, which is 150
    // in total.
    assert_eq!(numbers(&check), [4, 0, 150, 0, 50, 0, 0, 0, 0]);
    // A request holds its known cost and 40, the maximum late cost. The first request holds 50. The
    // second needs a hold of 60 and is denied, although the costs of 30 and 60 would fit. The first
    // request is settled at 30, and the third holds 50. The fourth needs a hold of 45 and is
    // denied, although its cost of 10 would fit. In the first 2 of 7 s, the idle amount is 20.
    assert_eq!(numbers(&fixed), [2, 2, 80, 70, 0, 0, 2, 40, 6]);
}

#[test]
fn estimates_that_are_too_low_are_charged_later_and_overshoot_by_as_much() {
    let [_, fixed, _] = ways(&four(), "fixed-window 100/1m", settling(Some(10)));
    // The first three requests hold 20, 30 and 20, and cost 30, 60 and 50. They end at 2, 5 and
    // 7 s, and then the differences of 10, 30 and 30 are charged. When the fourth request arrives
    // at 6 s, 20 + 30 + 20 + 10 + 30 = 110 are charged, so the limit of 100 denies the request.
    // Finally, 140 are charged, which is 40 above the limit.
    assert_eq!((fixed.admitted, fixed.overshoot, fixed.overshoot_of_overage), (3, 40, 40));
    assert_eq!((fixed.overage, fixed.idle_cost_seconds), (10 + 30 + 30, 0));
}

#[test]
fn requests_end_before_others_begin_at_the_same_instant() {
    let at = |seconds: u64| (MINUTE + seconds) * 1_000_000;
    // Each request holds 90 and uses 10 within 1 s. The second request fits only after the first
    // has been settled.
    let requests = [(at(0), 0, 0, 10), (at(1), 0, 0, 10)];
    let [_, fixed, _] = ways(&requests, "fixed-window 100/1m", settling(Some(90)));
    assert_eq!((fixed.admitted, fixed.falsely_denied), (2, 0));
    let requests = [(at(0), 0, 0, 10), (at(1) - 1, 0, 0, 10)];
    let [_, fixed, _] = ways(&requests, "fixed-window 100/1m", settling(Some(90)));
    assert_eq!((fixed.admitted, fixed.falsely_denied), (1, 1));
}

#[test]
fn a_learned_estimate_begins_as_the_fixed_one_and_then_holds_little_too_much() {
    // A request starts every 2 s. It runs for 1 s and has a late cost of 10. Every tenth request
    // runs for 1.5 s and has a late cost of 15.
    let request = |n: u64| ((MINUTE + 2 * n) * 1_000_000, 0, 5, if n % 10 == 9 { 15 } else { 10 });
    let requests: Vec<Request> = (0..100).map(request).collect();
    let [_, fixed, learned] = ways(&requests, "sliding-log 100000/1m", settling(Some(1_000)));
    assert_eq!((fixed.admitted, fixed.overage, fixed.overshoot), (100, 0, 0));
    assert_eq!(fixed.idle_cost_seconds, 90 * 990 + 10 * (985 * 3 / 2) + 5);
    // The estimate for the first 30 requests is 1,000. Then the estimate is 10, because 9 of 10
    // late costs are at most 10.
    assert_eq!((learned.admitted, learned.overage), (100, 7 * 5));
    assert_eq!(learned.idle_cost_seconds, 27 * 990 + 3 * (985 * 3 / 2) + 2);
}

#[test]
fn subjects_are_limited_apart_and_a_block_is_no_false_denial() {
    let at = |seconds: u64| (MINUTE + seconds) * 1_000_000;
    let requests = [(at(0), 0, 50, 10), (at(1), 1, 60, 10), (at(2), 0, 50, 10), (at(50), 0, 1, 1)];
    let [_, fixed, _] = ways(&requests, "fixed-window 100/1m block 30m", settling(None));
    // The third request costs 60, but only 40 remain. So it is denied, and its subject is blocked
    // when the fourth request arrives.
    assert_eq!((fixed.admitted, fixed.denied, fixed.falsely_denied), (2, 2, 0));
    let [_, fixed, _] = ways(&requests, "fixed-window 100/1m", settling(None));
    assert_eq!((fixed.admitted, fixed.denied, fixed.falsely_denied), (3, 1, 0));
}

#[test]
fn a_policy_that_cannot_hold_costs_is_an_error() {
    let error = report(&four(), &["fixed-window 100/1m shards 4"], settling(None)).unwrap_err();
    assert!(error.to_string().contains("be held and settled"), "{error}");
}

#[test]
fn no_requests_make_an_empty_report() {
    for run in ways(&[], "gcra 10/1s", settling(None)) {
        assert_eq!(numbers(&run), [0; 9]);
    }
}

#[test]
fn requests_may_end_after_the_end_of_time() {
    let requests = [(MINUTE * 1_000_000, 0, 1 << 51, u32::MAX), (MINUTE * 1_000_000, 0, 7, 1)];
    let endless = Settling { pace: "1/25000d".parse().unwrap(), ..settling(None) };
    let limit = (1_u64 << 51) + u64::from(u32::MAX);
    for run in ways(&requests, &format!("fixed-window {limit}/1m"), endless) {
        assert_eq!(run.admitted, if run.way == Way::Check { 2 } else { 1 });
    }
}

const POLICIES: [&str; 10] = [
    "fixed-window 1000/10s",
    "fixed-window 1000/10s phased",
    "fixed-window 1000/10s anchored",
    "sliding-log 1000/10s",
    "sliding-log 1000/10s grain 1s",
    "sliding-counter 1000/10s",
    "token-bucket 1000/10s",
    "token-bucket 7/1s burst 1000",
    "gcra 130/1s burst 700",
    "token-bucket 300/3s burst 1000 by-interval",
];

prop_compose! {
    /// Generates requests of up to three subjects that run for up to 40 s. The times between
    /// requests are up to 4 µs or up to 5 s.
    fn requests()(
        requests in prop::collection::vec(
            (prop_oneof![0..5_u64, 0..5_000_000_u64], 0..3_u8, 1..300_u64, 1..400_u32), 1..60,
        ),
    ) -> Vec<Request> {
        let mut time = MINUTE * 1_000_000;
        let mut after = |gap: u64| { time += gap; time };
        requests.into_iter().map(|(gap, subject, known, late)| (after(gap), subject, known, late)).collect()
    }
}

proptest! {
    // The number of cases is small, because each case opens about 200 stores with room for millions
    // of subjects.
    #![proptest_config(ProptestConfig::with_cases(6))]

    #[test]
    fn upper_bounds_never_overshoot_and_low_estimates_by_the_overage_alone(
        requests in requests(),
        low in 0..200_u64,
    ) {
        let total: u64 = requests.iter().map(|(_, _, known, late)| known + u64::from(*late)).sum();
        for (estimate, is_upper_bound) in [(None, true), (Some(low), false)] {
            for run in report(&requests, &POLICIES, settling(estimate)).unwrap().runs {
                prop_assert_eq!(run.admitted + run.denied, requests.len() as u64);
                prop_assert_eq!(run.cost_admitted + run.cost_denied, total);
                match run.way {
                    Way::Check => prop_assert_eq!((run.overage, run.idle_cost_seconds), (0, 0)),
                    Way::Fixed if is_upper_bound => {
                        // The interval of a bucket begins when a full bucket is charged. The meter
                        // charges less than the policy holds, so its bucket is full more often, and
                        // its refill can be later than the refill of the policy. Then the meter
                        // shows an overshoot of up to one refill.
                        let is_by_interval = run.policy.ends_with("by-interval");
                        let max_overshoot = if is_by_interval { 300 } else { 0 };
                        prop_assert!(run.overshoot <= max_overshoot, "{}: {}", run.policy, run.overshoot);
                        prop_assert_eq!(run.overage, 0);
                    }
                    // In the policy, the charge of an overage can begin a window or an interval. In
                    // the meter, the window or interval can begin at another time, so the overshoot
                    // has no exact bound.
                    _ if run.policy.ends_with("anchored") || run.policy.ends_with("by-interval") => {}
                    _ => {
                        prop_assert_eq!(run.overshoot, run.overshoot_of_overage, "{}", run.policy);
                        prop_assert!(run.overshoot <= run.overage, "{}", run.policy);
                    }
                }
            }
        }
    }
}

/// Replays ten minutes of three users of a language model. The log is generated. It has the format
/// of the traces of the Azure Public Dataset, and an additional column for the user.
#[test]
fn the_sample_of_a_language_model_is_replayed_like_this() {
    let sample = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../samples");
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("report.html");
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .current_dir(sample)
        .args(["replay", "llm.csv.gz", "--by", "User", "--cost", "ContextTokens"])
        .args(["--late-cost", "GeneratedTokens", "-p", "sliding-log 90000/1m grain 1s"])
        .args(["--html".as_ref(), page.as_os_str()])
        .env("COLUMNS", "100")
        .output()
        .unwrap();
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
    let table = String::from_utf8(output.stdout).unwrap();
    assert_eq!(
        table,
        "\
Read      llm.csv.gz (csv), 1,409 lines
Requests  1,409 from 3 subjects (by User), in order of time
Time      2026-11-02 09:00:02 to 09:09:59 UTC (9m 58s)
Cost      2,765,265 in all (ContextTokens+GeneratedTokens)

POLICY                         ADMITTED  DENIED   SHARE  OF COST  SUBJECTS  LONGEST WAIT
sliding-log 90000/1m grain 1s     1,165     244  17.3 %   27.9 %         2         19.7s

MOST DENIED SUBJECTS
sliding-log 90000/1m grain 1s
  173 of 600   28.8 %  ann
   71 of 264   26.9 %  bob

COST KNOWN AFTERWARDS
GeneratedTokens (147,351 in all) is known at the end, and comes at 50/1s.
check    admits while anything is left, and charges at the end
fixed    holds 1,200 for it, and settles at the end
learned  holds what covers 9/10 of past requests

sliding-log 90000/1m grain 1s
WAY      ADMITTED       COST  OVERSHOOT  OF OVERAGE  FALSELY DENIED   IDLE
check       1,128  2,040,708     24,271           0              39      0
fixed       1,160  1,966,110          0           0             180  3,484
learned     1,163  1,992,132      1,674       1,674              22    284

OVERSHOOT       maximum used beyond the limit, from the admission of a request
OF OVERAGE      part of it that is due to estimates that were too low
FALSELY DENIED  denied, although the usage at that time was within the limit
IDLE            held and not used, on average
"
    );
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("<h2 id=\"settling\">"), "the page has the plots");
}
