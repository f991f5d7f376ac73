//! Tests the program as a user sees it: its output, its exit codes, its pipes.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn tidegate(arguments: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    // If the program ends before it has read all input, the write fails. The helper ignores this
    // error.
    let feeder = std::thread::spawn(move || stdin.write_all(&input).is_ok());
    let output = child.wait_with_output().unwrap();
    feeder.join().unwrap();
    output
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Returns a log with ten requests of one address within one second, and one request of another
/// address a minute later.
fn log() -> Vec<u8> {
    let line = |ip: &str, time: &str| {
        format!("{ip} - - [17/May/2015:{time} +0000] \"GET / HTTP/1.1\" 200 7\n")
    };
    let mut log: String = (0..10).map(|_| line("192.0.2.1", "10:00:00")).collect();
    log += &line("2001:db8::1", "10:01:00");
    log.into_bytes()
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn sample() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../samples/shop.log.zst")
}

#[test]
fn a_log_on_standard_input_becomes_a_table() {
    let output =
        tidegate(&["replay", "-", "-p", "fixed-window 4/1m", "-p", "gcra 1/1s burst 2"], &log());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let table = text(&output.stdout);
    let line = table.lines().find(|line| line.starts_with("fixed-window 4/1m")).unwrap();
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(words[2..4], ["5", "6"], "admitted and denied in {line}");
    assert!(table.contains("192.0.2.1"), "{table}");
    assert!(output.stderr.is_empty(), "no progress bar if standard error is not a terminal");
}

#[test]
fn json_carries_the_same_numbers_and_where_the_time_is_spent_waiting() {
    let found = json(&tidegate(&["replay", "-", "--json", "-p", "gcra 1/10s burst 2"], &log()));
    assert_eq!(found["version"], 1);
    assert_eq!(found["source"]["requests"], 11);
    assert_eq!(found["source"]["subjects"], 2);
    let policy = &found["policies"][0];
    assert_eq!((&policy["admitted"], &policy["denied"]), (&3.into(), &8.into()));
    assert_eq!(policy["max_wait_us"], 10_000_000);
    assert_eq!(policy["offenders"][0]["subject"], "192.0.2.1");
    let steps = |name: &str| -> u64 {
        policy["timeline"][name].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).sum()
    };
    assert_eq!((steps("admitted"), steps("denied")), (3, 8));
}

#[test]
fn without_a_policy_six_of_one_limit_are_compared() {
    let found = json(&tidegate(&["replay", "-", "--json", "--limit", "3/1m"], &log()));
    let policies = found["policies"].as_array().unwrap();
    assert_eq!(policies.len(), 6);
    assert!(policies.iter().all(|policy| policy["policy"].as_str().unwrap().contains(" 3/1m")));
}

#[test]
fn decisions_are_written_as_ones_and_zeros_a_line_per_policy() {
    let folder = folder();
    let path = folder.path().join("decisions");
    let file = path.to_str().unwrap();
    tidegate(&["replay", "-", "-p", "fixed-window 4/1m", "--decisions", file], &log());
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "11110000001");
    let two = ["-p", "fixed-window 4/1m", "-p", "fixed-window 0/1m"];
    tidegate(&[&["replay", "-", "--decisions", file][..], &two].concat(), &log());
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "11110000001\n00000000000");
}

#[test]
fn lines_out_of_order_are_replayed_in_order_of_time_from_a_pipe_too() {
    let lines = "time,ip\n10,a\n12,a\n11,a\n";
    let arguments = ["replay", "-", "--time-unit", "s", "-p", "fixed-window 1/2s anchored"];
    let folder = folder();
    let path = folder.path().join("decisions");
    let decisions = ["--decisions", path.to_str().unwrap()];
    let output = tidegate(&[&arguments[..], &decisions].concat(), lines.as_bytes());
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "101");
    tidegate(&[&arguments[..], &decisions, &["--order", "file"]].concat(), lines.as_bytes());
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "110");
}

