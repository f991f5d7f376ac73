//! Writes the shares of the members of the fair pools.

use std::io;

use super::escape::Html;
use super::subjects::HINT;
use crate::report::escape::shorten;
use crate::report::number::{counted, share, thousands};
use crate::report::{PolicyReport, Report};

/// Writes a section for each fair pool, with a table of its members.
pub(super) fn write(report: &Report, out: &mut impl io::Write) -> io::Result<()> {
    let all = report.policies.iter().flat_map(PolicyReport::all_shares);
    for (number, (pool, shares)) in all.enumerate() {
        write!(
            out,
            "<section aria-labelledby=\"shares-{number}\">\n<h2 id=\"shares-{number}\">Shares of {}</h2>\n\
             <p class=\"note\">The pool has {}. It refused requests in {} of {}.</p>\n\
             <div class=\"scroll\"><table><thead><tr><th scope=\"col\">Subject</th>",
            Html(&pool),
            counted(shares.subjects, "member", "members"),
            thousands(shares.windows_refused),
            counted(shares.windows, "window", "windows"),
        )?;
        for name in ["Demand", "Admitted", "Of demand", "Of pool"] {
            write!(out, "<th scope=\"col\" class=\"number\">{name}</th>")?;
        }
        writeln!(out, "</tr></thead>\n<tbody>")?;
        for member in shares.members.iter().chain(&shares.others()) {
            let subject = Html(shorten(&member.subject, HINT));
            write!(out, "<tr><th scope=\"row\" class=\"subject\">{subject}</th>")?;
            let cells = [
                thousands(member.demand),
                thousands(member.admitted),
                share(member.admitted, member.demand),
                share(member.admitted, shares.admitted),
            ];
            for cell in cells {
                write!(out, "<td class=\"number\">{}</td>", Html(cell))?;
            }
            writeln!(out, "</tr>")?;
        }
        writeln!(out, "</tbody></table></div>\n</section>")?;
    }
    Ok(())
}
