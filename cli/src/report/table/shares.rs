//! Writes the shares of the members of the fair pools.

use std::io;

use super::grid::{Cell, Grid};
use super::paint::{Paint, Tone};
use crate::report::SharesReport;
use crate::report::escape::{shorten, visible};
use crate::report::number::{counted, share, thousands};

pub(super) fn write(
    pool: &str,
    shares: &SharesReport,
    out: &mut impl io::Write,
    width: usize,
    paint: Paint,
) -> io::Result<()> {
    let title = format!("SHARES OF {}", visible(pool));
    writeln!(out, "{}", paint.text(&shorten(&title, width), Tone::Heading))?;
    writeln!(
        out,
        "The pool has {}. It refused requests in {} of {}.",
        counted(shares.subjects, "member", "members"),
        thousands(shares.windows_refused),
        counted(shares.windows, "window", "windows"),
    )?;
    let mut grid = Grid::new("SUBJECT", vec!["DEMAND", "ADMITTED", "OF DEMAND", "OF POOL"]);
    for member in shares.members.iter().chain(&shares.others()) {
        let alarm = if member.admitted < member.demand { Tone::Warning } else { Tone::Plain };
        let cells = vec![
            Cell::plain(thousands(member.demand)),
            Cell::new(thousands(member.admitted), alarm),
            Cell::new(share(member.admitted, member.demand), alarm),
            Cell::plain(share(member.admitted, shares.admitted)),
        ];
        grid.push(shorten(&member.subject, width / 2), cells);
    }
    grid.write(out, width, paint)
}
