//! Plots the admitted and denied requests over time, with one panel per policy on a common axis.
//!
//! Admitted requests are above the baseline, and denied requests are below it. Often there are a
//! thousand times as many admitted as denied requests, so each side has its own scale. A label at
//! the end of the scale shows its maximum. All panels have the same two scales, so that policies
//! can be compared.

use std::io;

use super::bars::{Bar, Lane, bars, length, steps};
use super::escape::{Html, Percent};
use super::scale::{Axis, LENGTH, Tick};
use crate::report::number::{compact, share, thousands};
use crate::report::time::{micros_text, moment, period};
use crate::report::{PolicyReport, Report, Timeline};

/// The maximum height of a bar of admitted requests, in tenths of a pixel.
const ADMITTED: u32 = 600;
const BASELINE: u32 = 610;
const GAP: u32 = 10;
const DENIED: u32 = 360;
const HEIGHT: u32 = BASELINE + GAP + DENIED;

/// The minimum height of a bar that is not empty, in tenths of a pixel.
const MIN_HEIGHT: u32 = 25;

/// The maximum number of ticks on an axis. A phone shows every second tick if the ticks need too
/// much space.
pub(super) const TICKS: u64 = 9;

/// The axis and the two scales that all panels share.
struct Frame {
    axis: Axis,
    ticks: Vec<Tick>,
    admitted: Lane,
    denied: Lane,
}

/// Writes the section with the timelines, or nothing if there are no requests.
pub(super) fn write(report: &Report, out: &mut impl io::Write) -> io::Result<()> {
    let timelines = || report.policies.iter().map(|policy| &policy.timeline);
    let Some(axis) = axis(timelines()) else {
        return Ok(());
    };
    let panels: Vec<_> = timelines().map(bars).collect();
    let frame = frame(axis, &panels);
    let longest = timelines().map(length).max().unwrap_or(0);
    caption(&frame, longest, out)?;
    axis_labels(&frame.ticks, out)?;
    for (policy, bars) in report.policies.iter().zip(&panels) {
        panel(policy, bars, &frame, out)?;
    }
    writeln!(out, "</div>\n</section>")
}

/// Returns an axis from the start of the first step of all timelines to the end of the last step.
fn axis<'a>(timelines: impl Iterator<Item = &'a Timeline> + Clone) -> Option<Axis> {
    let real = timelines.filter(|timeline| steps(timeline) > 0);
    let start = real.clone().map(|timeline| timeline.start).min()?;
    let end = real.map(|timeline| {
        let length = timeline.step.saturating_mul(steps(timeline) as u64);
        timeline.start.saturating_add(length)
    });
    Some(Axis::new(start, end.max()?))
}

fn frame(axis: Axis, panels: &[Vec<Bar>]) -> Frame {
    let max_of = |value: fn(&Bar) -> u64| panels.iter().flatten().map(value).max().unwrap_or(0);
    Frame {
        ticks: axis.ticks(TICKS),
        axis,
        admitted: Lane {
            max: max_of(|bar| bar.admitted),
            baseline: BASELINE,
            height: ADMITTED,
            min_height: MIN_HEIGHT,
            up: true,
        },
        denied: Lane {
            max: max_of(|bar| bar.denied),
            baseline: BASELINE + GAP,
            height: DENIED,
            min_height: MIN_HEIGHT,
            up: false,
        },
    }
}

fn caption(frame: &Frame, length: u64, out: &mut impl io::Write) -> io::Result<()> {
    let per = micros_text(length);
    let peak = |max: u64| match max {
        0 => "there are none".to_owned(),
        max => format!("up to {} in {per}", thousands(max)),
    };
    writeln!(
        out,
        "<section aria-labelledby=\"time\">\n<h2 id=\"time\">Over time</h2>\n\
         <p class=\"note\"><span class=\"key admitted\"></span><b>Admitted</b> stand above the line: \
         {}. <span class=\"key denied\"></span><b>Denied</b> hang below it, on a scale of their own: \
         {}. All panels share the scales. <span class=\"nowrap\">{}.</span></p>\n\
         <div class=\"panels\">",
        Html(peak(frame.admitted.max)),
        Html(peak(frame.denied.max)),
        Html(period(frame.axis.start(), frame.axis.end())),
    )
}

fn panel(
    policy: &PolicyReport,
    bars: &[Bar],
    frame: &Frame,
    out: &mut impl io::Write,
) -> io::Result<()> {
    let (admitted, denied) = (thousands(policy.admitted), thousands(policy.denied));
    let name = Html(&policy.policy);
    writeln!(
        out,
        "<figure><figcaption><span class=\"policy\">{name}</span> \
         <span class=\"count\"><b>{denied}</b> denied <small>{}</small></span></figcaption>\n\
         <div class=\"plot\"><svg viewBox=\"0 0 {LENGTH} {HEIGHT}\" preserveAspectRatio=\"none\" \
         role=\"img\" aria-label=\"{name} over time: {admitted} admitted, {denied} denied\">",
        Html(share(policy.denied, policy.requests())),
    )?;
    for tick in &frame.ticks {
        write!(out, "<path class=\"grid\" d=\"M{} 0V{HEIGHT}\"/>", tick.position)?;
    }
    let shape = |lane: &Lane, value| lane.path(bars, &frame.axis, value);
    writeln!(
        out,
        "\n<path class=\"admitted\" d=\"{}\"/>\n<path class=\"denied\" d=\"{}\"/>\n\
         <path class=\"base\" d=\"M0 {2}H{LENGTH}\"/>",
        shape(&frame.admitted, |bar| bar.admitted),
        shape(&frame.denied, |bar| bar.denied),
        BASELINE + GAP / 2,
    )?;
    for bar in bars.iter().filter(|bar| bar.admitted > 0 || bar.denied > 0) {
        hint(bar, &frame.axis, out)?;
    }
    writeln!(
        out,
        "</svg><div class=\"ends\" aria-hidden=\"true\"><span>{}</span><span class=\"denied\">{}</span>\
         </div></div></figure>",
        compact(frame.admitted.max),
        compact(frame.denied.max),
    )
}

/// Writes the tooltip of a bar.
fn hint(bar: &Bar, axis: &Axis, out: &mut impl io::Write) -> io::Result<()> {
    let (from, to) = (axis.position(bar.from), axis.position(bar.to));
    writeln!(
        out,
        "<rect x=\"{from}\" width=\"{}\" height=\"{HEIGHT}\"><title>{} UTC, {}: {} admitted, {} denied\
         </title></rect>",
        to - from,
        moment(bar.from),
        micros_text(bar.to - bar.from),
        thousands(bar.admitted),
        thousands(bar.denied),
    )
}

pub(super) fn axis_labels(ticks: &[Tick], out: &mut impl io::Write) -> io::Result<()> {
    write!(out, "<div class=\"axis\" aria-hidden=\"true\"><div>")?;
    let crowded = ticks.len() > 5 || ticks.iter().any(|tick| tick.label.len() > 6);
    for (index, tick) in ticks.iter().enumerate() {
        // The first and the last label are aligned differently, so that they do not extend beyond
        // the plot.
        let side = match tick.position {
            0..=300 => "first",
            9_700.. => "last",
            _ => "inner",
        };
        let minor = if crowded && index % 2 == 1 { " minor" } else { "" };
        write!(
            out,
            "<span class=\"{side}{minor}\" style=\"left:{}\">{}</span>",
            Percent(tick.position / 10),
            Html(&tick.label),
        )?;
    }
    writeln!(out, "</div>{}</div>", if ticks.is_empty() { "" } else { "<b>UTC</b>" })
}
