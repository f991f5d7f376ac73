//! Writes the comparison of policies with an earlier limit set.

use std::io;

use super::grid::{Cell, Grid};
use super::paint::{Paint, Tone};
use crate::report::PolicyReport;
use crate::report::escape::{shorten, visible};
use crate::report::number::{counted, thousands};

pub(super) fn write(
    policies: &[PolicyReport],
    out: &mut impl io::Write,
    width: usize,
    paint: Paint,
) -> io::Result<()> {
    writeln!(out, "{}", paint.text("COMPARED WITH THE EARLIER LIMIT SET", Tone::Heading))?;
    for policy in policies {
        let Some(compared) = &policy.compared else { continue };
        let new = counted(compared.subjects_new, "subject", "subjects");
        let tone = if compared.subjects_new > 0 { Tone::Warning } else { Tone::Plain };
        writeln!(
            out,
            "{}: {}; {} denied more often, {} less often; {} requests denied instead of {}",
            visible(&policy.policy),
            paint.text(&format!("{new} newly denied"), tone),
            thousands(compared.subjects_more),
            thousands(compared.subjects_fewer),
            thousands(policy.denied),
            thousands(compared.denied_before),
        )?;
        if compared.subjects.is_empty() {
            continue;
        }
        let mut grid = Grid::new("DENIED MORE OFTEN", vec!["REQUESTS", "BEFORE", "NOW"]);
        for one in &compared.subjects {
            let cells = vec![
                Cell::plain(thousands(one.requests)),
                Cell::plain(thousands(one.denied_before)),
                Cell::new(thousands(one.denied), Tone::Warning),
            ];
            grid.push(shorten(&one.subject, width / 2), cells);
        }
        grid.write(out, width, paint)?;
    }
    Ok(())
}
