//! Writes the report about leases.

use std::io;

use super::escape::Html;
use crate::report::number::{counted, ratio, share, thousands};
use crate::report::{LeasedReport, Report, Spread};

/// Writes the section about leases, or nothing if the report has no replay with leases.
pub(super) fn write(report: &Report, out: &mut impl io::Write) -> io::Result<()> {
    let Some(leased) = &report.leased else { return Ok(()) };
    caption(leased, out)?;
    write!(out, "<div class=\"scroll\"><table><thead><tr><th scope=\"col\">Policy</th>")?;
    let names = [
        "Admitted",
        "Denied",
        "Denied too early",
        "Share",
        "Admitted instead",
        "Calls to the store",
        "for each request",
        "From chunks",
        "Chunks",
        "Refused",
        "Cost granted",
        "Given back",
        "Stranded",
    ];
    for name in names {
        write!(out, "<th scope=\"col\" class=\"number\">{name}</th>")?;
    }
    writeln!(out, "</tr></thead>\n<tbody>")?;
    for run in &leased.runs {
        write!(out, "<tr><th scope=\"row\" class=\"policy\">{}</th>", Html(&run.policy))?;
        let cells = [
            thousands(run.admitted),
            thousands(run.denied),
            thousands(run.denied_too_early),
            share(run.denied_too_early, run.requests()),
            thousands(run.admitted_instead),
            thousands(run.store_calls),
            ratio(run.store_calls, run.requests()),
            thousands(run.from_chunks),
            thousands(run.chunks),
            thousands(run.chunks_not_granted),
            thousands(run.granted),
            thousands(run.given_back),
            thousands(run.stranded),
        ];
        for cell in cells {
            write!(out, "<td class=\"number\">{}</td>", Html(cell))?;
        }
        writeln!(out, "</tr>")?;
    }
    writeln!(
        out,
        "</tbody></table></div>\n<p class=\"note after\">A request is denied too early if it is admitted without \
         leases, and admitted instead if it is denied without them. Shares are of all requests. Without leases, \
         each request is a call to the store. What is stranded was neither used nor given back.</p>\n</section>"
    )
}

fn caption(leased: &LeasedReport, out: &mut impl io::Write) -> io::Result<()> {
    let spread = match leased.spread {
        Spread::InTurn => "in turn".to_owned(),
        Spread::Seed(seed) => format!("at random by the seed {seed}"),
    };
    writeln!(
        out,
        "<section aria-labelledby=\"leased\">\n<h2 id=\"leased\">With leases</h2>\n\
         <p class=\"note\"><b>{}</b>, to which requests go {spread}, take chunks of at most {} of what remains, for \
         up to {}, once more than {} requests were admitted in that time. {}</p>",
        counted(leased.nodes.into(), "node", "nodes"),
        Html(&leased.share),
        Html(&leased.span),
        thousands(leased.hot_after.into()),
        if leased.sliding { "Sliding logs and counters are leased too." } else { "" },
    )
}
