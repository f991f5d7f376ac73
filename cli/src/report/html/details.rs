//! Writes all numbers as tables.

use std::io;

use super::escape::Html;
use crate::report::escape::shorten;
use crate::report::number::{share, thousands};
use crate::report::time::{micros_text, moment};
use crate::report::{
    ComparedReport, GrantsReport, PolicyReport, PoolReport, Report, Source, WarningsReport,
};

/// Writes the section.
pub(super) fn write(report: &Report, out: &mut impl io::Write) -> io::Result<()> {
    writeln!(
        out,
        "<section aria-labelledby=\"details\">\n<h2 id=\"details\">All the numbers</h2>"
    )?;
    if !report.policies.is_empty() {
        policies(report, out)?;
    }
    source(&report.source, out)?;
    writeln!(out, "</section>")
}

/// A column of the table of policies.
type Column = (&'static str, fn(&PolicyReport) -> String);

const COLUMNS: [Column; 6] = [
    ("Admitted", |policy| thousands(policy.admitted)),
    ("Denied", |policy| thousands(policy.denied)),
    ("Share denied", |policy| share(policy.denied, policy.requests())),
    ("Can never pass", |policy| thousands(policy.never)),
    ("Subjects denied", |policy| thousands(policy.subjects_denied)),
    ("Longest wait", |policy| policy.max_wait.map_or_else(|| "–".to_owned(), micros_text)),
];

/// The columns that are shown if a request can have a cost other than 1.
const COST_COLUMNS: [Column; 3] = [
    ("Cost admitted", |policy| thousands(policy.cost_admitted)),
    ("Cost denied", |policy| thousands(policy.cost_denied)),
    ("Share of cost denied", |policy| share(policy.cost_denied, policy.cost())),
];

/// The columns that are shown if a policy warns.
const WARNING_COLUMNS: [Column; 2] = [
    ("Requests warned", |policy| warning_number(policy, |warnings| warnings.requests)),
    ("Subjects warned", |policy| warning_number(policy, |warnings| warnings.subjects)),
];

fn warning_number(policy: &PolicyReport, number: fn(WarningsReport) -> u64) -> String {
    policy.warnings.map_or_else(|| "–".to_owned(), |warnings| thousands(number(warnings)))
}

/// The columns that are shown if there were grants.
const GRANT_COLUMNS: [Column; 3] = [
    ("Grants", |policy| grant_number(policy, |grants| grants.made)),
    ("Granted", |policy| grant_number(policy, |grants| grants.amount)),
    ("Grants refused", |policy| grant_number(policy, |grants| grants.refused)),
];

fn grant_number(policy: &PolicyReport, number: fn(GrantsReport) -> u64) -> String {
    policy.grants.map_or_else(|| "–".to_owned(), |grants| thousands(number(grants)))
}

/// The columns that are shown if there was a pool.
const POOL_COLUMNS: [Column; 2] = [
    ("Pool", |policy| pool_value(policy, |pool| pool.policy.clone())),
    ("Admitted by the pool", |policy| pool_value(policy, |pool| thousands(pool.admitted))),
];

fn pool_value(policy: &PolicyReport, value: fn(&PoolReport) -> String) -> String {
    policy.pool.as_ref().map_or_else(|| "–".to_owned(), value)
}

/// The columns that are shown if the policies are compared with an earlier limit set.
const COMPARED_COLUMNS: [Column; 3] = [
    ("Subjects newly denied", |policy| compared_number(policy, |compared| compared.subjects_new)),
    ("Subjects denied more", |policy| compared_number(policy, |compared| compared.subjects_more)),
    ("Subjects denied less", |policy| compared_number(policy, |compared| compared.subjects_fewer)),
];

fn compared_number(policy: &PolicyReport, number: fn(&ComparedReport) -> u64) -> String {
    let number = policy.compared.as_ref().map(number);
    number.map_or_else(|| "–".to_owned(), thousands)
}

fn policies(report: &Report, out: &mut impl io::Write) -> io::Result<()> {
    let costs: &[Column] = if report.source.has_costs() { &COST_COLUMNS } else { &[] };
    let has_grants = report.policies.iter().any(|policy| policy.grants.is_some());
    let grants: &[Column] = if has_grants { &GRANT_COLUMNS } else { &[] };
    let has_warnings = report.policies.iter().any(|policy| policy.warnings.is_some());
    let warnings: &[Column] = if has_warnings { &WARNING_COLUMNS } else { &[] };
    let has_pool = report.policies.iter().any(|policy| policy.pool.is_some());
    let pool: &[Column] = if has_pool { &POOL_COLUMNS } else { &[] };
    let is_compared = report.policies.iter().any(|policy| policy.compared.is_some());
    let compared: &[Column] = if is_compared { &COMPARED_COLUMNS } else { &[] };
    let columns =
        || COLUMNS.iter().chain(costs).chain(grants).chain(warnings).chain(pool).chain(compared);
    writeln!(
        out,
        "<div class=\"scroll\" role=\"region\" aria-labelledby=\"details\" tabindex=\"0\">\n\
         <table><thead><tr><th scope=\"col\">Policy</th>"
    )?;
    for (name, _) in columns() {
        write!(out, "<th scope=\"col\" class=\"number\">{name}</th>")?;
    }
    writeln!(out, "</tr></thead>\n<tbody>")?;
    for policy in &report.policies {
        write!(out, "<tr><th scope=\"row\" class=\"policy\">{}</th>", Html(&policy.policy))?;
        for (_, value) in columns() {
            write!(out, "<td class=\"number\">{}</td>", Html(value(policy)))?;
        }
        writeln!(out, "</tr>")?;
    }
    writeln!(out, "</tbody></table></div>")
}

fn source(source: &Source, out: &mut impl io::Write) -> io::Result<()> {
    writeln!(out, "<dl class=\"source\">")?;
    let time = |time: Option<u64>| {
        time.map_or_else(|| "–".to_owned(), |time| format!("{} UTC", moment(time)))
    };
    let list = |items: &[String]| shorten(&items.join(", "), 2_000);
    let mut rows = vec![
        ("Inputs", list(&source.inputs)),
        ("Formats", list(&source.formats)),
        ("Lines", thousands(source.lines)),
        ("Malformed", thousands(source.malformed)),
        ("Requests", thousands(source.requests)),
        ("Subjects", format!("{}, by {}", thousands(source.subjects), source.by)),
        ("Cost", format!("{} in all, {} each", thousands(source.cost), source.cost_of)),
        ("Order", source.order.clone()),
        ("First request", time(source.first)),
        ("Last request", time(source.last)),
    ];
    if source.without_subject > 0 {
        rows.insert(4, ("Without a subject", thousands(source.without_subject)));
    }
    for (name, value) in rows {
        writeln!(out, "<div><dt>{name}</dt><dd>{}</dd></div>", Html(value))?;
    }
    writeln!(out, "</dl>")
}
