//! Tests the replay of requests that take time against policies of slots.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, and so do its helpers")]

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use proptest::prelude::*;
use serde_json::Value;
use tidegate::replay::{Backend, Replay, Slots};
use tidegate::report::SlotsReport;
use tidegate::trace::{By, Duration, Input, Options, Order, TimeUnit, replay_in_order};

/// A time in milliseconds at which a minute begins.
const START: u64 = 1_700_000_040_000;

/// A request: its time after the start in milliseconds, its subject, its cost, and its duration in
/// milliseconds.
type Request = (u64, u8, u64, u64);

fn report(requests: &[Request], policies: &[&str]) -> SlotsReport {
    let mut csv = "time,subject,cost,took\n".to_owned();
    for (time, subject, cost, took) in requests {
        csv += &format!("{},{subject},{cost},{took}\n", START + time);
    }
    let options = Options {
        by: By::Field("subject".into()),
        cost: "cost".parse().unwrap(),
        duration: Some(Duration { field: "took".into(), unit: TimeUnit::Milliseconds }),
        time_unit: Some(TimeUnit::Milliseconds),
        ..Options::default()
    };
    let policies = policies.iter().map(|policy| policy.parse().unwrap()).collect();
    let slots = Slots { policies, duration_of: "took".into() };
    let replay = Replay::new(&[], Backend::Memory, None, false, |_| {}).unwrap();
    let mut replay = replay.slots(Some(slots));
    let inputs = vec![Input::once("requests", std::io::Cursor::new(csv.into_bytes()))];
    let summary = replay_in_order(inputs, &options, Order::Time, &mut replay).unwrap();
    assert_eq!(summary.malformed, 0);
    replay.slots_report(&summary).unwrap().unwrap()
}

#[test]
fn a_request_takes_its_slots_until_its_duration_is_over() {
    let requests = [
        (0, 1, 1, 100),
        (50, 1, 1, 50),
        (60, 2, 1, 9),
        (99, 1, 1, 7),
        (100, 1, 2, 1),
        (100, 1, 1, 5),
    ];
    let report = report(&requests, &["concurrent 2 lease 1ms", "concurrent 9 lease 30s"]);
    let [two, nine] = &report.runs[..] else { panic!("{report:?}") };
    // The lease of a millisecond does not matter, because a holder renews its slots.
    assert_eq!((two.admitted, two.denied, two.subjects_denied, two.peak), (4, 2, 1, 2));
    assert_eq!((nine.admitted, nine.denied, nine.subjects_denied, nine.peak), (6, 0, 0, 4));
    // At 100 ms, two requests end before two others begin, and the request of 99 ms still runs.
    assert_eq!(report.peak_wanted, 4);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A slow second implementation looks at all admitted requests.
    #[test]
    fn a_request_is_admitted_if_and_only_if_its_slots_are_free(
        requests in prop::collection::vec((0..200_u64, 0..3_u8, 0..4_u64, 0..60_u64), 0..60),
        limit in 0..6_u64,
    ) {
        let report = report(&requests, &[&format!("concurrent {limit} lease 30s")]);
        let mut sorted = requests.clone();
        sorted.sort_by_key(|(time, ..)| *time);
        let (mut admitted, mut peaks): (Vec<Request>, BTreeMap<u8, u64>) = Default::default();
        for (time, subject, cost, took) in sorted {
            let running = |(began, other, _, took): &&Request| {
                *other == subject && began + took > time
            };
            let used: u64 = admitted.iter().filter(running).map(|(_, _, cost, _)| cost).sum();
            if cost == 0 || used + cost <= limit {
                admitted.push((time, subject, cost, took));
                let peak = peaks.entry(subject).or_default();
                *peak = used.saturating_add(cost).max(*peak);
            }
        }
        prop_assert_eq!(report.runs[0].admitted, admitted.len() as u64);
        prop_assert_eq!(report.runs[0].peak, peaks.into_values().max().unwrap_or(0));
    }
}

/// nginx writes `$request_time` in seconds with three decimals.
#[test]
fn the_program_reads_durations_with_fractions_and_compares_slots_with_rates() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("requests.csv");
    let lines = ["0,a,0.250", "100,a,0.1", "200,a,0.001", "260,a,1", "300,b,x", "400,b,-1"];
    let lines = lines.map(|line| {
        let (time, rest) = line.split_once(',').unwrap();
        format!("{},{rest}\n", START + time.parse::<u64>().unwrap())
    });
    fs::write(&log, "time,subject,request_time\n".to_owned() + &lines.concat()).unwrap();
    let run = |more: &[&str]| {
        let mut program = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        program.args(["replay", "--by", "subject", "--duration", "request_time"]).arg(&log);
        program
            .args(["--duration-unit", "s", "-p", "concurrent 1 lease 30s"])
            .args(more)
            .output()
            .unwrap()
    };
    let output = run(&["-p", "fixed-window 2/1m", "--json"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let report: Value = serde_json::from_str(&text).unwrap();
    let slots = &report["slots"]["runs"][0];
    assert_eq!((&slots["admitted"], &slots["denied"]), (&2.into(), &2.into()), "{text}");
    assert_eq!(report["policies"][0]["admitted"], 2, "{text}");
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.contains("the duration `x` of `request_time` is not a number"), "{errors}");
    assert!(errors.contains("the duration `-1` of `request_time` is below 0"), "{errors}");
    let table = String::from_utf8(run(&[]).stdout).unwrap();
    assert!(table.contains("REQUESTS AT A TIME"), "{table}");
    let page = folder.path().join("page.html");
    let page_argument = page.to_str().unwrap();
    let html = run(&["-p", "fixed-window 2/1m", "--html", page_argument]);
    assert!(html.status.success(), "{}", String::from_utf8_lossy(&html.stderr));
    assert!(fs::read_to_string(page).unwrap().contains("Requests at a time"));
}
