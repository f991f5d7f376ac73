//! What was measured, as a picture.

use super::Samples;
use super::contender::Contender;
use super::report::median;
use crate::picture::Picture;

const WIDTH: u64 = 860;
/// Where the bars begin.
const LEFT: u64 = 330;
const ROW: u64 = 19;
const HEAD: u64 = 34;
/// Pixels for twice the time: the axis is logarithmic, as the slowest takes hundreds of times as long
/// as the fastest.
const DOUBLING: u64 = 42;
/// Where the axis begins, in tenths of a nanosecond.
const FIRST: u64 = 80;

/// The colours of the bars, on a light and on a dark background.
const STYLES: [&str; 2] = [
    ".ours { fill: #0969da } .peer { fill: #8c959f }",
    ".ours { fill: #4493f8 } .peer { fill: #656c76 }",
];

/// A block of bars for each workload: nanoseconds a check on one thread.
pub(super) fn draw<K>(
    samples: &Samples,
    contenders: &[Contender<K>],
    workloads: &[(&'static str, &str)],
) -> String {
    let mut picture = Picture::default();
    let mut y = HEAD;
    for (id, title) in workloads {
        picture.heading(y, title);
        let bars =
            contenders.iter().filter_map(|one| Some((one.name, median(samples, one.name, id, 1)?)));
        let mut bars: Vec<_> = bars.collect();
        bars.sort_by_key(|(_, tenths)| *tenths);
        // Lines at 10, 100, 1,000 and 10,000 ns.
        for tenths in [100, 1_000, 10_000, 100_000] {
            let x = LEFT + from_the_first(tenths);
            picture.grid_line((x, y + 6), (x, y + 8 + ROW * bars.len() as u64));
        }
        for (name, tenths) in bars {
            y += ROW;
            bar(&mut picture, y, name, tenths);
        }
        y += HEAD + 10;
    }
    picture.finish("Nanoseconds a check takes on one thread", (WIDTH, y), STYLES)
}

fn bar(picture: &mut Picture, y: u64, name: &str, tenths: u64) {
    let name = name.replace(['*', '`'], "").replace('<', "&lt;").replace('>', "&gt;");
    let class = if name.starts_with("tidegate") { "ours" } else { "peer" };
    let length = from_the_first(tenths).max(1);
    picture.label((LEFT - 8, y + 3), "end", &name);
    picture.add(format_args!(
        r#"<rect class="{class}" x="{LEFT}" y="{}" width="{length}" height="13"/>"#,
        y - 8
    ));
    picture.label((LEFT + length + 6, y + 3), "start", &format!("{} ns", (tenths + 5) / 10));
}

/// Pixels from the start of the axis. Within a doubling the logarithm is taken for a straight line,
/// which is off by less than four pixels.
fn from_the_first(tenths: u64) -> u64 {
    let hundredths = tenths.max(FIRST) * 1_024 / FIRST;
    let doublings = u64::from(hundredths.ilog2());
    let within = ((hundredths * DOUBLING) >> doublings) - DOUBLING;
    (doublings - 10) * DOUBLING + within
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twice_the_time_is_as_much_further_everywhere() {
        assert_eq!(from_the_first(0), 0);
        for tenths in [80, 100, 333, 4_000] {
            let further = from_the_first(2 * tenths) - from_the_first(tenths);
            assert!(further.abs_diff(DOUBLING) <= 1, "{further} at {tenths}");
        }
        assert!(from_the_first(160_000) < WIDTH - LEFT - 40);
    }
}
