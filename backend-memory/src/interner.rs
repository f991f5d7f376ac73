//! The policies of a shard's records, each once, so that a record names its own in two bytes.

use tidegate_core::Policy;

/// The place of a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct PolicyId(u16);

impl PolicyId {
    pub(crate) fn to_bytes(self) -> [u8; 2] {
        self.0.to_le_bytes()
    }

    pub(crate) fn from_bytes(bytes: [u8; 2]) -> Self {
        Self(u16::from_le_bytes(bytes))
    }
}

/// The policies by their places. One that no record names any more is gone, and its place is free.
///
/// (Most stores have one, which is found without a look elsewhere in memory.)
#[derive(Debug, Default)]
pub(crate) struct PolicyInterner {
    first: Option<InternedPolicy>,
    others: Vec<Option<InternedPolicy>>,
}

#[derive(Debug)]
struct InternedPolicy {
    policy: Policy,
    /// How many records name it.
    uses: u32,
}

impl PolicyInterner {
    #[inline]
    pub(crate) fn get(&self, id: PolicyId) -> Option<&Policy> {
        let interned = match usize::from(id.0).checked_sub(1) {
            None => &self.first,
            Some(other) => self.others.get(other)?,
        };
        interned.as_ref().map(|interned| &interned.policy)
    }

    fn get_mut(&mut self, id: PolicyId) -> Option<&mut Option<InternedPolicy>> {
        match usize::from(id.0).checked_sub(1) {
            None => Some(&mut self.first),
            Some(other) => self.others.get_mut(other),
        }
    }

    #[inline(always)]
    fn places(&self) -> impl Iterator<Item = (&Option<InternedPolicy>, PolicyId)> {
        std::iter::once(&self.first).chain(&self.others).zip((0..).map(PolicyId))
    }

    /// The place of this very object.
    #[inline(always)]
    pub(crate) fn id_of(&self, policy: &Policy) -> Option<PolicyId> {
        let wanted = Some(policy.address());
        let is_it =
            |one: &Option<InternedPolicy>| one.as_ref().map(|one| one.policy.address()) == wanted;
        if is_it(&self.first) {
            return Some(PolicyId(0));
        }
        self.others.iter().zip(1..).find(|(one, _)| is_it(one)).map(|(_, place)| PolicyId(place))
    }

    /// Whether there is but one.
    #[inline]
    pub(crate) fn is_single(&self) -> bool {
        self.others.is_empty()
    }

    /// Whether the policy at `id` is `policy`, and not an older one of its name.
    #[inline]
    pub(crate) fn is(&self, id: PolicyId, policy: &Policy) -> bool {
        self.get(id).is_some_and(|other| other.is_same_object(policy) || is_equal(other, policy))
    }

    /// The place of `policy`, for one more record. A shard holds fewer records than there are ids.
    pub(crate) fn intern(&mut self, policy: &Policy) -> PolicyId {
        let same = |other: &Policy| other.is_same_object(policy) || other == policy;
        let used = |one: &Option<InternedPolicy>| one.as_ref().is_some_and(|one| same(&one.policy));
        let found = self.places().find(|(one, _)| used(one));
        let found = found.or_else(|| self.places().find(|(one, _)| one.is_none()));
        let next = || u16::try_from(1 + self.others.len()).unwrap_or(u16::MAX);
        let id = found.map_or_else(|| PolicyId(next()), |(_, id)| id);
        let interned = || Some(InternedPolicy { policy: policy.clone(), uses: 1 });
        match self.get_mut(id) {
            Some(Some(interned)) => interned.uses += 1,
            Some(free) => *free = interned(),
            None => self.others.push(interned()),
        }
        id
    }

    /// One record less names the policy at `id`.
    pub(crate) fn release(&mut self, id: PolicyId) {
        let Some(place) = self.get_mut(id) else { return };
        let uses = place.as_ref().map_or(0, |interned| interned.uses);
        match place {
            Some(interned) if uses > 1 => interned.uses -= 1,
            _ => *place = None,
        }
    }

    /// Bytes on the heap.
    pub(crate) fn heap_bytes(&self) -> usize {
        Self::heap_bytes_for(self.others.capacity())
    }

    /// The most that the policies of so many records take on the heap.
    pub(crate) fn max_heap_bytes(records: usize) -> usize {
        Self::heap_bytes_for(records.next_power_of_two().max(4))
    }

    fn heap_bytes_for(capacity: usize) -> usize {
        capacity * size_of::<Option<InternedPolicy>>()
    }
}

/// Out of the way of those that are one object, as most are.
#[cold]
#[inline(never)]
fn is_equal(one: &Policy, other: &Policy) -> bool {
    one == other
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_there_for_as_long_as_a_record_names_it() {
        let [one, other]: [Policy; 2] =
            ["gcra 1/1m", "gcra 2/1m"].map(|text| text.parse().unwrap());
        let mut policies = PolicyInterner::default();
        let id = policies.intern(&one);
        assert_eq!(policies.intern(&"gcra 1/1m".parse().unwrap()), id);
        assert_ne!(policies.intern(&other), id);
        assert!(policies.is(id, &one) && !policies.is(id, &other));
        policies.release(id);
        assert!(policies.is(id, &one));
        policies.release(id);
        assert_eq!(policies.get(id), None);
        assert_eq!(policies.intern(&other.clone().shadow()), id);
    }

    #[test]
    fn policies_take_no_more_than_is_said_however_few_there_are() {
        let mut policies = PolicyInterner::default();
        for records in 1..20 {
            policies.intern(&format!("gcra {records}/1m").parse().unwrap());
            let (taken, most) = (policies.heap_bytes(), PolicyInterner::max_heap_bytes(records));
            assert!(taken <= most, "{taken} of {most} bytes with {records}");
        }
    }
}
