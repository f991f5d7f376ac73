//! Writes the report about late costs.

use std::io;

use super::grid::{Cell, Grid};
use super::paint::{Paint, Tone};
use crate::report::escape::{shorten, visible};
use crate::report::number::thousands;
use crate::report::{SettlingReport, SettlingRun};

pub(super) fn write(
    settling: &SettlingReport,
    out: &mut impl io::Write,
    width: usize,
    paint: Paint,
) -> io::Result<()> {
    let SettlingReport { late_cost_of, late_cost, pace, estimate, cover, .. } = settling;
    let (of, pace) = (shorten(late_cost_of, width / 4), visible(pace));
    let (cost, estimate) = (thousands(*late_cost), thousands(*estimate));
    writeln!(out, "{}", paint.text("COST KNOWN AFTERWARDS", Tone::Heading))?;
    writeln!(out, "{of} ({cost} in all) is known at the end, and comes at {pace}.")?;
    writeln!(out, "check    admits while anything is left, and charges at the end")?;
    writeln!(out, "fixed    holds {estimate} for it, and settles at the end")?;
    writeln!(out, "learned  holds what covers {} of past requests", visible(cover))?;
    for runs in settling.runs.chunk_by(|one, next| one.policy == next.policy) {
        writeln!(out)?;
        writeln!(out, "{}", runs.first().map_or("".into(), |run| visible(&run.policy)))?;
        grid(runs).write(out, width, paint)?;
    }
    writeln!(out)?;
    writeln!(
        out,
        "OVERSHOOT       maximum used beyond the limit, from the admission of a request"
    )?;
    writeln!(out, "OF OVERAGE      part of it that is due to estimates that were too low")?;
    writeln!(out, "FALSELY DENIED  denied, although the usage at that time was within the limit")?;
    writeln!(out, "IDLE            held and not used, on average")
}

fn grid(runs: &[SettlingRun]) -> Grid {
    let head = vec!["ADMITTED", "COST", "OVERSHOOT", "OF OVERAGE", "FALSELY DENIED", "IDLE"];
    let mut grid = Grid::new("WAY", head);
    for run in runs {
        let alarm = if run.overshoot > 0 { Tone::Warning } else { Tone::Plain };
        let cells = vec![
            Cell::plain(thousands(run.admitted)),
            Cell::plain(thousands(run.cost_admitted)),
            Cell::new(thousands(run.overshoot), alarm),
            Cell::new(thousands(run.overshoot_of_overage), alarm),
            Cell::plain(thousands(run.falsely_denied)),
            Cell::plain(thousands(run.idle_cost)),
        ];
        grid.push(run.way.as_str().to_owned(), cells);
    }
    grid
}
