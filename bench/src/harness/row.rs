//! The rows of the table of `compare`.

use super::figures::Thousandths;
use crate::Outcome;

/// A figure and its bound, in thousandths of the unit.
#[derive(Debug)]
pub(crate) struct Row {
    load: String,
    unit: &'static str,
    wanted: Wanted,
    /// The figure, or the reason why it was not measured.
    measured: Result<Thousandths, String>,
}

#[derive(Debug, Clone, Copy)]
enum Wanted {
    Max(Thousandths),
    Min(Thousandths),
}

impl Row {
    pub(crate) fn at_most(
        load: impl Into<String>,
        unit: &'static str,
        max: u64,
        measured: Outcome<Thousandths>,
    ) -> Self {
        Self::new(load.into(), unit, Wanted::Max(Thousandths(max)), measured)
    }

    pub(crate) fn at_least(
        load: impl Into<String>,
        unit: &'static str,
        min: u64,
        measured: Outcome<Thousandths>,
    ) -> Self {
        Self::new(load.into(), unit, Wanted::Min(Thousandths(min)), measured)
    }

    fn new(
        load: String,
        unit: &'static str,
        wanted: Wanted,
        measured: Outcome<Thousandths>,
    ) -> Self {
        // A message of several lines would break the table.
        let measured = measured
            .map_err(|error| error.to_string().split_whitespace().collect::<Vec<_>>().join(" "));
        Self { load, unit, wanted, measured }
    }

    pub(crate) fn is_met(&self) -> bool {
        match (&self.measured, self.wanted) {
            (Ok(measured), Wanted::Max(max)) => *measured <= max,
            (Ok(measured), Wanted::Min(min)) => *measured >= min,
            (Err(_), _) => false,
        }
    }

    /// Returns the row as a line of a Markdown table. The last column contains the reason if the
    /// figure was not measured. If it was measured and `judges` is `true`, the last column says
    /// whether the figure meets its bound.
    pub(crate) fn markdown(&self, judges: bool) -> String {
        let Self { load, unit, wanted, measured } = self;
        let (sign, bound) = match wanted {
            Wanted::Max(max) => ("≤", max),
            Wanted::Min(min) => ("≥", min),
        };
        let (figure, verdict) = match measured {
            Ok(figure) if !judges => (short(*figure, unit), String::new()),
            Ok(figure) if self.is_met() => (short(*figure, unit), "met".to_owned()),
            Ok(figure) => (short(*figure, unit), "NOT MET".to_owned()),
            Err(reason) => (String::new(), format!("not measured: {reason}")),
        };
        format!("| {load} | {figure} | {sign} {} | {verdict} |", short(*bound, unit))
    }
}

fn short(figure: Thousandths, unit: &str) -> String {
    let exact = figure.exact();
    format!("{} {unit}", exact.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_met_up_to_its_bound() {
        let most = |measured| Row::at_most("a", "×", 900, Ok(Thousandths(measured)));
        assert_eq!(most(900).markdown(true), "| a | 0.9 × | ≤ 0.9 × | met |");
        assert_eq!(most(901).markdown(true), "| a | 0.901 × | ≤ 0.9 × | NOT MET |");
        let least = |measured| Row::at_least("b", "/s", 20_000_000, Ok(Thousandths(measured)));
        assert!(least(20_000_000).is_met());
        assert_eq!(least(19_999_000).markdown(true), "| b | 19999 /s | ≥ 20000 /s | NOT MET |");
        assert_eq!(least(1_000).markdown(false), "| b | 1 /s | ≥ 20000 /s |  |");
    }

    #[test]
    fn a_row_without_a_figure_says_why_and_is_not_met() {
        let row = Row::at_most("c", "ms", 3_000, Err("no server\n  on this machine".into()));
        assert!(!row.is_met());
        assert_eq!(
            row.markdown(true),
            "| c |  | ≤ 3 ms | not measured: no server on this machine |"
        );
    }
}
