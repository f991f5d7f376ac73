//! Compares the policies by their denials, by the denied subjects, and by the waits.

use std::io;

use super::escape::{Html, Percent};
use crate::report::number::{scaled, share, thousands};
use crate::report::time::micros_text;
use crate::report::{PolicyReport, Report};

/// A measure that policies are compared by.
struct Measure {
    name: &'static str,
    class: &'static str,
    max: u64,
    value: fn(&PolicyReport) -> u64,
    text: fn(&PolicyReport) -> String,
    note: String,
}

/// Writes the section that compares the policies. Writes nothing if there are fewer than two
/// policies.
pub(super) fn write(report: &Report, out: &mut impl io::Write) -> io::Result<()> {
    if report.policies.len() < 2 {
        return Ok(());
    }
    let measures = measures(report);
    writeln!(
        out,
        "<section aria-labelledby=\"compare\">\n<h2 id=\"compare\">Side by side</h2>\n\
         <p class=\"note\">Within a column, the longest bar is the highest value.</p>\n\
         <div class=\"compare\" role=\"table\" aria-label=\"Policies side by side\">\n\
         <div class=\"row names\" role=\"row\"><span role=\"columnheader\">Policy</span>"
    )?;
    for measure in &measures {
        writeln!(out, "<span role=\"columnheader\">{}</span>", measure.name)?;
    }
    writeln!(out, "</div>")?;
    for policy in &report.policies {
        row(policy, &measures, out)?;
    }
    writeln!(out, "</div>\n</section>")
}

fn row(policy: &PolicyReport, measures: &[Measure], out: &mut impl io::Write) -> io::Result<()> {
    writeln!(
        out,
        "<div class=\"row\" role=\"row\"><span class=\"policy\" role=\"rowheader\">{}</span>",
        Html(&policy.policy),
    )?;
    for measure in measures {
        let width = scaled((measure.value)(policy), measure.max, 1_000);
        writeln!(
            out,
            "<span class=\"measure {}\" role=\"cell\"><em aria-hidden=\"true\">{}</em>\
             <b>{}</b> <small>{}</small>\
             <i aria-hidden=\"true\"><u style=\"width:{}\"></u></i></span>",
            if (measure.value)(policy) == 0 { "zero" } else { measure.class },
            measure.name,
            Html((measure.text)(policy)),
            Html(note(policy, measure)),
            Percent(width),
        )?;
    }
    writeln!(out, "</div>")
}

/// Returns the text next to the value of a measure. For the share of denied requests, it is their
/// number. For other measures, it is a fixed note, such as `of 3,201`.
fn note(policy: &PolicyReport, measure: &Measure) -> String {
    if measure.name == "Denied" { thousands(policy.denied) } else { measure.note.clone() }
}

fn measures(report: &Report) -> [Measure; 3] {
    let max =
        |value: fn(&PolicyReport) -> u64| report.policies.iter().map(value).max().unwrap_or(0);
    let subjects = thousands(report.source.subjects);
    let measure = |name, class, value, text, note| Measure {
        name,
        class,
        max: max(value),
        value,
        text,
        note,
    };
    [
        measure(
            "Denied",
            "denied",
            |policy| policy.denied,
            |policy| share(policy.denied, policy.requests()),
            String::new(),
        ),
        measure(
            "Subjects denied",
            "denied",
            |policy| policy.subjects_denied,
            |policy| thousands(policy.subjects_denied),
            format!("of {subjects}"),
        ),
        measure(
            "Longest wait",
            "wait",
            |policy| policy.max_wait.unwrap_or(0),
            |policy| policy.max_wait.map_or_else(|| "none".to_owned(), micros_text),
            String::new(),
        ),
    ]
}
