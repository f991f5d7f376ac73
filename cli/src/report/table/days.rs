//! Writes the days of the quotas.

use std::io;

use super::grid::{Cell, Grid};
use super::paint::{Paint, Tone};
use crate::report::PolicyReport;
use crate::report::escape::{shorten, visible};
use crate::report::number::{counted, share, thousands};

/// The maximum number of days that a table lists.
const MAX_DAYS: usize = 62;

pub(super) fn write(
    policy: &PolicyReport,
    out: &mut impl io::Write,
    width: usize,
    paint: Paint,
) -> io::Result<()> {
    let title = format!("DAYS OF {}", visible(&policy.policy));
    writeln!(out, "{}", paint.text(&shorten(&title, width), Tone::Heading))?;
    let mut grid = Grid::new("DAY", vec!["ADMITTED", "DENIED", "SHARE"]);
    for day in policy.days.iter().take(MAX_DAYS) {
        let alarm = if day.denied > 0 { Tone::Warning } else { Tone::Plain };
        let cells = vec![
            Cell::plain(thousands(day.admitted)),
            Cell::new(thousands(day.denied), alarm),
            Cell::new(share(day.denied, day.requests()), alarm),
        ];
        grid.push(visible(&day.date).into_owned(), cells);
    }
    grid.write(out, width, paint)?;
    match policy.days.len().saturating_sub(MAX_DAYS) {
        0 => Ok(()),
        more => writeln!(out, "{} more: see --json", counted(more as u64, "day", "days")),
    }
}
