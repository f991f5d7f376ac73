//! Reads the files of `ops/` and the documents about them, so that tests can compare them with each
//! other and with the code.

use std::collections::BTreeSet;

/// The text of `docs/metrics.md`, which lists all metrics.
pub const METRICS: &str = include_str!("../../docs/metrics.md");

/// The text of `docs/alerts.md`, which describes the reaction to each alert.
pub const ALERTS: &str = include_str!("../../docs/alerts.md");

/// The alert rules.
pub const RULES: &str = include_str!("../prometheus/alerts.yml");

/// The tests of the alert rules.
pub const RULE_TESTS: &str = include_str!("../prometheus/alerts_test.yml");

/// The dashboard.
pub const DASHBOARD: &str = include_str!("../grafana/tidegate.json");

/// A row of a table in `docs/metrics.md`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Row {
    /// The name of the metric.
    pub name: String,
    /// `counter`, `gauge` or `histogram`.
    pub kind: String,
    /// The names of the labels.
    pub labels: Vec<String>,
    /// The description of the metric.
    pub help: String,
}

/// Returns the table of the metrics of the library.
#[must_use]
pub fn table() -> Vec<Row> {
    rows("All metrics")
}

/// Returns the table of the metrics that only the server has.
#[must_use]
pub fn server_table() -> Vec<Row> {
    rows("Metrics of tidegate-server")
}

/// Returns the rows of the table in the section of `docs/metrics.md` whose title starts with
/// `section`.
fn rows(section: &str) -> Vec<Row> {
    let sections = METRICS.split("\n## ");
    let lines = sections.filter(|text| text.starts_with(section)).flat_map(str::lines);
    lines.filter_map(row).collect()
}

fn row(line: &str) -> Option<Row> {
    let mut cells = line.strip_prefix("| `")?.strip_suffix(" |")?.split(" | ");
    let name = cells.next()?.trim_end_matches('`').to_owned();
    let kind = cells.next()?.to_owned();
    let label = |label: &str| label.trim_matches([' ', '`']).to_owned();
    let labels = cells.next()?.split(',').map(label).filter(|label| !label.is_empty()).collect();
    Some(Row { name, kind, labels, help: cells.next()?.to_owned() })
}

/// Returns the names of the series that Prometheus stores for the metrics of `table`, such as three
/// series for a histogram.
#[must_use]
pub fn series(table: &[Row]) -> BTreeSet<String> {
    let suffixes = |row: &Row| match row.kind.as_str() {
        "histogram" => vec!["_bucket", "_sum", "_count"],
        _ => vec![""],
    };
    let names = |row: &Row| suffixes(row).into_iter().map(|s| format!("{}{s}", row.name)).collect();
    table.iter().flat_map(|row| -> Vec<String> { names(row) }).collect()
}

/// The prefixes of the names of metrics.
const PREFIXES: [&str; 3] = ["tidegate_", "ratelimit_service_", "process_"];

/// Returns the name of each series in a PromQL expression, with the names of the labels that select
/// the series.
#[must_use]
pub fn used_series(expression: &str) -> Vec<(String, Vec<String>)> {
    let is_name_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let starts = PREFIXES.iter().flat_map(|prefix| expression.match_indices(prefix));
    starts
        .map(|(start, _)| {
            let text = &expression[start..];
            let end = text.find(|c| !is_name_part(c)).unwrap_or(text.len());
            let (name, rest) = text.split_at(end);
            let selector = rest.strip_prefix('{').and_then(|rest| rest.split_once('}'));
            (name.to_owned(), selector.map_or(vec![], |(selector, _)| labels(selector)))
        })
        .collect()
}

/// Returns the names of the labels in a selector of PromQL: `job` and `le` for `job=~"a|b",le="1"`.
/// The values must contain no commas and no braces.
fn labels(selector: &str) -> Vec<String> {
    let label = |matcher: &str| {
        matcher.split(['=', '!']).next().map(|name| name.trim().to_owned()).unwrap_or_default()
    };
    selector.split(',').map(label).filter(|label| !label.is_empty()).collect()
}

/// Returns all PromQL expressions of the dashboard, including the queries of its variables.
///
/// # Errors
///
/// Returns an error if the dashboard is not JSON.
pub fn dashboard_expressions() -> Result<Vec<String>, serde_json::Error> {
    let mut expressions = vec![];
    gather(&serde_json::from_str(DASHBOARD)?, &mut expressions);
    Ok(expressions)
}

fn gather(value: &serde_json::Value, into: &mut Vec<String>) {
    match value {
        serde_json::Value::Object(members) => {
            for (name, value) in members {
                match (name.as_str(), value.as_str()) {
                    ("expr" | "definition", Some(expression)) => into.push(expression.to_owned()),
                    _ => gather(value, into),
                }
            }
        }
        serde_json::Value::Array(values) => values.iter().for_each(|value| gather(value, into)),
        _ => {}
    }
}

/// Returns the names of all alerts.
#[must_use]
pub fn alerts() -> Vec<&'static str> {
    RULES.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect()
}
