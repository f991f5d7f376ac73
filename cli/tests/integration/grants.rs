//! Tests the replay of grants together with a log.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, and so do its helpers")]

use std::io::Cursor;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};
use tempfile::TempDir;
use tidegate::replay::{Backend, Grants, Replay};
use tidegate::report::{GrantsReport, PolicyReport};
use tidegate::trace::{By, Input, Options, Order, TimeUnit, replay_in_order};
use tidegate_test_servers::{Redis, Reply};

/// A time in seconds.
const START: u64 = 1_700_000_000;

fn input(name: &str, text: String) -> Input {
    Input::once(name, Cursor::new(text.into_bytes()))
}

/// Reads grants, each with its time, its subject and its amount.
fn grants(grants: &[(u64, u8, u64)], lasts: Option<Duration>) -> Grants {
    let mut csv = "time,subject,amount\n".to_owned();
    for (time, subject, amount) in grants {
        csv += &format!("{},{subject},{amount}\n", START + time);
    }
    Grants::read(input("grants", csv), None, lasts).unwrap()
}

/// Replays requests, each with its time and its subject.
fn report(requests: &[(u64, u8)], policies: &[&str], grants: Grants) -> Vec<PolicyReport> {
    let mut csv = "time,subject\n".to_owned();
    for (time, subject) in requests {
        csv += &format!("{},{subject}\n", START + time);
    }
    let options = Options {
        by: By::Field("subject".into()),
        time_unit: Some(TimeUnit::Seconds),
        ..Options::default()
    };
    let policies: Vec<_> = policies.iter().map(|policy| policy.parse().unwrap()).collect();
    let replay = Replay::new(&policies, Backend::Memory, None, false, |_| {}).unwrap();
    let mut replay = replay.granting(Some(grants));
    let inputs = vec![input("requests", csv)];
    let summary = replay_in_order(inputs, &options, Order::Time, &mut replay).unwrap();
    replay.policies(&summary)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A request is admitted if and only if the credits and the earlier grants of its subject are
    /// not used up. The times of both files are not sorted.
    #[test]
    fn credits_and_earlier_grants_are_spent(
        requests in prop::collection::vec((0..50_u64, 0..3_u8), 0..60),
        payments in prop::collection::vec((0..50_u64, 0..4_u8, 1..9_u64), 0..12),
        credits in 1..5_u64,
    ) {
        let report = report(&requests, &[&format!("credits {credits}")], grants(&payments, None));
        let mut sorted = requests.clone();
        sorted.sort_by_key(|(time, _)| *time);
        let mut admitted: Vec<u8> = Vec::new();
        for (time, subject) in sorted {
            let earlier = payments.iter().filter(|payment| payment.0 <= time && payment.1 == subject);
            let total = credits + earlier.map(|payment| payment.2).sum::<u64>();
            let spent = admitted.iter().filter(|one| **one == subject).count() as u64;
            if spent < total {
                admitted.push(subject);
            }
        }
        prop_assert_eq!(report[0].admitted, admitted.len() as u64);
        let last = requests.iter().map(|(time, _)| *time).max().unwrap_or(0);
        let made = payments.iter().filter(|payment| !requests.is_empty() && payment.0 <= last);
        let found = report[0].grants.unwrap_or_default();
        prop_assert_eq!(found.made, made.clone().count() as u64);
        prop_assert_eq!(found.amount, made.map(|payment| payment.2).sum::<u64>());
    }
}

#[test]
fn a_grant_ends_and_only_quotas_get_it() {
    let requests = [(10, 1), (19, 1), (19, 1), (20, 1), (20, 1)];
    let policies = ["credits 1", "fixed-window 1/1d"];
    // The grant of 10 s to 20 s pays for the first three requests, and the credit for the fourth.
    let reports =
        report(&requests, &policies, grants(&[(10, 1, 9)], Some(Duration::from_secs(10))));
    assert_eq!((reports[0].admitted, reports[1].admitted), (4, 1));
    // A later grant could admit the last request.
    assert_eq!(reports[0].never, 0);
    assert_eq!(reports[0].grants, Some(GrantsReport { amount: 9, made: 1, refused: 0 }));
    assert_eq!(reports[1].grants, None);
}