#[test]
fn costs_of_several_fields_add_up() {
    let csv =
        "TIMESTAMP,In,Out\n2023-11-16 18:17:03.9799600,40,10\n2023-11-16 18:17:04.0319600,45,6\n";
    let arguments =
        ["replay", "-", "--cost", "In+Out", "--by", "all", "--json", "-p", "sliding-log 100/1m"];
    let found = json(&tidegate(&arguments, csv.as_bytes()));
    assert_eq!(found["source"]["cost"], 101);
    assert_eq!(found["source"]["first_us"], 1_700_158_623_979_960_u64);
    assert_eq!(found["policies"][0]["cost_admitted"], 50);
    assert_eq!(found["policies"][0]["cost_denied"], 51);
}

#[test]
fn suggested_limits_are_the_smallest_that_do() {
    let path = sample();
    let log = path.to_str().unwrap();
    let found = json(&tidegate(&["replay", log, "--json", "--suggest", "99"], b""));
    let suggestions = found["suggestions"].as_array().unwrap();
    assert_eq!(suggestions.len(), 4);
    for suggestion in suggestions {
        let (limit, subjects) =
            (suggestion["limit"].as_u64().unwrap(), found["source"]["subjects"].as_u64().unwrap());
        let text = suggestion["policy"].as_str().unwrap();
        let smaller = text.replace(&format!(" {limit}"), &format!(" {}", limit - 1));
        let found = json(&tidegate(&["replay", log, "--json", "-p", text, "-p", &smaller], b""));
        let content =
            |place: usize| subjects - found["policies"][place]["subjects_denied"].as_u64().unwrap();
        assert_eq!(content(0), suggestion["subjects_content"], "{text}");
        assert!(content(0) * 100 >= subjects * 99, "{text}");
        assert!(content(1) * 100 < subjects * 99, "{smaller} would do as well");
    }
}

/// With large costs, a policy counts time in ticks longer than a microsecond, and a log has too
/// many records.
#[test]
fn suggested_limits_of_large_costs_are_policies_that_deny_nothing() {
    let records = [
        &["2023-11-14T22:14:00Z,100000000", "2023-11-14T22:15:30.000001Z,60000000"][..],
        &[
            "2023-11-14T22:14:00.000001Z,123456789",
            "2023-11-14T22:14:07.000003Z,198765432",
            "2023-11-14T22:14:45.000007Z,151515151",
            "2023-11-14T22:15:20.000013Z,87654321",
            "2023-11-14T22:15:59.999999Z,161616161",
        ],
    ];
    for records in records {
        let lines = records.iter().map(|record| record.replace(',', ",alice,"));
        let csv = format!("time,subject,bytes\n{}\n", lines.collect::<Vec<_>>().join("\n"));
        let arguments = ["replay", "-", "--json", "--by", "subject", "--cost", "bytes"];
        let suggest = [&arguments[..], &["--suggest", "100"]].concat();
        let found = json(&tidegate(&suggest, csv.as_bytes()));
        let suggestions = found["suggestions"].as_array().unwrap();
        assert_eq!(suggestions.len(), 3, "{suggestions:?}");
        for suggestion in suggestions {
            let policy = suggestion["policy"].as_str().unwrap();
            let replay = [&arguments[..], &["-p", policy]].concat();
            let found = json(&tidegate(&replay, csv.as_bytes()));
            assert_eq!(found["policies"][0]["subjects_denied"], 0, "{policy}");
        }
    }
}

#[test]
fn a_page_is_written_beside_the_table() {
    let folder = folder();
    let path = folder.path().join("report.html");
    let arguments = ["replay", "-", "--limit", "3/1m", "--html", path.to_str().unwrap()];
    let output = tidegate(&arguments, &log());
    assert!(output.status.success());
    let page = std::fs::read_to_string(path).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") || page.starts_with("<!doctype html>"));
    assert!(page.contains("192.0.2.1"));
}

