//! Runs each benchmark for a short time, and checks that its report is complete, regardless of its
//! figures. Some tests need the tidegate-server that `./test` builds, or the program that
//! TIDEGATE_SERVER names.

#![allow(clippy::expect_used, reason = "a test fails by panicking, and so do its helpers")]

use std::process::Command;

fn report_of(arguments: &[&str]) -> String {
    let mut program = Command::new(env!("CARGO_BIN_EXE_tidegate-bench"));
    let output = program.args(arguments).output().expect("it starts");
    let report = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{report}\n{}", String::from_utf8_lossy(&output.stderr));
    report.into_owned()
}

/// Rows of throttlecrab are measured only if throttlecrab is installed, and rows of leases only if
/// the server accepts the limit.
#[test]
fn a_short_comparison_measures_each_row_and_judges_none() {
    let report = report_of(&["compare", "--short"]);
    let (table, noise) = report.split_once("\n\n").unwrap();
    assert!(noise.contains(" % of the time"), "{report}");
    let rows: Vec<Vec<_>> = table.lines().skip(2).map(|line| line.split(" | ").collect()).collect();
    assert_eq!(rows.len(), 20, "{report}");
    for row in rows {
        let [load, measured, wanted, verdict] = row[..] else { panic!("{row:?} in {report}") };
        assert!(wanted.starts_with(['≤', '≥']), "{report}");
        if measured.is_empty() {
            let may_be_missing = ["throttlecrab", "leased"].iter().any(|word| load.contains(word));
            assert!(may_be_missing && verdict.starts_with("not measured: "), "{report}");
        } else {
            assert_eq!(verdict.trim_end_matches('|').trim(), "", "{report}");
        }
    }
}

#[test]
fn the_table_of_growth_has_a_row_for_each_number() {
    let tiny = ["--rounds", "1", "--millis", "20", "--decisions", "1000", "--max", "1000"];
    let report = report_of(&[&["growth"], &tiny[..]].concat());
    for (what, rows) in [
        ("subjects in", 1),
        ("limits", 4),
        ("overrides", 4),
        ("connections", 4),
        ("threads that check", 8),
        ("worker threads", 4),
        ("charges", 14),
    ] {
        let is_row = |line: &&str| line.split('|').nth(2).is_some_and(|cell| cell.contains(what));
        assert_eq!(report.lines().filter(is_row).count(), rows, "{what} in {report}");
    }
    for line in report.lines().filter(|line| line.contains("not measured")) {
        assert!(line.starts_with("| 1000 | connections"), "{report}");
        assert!(line.contains("the limit of open files is"), "{report}");
    }
}

#[test]
fn the_benchmark_of_redis_measures_everybody_and_judges_every_ratio() {
    let report = report_of(&["redis", "--rounds", "1", "--calls", "200", "--subjects", "20"]);
    let rows = |text: &str| report.lines().filter(|line| line.starts_with(text)).count();
    for heading in ["## 1 caller on", "## 64 callers", "## 512 callers", "## Batches", "## Memory"]
    {
        assert_eq!(rows(heading), 1, "{heading} in {report}");
    }
    // Each contender has a row for allowed calls and for denied calls at 1, 64 and 512 callers, and
    // a row for its memory.
    for name in ["**sliding log** of 100 ", "sorted set of 10,000 ", "widely used GCRA script "] {
        assert_eq!(rows(&format!("| {name}|")), 7, "{name} in {report}");
    }
    assert_eq!(rows("- met") + rows("- NOT MET"), 23, "{report}");
}

#[test]
fn the_benchmark_of_the_deny_cache_measures_each_load_with_and_without_it() {
    let report = report_of(&["denied", "--rounds", "1", "--calls", "2000", "--callers", "4"]);
    let rows = |text: &str| report.lines().filter(|line| line.contains(text)).count();
    assert_eq!(rows("tenth within their limits") + rows("tenfold"), 3, "{report}");
    assert!(rows("| 90.00 % |") >= 2, "{report}");
    assert_eq!(rows("met: ") + rows("NOT MET: "), 1, "{report}");
}

#[test]
fn the_benchmark_of_holds_measures_each_algorithm_and_judges_both_ratios() {
    let report = report_of(&["holds", "--rounds", "1", "--calls", "200", "--subjects", "20"]);
    assert_eq!(report.lines().filter(|line| line.contains("| × ")).count(), 7, "{report}");
    let verdicts = |line: &&str| line.starts_with("- met: ") || line.starts_with("- NOT MET: ");
    assert_eq!(report.lines().filter(verdicts).count(), 14, "{report}");
}

#[test]
fn the_benchmark_of_slots_measures_each_way_for_each_number_of_holders() {
    let tiny = ["slots", "--rounds", "1", "--calls", "100", "--holders", "5,50", "--held", "1,2"];
    let report = report_of(&tiny);
    assert_eq!(report.lines().filter(|line| line.contains("| × ")).count(), 12, "{report}");
    let rows = |text: &str| report.lines().filter(|line| line.starts_with(text)).count();
    assert_eq!((rows("| own | "), rows("| given | ")), (2, 2), "{report}");
    let fronts = ["| RESP: ", "| HTTP: ", "| gRPC: "].map(rows);
    assert_eq!(fronts, [2; 3], "{report}");
}

