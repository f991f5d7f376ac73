//! Compares measured figures with their targets.

use super::figures::Thousandths;

#[derive(Debug)]
pub(crate) struct Verdict {
    pub(crate) what: String,
    pub(crate) max: Thousandths,
    pub(crate) measured: Thousandths,
}

impl Verdict {
    pub(crate) fn new(what: impl Into<String>, measured: Thousandths, max: Thousandths) -> Self {
        Self { what: what.into(), max, measured }
    }

    fn is_met(&self) -> bool {
        self.measured <= self.max
    }
}

/// Prints the verdicts. Returns `false` if `check` is set and a target is missed.
pub(crate) fn finish(verdicts: &[Verdict], check: bool) -> bool {
    println!("\n## Targets\n");
    for verdict in verdicts {
        let word = if verdict.is_met() { "met" } else { "NOT MET" };
        let Verdict { what, max, measured } = verdict;
        // Two decimals would hide that 0.704 misses a target of 0.70.
        println!("- {word}: {what}: {}, target ≤ {}", measured.exact(), max.exact());
    }
    !check || verdicts.iter().all(Verdict::is_met)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_met_up_to_its_ratio_and_no_further() {
        let verdict = |measured| Verdict::new("", Thousandths(measured), Thousandths(600));
        assert!(verdict(599).is_met());
        assert!(verdict(600).is_met());
        assert!(!verdict(601).is_met());
        assert!(finish(&[verdict(1), verdict(600)], true));
        assert!(!finish(&[verdict(601), verdict(1)], true));
        assert!(finish(&[verdict(601)], false));
    }
}
