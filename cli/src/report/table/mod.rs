//! Writes the report as text for a terminal.
//!
//! ```text
//! Read      access.log (combined), 183,216 lines, 12 malformed
//! Requests  183,204 from 3,201 subjects (by ip), in order of time
//! Time      2025-11-03 00:00:04 to 23:59:58 UTC (1d)
//!
//! POLICY                  ADMITTED  DENIED   SHARE  SUBJECTS  LONGEST WAIT
//! sliding-log 60/1m        181,992   1,212   0.7 %        14         59.8s
//! gcra 1/s burst 20        182,100   1,104   0.6 %        13         998ms
//! ```

mod compared;
mod days;
mod grid;
mod leased;
mod paint;
mod settling;
mod shares;
mod slots;

use std::io;

use self::grid::{Cell, Grid};
use self::paint::{Paint, Tone};
use super::escape::{shorten, visible};
use super::number::{counted, share, thousands};
use super::time::{micros_text, period};
use super::{GrantsReport, Offender, PolicyReport, Report, Source, Suggestion, WarningsReport};

/// The number of offenders that are shown per policy. The other formats show all offenders.
const OFFENDERS: usize = 3;

/// The options of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// The number of columns of the terminal. The table is designed for at least 80 columns.
    pub width: usize,
    /// Whether to use colors. Set this to `true` only if the output is a terminal.
    pub colour: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options { width: 80, colour: false }
    }
}

/// Writes the report as a table.
///
/// # Errors
///
/// Returns the error of the writer.
pub fn write(report: &Report, out: &mut impl io::Write, options: Options) -> io::Result<()> {
    let paint = Paint::new(options.colour);
    source(&report.source, out, options.width, paint)?;
    if !report.policies.is_empty() {
        writeln!(out)?;
        policies(report).write(out, options.width, paint)?;
    }
    for policy in &report.policies {
        grants(policy, out, options.width, paint)?;
        warnings(policy, out, options.width)?;
        pool(policy, out, options.width)?;
    }
    if report.policies.iter().any(|policy| !policy.offenders.is_empty()) {
        writeln!(out)?;
        offenders(&report.policies, out, options.width, paint)?;
    }
    if report.policies.iter().any(|policy| policy.compared.is_some()) {
        writeln!(out)?;
        compared::write(&report.policies, out, options.width, paint)?;
    }
    for policy in report.policies.iter().filter(|policy| !policy.days.is_empty()) {
        writeln!(out)?;
        days::write(policy, out, options.width, paint)?;
    }
    for (pool, shares) in report.policies.iter().flat_map(PolicyReport::all_shares) {
        writeln!(out)?;
        shares::write(&pool, shares, out, options.width, paint)?;
    }
    for group in report.suggestions.chunk_by(|a, b| a.asked == b.asked) {
        writeln!(out)?;
        suggestions(group, out, options.width, paint)?;
    }
    if let Some(settling) = &report.settling {
        writeln!(out)?;
        settling::write(settling, out, options.width, paint)?;
    }
    if let Some(slots) = &report.slots {
        writeln!(out)?;
        slots::write(slots, out, options.width, paint)?;
    }
    if let Some(leased) = &report.leased {
        writeln!(out)?;
        leased::write(leased, out, options.width, paint)?;
    }
    Ok(())
}

fn source(source: &Source, out: &mut impl io::Write, width: usize, paint: Paint) -> io::Result<()> {
    let label = |name: &str| paint.text(&format!("{name:<10}"), Tone::Quiet);
    let lines = counted(source.lines, "line", "lines");
    let malformed = match source.malformed {
        0 => String::new(),
        some => paint.text(&format!(", {} malformed", thousands(some)), Tone::Warning),
    };
    let without = match source.without_subject {
        0 => String::new(),
        some => paint.text(&format!(", {} without a subject", thousands(some)), Tone::Warning),
    };
    let name = shorten(&source.title(), width / 2);
    writeln!(out, "{}{name}{}, {lines}{malformed}{without}", label("Read"), formats(source))?;
    let requests = thousands(source.requests);
    let subjects = counted(source.subjects, "subject", "subjects");
    let (by, order) = (visible(&source.by), visible(&source.order));
    writeln!(
        out,
        "{}{requests} from {subjects} (by {by}), in order of {order}",
        label("Requests")
    )?;
    if let (Some(first), Some(last)) = (source.first, source.last) {
        let length = micros_text(last.saturating_sub(first));
        writeln!(out, "{}{} ({length})", label("Time"), period(first, last))?;
    }
    if source.has_costs() {
        let (cost, of) = (thousands(source.cost), shorten(&source.cost_of, width / 2));
        writeln!(out, "{}{cost} in all ({of})", label("Cost"))?;
    }
    Ok(())
}

fn formats(source: &Source) -> String {
    if source.formats.is_empty() {
        String::new()
    } else {
        format!(" ({})", visible(&source.formats.join(", ")))
    }
}

fn policies(report: &Report) -> Grid {
    let costs = report.source.has_costs();
    let never = report.policies.iter().any(|policy| policy.never > 0);
    let mut head = vec!["ADMITTED", "DENIED", "SHARE"];
    if costs {
        head.push("OF COST");
    }
    if never {
        head.push("NEVER FIT");
    }
    head.extend(["SUBJECTS", "LONGEST WAIT"]);
    let mut grid = Grid::new("POLICY", head);
    for policy in &report.policies {
        grid.push(visible(&policy.policy).into_owned(), cells(policy, costs, never));
    }
    grid
}

