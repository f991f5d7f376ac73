//! The guarantees of the trait [`Store`](tidegate_core::Store). For each property of the suite,
//! this module names the guarantee that the property tests.

use std::fmt;

/// A numbered guarantee in the documentation of [`Store`](tidegate_core::Store).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Guarantee {
    AllOrNone = 1,
    WritesNothing,
    NeverMoreNeverLess,
    StepsBack,
    DropsStates,
    SameAnswers,
    Promises,
    OwnStates,
    Changes,
    Blocks,
    Undo,
    Errors,
}

impl Guarantee {
    #[cfg(test)]
    const ALL: [Self; 12] = [
        Self::AllOrNone,
        Self::WritesNothing,
        Self::NeverMoreNeverLess,
        Self::StepsBack,
        Self::DropsStates,
        Self::SameAnswers,
        Self::Promises,
        Self::OwnStates,
        Self::Changes,
        Self::Blocks,
        Self::Undo,
        Self::Errors,
    ];

    fn sentence(self) -> &'static str {
        match self {
            Self::AllOrNone => {
                "A call makes all of its charges, or none, atomically. The costs of charges to one key \
                 add up."
            }
            Self::WritesNothing => "A denial, a peek, a cost of 0 and a failed call write nothing.",
            Self::NeverMoreNeverLess => {
                "The store admits exactly as much as the policy allows, in any interleaving of calls."
            }
            Self::StepsBack => {
                "If the clock steps back, the store admits nothing more. The step delays a recovery by \
                 at most the length of the step."
            }
            Self::DropsStates => {
                "The store drops a state only if the state cannot be distinguished from no state, by the \
                 store's clock."
            }
            Self::SameAnswers => {
                "The same calls at the same times get the same answers, in single calls or in a batch."
            }
            Self::Promises => {
                "The values of a verdict are exact: `remaining`, `retry_after`, `reset_after`."
            }
            Self::OwnStates => {
                "Two subjects, two tenants or two policies share no state, for any bytes of their names."
            }
            Self::Changes => {
                "If a policy changes and keeps its name, it also keeps its usage, or it has another state."
            }
            Self::Blocks => {
                "A block lasts exactly as long as requested, and a shadow never refuses."
            }
            Self::Undo => {
                "An undo refunds the part of its charge that has not recovered. It never refunds a charge \
                 of another call."
            }
            Self::Errors => "An error is never a denial, and a call is charged at most once.",
        }
    }

    /// Returns the guarantee that a property tests. A store without the property breaks this
    /// guarantee.
    pub(super) fn tested_by(property: &str) -> Self {
        let begins = |starts: &[&str]| starts.iter().any(|start| property.starts_with(start));
        let contains = |parts: &[&str]| parts.iter().any(|part| property.contains(part));
        match property {
            "a_peek_a_cost_of_zero_and_a_failed_call_write_nothing"
            | "a_penalty_is_all_that_a_denial_writes" => Self::WritesNothing,
            "an_undo_leaves_blocks_alone" => Self::Undo,
            "a_block_survives_a_changed_limit" => Self::Changes,
            "fresh_recovered_and_reset_keys_decide_alike" => Self::DropsStates,
            "b17_hostile_subjects_are_decided_as_by_the_oracle" => Self::OwnStates,
            "the_same_calls_get_the_same_answers"
            | "a_batch_is_answered_as_its_calls_one_by_one"
            | "batches_are_decided_as_by_the_oracle"
            | "b30_the_clock_that_counts_is_the_stores" => Self::SameAnswers,
            "b02_a_cost_above_the_limit_is_never_admitted" => Self::Promises,
            _ if begins(&["an_id_"]) || contains(&["_that_make_no_sense"]) => Self::Errors,
            _ if contains(&["undo", "undone", "_undoes_"]) => Self::Undo,
            _ if contains(&["block", "shadow"]) => Self::Blocks,
            _ if contains(&["jumping_clock", "b31_", "ends_of_time"]) => Self::StepsBack,
            _ if begins(&["b01_"]) => Self::WritesNothing,
            _ if begins(&["b04_", "b05_", "b08_", "several_charges", "charges_in_opposite"])
                || contains(&["_list_"]) =>
            {
                Self::AllOrNone
            }
            _ if begins(&["b11_", "b12_", "b13_", "b14_", "b40_"]) => Self::DropsStates,
            _ if begins(&["b17_", "b19_", "a_limit_of_a_tenant", "a_whole_limit"]) => {
                Self::OwnStates
            }
            _ if begins(&["b53_", "b60_", "b61_", "a_lowered_rate"]) => Self::Changes,
            _ if begins(&["b10_", "b35_", "b38_", "b39_", "b41_", "a_cost_of_remaining"])
                || contains(&["a_peek_says"]) =>
            {
                Self::Promises
            }
            _ if begins(&["b42_", "b43_", "b44_", "b48_", "a_wrong_call", "reserving_what_is"]) => {
                Self::Errors
            }
            _ => Self::NeverMoreNeverLess,
        }
    }
}

impl fmt::Display for Guarantee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", *self as u8, self.sentence())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the documentation of the trait `Store` without line breaks.
    fn documented() -> String {
        let source = include_str!("../../../core/src/store.rs");
        let lines = source.lines().filter_map(|line| line.strip_prefix("///"));
        lines.map(str::trim).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_documentation_of_store_lists_each_guarantee_under_its_number() {
        let documented = documented();
        for guarantee in Guarantee::ALL {
            let sentence = format!("{}. {}", guarantee as u8, guarantee.sentence());
            assert!(documented.contains(&sentence), "{sentence}");
        }
        let more = format!("{}. ", Guarantee::ALL.len() + 1);
        assert!(
            !documented.contains(&more),
            "the documentation has a guarantee that no property tests"
        );
    }

    #[test]
    fn each_guarantee_has_a_property() {
        for guarantee in Guarantee::ALL {
            let mut properties = crate::suite::properties().iter();
            assert!(properties.any(|name| Guarantee::tested_by(name) == guarantee), "{guarantee}");
        }
    }
}
