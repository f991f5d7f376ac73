//! Tests the JSON document: its structure, its exact numbers, and that it is ASCII.

use proptest::prelude::*;
use serde_json::{Value, json};
use tidegate::report::{
    Fill, Offender, PolicyReport, Report, Source, Spread, Suggestion, Timeline, json,
};

use super::{arbitrary, fixtures};

fn document(report: &Report) -> String {
    let mut document = Vec::new();
    json::write(report, &mut document).expect("a vector takes everything");
    String::from_utf8(document).expect("ASCII")
}

fn small() -> Report {
    Report {
        source: Source {
            inputs: vec!["access.log".into()],
            formats: vec!["combined".into()],
            lines: 10,
            malformed: 1,
            without_subject: 0,
            requests: 9,
            cost: 9,
            subjects: 2,
            by: "ip".into(),
            cost_of: "1".into(),
            order: "time".into(),
            first: Some(fixtures::START),
            last: None,
        },
        policies: vec![PolicyReport {
            policy: "sliding-log 3/1m".into(),
            algorithm: "sliding-log".into(),
            admitted: 6,
            denied: 3,
            cost_admitted: 6,
            cost_denied: u64::MAX,
            never: 0,
            subjects_denied: 1,
            max_wait: Some(59_000_000),
            offenders: vec![Offender { subject: "2001:db8::1".into(), requests: 6, denied: 3 }],
            days: vec![],
            shares: None,
            grants: None,
            warnings: None,
            pool: None,
            compared: None,
            timeline: Timeline {
                start: fixtures::START,
                step: 5_000_000,
                admitted: vec![4, 2],
                denied: vec![1, 2],
            },
        }],
        suggestions: vec![Suggestion {
            algorithm: "sliding-log".into(),
            policy: "sliding-log 6/1m".into(),
            limit: 6,
            asked: "99.9".into(),
            subjects_content: 2,
            subjects: 2,
        }],
        settling: None,
        slots: None,
        leased: None,
    }
}

#[test]
fn the_document_has_the_shape_that_is_promised() {
    let document: Value = serde_json::from_str(&document(&small())).unwrap();
    assert_eq!(
        document,
        json!({
            "version": 1,
            "source": {
                "inputs": ["access.log"], "formats": ["combined"],
                "lines": 10, "malformed": 1, "without_subject": 0, "requests": 9, "cost": 9, "subjects": 2,
                "by": "ip", "cost_of": "1", "order": "time",
                "first_us": 1_762_128_000_000_000_u64, "last_us": null,
            },
            "policies": [{
                "policy": "sliding-log 3/1m", "algorithm": "sliding-log",
                "admitted": 6, "denied": 3, "cost_admitted": 6, "cost_denied": u64::MAX,
                "never": 0, "subjects_denied": 1, "max_wait_us": 59_000_000,
                "offenders": [{"subject": "2001:db8::1", "requests": 6, "denied": 3}],
                "timeline": {
                    "start_us": 1_762_128_000_000_000_u64, "step_us": 5_000_000,
                    "admitted": [4, 2], "denied": [1, 2],
                },
            }],
            "suggestions": [{
                "algorithm": "sliding-log", "policy": "sliding-log 6/1m", "limit": 6,
                "asked": "99.9", "subjects_content": 2, "subjects": 2,
            }],
        })
    );
}

#[test]
fn costs_that_are_known_afterwards_have_the_shape_that_is_promised() {
    let mut report = fixtures::settling();
    let settling = report.settling.as_mut().unwrap();
    settling.runs.truncate(1);
    settling.runs[0].fill =
        Fill { start: fixtures::START, step: 5_000_000, used: vec![410, 0], idle: vec![300, 0] };
    let document: Value = serde_json::from_str(&document(&report)).unwrap();
    assert_eq!(
        document["settling"],
        json!({
            "late_cost_of": "GeneratedTokens", "late_cost": 147_351, "pace": "50/1s", "estimate": 1_200,
            "cover": "9/10",
            "runs": [{
                "policy": "sliding-log 90000/1m grain 1s", "limit": 90_000, "way": "check",
                "admitted": 1_128, "denied": 281, "cost_admitted": 2_040_708, "cost_denied": 724_557,
                "overshoot": 24_271, "overshoot_of_overage": 0, "overage": 9_000, "falsely_denied": 39,
                "idle_cost_s": 0, "idle_cost": 0,
                "fill": {
                    "start_us": 1_762_128_000_000_000_u64, "step_us": 5_000_000,
                    "used": [410, 0], "idle": [300, 0],
                },
            }],
        })
    );
}

