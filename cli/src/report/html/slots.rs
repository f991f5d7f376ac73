//! Writes the report about slots.

use std::io;

use super::escape::Html;
use crate::report::Report;
use crate::report::number::{share, thousands};

/// Writes the section about requests at a time, or nothing if the report has no policy of slots.
pub(super) fn write(report: &Report, out: &mut impl io::Write) -> io::Result<()> {
    let Some(slots) = &report.slots else { return Ok(()) };
    write!(
        out,
        "<section aria-labelledby=\"slots\">\n<h2 id=\"slots\">Requests at a time</h2>\n\
         <p class=\"note\">A request takes slots for its duration (<b>{}</b>). Without a limit, a subject would use up \
         to {}.</p>\n<div class=\"scroll\"><table><thead><tr><th scope=\"col\">Policy</th>",
        Html(&slots.duration_of),
        thousands(slots.peak_wanted),
    )?;
    for name in ["Admitted", "Denied", "Share", "Subjects denied", "Peak"] {
        write!(out, "<th scope=\"col\" class=\"number\">{name}</th>")?;
    }
    writeln!(out, "</tr></thead>\n<tbody>")?;
    for run in &slots.runs {
        write!(out, "<tr><th scope=\"row\" class=\"policy\">{}</th>", Html(&run.policy))?;
        let cells = [
            thousands(run.admitted),
            thousands(run.denied),
            share(run.denied, run.requests()),
            thousands(run.subjects_denied),
            thousands(run.peak),
        ];
        for cell in cells {
            write!(out, "<td class=\"number\">{}</td>", Html(cell))?;
        }
        writeln!(out, "</tr>")?;
    }
    writeln!(out, "</tbody></table></div>\n</section>")
}
