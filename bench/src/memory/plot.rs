//! What was measured, as a picture: SVG, light or dark as its reader prefers.

use std::fmt::Write;

use super::Samples;
use super::contender::Contender;
use super::report::median;

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

const STYLE: &str = "\
svg { background: #fff; font: 13px system-ui, sans-serif }
text { fill: #1f2328 } .small { fill: #59636e; font-size: 12px } .title { font-weight: 600 }
.ours { fill: #0969da } .peer { fill: #8c959f } .line { stroke: #d1d9e0 }
@media (prefers-color-scheme: dark) {
svg { background: #0d1117 } text { fill: #f0f6fc } .small { fill: #9198a1 }
.ours { fill: #4493f8 } .peer { fill: #656c76 } .line { stroke: #3d444d }
}";

/// A block of bars for each workload: nanoseconds a check on one thread.
pub(super) fn draw<K>(
    samples: &Samples,
    contenders: &[Contender<K>],
    workloads: &[(&'static str, &str)],
) -> String {
    let mut body = String::new();
    let mut y = HEAD;
    for (id, title) in workloads {
        let _ = writeln!(body, r#"<text class="title" x="12" y="{y}">{title}</text>"#);
        let bars =
            contenders.iter().filter_map(|one| Some((one.name, median(samples, one.name, id, 1)?)));
        let mut bars: Vec<_> = bars.collect();
        bars.sort_by_key(|(_, tenths)| *tenths);
        let _ = write!(body, "{}", grid(y + 6, y + 8 + ROW * bars.len() as u64));
        for (name, tenths) in bars {
            y += ROW;
            bar(&mut body, y, name, tenths);
        }
        y += HEAD + 10;
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {y}\" role=\"img\">\n\
         <title>Nanoseconds a check takes on one thread</title>\n<style>{STYLE}</style>\n{body}</svg>\n"
    )
}

fn bar(body: &mut String, y: u64, name: &str, tenths: u64) {
    let name = name.replace(['*', '`'], "").replace('<', "&lt;").replace('>', "&gt;");
    let class = if name.starts_with("tidegate") { "ours" } else { "peer" };
    let length = from_the_first(tenths).max(1);
    let _ = writeln!(
        body,
        r#"<text class="small" x="{}" y="{}" text-anchor="end">{name}</text><rect class="{class}" x="{LEFT}" y="{}" width="{length}" height="13"/><text class="small" x="{}" y="{}">{} ns</text>"#,
        LEFT - 8,
        y + 3,
        y - 8,
        LEFT + length + 6,
        y + 3,
        (tenths + 5) / 10,
    );
}

/// Lines at 10, 100, 1,000 and 10,000 ns.
fn grid(top: u64, bottom: u64) -> String {
    [100, 1_000, 10_000, 100_000]
        .map(|tenths| {
            let x = LEFT + from_the_first(tenths);
            format!("<line class=\"line\" x1=\"{x}\" y1=\"{top}\" x2=\"{x}\" y2=\"{bottom}\"/>\n")
        })
        .concat()
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
