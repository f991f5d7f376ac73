//! Writes the report about leases.

use std::io;

use super::grid::{Cell, Grid};
use super::paint::{Paint, Tone};
use crate::report::escape::visible;
use crate::report::number::{counted, ratio, share, thousands};
use crate::report::{LeasedReport, LeasedRun, Spread};

pub(super) fn write(
    leased: &LeasedReport,
    out: &mut impl io::Write,
    width: usize,
    paint: Paint,
) -> io::Result<()> {
    writeln!(out, "{}", paint.text("WITH LEASES", Tone::Heading))?;
    let nodes = counted(leased.nodes.into(), "node", "nodes");
    let spread = match leased.spread {
        Spread::InTurn => "in turn".to_owned(),
        Spread::Seed(seed) => format!("at random, seed {seed}"),
    };
    writeln!(out, "{nodes}, requests {spread}")?;
    let (span, max, hot) = (visible(&leased.span), visible(&leased.share), leased.hot_after);
    let sliding = if leased.sliding { ", sliding" } else { "" };
    writeln!(out, "span {span}, share {max}, hot after {}{sliding}", thousands(hot.into()))?;
    writeln!(out)?;
    decisions(&leased.runs).write(out, width, paint)?;
    writeln!(out)?;
    let is_used = leased.runs.iter().any(|run| run.chunks > 0);
    if is_used {
        chunks(&leased.runs).write(out, width, paint)?;
        writeln!(out)?;
    } else {
        writeln!(
            out,
            "No request was leased: no subject was hot on a node, or the policies are not leased."
        )?;
        writeln!(out)?;
    }
    writeln!(out, "TOO EARLY    denied, and admitted without leases; share of all requests")?;
    writeln!(out, "INSTEAD      admitted, and denied without leases")?;
    writeln!(out, "STORE CALLS  with those for chunks; EACH request causes 1 without leases")?;
    if is_used {
        writeln!(out, "FROM CHUNKS  requests admitted without a call to the store")?;
        writeln!(out, "STRANDED     of the cost granted, neither used nor given back")?;
    }
    Ok(())
}

fn decisions(runs: &[LeasedRun]) -> Grid {
    let head = vec!["ADMITTED", "DENIED", "TOO EARLY", "SHARE", "INSTEAD", "STORE CALLS", "EACH"];
    let mut grid = Grid::new("POLICY", head);
    for run in runs {
        let alarm = if run.denied_too_early > 0 { Tone::Warning } else { Tone::Plain };
        let cells = vec![
            Cell::plain(thousands(run.admitted)),
            Cell::plain(thousands(run.denied)),
            Cell::new(thousands(run.denied_too_early), alarm),
            Cell::new(share(run.denied_too_early, run.requests()), alarm),
            Cell::plain(thousands(run.admitted_instead)),
            Cell::plain(thousands(run.store_calls)),
            Cell::plain(ratio(run.store_calls, run.requests())),
        ];
        grid.push(visible(&run.policy).into_owned(), cells);
    }
    grid
}

fn chunks(runs: &[LeasedRun]) -> Grid {
    let head = vec!["FROM CHUNKS", "CHUNKS", "REFUSED", "GRANTED", "GIVEN BACK", "STRANDED"];
    let mut grid = Grid::new("POLICY", head);
    for run in runs {
        let numbers = [
            run.from_chunks,
            run.chunks,
            run.chunks_not_granted,
            run.granted,
            run.given_back,
            run.stranded,
        ];
        let cells = numbers.map(|number| Cell::plain(thousands(number)));
        grid.push(visible(&run.policy).into_owned(), cells.into());
    }
    grid
}
