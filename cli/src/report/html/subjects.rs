//! Writes the most denied subjects of each policy.

use std::collections::HashMap;
use std::io;

use super::escape::{Html, Percent};
use crate::report::escape::shorten;
use crate::report::number::{counted, scaled, share, thousands};
use crate::report::{Offender, PolicyReport, Report};

/// The maximum number of subjects in the matrix. If a policy denied more subjects, a list for each
/// policy follows the matrix.
const ROWS: usize = 12;

/// The number of characters of a subject that are shown. The tooltip shows more.
const NAME: usize = 64;
pub(super) const HINT: usize = 512;

/// Writes the section about denied subjects, or nothing if no subject was denied.
pub(super) fn write(report: &Report, out: &mut impl io::Write) -> io::Result<()> {
    let ranked = ranked(&report.policies);
    if ranked.is_empty() {
        return Ok(());
    }
    let shown = ranked.len().min(ROWS);
    writeln!(
        out,
        "<section aria-labelledby=\"subjects\">\n<h2 id=\"subjects\">Most limited subjects</h2>\n\
         <p class=\"note\">How many requests of the {} each policy denies. A bar is the share of the \
         subject’s own requests: a full one means that nothing passed.</p>\n\
         <div class=\"scroll\" role=\"region\" aria-labelledby=\"subjects\" tabindex=\"0\">\n\
         <table class=\"matrix\"><thead><tr><th scope=\"col\">Subject</th>\
         <th scope=\"col\" class=\"number\">Requests</th>",
        if shown == 1 {
            "most denied subject".to_owned()
        } else {
            format!("{shown} most denied subjects")
        },
    )?;
    for policy in &report.policies {
        write!(out, "<th scope=\"col\" class=\"policy\">{}</th>", Html(&policy.policy))?;
    }
    writeln!(out, "</tr></thead>\n<tbody>")?;
    let found: Vec<_> = report.policies.iter().map(by_subject).collect();
    for subject in &ranked[..shown] {
        row(subject, &report.policies, &found, out)?;
    }
    writeln!(out, "</tbody></table></div>")?;
    if report.policies.iter().any(|policy| policy.offenders.len() > shown) {
        for policy in report.policies.iter().filter(|policy| !policy.offenders.is_empty()) {
            list(policy, out)?;
        }
    }
    writeln!(out, "</section>")
}

/// A subject with its denials by all policies.
struct Ranked<'a> {
    subject: &'a str,
    requests: u64,
    denied: u64,
}

/// Returns the most denied subjects of all policies, sorted by the sum of their denials.
fn ranked(policies: &[PolicyReport]) -> Vec<Ranked<'_>> {
    let mut sums: HashMap<&str, (u64, u64)> = HashMap::new();
    for one in policies.iter().flat_map(|policy| &policy.offenders) {
        let (requests, denied) = sums.entry(&one.subject).or_default();
        *requests = one.requests.max(*requests);
        *denied = denied.saturating_add(one.denied);
    }
    let mut ranked: Vec<_> = sums
        .into_iter()
        .map(|(subject, (requests, denied))| Ranked { subject, requests, denied })
        .collect();
    ranked.sort_by(|a, b| b.denied.cmp(&a.denied).then_with(|| a.subject.cmp(b.subject)));
    ranked
}

fn by_subject(policy: &PolicyReport) -> HashMap<&str, &Offender> {
    policy.offenders.iter().map(|one| (one.subject.as_str(), one)).collect()
}

fn row(
    subject: &Ranked<'_>,
    policies: &[PolicyReport],
    found: &[HashMap<&str, &Offender>],
    out: &mut impl io::Write,
) -> io::Result<()> {
    writeln!(
        out,
        "<tr><th scope=\"row\" class=\"subject\" title=\"{}\">{}</th><td class=\"number\">{}</td>",
        Html(shorten(subject.subject, HINT)),
        Html(shorten(subject.subject, NAME)),
        thousands(subject.requests),
    )?;
    for (policy, found) in policies.iter().zip(found) {
        match found.get(subject.subject) {
            Some(one) => cell(one, policy, out)?,
            None => absent(policy, out)?,
        }
    }
    writeln!(out, "</tr>")
}

fn cell(one: &Offender, policy: &PolicyReport, out: &mut impl io::Write) -> io::Result<()> {
    write!(
        out,
        "<td class=\"cell\" title=\"{}: {} of {} denied\"><b>{}</b> <small>{}</small>\
         <i aria-hidden=\"true\"><u style=\"width:{}\"></u></i></td>",
        Html(&policy.policy),
        thousands(one.denied),
        thousands(one.requests),
        thousands(one.denied),
        Html(share(one.denied, one.requests)),
        Percent(scaled(one.denied, one.requests, 1_000)),
    )
}

/// Writes the cell of a subject that is not in the list of most denied subjects of a policy. If the
/// list contains all denied subjects, the cell is 0. Otherwise, the subject was denied at most as
/// often as the last subject of the list.
fn absent(policy: &PolicyReport, out: &mut impl io::Write) -> io::Result<()> {
    let least = policy.offenders.last().map_or(0, |one| one.denied);
    if policy.offenders.len() as u64 >= policy.subjects_denied || least == 0 {
        write!(out, "<td class=\"cell none\">0</td>")
    } else {
        write!(
            out,
            "<td class=\"cell none\" title=\"not among the most denied of this policy\">≤ {}</td>",
            thousands(least),
        )
    }
}

fn list(policy: &PolicyReport, out: &mut impl io::Write) -> io::Result<()> {
    let length = policy.offenders.len() as u64;
    writeln!(
        out,
        "<details><summary><span class=\"policy\">{}</span>: {}</summary>\n<div class=\"scroll\">\
         <table><thead><tr><th scope=\"col\">Subject</th><th scope=\"col\" class=\"number\">Denied</th>\
         <th scope=\"col\" class=\"number\">Requests</th><th scope=\"col\" class=\"number\">Share</th>\
         </tr></thead>\n<tbody>",
        Html(&policy.policy),
        counted(length, "most denied subject", "most denied subjects"),
    )?;
    for one in &policy.offenders {
        writeln!(
            out,
            "<tr><th scope=\"row\" class=\"subject\">{}</th><td class=\"number\">{}</td>\
             <td class=\"number\">{}</td><td class=\"number\">{}</td></tr>",
            Html(shorten(&one.subject, HINT)),
            thousands(one.denied),
            thousands(one.requests),
            Html(share(one.denied, one.requests)),
        )?;
    }
    writeln!(out, "</tbody></table></div></details>")
}
