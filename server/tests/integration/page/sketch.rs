//! Tests the sketch, which estimates the counts of the most frequent keys.

use std::collections::HashMap;

use proptest::prelude::*;
use tidegate_server::observe::activity::Sketch;

/// Generates a few frequent keys and many rare keys.
fn keys() -> impl Strategy<Value = Vec<u64>> {
    prop::collection::vec(prop_oneof![3 => 0..8_u64, 2 => 0..1_000_u64], 0..600)
}

proptest! {
    #[test]
    fn counts_are_within_their_bounds_and_no_frequent_key_is_missing(
        keys in keys(),
        capacity in 1..40_usize,
    ) {
        let mut sketch = Sketch::new(capacity);
        let mut exact: HashMap<u64, u64> = HashMap::new();
        for key in &keys {
            *exact.entry(*key).or_default() += 1;
            sketch.add(*key, || *key);
        }
        let most_error = keys.len() as u64 / capacity as u64;
        prop_assert_eq!(sketch.total(), keys.len() as u64);
        prop_assert!(sketch.iter().count() <= capacity);
        for key in 0..1_000 {
            let count = exact.get(&key).copied().unwrap_or(0);
            let estimate = sketch.estimate(key);
            prop_assert!(estimate.at_least <= count && count <= estimate.at_most, "{key}: {estimate:?}");
            prop_assert!(estimate.at_most - estimate.at_least <= most_error);
            if count > most_error {
                prop_assert!(sketch.iter().any(|(hash, ..)| hash == key), "{key} occurs {count} times");
            }
        }
        for (hash, estimate, value) in sketch.iter() {
            prop_assert_eq!(hash, *value);
            prop_assert!(estimate.at_least > 0);
            prop_assert_eq!(estimate, sketch.estimate(hash));
        }
        if exact.len() <= capacity {
            prop_assert!(sketch.iter().all(|(_, estimate, _)| estimate.at_least == estimate.at_most));
        }
    }
}

#[test]
fn a_value_is_made_only_for_a_key_that_enters() {
    let mut made = 0;
    let mut sketch = Sketch::new(1);
    for key in [1, 1, 2, 2, 1] {
        sketch.add(key, || made += 1);
    }
    assert_eq!(made, 3);
}
