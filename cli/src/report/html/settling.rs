//! Writes the numbers of late costs, and plots the used and idle amounts and the overshoot over
//! time.

use std::io;

use super::bars::{Lane, MAX_BARS, outline};
use super::escape::Html;
use super::scale::{Axis, LENGTH, Tick};
use super::timeline::{TICKS, axis_labels};
use crate::report::escape::shorten;
use crate::report::number::{compact, thousands};
use crate::report::time::moment;
use crate::report::{Fill, Report, SettlingReport, SettlingRun};

/// The height of a panel, in tenths of a pixel.
const HEIGHT: u32 = 980;

/// Writes the section about late costs, or nothing if the report has no late costs.
pub(super) fn write(report: &Report, out: &mut impl io::Write) -> io::Result<()> {
    let Some(settling) = &report.settling else { return Ok(()) };
    caption(settling, out)?;
    table(settling, out)?;
    if let Some(axis) = axis(&settling.runs) {
        let ticks = axis.ticks(TICKS);
        writeln!(
            out,
            "<p class=\"note after\">In each step of time, the moment at which most was taken from one \
             subject: <span class=\"key admitted\"></span><b>used</b>, <span class=\"key idle\"></span>\
             <b>held and not used</b>, <span class=\"key denied\"></span><b>used beyond the limit</b>, \
             which is the line.</p>\n<div class=\"panels\">"
        )?;
        axis_labels(&ticks, out)?;
        for runs in settling.runs.chunk_by(|one, next| one.policy == next.policy) {
            for run in runs {
                panel(run, max_taken(runs), &axis, &ticks, out)?;
            }
        }
        writeln!(out, "</div>")?;
    }
    writeln!(out, "</section>")
}

fn caption(settling: &SettlingReport, out: &mut impl io::Write) -> io::Result<()> {
    writeln!(
        out,
        "<section aria-labelledby=\"settling\">\n<h2 id=\"settling\">Cost known afterwards</h2>\n\
         <p class=\"note\"><b>{}</b> ({} in all) is known when a request ends, and comes at {}. \
         <b>check</b> admits while anything is left, and charges at the end. <b>fixed</b> holds {} for \
         it, and settles at the end. <b>learned</b> holds what covers {} of past requests.</p>",
        Html(shorten(&settling.late_cost_of, 60)),
        thousands(settling.late_cost),
        Html(&settling.pace),
        thousands(settling.estimate),
        Html(&settling.cover),
    )
}

fn table(settling: &SettlingReport, out: &mut impl io::Write) -> io::Result<()> {
    write!(
        out,
        "<div class=\"scroll\"><table><thead><tr><th scope=\"col\">Policy</th>\
         <th scope=\"col\">Way</th>"
    )?;
    let names = [
        "Admitted",
        "Cost admitted",
        "Overshoot",
        "of it by low estimates",
        "Falsely denied",
        "Idle on average",
    ];
    for name in names {
        write!(out, "<th scope=\"col\" class=\"number\">{name}</th>")?;
    }
    writeln!(out, "</tr></thead>\n<tbody>")?;
    for run in &settling.runs {
        write!(
            out,
            "<tr><th scope=\"row\" class=\"policy\">{}</th><td>{}</td>",
            Html(&run.policy),
            run.way.as_str(),
        )?;
        let numbers = [
            run.admitted,
            run.cost_admitted,
            run.overshoot,
            run.overshoot_of_overage,
            run.falsely_denied,
            run.idle_cost,
        ];
        for number in numbers {
            write!(out, "<td class=\"number\">{}</td>", thousands(number))?;
        }
        writeln!(out, "</tr>")?;
    }
    writeln!(
        out,
        "</tbody></table></div>\n<p class=\"note after\">The overshoot is the maximum that was used beyond \
         the limit, where a request uses its cost from its admission. A request is falsely denied if its \
         cost, with what was used at the time, was within the limit. What is held and will not be used \
         is idle.</p>"
    )
}

/// Returns an axis from the start of the first step of all runs to the end of the last step.
fn axis(runs: &[SettlingRun]) -> Option<Axis> {
    let real = || runs.iter().map(|run| &run.fill).filter(|fill| fill.step > 0 && steps(fill) > 0);
    let end = |fill: &Fill| fill.start.saturating_add(fill.step.saturating_mul(steps(fill) as u64));
    Some(Axis::new(real().map(|fill| fill.start).min()?, real().map(end).max()?))
}