#[test]
fn bad_usage_ends_with_2_and_points_at_what_is_wrong() {
    for (arguments, says) in [
        (&["replay"][..], "<FILE>"),
        (&["replay", "-", "-p", "slidinglog 5/1m"], "did you mean `sliding-log`?"),
        (&["replay", "-", "--suggest", "101"], "`101` is not a share"),
        (&["replay", "-", "--limit", "x/1m"], "`x` is not a whole number"),
        (&["replay", "-", "--order", "random"], "possible values: time, file"),
        (&["replay", "-", "--store", "redis"], "a store is `memory`, the URL"),
        (&["replay", "-", "--store", "redis://[::1"], "URL"),
        (&["replay", "-", "--suggest", "99", "--window", "0s"], "at least 1us"),
        (&["replay", "-", "--estimate", "5"], "--late-cost <FIELDS>"),
        (
            &["replay", "-", "--late-cost", "1"],
            "the late cost is 1; it must be the name of a field",
        ),
        (&["replay", "-", "--late-cost", "a", "--pace", "0/1s"], "a count above 0 in a time"),
        (&["replay", "-", "--late-cost", "a", "--cover", "9"], "`9` is not a share"),
    ] {
        let output = tidegate(arguments, b"");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(text(&output.stderr).contains(says), "{arguments:?}: {}", text(&output.stderr));
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn bad_input_ends_with_1_and_names_the_file() {
    for (arguments, input, says) in [
        (
            &["replay", "/nowhere/access.log"][..],
            &b""[..],
            "/nowhere/access.log: cannot be opened: No such file",
        ),
        (&["replay", "."], b"", ".: cannot be read: Is a directory"),
        // This zstd frame requires a window of 2 GiB, which the decoder refuses.
        (&["replay", "-"], b"\x28\xb5\x2f\xfd\x00\xa8\x01\x00\x00", "unpacked: "),
        (&["replay", "-"], b"\x1f\x8b\x08\x00", "standard input: the gzip data stops"),
        (&["replay", "-", "--cost", "tokens"], b"time,ip\n2020-01-01,a\n", "ip"),
        (&["replay", "-"], b"time,ip\nnever,a\n", "no line could be parsed"),
        // No server listens on this port.
        (
            &["replay", "-", "--store", "redis://127.0.0.1:1"],
            b"time,ip\n2020-01-01,a\n",
            "unavailable",
        ),
        (&["replay", "-", "--strict"], b"time,ip\n2020-01-01,a\nyesterday,a\n", "standard input:3"),
    ] {
        let output = tidegate(arguments, input);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {}", text(&output.stderr));
        assert!(text(&output.stderr).contains(says), "{arguments:?}: {}", text(&output.stderr));
    }
}

#[test]
fn malformed_lines_are_counted_shown_and_passed_over() {
    let mut log = log();
    log.extend(b"192.0.2.1 - - [99/Foo/2015] \x1b[2J\n".repeat(7));
    let output = tidegate(&["replay", "-", "--json"], &log);
    assert!(output.status.success());
    let found = json(&output);
    assert_eq!(
        (&found["source"]["malformed"], &found["source"]["requests"]),
        (&7.into(), &11.into())
    );
    let told = text(&output.stderr);
    assert!(told.contains("7 malformed lines; the first 5"), "{told}");
    assert!(told.contains("standard input:12: ") && !told.contains('\u{1b}'), "{told}");
}

#[test]
fn an_empty_input_is_no_error_but_is_reported() {
    let output = tidegate(&["replay", "-", "--suggest", "99.9"], b"");
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("there is no request in the input"));
}

#[test]
fn a_broken_pipe_is_quiet() {
    for arguments in [&["replay", "-", "--json"][..], &["scripts", "batch"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        let input = folder();
        let path = input.path().join("access.log");
        std::fs::write(&path, log()).unwrap();
        command.args(arguments).stdin(std::fs::File::open(&path).unwrap()).stdout(writer);
        let output = command.stderr(Stdio::piped()).spawn().unwrap().wait_with_output().unwrap();
        assert!(output.status.success(), "{arguments:?}");
        assert_eq!(text(&output.stderr), "");
    }
}

#[test]
fn a_password_is_never_printed_and_may_come_from_the_environment() {
    for store in [
        "redis://user:S3CRET@[::1",
        "redis://user:S3CRET@host/x",
        "redis://user:S3CRET@host:99999",
        "Redis://user:S3CRET@host",
        "redis-sentinel://user:S3CRET@host",
        "redis-cluster://user:S3CRET@host/3",
        "rediss-cluster://user:S3CRET@host/3",
        "user:S3CRET@host",
    ] {
        for arguments in [&["replay", "-", "--store", store][..], &["replay", "-", "--store"]] {
            let joined = format!("--store={store}");
            let arguments = match arguments {
                ["replay", "-", "--store"] => vec!["replay", "-", &joined],
                all => all.to_vec(),
            };
            let output = tidegate(&arguments, b"");
            let told = text(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{store}: {told}");
            assert!(told.contains("--store "), "{store}: {told}");
            assert!(!told.contains("S3CRET"), "{store}: {told}");
        }
    }
}

#[test]
fn an_input_is_never_overwritten() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (input, link, hard) = (path("access.log"), path("link"), path("hard"));
    std::fs::write(&input, log()).unwrap();
    std::os::unix::fs::symlink(&input, &link).unwrap();
    std::fs::hard_link(&input, &hard).unwrap();
    let new = path("new");
    let also_new = format!("{}/./new", folder.path().display());
    let other = path("other.log");
    std::fs::write(&other, log()).unwrap();
    for arguments in [
        &["--html", &input, &input][..],
        &["--decisions", &input, &other, &input],
        &["--html", &link, &input],
        &["--html", &hard, &input],
        &["--decisions", &input, &link],
        &["--html", &new, "--decisions", &new, &input],
        &["--html", &new, "--decisions", &also_new, &input],
        &["--html", &new, "--decisions", &input, &input],
    ] {
        let output = tidegate(&[&["replay"][..], arguments].concat(), b"");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", text(&output.stderr));
        assert_eq!(std::fs::read(&input).unwrap(), log(), "{arguments:?}");
        assert!(!std::path::Path::new(&new).exists(), "{arguments:?}");
    }
    // The log is the standard input, as in `tidegate replay - <access.log`.
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["replay", "-", "--html", &input])
        .stdin(std::fs::File::open(&input).unwrap())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    assert_eq!(std::fs::read(&input).unwrap(), log());
    // The program may overwrite existing files, and two options may write to the same device.
    for outputs in [
        ["--html", &other, "--decisions", &new],
        ["--html", "/dev/null", "--decisions", "/dev/null"],
    ] {
        let output = tidegate(&[&["replay", &input][..], &outputs].concat(), b"");
        assert!(output.status.success(), "{outputs:?}: {}", text(&output.stderr));
    }
}

#[test]
fn a_name_of_a_file_does_not_steer_the_terminal() {
    let folder = folder();
    let path = folder.path().join("\u{1b}[31mbad\n.log");
    let name = path.to_str().unwrap();
    let missing = tidegate(&["replay", name], b"");
    std::fs::write(&path, [&log()[..], b"bad line\n"].concat()).unwrap();
    let malformed = tidegate(&["replay", name], b"");
    let html = tidegate(&["replay", name, "--html", &format!("{name}/x")], b"");
    let overwritten = tidegate(&["replay", name, "--html", name], b"");
    for output in [missing, malformed, html, overwritten] {
        let told = text(&output.stderr);
        let is_escaped = told.contains("bad\\n.log") || told.contains("bad\\u{a}.log");
        assert!(is_escaped && !told.contains('\u{1b}'), "{told:?}");
    }
}

/// Regression test: if no field was known to be the subject, all requests were limited as one
/// subject. Only one word of the report showed it.
#[test]
fn a_subject_is_never_guessed_in_silence() {
    let csv = b"time,who\n2026-05-01,a\n2026-05-01,b\n";
    let output = tidegate(&["replay", "-"], csv);
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.contains("the fields are `time`, `who`") && told.contains("--by all"), "{told}");
    assert!(output.stdout.is_empty());
    for (by, subjects) in [("all", 1), ("who", 2)] {
        let found = json(&tidegate(&["replay", "-", "--json", "--by", by], csv));
        assert_eq!(found["source"]["subjects"], subjects);
        assert_eq!(found["source"]["by"], by);
    }
}

