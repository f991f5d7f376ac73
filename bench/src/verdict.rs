//! Targets that figures are compared with, and what was measured.

use crate::figures::Thousandths;

/// A ratio, and the highest that it is wanted to be.
#[derive(Debug)]
pub(crate) struct Verdict {
    pub(crate) what: String,
    pub(crate) max: Thousandths,
    pub(crate) measured: Thousandths,
}

impl Verdict {
    pub(crate) fn is_met(&self) -> bool {
        self.measured <= self.max
    }
}

pub(crate) fn are_met(verdicts: &[Verdict]) -> bool {
    verdicts.iter().all(Verdict::is_met)
}

/// A list, with a line for each.
pub(crate) fn list(verdicts: &[Verdict]) -> String {
    let mut list = String::new();
    for verdict in verdicts {
        let word = if verdict.is_met() { "met" } else { "NOT MET" };
        let Verdict { what, max, measured } = verdict;
        // To the digit that decides: 0.704 is not 0.70.
        let (measured, max) = (measured.exact(), max.exact());
        list += &format!("- {word}: {what}: {measured}, target ≤ {max}\n");
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_met_up_to_its_ratio_and_no_further() {
        let verdict = |measured| {
            let (what, max) = (String::new(), Thousandths(600));
            Verdict { what, max, measured: Thousandths(measured) }
        };
        assert!(verdict(599).is_met());
        assert!(verdict(600).is_met());
        assert!(!verdict(601).is_met());
        assert!(are_met(&[verdict(1), verdict(600)]) && !are_met(&[verdict(601), verdict(1)]));
    }
}
