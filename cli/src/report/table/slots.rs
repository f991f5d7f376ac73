//! Writes the report about slots.

use std::io;

use super::grid::{Cell, Grid};
use super::paint::{Paint, Tone};
use crate::report::SlotsReport;
use crate::report::escape::{shorten, visible};
use crate::report::number::{share, thousands};

pub(super) fn write(
    slots: &SlotsReport,
    out: &mut impl io::Write,
    width: usize,
    paint: Paint,
) -> io::Result<()> {
    let SlotsReport { duration_of, peak_wanted, runs } = slots;
    let field = shorten(duration_of, width / 4);
    writeln!(out, "{}", paint.text("REQUESTS AT A TIME", Tone::Heading))?;
    writeln!(out, "A request takes slots for its duration ({field}).")?;
    writeln!(out, "Without a limit, a subject would use up to {}.", thousands(*peak_wanted))?;
    let mut grid = Grid::new("POLICY", vec!["ADMITTED", "DENIED", "SHARE", "SUBJECTS", "PEAK"]);
    for run in runs {
        let alarm = if run.denied > 0 { Tone::Warning } else { Tone::Plain };
        let cells = vec![
            Cell::plain(thousands(run.admitted)),
            Cell::new(thousands(run.denied), alarm),
            Cell::new(share(run.denied, run.requests()), alarm),
            Cell::plain(thousands(run.subjects_denied)),
            Cell::plain(thousands(run.peak)),
        ];
        grid.push(visible(&run.policy).into_owned(), cells);
    }
    grid.write(out, width, paint)
}
