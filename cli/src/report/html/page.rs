//! Writes the frame of the page: head, summary, sections and footer.

use std::io;

use super::escape::Html;
use super::headline::{headline, remarks};
use super::{compare, days, details, leased, settling, shares, slots, subjects, suggest, timeline};
use crate::report::escape::shorten;
use crate::report::number::{counted, thousands};
use crate::report::time::{micros_text, period};
use crate::report::{Report, Source};

/// The content security policy. Styles can be inline. Loading, scripts, forms and frames are
/// forbidden.
const SECURITY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; \
                        form-action 'none'";

const STYLE: &str = include_str!("report.css");

/// Writes the whole page.
pub(super) fn write(report: &Report, out: &mut impl io::Write) -> io::Result<()> {
    head(report, out)?;
    summary(report, out)?;
    writeln!(out, "<main>")?;
    compare::write(report, out)?;
    timeline::write(report, out)?;
    days::write(report, out)?;
    subjects::write(report, out)?;
    shares::write(report, out)?;
    suggest::write(report, out)?;
    settling::write(report, out)?;
    slots::write(report, out)?;
    leased::write(report, out)?;
    details::write(report, out)?;
    writeln!(out, "</main>")?;
    writeln!(
        out,
        "<footer><p>Made by tidegate {} from a replay of past traffic: each request met each \
         policy at the time it was logged.</p></footer>\n</body>\n</html>",
        env!("CARGO_PKG_VERSION"),
    )
}

fn head(report: &Report, out: &mut impl io::Write) -> io::Result<()> {
    let title = shorten(&report.source.title(), 80);
    writeln!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{SECURITY}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta name=\"referrer\" content=\"no-referrer\">\n\
         <title>Replay of {}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>",
        Html(title),
    )
}

fn summary(report: &Report, out: &mut impl io::Write) -> io::Result<()> {
    let source = &report.source;
    let title = shorten(&source.title(), 80);
    writeln!(out, "<header>\n<p class=\"eyebrow\">Replay of <b>{}</b></p>", Html(title))?;
    writeln!(out, "<h1>{}</h1>", Html(headline(report)))?;
    let remarks = remarks(report);
    if !remarks.is_empty() {
        writeln!(out, "<p class=\"lead\">{}</p>", Html(remarks.join(" ")))?;
    }
    writeln!(out, "<dl class=\"facts\">")?;
    for (name, value, note) in facts(source) {
        let (value, note) = (Html(value), Html(note));
        let wide = if name == "Time" { " class=\"wide\"" } else { "" };
        writeln!(out, "<div{wide}><dt>{name}</dt><dd>{value}<small>{note}</small></dd></div>")?;
    }
    writeln!(out, "</dl>\n</header>")
}

fn facts(source: &Source) -> Vec<(&'static str, String, String)> {
    let mut facts = vec![
        ("Requests", thousands(source.requests), format!("in order of {}", source.order)),
        ("Subjects", thousands(source.subjects), format!("by {}", shorten(&source.by, 40))),
        (
            "Not readable",
            thousands(source.malformed),
            format!("of {}", counted(source.lines, "line", "lines")),
        ),
    ];
    if source.has_costs() {
        facts.push(("Cost", thousands(source.cost), shorten(&source.cost_of, 60)));
    }
    if let (Some(first), Some(last)) = (source.first, source.last) {
        facts.push(("Time", micros_text(last.saturating_sub(first)), period(first, last)));
    }
    facts
}
