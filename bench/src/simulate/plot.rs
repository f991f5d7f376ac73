//! The figures against the number of nodes, as a picture.

use super::scenario::Figures;
use crate::picture::Picture;

const WIDTH: u64 = 720;
const HEIGHT: u64 = 320;
const LEFT: u64 = 60;
const RIGHT: u64 = 190;
const TOP: u64 = 40;
const BOTTOM: u64 = 40;

/// The colours of the lines, on a light and on a dark background.
const STYLES: [&str; 2] = [
    "polyline { fill: none; stroke-width: 2 } .a { stroke: #0969da } .b { stroke: #cf222e } .c { stroke: #1a7f37 }",
    ".a { stroke: #4493f8 } .b { stroke: #f85149 } .c { stroke: #3fb950 }",
];

/// A line for each figure: its name, its class and the figure in millionths.
type Line = (&'static str, &'static str, fn(&Figures) -> u64);

const LINES: [Line; 3] = [
    ("refused too early", "a", |it| it.refused),
    ("stranded by a killed node", "b", |it| it.stranded),
    ("unused of a full window", "c", |it| it.unused),
];

/// Percent of the limit, against the number of nodes on a logarithmic axis.
pub(super) fn draw(rows: &[(usize, Figures)]) -> String {
    let figures = rows.iter().flat_map(|(_, it)| LINES.map(|(_, _, figure)| figure(it)));
    let max = figures.max().unwrap_or(0).max(1_000);
    // A line at each half, one, two, five and so on, so that there are two to five of them.
    let steps = [1, 2, 5].map(|step| [1_000, 10_000, 100_000].map(|unit| step * unit));
    let steps = steps.into_iter().flatten();
    let step = steps.filter(|step| max / step < 5).min().unwrap_or(1_000_000);
    let top = max.div_ceil(step) * step;
    let x_of =
        |nodes: usize| LEFT + doublings(nodes) * (WIDTH - LEFT - RIGHT) / doublings(last(rows));
    let y_of = |millionths: u64| HEIGHT - BOTTOM - millionths * (HEIGHT - TOP - BOTTOM) / top;

    let mut picture = Picture::default();
    picture.heading(22, "Percent of the limit, against the number of nodes");
    for millionths in (0..=top).step_by(usize::try_from(step).unwrap_or(usize::MAX)) {
        let y = y_of(millionths);
        picture.grid_line((LEFT, y), (WIDTH - RIGHT, y));
        let percent = format!("{}.{} %", millionths / 10_000, millionths / 1_000 % 10);
        picture.label((LEFT - 6, y + 4), "end", &percent);
    }
    for (nodes, _) in rows {
        picture.label((x_of(*nodes), HEIGHT - BOTTOM + 18), "middle", &nodes.to_string());
    }
    for (place, (name, class, figure)) in LINES.into_iter().enumerate() {
        let points: Vec<_> = rows
            .iter()
            .map(|(nodes, it)| format!("{},{}", x_of(*nodes), y_of(figure(it))))
            .collect();
        let (x, y) = (WIDTH - RIGHT + 14, TOP + 22 * place as u64);
        for points in [points.join(" "), format!("{x},{y} {},{y}", x + 16)] {
            picture.add(format_args!(r#"<polyline class="{class}" points="{points}"/>"#));
        }
        picture.label((x + 22, y + 4), "start", name);
    }
    picture.finish("What leases cost, against the number of nodes", (WIDTH, HEIGHT), STYLES)
}

fn last(rows: &[(usize, Figures)]) -> usize {
    rows.iter().map(|(nodes, _)| *nodes).max().unwrap_or(1).max(2)
}

/// The logarithm to base 2, in thousandths; within a doubling it is taken for a straight line.
fn doublings(nodes: usize) -> u64 {
    let nodes = nodes.max(1);
    let whole = nodes.ilog2();
    let within = ((nodes as u64 * 1_000) >> whole) - 1_000;
    u64::from(whole) * 1_000 + within
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_axis_is_logarithmic() {
        assert_eq!([1, 2, 3, 8, 1_024].map(doublings), [0, 1_000, 1_500, 3_000, 10_000]);
    }

    #[test]
    fn each_figure_is_a_line_within_the_picture() {
        let figures = |part| Figures {
            overshoot: 0,
            refused: part,
            stranded: 2 * part,
            unused: 31_000,
            calls: 3,
            calls_when_full: 4,
        };
        let picture = draw(&[(1, figures(0)), (8, figures(900)), (1_000, figures(15_000))]);
        assert_eq!(picture.matches("<polyline").count(), 6);
        assert!(picture.contains(r#"points="60,280 "#), "{picture}");
        assert!(picture.contains("4.0 %") && !picture.contains("5.0 %"), "{picture}");
    }
}