#[test]
fn shares_have_the_shape_that_is_promised() {
    let document: Value = serde_json::from_str(&document(&fixtures::sharing())).unwrap();
    assert_eq!(
        document["policies"][0]["shares"],
        json!({
            "subjects": 1_203, "demand": 100_000, "admitted": 49_000, "windows": 1_440,
            "windows_refused": 12,
            "members": [
                {"subject": "acme", "demand": 90_000, "admitted": 40_000},
                {"subject": "globex", "demand": 1_200, "admitted": 1_200},
                {"subject": "initech", "demand": 900, "admitted": 0},
            ],
        })
    );
}

#[test]
fn leases_have_the_shape_that_is_promised() {
    let mut report = fixtures::leased();
    let leased = report.leased.as_mut().unwrap();
    leased.runs.truncate(1);
    let (admitted, denied) = (leased.runs[0].admitted, leased.runs[0].denied);
    let shown: Value = serde_json::from_str(&document(&report)).unwrap();
    assert_eq!(
        shown["leased"],
        json!({
            "nodes": 8, "seed": null, "span": "1s", "share": "1/200", "hot_after": 32, "sliding": false,
            "runs": [{
                "policy": "fixed-window 60/1m", "admitted": admitted, "denied": denied,
                "cost_admitted": admitted, "cost_denied": denied, "denied_without": denied - 7,
                "denied_too_early": 9, "cost_denied_too_early": 9, "admitted_instead": 2,
                "from_chunks": 100_000, "store_calls": 78_000, "chunks": 1_200, "chunks_not_granted": 3,
                "granted": 101_000, "given_back": 950, "stranded": 50,
            }],
        })
    );
    report.leased.as_mut().unwrap().spread = Spread::Seed(7);
    let shown: Value = serde_json::from_str(&document(&report)).unwrap();
    assert_eq!(shown["leased"]["seed"], 7);
}

#[test]
fn the_version_comes_first_and_a_line_is_a_document() {
    let document = document(&small());
    assert!(document.starts_with("{\"version\":1,\"source\":{"));
    assert!(document.ends_with("]}\n"));
    assert_eq!(document.lines().count(), 1);
}

#[test]
fn large_numbers_stay_integers() {
    assert!(document(&small()).contains("\"cost_denied\":18446744073709551615,"));
}

#[test]
fn a_broken_pipe_is_told_as_one() {
    struct Closed;
    impl std::io::Write for Closed {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let error = json::write(&small(), &mut Closed).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_report_is_printable_ascii_that_reads_back_as_it_was(report in arbitrary::report()) {
        let document = document(&report);
        let line = document.strip_suffix('\n').unwrap();
        prop_assert!(line.bytes().all(|byte| matches!(byte, b' '..=b'~')));
        let read: Value = serde_json::from_str(line).unwrap();
        let inputs: Vec<_> = read["source"]["inputs"].as_array().unwrap().iter().collect();
        prop_assert_eq!(inputs, report.source.inputs.iter().collect::<Vec<_>>());
        for (read, policy) in read["policies"].as_array().unwrap().iter().zip(&report.policies) {
            prop_assert_eq!(&read["policy"], &policy.policy);
            prop_assert_eq!(&read["denied"], policy.denied);
            prop_assert_eq!(&read["timeline"]["denied"], &json!(policy.timeline.denied));
        }
    }
}
