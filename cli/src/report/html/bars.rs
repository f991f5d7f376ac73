//! Joins a timeline into bars that are wide enough to see, and draws them.

use super::scale::Axis;
use crate::report::Timeline;
use crate::report::number::scaled;

/// The maximum number of bars. More bars would be too narrow on a phone.
pub(super) const MAX_BARS: usize = 192;

/// Common lengths of time, in microseconds.
const ROUND: [u64; 22] = [
    1_000,
    10_000,
    100_000,
    500_000,
    1_000_000,
    2_000_000,
    5_000_000,
    10_000_000,
    15_000_000,
    30_000_000,
    60_000_000,
    120_000_000,
    300_000_000,
    600_000_000,
    900_000_000,
    1_800_000_000,
    3_600_000_000,
    10_800_000_000,
    21_600_000_000,
    43_200_000_000,
    86_400_000_000,
    604_800_000_000,
];

/// The requests of several joined steps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Bar {
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) admitted: u64,
    pub(super) denied: u64,
}

/// Returns the length of time that a bar covers. It is a multiple of the step, and long enough that
/// there are at most [`MAX_BARS`] bars. If possible, it is one of the lengths in [`ROUND`].
pub(super) fn length(timeline: &Timeline) -> u64 {
    let min_steps = steps(timeline).div_ceil(MAX_BARS).max(1) as u64;
    let round = (min_steps..=min_steps * 2)
        .filter_map(|steps| timeline.step.checked_mul(steps))
        .find(|length| ROUND.contains(length));
    round.unwrap_or_else(|| timeline.step.saturating_mul(min_steps)).max(1)
}

/// Returns the bars of a timeline, in order of time. If the steps permit it, every bar except the
/// first begins at a multiple of its length.
pub(super) fn bars(timeline: &Timeline) -> Vec<Bar> {
    let length = length(timeline);
    let mut bars: Vec<Bar> = Vec::new();
    for index in 0..steps(timeline) {
        let from = timeline.start.saturating_add(timeline.step.saturating_mul(index as u64));
        let to = from.saturating_add(timeline.step);
        let admitted = timeline.admitted.get(index).copied().unwrap_or(0);
        let denied = timeline.denied.get(index).copied().unwrap_or(0);
        match bars.last_mut() {
            Some(bar) if bar.from / length == from / length => {
                bar.to = to;
                bar.admitted = bar.admitted.saturating_add(admitted);
                bar.denied = bar.denied.saturating_add(denied);
            }
            _ => bars.push(Bar { from, to, admitted, denied }),
        }
    }
    bars
}

/// Returns the number of steps of a timeline, or 0 if the steps have no length.
pub(super) fn steps(timeline: &Timeline) -> usize {
    if timeline.step == 0 { 0 } else { timeline.admitted.len().max(timeline.denied.len()) }
}

/// The scale and the position of the bars above the baseline of a plot, or of the bars below it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lane {
    /// The value of a bar that fills the whole height.
    pub(super) max: u64,
    /// The position of the baseline, in units of the picture.
    pub(super) baseline: u32,
    /// The height of a bar with the value `max`.
    pub(super) height: u32,
    /// The minimum height of a value that is not zero, so that it is visible.
    pub(super) min_height: u32,
    /// Whether the bars extend upward from the baseline.
    pub(super) up: bool,
}

impl Lane {
    /// Returns an SVG path around the bars. Neighboring bars form one shape, because gaps between
    /// separate shapes would flicker.
    pub(super) fn path(&self, bars: &[Bar], axis: &Axis, value: fn(&Bar) -> u64) -> String {
        outline(self, axis, bars.iter().map(|bar| (bar.from, bar.to, value(bar))))
    }

    /// Returns the vertical position of the end of a bar with this value.
    pub(super) fn level(&self, value: u64) -> u32 {
        let height = scaled(value, self.max, self.height).max(self.min_height);
        if self.up { self.baseline.saturating_sub(height) } else { self.baseline + height }
    }
}