#[test]
fn the_simulation_has_a_row_for_each_number_of_nodes() {
    let tiny = ["simulate", "--nodes", "1,8", "--rate", "2000", "--limit", "2000", "--kills", "1"];
    let report = report_of(&tiny);
    let rows = |text: &str| report.lines().filter(|line| line.starts_with(text)).count();
    assert_eq!((rows("| 1 | 0 | "), rows("| 8 | 0 | ")), (1, 1), "{report}");
    assert_eq!(rows("- met: ") + rows("- NOT MET: "), 4, "{report}");
}

#[test]
fn the_benchmark_of_throughput_measures_each_way_at_each_load() {
    let report = report_of(&["throughput", "--rounds", "1", "--millis", "20"]);
    let rows = |text: &str| report.lines().filter(|line| line.starts_with(text)).count();
    for (way, loads) in
        [("(the load alone)", 4), ("`INCR`", 4), ("coalesced", 4), ("leased", 6), ("deny cache", 1)]
    {
        assert_eq!(rows(&format!("| {way}")), loads, "{way} in {report}");
    }
    assert_eq!(rows("- met: ") + rows("- NOT MET: "), 8, "{report}");
}

#[test]
fn more_calls_than_a_log_holds_are_refused_with_the_most_there_may_be() {
    let many = ["redis", "--calls", "2000", "--subjects", "20"];
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate-bench")).args(many).output().unwrap();
    assert!(!output.status.success());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("2000 calls: at most 1800"), "{errors}");
}

#[test]
fn the_benchmark_of_layers_measures_each_around_a_service_and_in_a_router() {
    let report = report_of(&["http", "--stack-only", "--rounds", "1", "--requests", "1000"]);
    for (name, rows) in [("| none |", 1), ("tidegate-http", 3), ("tower_governor", 2)] {
        let lines = report.lines().filter(|line| line.contains(name));
        assert_eq!(lines.filter(|line| line.matches('|').count() == 10).count(), rows, "{report}");
    }
}

#[test]
fn without_wrk_the_benchmark_of_the_web_server_says_how_to_install_it() {
    let mut program = Command::new(env!("CARGO_BIN_EXE_tidegate-bench"));
    let tiny = ["http", "--rounds", "1", "--requests", "1"];
    let output = program.args(tiny).env("PATH", "").output().unwrap();
    assert!(!output.status.success());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("apt-get install wrk"), "{errors}");
}

#[test]
fn the_benchmark_of_memory_measures_everybody_and_judges_every_ratio() {
    let tiny = ["memory", "--rounds", "1", "--calls", "300", "--subjects", "100", "--many", "5000"];
    let report = report_of(&tiny);
    let rows = |text: &str| report.lines().filter(|line| line.starts_with(text)).count();
    // Each contender has a row in each of six workloads, and a row for its memory. Some
    // contenders also have a row in a seventh workload, whose subjects are numbers.
    for (name, times) in [
        ("**tidegate**, token bucket", 8),
        ("governor", 8),
        ("governor, foldhash", 8),
        ("axum_gcra", 8),
        ("tidegate, sliding counter", 7),
        ("limitador", 7),
        ("(a bare table of numbers)", 7),
    ] {
        assert_eq!(rows(&format!("| {name} |")), times, "{name} in {report}");
    }
    assert_eq!(rows("| ratelimit |"), 1, "{report}");
    for state in ["| new |", "| known |", "| recovered |"] {
        assert_eq!(rows(state), 1, "{state} in {report}");
    }
    assert_eq!(rows("- met") + rows("- NOT MET"), 19, "{report}");
}

/// The report has rows of throttlecrab only if throttlecrab is installed.
#[test]
fn the_benchmark_of_servers_measures_each_and_says_if_throttlecrab_is_missing() {
    let tiny = ["--rounds", "1", "--millis", "20", "--subjects", "100", "--stored", "1000"];
    let report = report_of(&[&["server", "--rate", "200"], &tiny[..]].concat());
    let rows = |text: &str| report.lines().filter(|line| line.starts_with(text)).count();
    assert_eq!(rows("| **tidegate-server**, `THROTTLE` |"), 7, "{report}");
    assert_eq!(rows("| redis-server, `INCR` |"), 6, "{report}");
    assert_eq!(rows("| tidegate-server on Redis, "), 14, "{report}");
    for call in ["`/v1/acquire`", "`/json`"] {
        assert_eq!(rows(&format!("| **tidegate-server**, {call} |")), 3, "{report}");
    }
    assert_eq!(rows("| **tidegate-server**, `ShouldRateLimit` |"), 4, "{report}");
    assert_eq!(rows("| **tidegate-server** |"), 1, "its memory in {report}");
    for protocol in ["RESP", "gRPC"] {
        assert_eq!(rows(&format!("| {protocol} | 1 | ")), 1, "its worker threads in {report}");
    }
    let missing = report.matches("**throttlecrab-server is not measured: ").count();
    let expected = if missing == 0 { 14 } else { 0 };
    assert_eq!(rows("| throttlecrab-server, "), expected, "{report}");
}
