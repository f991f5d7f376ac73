//! Writes the days of the quotas.

use std::io;

use super::escape::Html;
use crate::report::Report;
use crate::report::number::{share, thousands};

/// Writes a section for each quota, with a table of its days.
pub(super) fn write(report: &Report, out: &mut impl io::Write) -> io::Result<()> {
    for (number, policy) in report.policies.iter().enumerate() {
        if policy.days.is_empty() {
            continue;
        }
        write!(
            out,
            "<section aria-labelledby=\"days-{number}\">\n<h2 id=\"days-{number}\">Days of {}</h2>\n\
             <p class=\"note\">The days are those of the quota's time zone. A day without requests is not listed.</p>\n\
             <div class=\"scroll\"><table><thead><tr><th scope=\"col\">Day</th>",
            Html(&policy.policy),
        )?;
        for name in ["Admitted", "Denied", "Share"] {
            write!(out, "<th scope=\"col\" class=\"number\">{name}</th>")?;
        }
        writeln!(out, "</tr></thead>\n<tbody>")?;
        for day in &policy.days {
            write!(out, "<tr><th scope=\"row\">{}</th>", Html(&day.date))?;
            let cells =
                [thousands(day.admitted), thousands(day.denied), share(day.denied, day.requests())];
            for cell in cells {
                write!(out, "<td class=\"number\">{}</td>", Html(cell))?;
            }
            writeln!(out, "</tr>")?;
        }
        writeln!(out, "</tbody></table></div>\n</section>")?;
    }
    Ok(())
}
