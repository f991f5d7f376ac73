//! Compares the metrics in the code, the table of metrics, the dashboard, the alerts and their
//! documentation.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;

use tidegate_ops::{ALERTS, DASHBOARD, RULE_TESTS, RULES, Row};
use tidegate_redis::core::telemetry::names::{self, Metric};

/// Returns the rows that the table of metrics must have according to the code.
fn metrics_of_code() -> BTreeSet<Row> {
    let row = |metric: &Metric| Row {
        name: metric.name.to_owned(),
        kind: metric.kind.as_str().to_owned(),
        labels: metric.labels.iter().map(|&label| label.to_owned()).collect(),
        help: metric.help.to_owned(),
    };
    names::ALL.iter().chain(&tidegate_redis::names::ALL).map(row).collect()
}

/// Checks that all metrics and labels in a PromQL expression exist.
fn assert_known(place: &str, expression: &str) {
    let table = [tidegate_ops::table(), tidegate_ops::server_table()].concat();
    let series = tidegate_ops::series(&table);
    let used = tidegate_ops::used_series(expression);
    assert!(!used.is_empty(), "{place} has an expression without a metric: {expression}");
    for (name, labels) in used {
        assert!(series.contains(&name), "{place} uses the metric {name}, which does not exist");
        let has_series =
            |row: &&Row| tidegate_ops::series(std::slice::from_ref(*row)).contains(&name);
        let row = table.iter().find(has_series).unwrap();
        for label in labels {
            let from_prometheus = ["job", "instance", "le"].contains(&label.as_str());
            let known = from_prometheus || row.labels.contains(&label);
            assert!(known, "{place} uses the label {label} of {name}, which does not exist");
        }
    }
}

#[test]
fn the_table_lists_exactly_the_metrics_of_the_code() {
    let table = tidegate_ops::table();
    assert_eq!(table.iter().cloned().collect::<BTreeSet<_>>(), metrics_of_code());
    assert_eq!(table.len(), metrics_of_code().len(), "the table lists a metric twice");
}

#[test]
fn the_suggested_buckets_rise_and_the_number_of_series_is_as_the_page_says() {
    assert!(names::SECONDS_BUCKETS.is_sorted());
    // A histogram has a series for each suggested bucket, for the bucket `+Inf`, for the sum, and
    // for the count.
    let rows = format!("{} series for each of the 19 values", names::SECONDS_BUCKETS.len() + 3);
    assert!(tidegate_ops::METRICS.contains(&rows), "the page does not contain {rows:?}");
}

#[test]
fn the_dashboard_uses_only_existing_metrics() {
    let expressions = tidegate_ops::dashboard_expressions().unwrap();
    assert!(expressions.len() > 20);
    for expression in expressions {
        assert_known("the dashboard", &expression);
    }
}

#[test]
fn the_table_of_the_server_is_read_and_has_no_metric_of_the_library() {
    let names =
        |table: Vec<Row>| -> BTreeSet<String> { table.into_iter().map(|row| row.name).collect() };
    let (server, library) = (names(tidegate_ops::server_table()), names(tidegate_ops::table()));
    assert!(server.contains("ratelimit_service_total_requests"));
    assert!(server.is_disjoint(&library));
    assert_eq!(server.len(), tidegate_ops::server_table().len());
}

#[test]
fn the_dashboard_shows_every_metric() {
    let expressions = tidegate_ops::dashboard_expressions().unwrap().join(" ");
    for row in tidegate_ops::table() {
        assert!(expressions.contains(&row.name), "the dashboard does not show {}", row.name);
    }
}

#[test]
fn the_dashboard_works_with_any_data_source_and_no_two_panels_share_a_number() {
    let dashboard: serde_json::Value = serde_json::from_str(DASHBOARD).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let numbers: BTreeSet<_> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(numbers.len(), panels.len());
    for panel in panels.iter().filter(|panel| panel["type"] != "row") {
        assert_eq!(panel["datasource"]["uid"], "${datasource}", "{}", panel["title"]);
        for target in panel["targets"].as_array().unwrap() {
            assert_eq!(target["datasource"]["uid"], "${datasource}", "{}", panel["title"]);
        }
    }
}

#[test]
fn the_alerts_use_only_existing_metrics() {
    let rules: String =
        RULES.lines().filter(|line| !line.trim().starts_with('#')).collect::<Vec<_>>().join("\n");
    let expressions = rules.split("expr: |").skip(1).map(|rule| rule.split("labels:").next());
    let mut count = 0;
    for expression in expressions {
        assert_known("an alert", expression.unwrap());
        count += 1;
    }
    assert_eq!(count, tidegate_ops::alerts().len());
}

#[test]
fn every_alert_is_tested_and_has_a_section() {
    for alert in tidegate_ops::alerts() {
        assert!(ALERTS.contains(&format!("\n## {alert}\n")), "docs/alerts.md lacks {alert}");
        let link = format!("docs/alerts.md#{}\n", alert.to_lowercase());
        assert!(RULES.contains(&link), "{alert} does not link to its section");
        let tests = RULE_TESTS.split("  - name: ").filter(|test| test.contains(alert));
        let fires = tests.filter(|test| test.contains(&link)).count();
        assert!(fires >= 1, "no test lets {alert} fire");
    }
    let sections = ALERTS.lines().filter(|line| line.starts_with("## ")).count();
    assert_eq!(
        sections,
        tidegate_ops::alerts().len(),
        "docs/alerts.md has a section without an alert"
    );
}
