//! Writes the suggested limits.

use std::io;

use super::escape::Html;
use crate::report::number::{share, thousands};
use crate::report::{Report, Suggestion};

/// Writes the section with the suggested limits, or nothing if there are no suggestions.
pub(super) fn write(report: &Report, out: &mut impl io::Write) -> io::Result<()> {
    if report.suggestions.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "<section aria-labelledby=\"suggest\">\n<h2 id=\"suggest\">Suggested limits</h2>\n"
    )?;
    for group in report.suggestions.chunk_by(|a, b| a.asked == b.asked) {
        table(group, out)?;
    }
    writeln!(out, "</section>")
}

fn table(group: &[Suggestion], out: &mut impl io::Write) -> io::Result<()> {
    let asked = group.first().map_or("", |one| one.asked.as_str());
    writeln!(
        out,
        "<p class=\"note\">The smallest limit of each kind under which at least {} % of the subjects \
         would never have been denied.</p>\n<div class=\"scroll\"><table><thead><tr>\
         <th scope=\"col\">Policy</th><th scope=\"col\" class=\"number\">Limit</th>\
         <th scope=\"col\" class=\"number\">Never denied</th>\
         <th scope=\"col\" class=\"number\">Share of subjects</th></tr></thead>\n<tbody>",
        Html(asked),
    )?;
    for one in group {
        writeln!(
            out,
            "<tr><th scope=\"row\" class=\"policy\">{}</th><td class=\"number\"><b>{}</b></td>\
             <td class=\"number\">{} of {}</td><td class=\"number\">{}</td></tr>",
            Html(&one.policy),
            thousands(one.limit),
            thousands(one.subjects_content),
            thousands(one.subjects),
            Html(share(one.subjects_content, one.subjects)),
        )?;
    }
    writeln!(out, "</tbody></table></div>")
}