#[test]
fn requests_without_a_subject_are_reported() {
    let output = tidegate(&["replay", "-", "--by", "user"], &log());
    assert!(output.status.success());
    let told = "11 lines have no subject (`-` or nothing as the user) and are left out";
    assert!(text(&output.stderr).contains(told), "{}", text(&output.stderr));
    assert!(
        text(&output.stdout).contains("11 lines, 11 without a subject"),
        "{}",
        text(&output.stdout)
    );
}

#[test]
fn what_is_around_the_lines_is_named() {
    let log = text(&log()).replace("192.0.2.1 -", "web-1  | 192.0.2.1 -");
    let output = tidegate(&["replay", "-"], log.replace("2001:", "web-1  | 2001:").as_bytes());
    assert!(
        text(&output.stdout).contains("(log in compose), 11 lines"),
        "{}",
        text(&output.stdout)
    );
}

#[test]
fn a_file_half_of_whose_lines_are_malformed_is_a_failure_with_a_result() {
    for (bad, code, says) in [
        (1, 0, "tidegate: 1 malformed line:"),
        (10, 0, "10 malformed lines; the first 5"),
        (11, 1, "11 lines of 22 could not be parsed"),
    ] {
        let output = tidegate(&["replay", "-"], &[log(), b"bad line\n".repeat(bad)].concat());
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{told}");
        assert!(told.contains(says), "{told}");
        assert!(text(&output.stdout).contains("POLICY"), "the result is shown");
    }
}

