//! What is measured, and how it is printed.

use std::fmt;
use std::time::Duration;

pub(super) const WINDOW: Duration = Duration::from_secs(1);

/// Limit, shards, and the share that is refused at random, in tenths of a percent, as it was given
/// to be beaten.
pub(super) const LIMITS: [(u64, u32, u64); 5] =
    [(20, 4, 155), (100, 10, 121), (1_000, 4, 22), (1_000, 10, 37), (10_000, 16, 15)];

/// How many processes send the requests.
pub(super) const CALLERS: [u64; 4] = [1, 10, 100, 1_000];

/// A part of what was asked.
#[derive(Debug, Clone, Copy)]
pub(super) struct Share {
    pub(super) part: u64,
    pub(super) of: u64,
}

impl Share {
    pub(super) fn is_below(self, tenths_of_percent: u64) -> bool {
        u128::from(self.part) * 1_000 < u128::from(self.of) * u128::from(tenths_of_percent)
    }
}

impl fmt::Display for Share {
    /// In percent, to the nearest hundredth.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hundredths = (self.part * 10_000 + self.of / 2) / self.of.max(1);
        write!(f, "{}.{:02}", hundredths / 100, hundredths % 100)
    }
}

pub(super) fn write_head() {
    println!(
        "Requests refused though there was room, in percent, when just the limit arrives; by any \
         caller in any order, each of which begins anew in each window. In turn: one try, two tries.\n"
    );
    print!("| limit | shards | to beat | random, once | random, twice |");
    CALLERS.iter().for_each(|callers| print!(" in turn, callers: {callers} |"));
    println!("\n|--:|--:|--:|--:|--:|{}", "--:|".repeat(CALLERS.len()));
}

pub(super) fn write_row(
    (limit, shards): (u64, u32),
    at_random: u64,
    chance: &[Share],
    ours: &[(Share, Share)],
) {
    print!("| {limit} | {shards} | {}.{} |", at_random / 10, at_random % 10);
    chance.iter().for_each(|share| print!(" {share} |"));
    ours.iter().for_each(|(once, twice)| print!(" {once}, **{twice}** |"));
    println!();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_printed_in_percent_to_the_nearest_hundredth() {
        assert_eq!(Share { part: 1, of: 3 }.to_string(), "33.33");
        assert_eq!(Share { part: 155, of: 10_000 }.to_string(), "1.55");
        assert_eq!(Share { part: 0, of: 7 }.to_string(), "0.00");
        assert!(Share { part: 154, of: 1_000 }.is_below(155));
        assert!(!Share { part: 155, of: 1_000 }.is_below(155));
    }
}