/// Returns an SVG path around bars. `values` contains the start, the end and the value of each bar.
pub(super) fn outline(
    lane: &Lane,
    axis: &Axis,
    values: impl Iterator<Item = (u64, u64, u64)>,
) -> String {
    let mut path = String::new();
    let mut end = None;
    for (from, to, value) in values.filter(|(_, _, value)| *value > 0) {
        let (from, to) = (axis.position(from), axis.position(to));
        if end != Some(from) {
            if end.is_some() {
                path.push_str(&format!("V{}z", lane.baseline));
            }
            path.push_str(&format!("M{from} {}", lane.baseline));
        }
        path.push_str(&format!("V{}H{to}", lane.level(value)));
        end = Some(to);
    }
    if end.is_some() {
        path.push_str(&format!("V{}z", lane.baseline));
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: u64 = 60_000_000;

    fn timeline(step: u64, admitted: Vec<u64>, denied: Vec<u64>) -> Timeline {
        Timeline { start: 0, step, admitted, denied }
    }

    #[test]
    fn few_steps_stay_as_they_are() {
        let bars = bars(&timeline(MINUTE, vec![3, 4], vec![0, 1]));
        assert_eq!(
            bars,
            [
                Bar { from: 0, to: MINUTE, admitted: 3, denied: 0 },
                Bar { from: MINUTE, to: 2 * MINUTE, admitted: 4, denied: 1 },
            ]
        );
    }

    #[test]
    fn many_steps_come_together_in_round_lengths_and_none_is_lost() {
        let timeline = timeline(MINUTE, vec![1; 512], vec![2; 512]);
        assert_eq!(length(&timeline), 5 * MINUTE);
        let bars = bars(&timeline);
        assert_eq!(bars.len(), 103);
        assert_eq!(bars.iter().map(|bar| bar.admitted).sum::<u64>(), 512);
        assert_eq!(bars.iter().map(|bar| bar.denied).sum::<u64>(), 1024);
    }

    #[test]
    fn bars_begin_at_multiples_of_their_length() {
        let timeline = Timeline { start: 3 * MINUTE, ..timeline(MINUTE, vec![1; 400], vec![]) };
        let bars = bars(&timeline);
        assert_eq!((bars[0].from, bars[0].to), (3 * MINUTE, 5 * MINUTE));
        assert_eq!((bars[1].from, bars[1].to), (5 * MINUTE, 10 * MINUTE));
    }

    #[test]
    fn lists_of_unequal_length_are_padded_with_zeros() {
        let bars = bars(&timeline(MINUTE, vec![1], vec![0, 7]));
        assert_eq!((bars[1].admitted, bars[1].denied), (0, 7));
    }

    #[test]
    fn a_timeline_without_a_step_has_no_bars() {
        assert_eq!(bars(&timeline(0, vec![1, 2], vec![])), []);
    }

    #[test]
    fn neighbours_share_an_outline_and_a_gap_parts_them() {
        let bars = bars(&timeline(MINUTE, vec![2, 4, 0, 4], vec![]));
        let axis = Axis::new(0, 4 * MINUTE);
        let lane = Lane { max: 4, baseline: 640, height: 600, min_height: 10, up: true };
        assert_eq!(
            lane.path(&bars, &axis, |bar| bar.admitted),
            "M0 640V340H2500V40H5000V640zM7500 640V40H10000V640z"
        );
    }

    #[test]
    fn one_among_a_million_still_shows() {
        let bars = bars(&timeline(MINUTE, vec![], vec![1, 1_000_000]));
        let axis = Axis::new(0, 2 * MINUTE);
        let lane = Lane { max: 1_000_000, baseline: 650, height: 400, min_height: 20, up: false };
        let path = lane.path(&bars, &axis, |bar| bar.denied);
        assert_eq!(path, "M0 650V670H5000V1050H10000V650z");
    }
}