#[test]
fn a_seventeenth_open_grant_is_refused() {
    let many: Vec<_> = (0..17).map(|time| (time, 1, 2)).collect();
    let reports = report(&[(99, 1)], &["credits 1"], grants(&many, Some(Duration::from_secs(99))));
    assert_eq!(reports[0].grants, Some(GrantsReport { amount: 32, made: 16, refused: 1 }));
}

#[test]
fn an_invalid_file_of_grants_is_named() {
    for (csv, wanted) in [
        ("time,subject\n1700000000,1\n", "no field `amount`"),
        ("time,subject,amount\n1700000000,a,0\n", "the amount of a grant to `a` is 0"),
        ("time,subject,amount\n1700000000,a,-1\n", "is below 0"),
        ("time,subject,amount\n1700000000,a,4503599627370497\n", "4503599627370496"),
        ("time,subject,amount\n1700000000,-,7\n", "a grant has no subject"),
        ("time,subject,amount\n1700000000,a,7\nnever,a,7\n", "payments"),
    ] {
        let error = Grants::read(input("payments", csv.to_owned()), None, None).unwrap_err();
        assert!(error.contains("payments") && error.contains(wanted), "{error}");
    }
}

/// A folder with a log and a file of grants.
struct Files {
    _folder: TempDir,
    log: PathBuf,
    grants: PathBuf,
}

impl Files {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let [log, grants] = ["log.csv", "grants.csv"].map(|name| folder.path().join(name));
        std::fs::write(&log, "time,subject\n12,a\n12,a\n13,b\n14,a\n15,a\n").unwrap();
        // The last grant is after the log, so it is not made.
        std::fs::write(&grants, "time,subject,amount\n11,c,5\n14,a,1\n16,a,9\n").unwrap();
        Self { _folder: folder, log, grants }
    }

    fn replay(&self, options: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command.arg("replay").arg(&self.log).args(["--time-unit", "s", "--by", "subject"]);
        command.args(options).output().unwrap()
    }

    fn with_grants(&self, options: &[&str]) -> Output {
        let grants = self.grants.to_str().unwrap();
        self.replay(&[&["-p", "credits 1", "--grants", grants], options].concat())
    }
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap()
}

#[test]
fn the_program_replays_a_file_of_grants() {
    let files = Files::new();
    let page = files.log.with_extension("html");
    let output = files.with_grants(&["--json", "--html", page.to_str().unwrap()]);
    assert!(output.status.success(), "{}", text(output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["policies"][0]["admitted"], 3);
    assert_eq!(report["policies"][0]["grants"], json!({"amount": 6, "made": 2, "refused": 0}));
    assert!(std::fs::read_to_string(&page).unwrap().contains("Grants refused"));
    let table = text(files.with_grants(&[]).stdout);
    assert!(table.contains("credits 1: 2 grants of 6 in all\n"), "{table}");

    let grants = files.grants.to_str().unwrap();
    for (options, wanted) in [
        (&["--grants", grants][..], "--grants needs a quota or credits"),
        (&["-p", "credits 1", "--grants-last", "1d"], "--grants"),
        (&["-p", "credits 1", "--grants", "-", "-"], "cannot both be standard input"),
        (&["-p", "credits 1", "--grants", grants, "--html", grants], "would overwrite"),
    ] {
        let output = files.replay(options);
        assert_eq!(output.status.code(), Some(2), "{options:?}");
        let message = text(output.stderr);
        assert!(message.contains(wanted), "{options:?}: {message}");
    }
}

#[tokio::test]
async fn grants_on_a_server_have_the_same_result_and_leave_only_ids() {
    let server = Redis::start().await.unwrap();
    let files = Files::new();
    let [memory, redis] =
        ["memory".to_owned(), server.url()].map(|store| files.with_grants(&["--store", &store]));
    assert!(redis.status.success(), "{}", text(redis.stderr));
    assert_eq!(text(redis.stdout), text(memory.stdout));
    let Reply::List(keys) = server.command(&["KEYS", "*"]).await.unwrap() else { panic!() };
    assert_eq!(keys.len(), 2, "one id of each grant");
    for key in keys {
        let life = server.command(&["TTL", &key.text()]).await.unwrap();
        assert!(matches!(life, Reply::Integer(1..=3_700)), "{life:?}");
    }
}