#[test]
fn lines_of_no_known_format_are_read_by_a_pattern() {
    let lines = "[2026-05-01 10:00:00] from=192.0.2.1:80 cost 3\n".repeat(4);
    let pattern = r"^\[(?<time>[^]]+)\] from=(?<ip>\S+) cost (?<cost>\d+)";
    let arguments = ["replay", "-", "--json", "--pattern", pattern, "-p", "fixed-window 7/1m"];
    let found = json(&tidegate(&arguments, lines.as_bytes()));
    assert_eq!((&found["source"]["requests"], &found["source"]["cost"]), (&4.into(), &12.into()));
    assert_eq!(found["source"]["cost_of"], "cost");
    assert_eq!(found["policies"][0]["offenders"][0]["subject"], "192.0.2.1");
    assert_eq!(found["policies"][0]["admitted"], 2);
    let output = tidegate(&["replay", "-", "--pattern", "("], b"");
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn a_list_allows_and_denies_subjects_of_each_policy() {
    let folder = folder();
    let lists = folder.path().join("ip.txt");
    let lists_path = lists.to_str().unwrap();
    let arguments =
        ["replay", "--policy", "fixed-window 3/1m", "--json", "--lists", lists_path, "-"];
    for (text, admitted) in [
        ("", 4),
        ("allow 192.0.2.0/24\n", 11),
        ("deny 192.0.2.0/24\n", 1),
        ("deny 192.0.2.0/24\nallow 192.0.2.1\ndeny 2001:db8::/32", 10),
    ] {
        std::fs::write(&lists, text).unwrap();
        let output = tidegate(&arguments, &log());
        assert!(output.status.success(), "{}", self::text(&output.stderr));
        assert_eq!(json(&output)["policies"][0]["admitted"], admitted, "{text}");
        assert_eq!(json(&output)["policies"][0]["never"], 0, "a list denies subjects, not costs");
    }
    std::fs::write(&lists, "deny 192.0.2.1/24").unwrap();
    let output = tidegate(&arguments, &log());
    assert_eq!(output.status.code(), Some(2));
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.contains("ip.txt: line 1: the address `192.0.2.1` has bits"), "{message}");
}