fn steps(fill: &Fill) -> usize {
    fill.used.len().max(fill.idle.len())
}

/// Several joined steps of time, with the used and the idle amount of the step in which the sum of
/// both is largest.
struct Step {
    from: u64,
    to: u64,
    used: u64,
    idle: u64,
}

impl Step {
    fn taken(&self) -> u64 {
        self.used.saturating_add(self.idle)
    }
}

/// Joins the steps of time into at most [`MAX_BARS`] longer steps.
fn steps_of(fill: &Fill) -> Vec<Step> {
    let value = |values: &[u64], index: usize| values.get(index).copied().unwrap_or(0);
    let start = |index: usize| fill.start.saturating_add(fill.step.saturating_mul(index as u64));
    let (count, together) = (steps(fill), steps(fill).div_ceil(MAX_BARS).max(1));
    let step = |first: usize| {
        let indices = first..count.min(first + together);
        let to = start(indices.end);
        let moment = |index| Step {
            from: start(first),
            to,
            used: value(&fill.used, index),
            idle: value(&fill.idle, index),
        };
        indices.map(moment).max_by_key(Step::taken)
    };
    (0..count).step_by(together).filter_map(step).collect()
}

/// Returns the maximum of the vertical axis, which all panels of a policy share.
fn max_taken(runs: &[SettlingRun]) -> u64 {
    let steps = runs.iter().flat_map(|run| steps_of(&run.fill));
    let fullest = steps.map(|step| step.taken()).max().unwrap_or(0);
    fullest.max(runs.first().map_or(0, |run| run.limit))
}

fn panel(
    run: &SettlingRun,
    max: u64,
    axis: &Axis,
    ticks: &[Tick],
    out: &mut impl io::Write,
) -> io::Result<()> {
    let (name, way) = (Html(&run.policy), run.way.as_str());
    let (overshoot, idle) = (thousands(run.overshoot), thousands(run.idle_cost));
    writeln!(
        out,
        "<figure><figcaption><span class=\"policy\">{name}, {way}</span> \
         <span class=\"count\"><b>{overshoot}</b> beyond the limit <small>{idle} idle</small></span>\
         </figcaption>\n<div class=\"plot\"><svg viewBox=\"0 0 {LENGTH} {HEIGHT}\" \
         preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{name}, {way}, over time: at most \
         {overshoot} beyond the limit, {idle} idle on average\">",
    )?;
    for tick in ticks {
        write!(out, "<path class=\"grid\" d=\"M{} 0V{HEIGHT}\"/>", tick.position)?;
    }
    let lane = Lane { max, baseline: HEIGHT, height: HEIGHT, min_height: 0, up: true };
    let steps = steps_of(&run.fill);
    let shape = |value: fn(&Step, u64) -> u64| {
        let values = steps.iter().map(|step| (step.from, step.to, value(step, run.limit)));
        outline(&lane, axis, values)
    };
    // The three shapes are drawn over each other, the largest first. So only the upper part of a
    // larger shape is visible.
    let layers = [
        ("idle", shape(|step, _| step.taken())),
        ("denied", shape(|step, _| step.used)),
        ("admitted", shape(|step, limit| step.used.min(limit))),
    ];
    for (class, path) in layers {
        writeln!(out, "<path class=\"{class}\" d=\"{path}\"/>")?;
    }
    writeln!(out, "<path class=\"limit\" d=\"M0 {}H{LENGTH}\"/>", lane.level(run.limit))?;
    for step in steps.iter().filter(|step| step.taken() > 0) {
        let (from, to) = (axis.position(step.from), axis.position(step.to));
        writeln!(
            out,
            "<rect x=\"{from}\" width=\"{}\" height=\"{HEIGHT}\"><title>{} UTC: {} used, {} idle\
             </title></rect>",
            to - from,
            moment(step.from),
            thousands(step.used),
            thousands(step.idle),
        )?;
    }
    writeln!(
        out,
        "</svg><div class=\"ends\" aria-hidden=\"true\"><span>{}</span></div></div></figure>",
        compact(max),
    )
}