/// Writes a line about the grants to a quota, or nothing if there were none.
fn grants(
    policy: &PolicyReport,
    out: &mut impl io::Write,
    width: usize,
    paint: Paint,
) -> io::Result<()> {
    let Some(GrantsReport { amount, made, refused }) = policy.grants else { return Ok(()) };
    let made = format!("{} of {} in all", counted(made, "grant", "grants"), thousands(amount));
    let refused = match refused {
        0 => String::new(),
        some => paint.text(&format!(", {} refused", thousands(some)), Tone::Warning),
    };
    writeln!(out, "{}: {made}{refused}", shorten(&policy.policy, width / 2))
}

/// Writes a line about the warnings of a policy, or nothing if it never warns.
fn warnings(policy: &PolicyReport, out: &mut impl io::Write, width: usize) -> io::Result<()> {
    let Some(WarningsReport { requests, subjects }) = policy.warnings else { return Ok(()) };
    let requests = counted(requests, "request", "requests");
    let subjects = counted(subjects, "subject", "subjects");
    let policy = shorten(&policy.policy, width / 2);
    writeln!(out, "{policy}: warned at {requests} of {subjects}")
}

/// Writes a line about the pool, or nothing if there was none.
fn pool(policy: &PolicyReport, out: &mut impl io::Write, width: usize) -> io::Result<()> {
    let Some(pool) = &policy.pool else { return Ok(()) };
    let own = counted(policy.admitted.saturating_sub(pool.admitted), "request", "requests");
    let (name, policy) = (shorten(&pool.policy, width / 3), shorten(&policy.policy, width / 3));
    writeln!(out, "{policy}: paid for {own}; {name} for {}", thousands(pool.admitted))
}

fn cells(policy: &PolicyReport, costs: bool, never: bool) -> Vec<Cell> {
    let alarm = if policy.denied > 0 { Tone::Warning } else { Tone::Plain };
    let mut cells = vec![
        Cell::plain(thousands(policy.admitted)),
        Cell::new(thousands(policy.denied), alarm),
        Cell::new(share(policy.denied, policy.requests()), alarm),
    ];
    if costs {
        cells.push(Cell::new(share(policy.cost_denied, policy.cost()), alarm));
    }
    if never {
        cells.push(Cell::plain(thousands(policy.never)));
    }
    cells.push(Cell::plain(thousands(policy.subjects_denied)));
    cells.push(Cell::plain(policy.max_wait.map_or_else(|| "–".to_owned(), micros_text)));
    cells
}

/// Writes the most denied subjects of each policy. In each line, the numbers precede the subject,
/// so that they are aligned regardless of the length of the subjects.
fn offenders(
    policies: &[PolicyReport],
    out: &mut impl io::Write,
    width: usize,
    paint: Paint,
) -> io::Result<()> {
    let shown = |policy: &PolicyReport| policy.offenders.len().min(OFFENDERS);
    let all = || policies.iter().flat_map(|policy| &policy.offenders[..shown(policy)]);
    let widest = |number: fn(&Offender) -> u64| all().map(number).max().map_or(0, digits);
    let (denied_width, of_width) = (widest(|one| one.denied), widest(|one| one.requests));
    let numbers_width = 2 + denied_width + 4 + of_width + 2 + 7 + 2;
    writeln!(out, "{}", paint.text("MOST DENIED SUBJECTS", Tone::Heading))?;
    for policy in policies.iter().filter(|policy| !policy.offenders.is_empty()) {
        writeln!(out, "{}", visible(&policy.policy))?;
        for one in &policy.offenders[..shown(policy)] {
            let denied = format!("{:>denied_width$}", thousands(one.denied));
            let numbers = format!(
                " of {:>of_width$}  {:>7}",
                thousands(one.requests),
                share(one.denied, one.requests)
            );
            let room = width.saturating_sub(numbers_width).max(16);
            let subject = shorten(&one.subject, room);
            writeln!(out, "  {}{numbers}  {subject}", paint.text(&denied, Tone::Warning))?;
        }
    }
    Ok(())
}

fn digits(number: u64) -> usize {
    thousands(number).len()
}

fn suggestions(
    group: &[Suggestion],
    out: &mut impl io::Write,
    width: usize,
    paint: Paint,
) -> io::Result<()> {
    let asked = group.first().map_or("", |one| one.asked.as_str());
    writeln!(out, "{}", paint.text("SUGGESTED LIMITS", Tone::Heading))?;
    writeln!(
        out,
        "The smallest limit of each kind under which at least {} % of the",
        visible(asked)
    )?;
    writeln!(out, "subjects would never have been denied.")?;
    let mut grid = Grid::new("POLICY", vec!["LIMIT", "NEVER DENIED", "OF SUBJECTS", "SHARE"]);
    for one in group {
        let cells = vec![
            Cell::new(thousands(one.limit), Tone::Heading),
            Cell::plain(thousands(one.subjects_content)),
            Cell::plain(thousands(one.subjects)),
            Cell::plain(share(one.subjects_content, one.subjects)),
        ];
        grid.push(visible(&one.policy).into_owned(), cells);
    }
    grid.write(out, width, paint)
}