#[test]
fn a_limit_set_replaces_the_policy_with_its_name() {
    let folder = folder();
    let set = folder.path().join("limits.txt");
    let set_path = set.to_str().unwrap();
    let replay = |policy: &str| {
        tidegate(&["replay", "--policy", policy, "--json", "--limit-set", set_path, "-"], &log())
    };
    for (text, admitted) in [
        ("", 4),
        ("other: fixed-window 9/1m\nip: fixed-window 2/1m", 3),
        ("ip: fixed-window 8/1m for subject 192.0.2.1", 9),
        ("ip: fixed-window 8/1m until 2000-01-01T00:00:00Z for subject 192.0.2.1", 4),
    ] {
        std::fs::write(&set, text).unwrap();
        let output = replay("ip: fixed-window 3/1m");
        assert!(output.status.success(), "{}", self::text(&output.stderr));
        assert_eq!(json(&output)["policies"][0]["admitted"], admitted, "{text}");
    }
    let message = String::from_utf8(replay("fixed-window 3/1m").stderr).unwrap();
    assert!(message.contains("`fixed-window 3/1m` has no name; give it one"), "{message}");
    std::fs::write(&set, "ip: fixed-window 8/1m for 192.0.2.1").unwrap();
    let output = replay("ip: fixed-window 3/1m");
    assert_eq!(output.status.code(), Some(2));
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(
        message.contains("limits.txt: line 1: `192.0.2.1` follows `for`; it must be"),
        "{message}"
    );
}

#[test]
fn two_limit_sets_are_compared_by_the_subjects_that_they_deny() {
    let folder = folder();
    let [before, after, page] = ["before.txt", "after.txt", "page.html"];
    let [before, after, page] = [before, after, page].map(|name| folder.path().join(name));
    let paths = [&after, &before, &page].map(|path| path.to_str().unwrap());
    std::fs::write(&before, "ip: fixed-window 9/1h\nold: gcra 1/s").unwrap();
    // The first subject sends ten requests within a second, and the others fewer.
    std::fs::write(&after, "ip: fixed-window 3/1h").unwrap();
    let sets = ["--limit-set", paths[0], "--limit-set-before", paths[1]];
    let replay = |more: &[&str]| tidegate(&[&["replay", "-"], &sets[..], more].concat(), &log());
    let report = json(&replay(&["--json"]));
    let policies = report["policies"].as_array().unwrap();
    let names = policies.iter().map(|policy| policy["policy"].as_str().unwrap());
    assert_eq!(names.collect::<Vec<_>>(), ["ip: fixed-window 3/1h", "old: gcra 1/1s burst 1"]);
    let [changed, same] = &policies[..] else { panic!() };
    let subject = &changed["compared"]["subjects"][0];
    assert_eq!(subject["subject"], "192.0.2.1");
    assert_eq!(subject["denied_before"], 1);
    assert_eq!(subject["denied"], 7);
    assert_eq!(changed["compared"]["denied_before"], 1);
    assert_eq!(same["compared"]["subjects_more"], 0);
    let output = replay(&["--html", paths[2]]);
    let table = text(&output.stdout);
    let line = "ip: fixed-window 3/1h: 0 subjects newly denied; 1 denied more often, 0 less often; \
                7 requests denied instead of 1\n";
    assert!(table.contains(line), "{table}");
    assert!(std::fs::read_to_string(&page).unwrap().contains(">Subjects newly denied</th>"));

    std::fs::write(&before, "ip: fixed-window 9/1h for subject x").unwrap();
    std::fs::write(&after, "").unwrap();
    let output = replay(&[]);
    assert_eq!(output.status.code(), Some(2));
    let message = text(&output.stderr);
    assert!(message.contains("the limit sets have only overrides"), "{message}");
    // With the policy of the program, an override is compared too.
    let with = replay(&["--json", "--policy", "ip: fixed-window 1/1h"]);
    assert_eq!(json(&with)["policies"][0]["compared"]["subjects_new"], 0);
}

