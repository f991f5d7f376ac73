//! Computes the hash slots of charges and calls.

use redis::cluster_routing::Slot;
use smallvec::SmallVec;
use tidegate_core::{Call, Charge, Error, ErrorKind};
use tidegate_redis::protocol::{Keys, Request};

pub(crate) fn slot_of(keys: &Keys, charge: &Charge<'_>) -> Slot {
    Slot::for_key(keys.key(charge))
}

/// Returns the slot of all keys of a request. Returns [`ErrorKind::Protocol`] if the keys are in
/// several slots, which cannot happen with keys in the format of Tidegate.
pub(crate) fn slot_of_request(request: &Request<'_>) -> Result<Slot, Error> {
    let mut slots = request.keys().iter().map(Slot::for_key);
    let first = slots.next();
    match (first, slots.find(|slot| Some(*slot) != first)) {
        (Some(slot), None) => Ok(slot),
        (first, other) => Err(Error::new(
            ErrorKind::Protocol,
            format!(
                "the keys of one request are in slots {first:?} and {other:?}; they must be in one slot"
            ),
        )),
    }
}

/// The part of a call in one slot. `places` contains the indices of the charges in this slot.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SlotPart {
    pub(crate) slot: Slot,
    pub(crate) places: SmallVec<[usize; 4]>,
}

/// Splits a call into one part per slot. The parts are in the order of their first charges.
pub(crate) fn split_by_slot(keys: &Keys, call: &Call<'_>) -> SmallVec<[SlotPart; 1]> {
    let mut parts: SmallVec<[SlotPart; 1]> = SmallVec::new();
    // The slot of the previous charge is used again if the hash tag is the same. Usually, all
    // charges of a call have the same hash tag.
    let mut last: Option<(Charge<'_>, Slot)> = None;
    for (place, charge) in call.charges.iter().enumerate() {
        let slot = match last {
            Some((last, slot)) if Keys::have_one_tag(&last, &charge) => slot,
            _ => slot_of(keys, &charge),
        };
        last = Some((charge, slot));
        match parts.iter_mut().find(|part| part.slot == slot) {
            Some(part) => part.places.push(place),
            None => parts.push(SlotPart { slot, places: SmallVec::from_slice(&[place]) }),
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tidegate_core::{Charge, Operation, Policy};
    use tidegate_test_servers::Cluster;
    use tidegate_testkit::generate::{Bytes, ClockKind, Kind, Scenario, Trace, hostile_subject};
    use tidegate_testkit::generate::{policy, scenario};

    use tidegate_redis::protocol::{Request, probable_time};

    use super::*;
    use crate::dispatch::cross_slot;

    fn any_scenario() -> impl Strategy<Value = Scenario> {
        let any = |name| Kind::any().prop_flat_map(move |kind| policy(kind, name));
        let policies = (any("p"), any("q")).prop_map(|(p, q)| vec![p, q]);
        let subject = || prop_oneof![hostile_subject(), "[a-c]?".prop_map(Bytes::from)];
        let subjects = prop::collection::vec((subject(), subject()), 1..6);
        (scenario(policies, ClockKind::Forwards, 5, 5), subjects)
            .prop_map(|(scenario, subjects)| Scenario { subjects, ..scenario })
    }

    /// Returns the slots of all keys of a request. The test computes the slots without the code of
    /// the store.
    fn slots(keys: &Keys, operation: Operation, charges: &[Charge<'_>]) -> Vec<u16> {
        let request = Request::new(keys, &Call::new(operation, charges), probable_time()).unwrap();
        request.keys().iter().map(|key| Cluster::slot_of(key)).collect()
    }

    /// Checks that all keys of each part of a valid call are in one slot. Also checks that the
    /// parts together contain all charges of the call.
    fn check_parts(keys: &Keys, call: &Call<'_>, all: &[Charge<'_>]) {
        let parts = split_by_slot(keys, call);
        // The store refuses some operations across slots before it sends anything. For these
        // operations, the parts are checked as peeks, because a part alone is possibly not a valid
        // call.
        let is_sent = parts.len() == 1 || cross_slot::check(call.operation).is_ok();
        let operation = if is_sent { call.operation } else { Operation::Peek };
        let mut seen = vec![];
        let mut places = vec![];
        for part in parts {
            let charges: Vec<_> = part.places.iter().map(|place| all[*place]).collect();
            let own = slots(keys, operation, &charges);
            assert!(own.iter().all(|slot| *slot == own[0]), "{own:?}");
            assert_eq!(Slot::new(own[0]), Some(part.slot));
            assert!(!seen.contains(&part.slot), "one part for each slot");
            seen.push(part.slot);
            places.extend(part.places);
        }
        places.sort_unstable();
        assert_eq!(places, (0..all.len()).collect::<Vec<_>>());
    }

    #[test]
    fn a_call_is_split_although_a_part_alone_would_be_invalid() {
        let policies = ["p: gcra 1/1s", "q: gcra 1/1s"].map(|text| text.parse::<Policy>().unwrap());
        let charges = [Charge::new(&policies[0], "a"), Charge::new(&policies[1], "b").check_only()];
        let call = Call::new(Operation::AcquireUpTo { min: 1 }, &charges);
        call.check().unwrap();
        assert!(Call::new(call.operation, &charges[1..]).check().is_err());
        let keys = Keys::new("tidegate");
        assert_eq!(split_by_slot(&keys, &call).len(), 2);
        check_parts(&keys, &call, &charges);
    }

    proptest! {
        // The test has few cases, because a subject can be a mebibyte long, and the test computes
        // slots bit by bit.
        #![proptest_config(ProptestConfig::with_cases(24))]

        /// Without defect B21, all keys of a script call are in one slot, for any operation on any
        /// charges.
        #[test]
        fn b21_the_keys_of_each_script_call_lie_in_one_slot(scenario in any_scenario()) {
            let keys = Keys::new("tidegate");
            let mut trace = Trace::new(&scenario, ClockKind::Forwards);
            for step in &scenario.steps {
                let (operation, all) = trace.ask(step);
                let call = Call::new(operation, &all);
                if call.check().is_err() {
                    continue;
                }
                check_parts(&keys, &call, &all);
            }
        }

        #[test]
        fn all_charges_of_a_tenant_are_in_one_slot(
            tenant in hostile_subject(),
            subjects in prop::collection::vec(hostile_subject(), 2..5),
        ) {
            prop_assume!(!tenant.is_empty());
            let policy: Policy = "p: gcra 1/1s".parse().unwrap();
            let charges: Vec<_> =
                subjects.iter().map(|subject| Charge::new(&policy, subject).tenant(&tenant)).collect();
            prop_assert_eq!(split_by_slot(&Keys::new("t"), &Call::acquire(&charges)).len(), 1);
        }
    }

    #[test]
    fn a_script_call_across_slots_is_never_sent() {
        let policy: Policy = "p: gcra 1/1s".parse().unwrap();
        let charges = ["a", "b"].map(|subject| Charge::new(&policy, subject));
        let request =
            Request::new(&Keys::new("t"), &Call::acquire(&charges), probable_time()).unwrap();
        assert_eq!(slot_of_request(&request).unwrap_err().kind(), ErrorKind::Protocol);
    }
}