#[test]
fn a_pool_pays_for_the_requests_that_a_policy_refuses() {
    let folder = folder();
    let page = folder.path().join("page.html");
    // The first subject sends ten requests within a second.
    let replay = |options: &[&str]| {
        tidegate(&[&["replay", "--policy", "fixed-window 3/1h", "-"], options].concat(), &log())
    };
    let alone = json(&replay(&["--json"]))["policies"][0].clone();
    assert!(alone["pool"].is_null());
    let denied = alone["denied"].as_u64().unwrap();
    for limit in [1, 3, 99] {
        let pool = format!("fixed-window {limit}/1h");
        let with = json(&replay(&["--json", "--pool", &pool]))["policies"][0].clone();
        let admitted = denied.min(limit);
        let expected = serde_json::json!(
            {"policy": pool, "admitted": admitted, "cost_admitted": admitted});
        assert_eq!(with["pool"], expected);
        assert_eq!(with["denied"], denied - admitted);
    }
    let options = ["--pool", "fixed-window 3/1h", "--html", page.to_str().unwrap()];
    let output = replay(&options);
    let table = text(&output.stdout);
    let own = alone["admitted"].as_u64().unwrap();
    let line = format!("fixed-window 3/1h: paid for {own} requests; fixed-window 3/1h for 3\n");
    assert!(table.contains(&line), "{table}");
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains(">Admitted by the pool</th>"), "{page}");
    let options = ["replay", "--policy", "gcra 1/s block 1m", "--pool", "gcra 9/s", "-"];
    let output = tidegate(&options, &log());
    assert_eq!(output.status.code(), Some(2));
    let message = text(&output.stderr);
    assert!(message.contains("a policy that blocks cannot be an alternative"), "{message}");
}

#[test]
fn requests_from_the_percentage_of_a_limit_on_are_counted() {
    let folder = folder();
    let page = folder.path().join("page.html");
    let options = ["--policy", "fixed-window 8/1m warn 75%", "--html", page.to_str().unwrap()];
    let run =
        |format: &[&str]| tidegate(&[&["replay", "-"], &options[..], format].concat(), &log());
    // The first subject sends ten requests within a second: five, and then five with a warning.
    let report = json(&run(&["--json"]));
    let expected = serde_json::json!({"requests": 5, "subjects": 1});
    assert_eq!(report["policies"][0]["warnings"], expected);
    let table = text(&run(&[]).stdout);
    assert!(table.contains("warn 75%: warned at 5 requests of 1 subject\n"), "{table}");
    assert!(std::fs::read_to_string(&page).unwrap().contains("Subjects warned"));
}

/// Each day of March 2026 has a request at 22:30 and one at 23:30 UTC. In Amsterdam, midnight is at
/// 23:00 UTC until March 28, and then at 22:00 UTC.
#[test]
fn the_log_of_a_month_shows_the_days_of_a_quota() {
    let mut log = String::new();
    for day in 1..=31 {
        for hour in [22, 23] {
            log += &format!(
                "192.0.2.1 - - [{day:02}/Mar/2026:{hour}:30:00 +0000] \"GET / HTTP/1.1\" 200 7\n"
            );
        }
    }
    let quota = "plan: quota 1/day in Europe/Amsterdam";
    let policies = ["--policy", quota, "--policy", "fixed-window 1/1d"];
    let run = |format: &[&str]| {
        tidegate(&[&["replay", "-"], &policies[..], format].concat(), log.as_bytes())
    };
    let report = json(&run(&["--json"]));
    let days = report["policies"][0]["days"].as_array().unwrap();
    assert_eq!(days.len(), 32);
    for (index, day) in days.iter().enumerate() {
        let (month, number) = if index < 31 { ("03", index + 1) } else { ("04", 1) };
        let denied = u64::from(number != 29 && index > 0);
        let expected = serde_json::json!({
            "date": format!("2026-{month}-{number:02}"), "admitted": 1, "denied": denied,
        });
        assert_eq!(*day, expected);
    }
    assert!(report["policies"][1].get("days").is_none(), "only quotas have days");
    let table = text(&run(&[]).stdout);
    assert!(table.contains("DAYS OF plan: quota 1/day in Europe/Amsterdam"), "{table}");
    assert!(table.contains("2026-03-29"), "{table}");
}
