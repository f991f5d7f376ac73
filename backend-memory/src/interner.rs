//! Stores each policy of a shard once, so that a record refers to its policy by an id of two bytes.

use tidegate_core::Policy;

/// The id of a policy: its index in the list of policies of a part of the store (shard).
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

/// The policies of the records of a part of the store (shard). Each policy has an id and a number
/// of references. A policy without references is dropped, and another policy can get its id.
// The first policy is stored in the struct itself, because most stores have only one policy. A
// lookup of this policy needs no other memory access.
#[derive(Debug, Default)]
pub(crate) struct PolicyInterner {
    first: Option<InternedPolicy>,
    others: Vec<Option<InternedPolicy>>,
}

#[derive(Debug)]
struct InternedPolicy {
    policy: Policy,
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
    fn entries(&self) -> impl Iterator<Item = (&Option<InternedPolicy>, PolicyId)> {
        std::iter::once(&self.first).chain(&self.others).zip((0..).map(PolicyId))
    }

    /// Returns the id of a policy object. Returns `None` if the object is not stored, even if an
    /// equal policy is stored as another object.
    #[inline(always)]
    pub(crate) fn id_of(&self, policy: &Policy) -> Option<PolicyId> {
        let address = Some(policy.address());
        let has_address = |entry: &Option<InternedPolicy>| {
            entry.as_ref().map(|entry| entry.policy.address()) == address
        };
        if has_address(&self.first) {
            return Some(PolicyId(0));
        }
        self.others
            .iter()
            .zip(1..)
            .find(|(entry, _)| has_address(entry))
            .map(|(_, id)| PolicyId(id))
    }

    fn id_where(&self, is_wanted: impl Fn(&Option<InternedPolicy>) -> bool) -> Option<PolicyId> {
        self.entries().find(|(entry, _)| is_wanted(entry)).map(|(_, id)| id)
    }

    /// Returns `true` if the interner has never contained more than one policy at a time.
    #[inline]
    pub(crate) fn is_single(&self) -> bool {
        self.others.is_empty()
    }

    /// Returns `true` if the policy with the id `id` equals `policy`. Two policies with the same
    /// name and different limits are not equal.
    #[inline]
    pub(crate) fn is_policy(&self, id: PolicyId, policy: &Policy) -> bool {
        self.get(id).is_some_and(|other| other.is_same_object(policy) || is_equal(other, policy))
    }

    /// Adds a reference to `policy` and returns its id.
    // An id of 16 bits is large enough, because a shard has fewer than 2^16 records.
    pub(crate) fn intern(&mut self, policy: &Policy) -> PolicyId {
        let is_equal = |entry: &Option<InternedPolicy>| {
            entry.as_ref().is_some_and(|entry| entry.policy == *policy)
        };
        let next = || u16::try_from(1 + self.others.len()).unwrap_or(u16::MAX);
        let id = (self.id_of(policy))
            .or_else(|| self.id_where(is_equal))
            .or_else(|| self.id_where(Option::is_none))
            .unwrap_or_else(|| PolicyId(next()));
        let interned = || Some(InternedPolicy { policy: policy.clone(), uses: 1 });
        match self.get_mut(id) {
            Some(Some(interned)) => interned.uses += 1,
            Some(free) => *free = interned(),
            None => self.others.push(interned()),
        }
        id
    }

    pub(crate) fn release(&mut self, id: PolicyId) {
        let Some(entry) = self.get_mut(id) else { return };
        let uses = entry.as_ref().map_or(0, |interned| interned.uses);
        match entry {
            Some(interned) if uses > 1 => interned.uses -= 1,
            _ => *entry = None,
        }
    }

    /// Returns the number of heap bytes that the interner uses, without the heap bytes of the
    /// policies themselves.
    pub(crate) fn heap_bytes(&self) -> usize {
        Self::heap_bytes_for(self.others.capacity())
    }

    /// Returns an upper bound on [`heap_bytes`](Self::heap_bytes) for at most `records` records.
    pub(crate) fn max_heap_bytes(records: usize) -> usize {
        Self::heap_bytes_for(records.next_power_of_two().max(4))
    }

    fn heap_bytes_for(capacity: usize) -> usize {
        capacity * size_of::<Option<InternedPolicy>>()
    }
}

// This function is not inlined, because it is called only for different objects, and two equal
// policies are usually the same object.
#[cold]
#[inline(never)]
fn is_equal(one: &Policy, other: &Policy) -> bool {
    one == other
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_interned_as_long_as_a_record_refers_to_it() {
        let [one, other]: [Policy; 2] =
            ["gcra 1/1m", "gcra 2/1m"].map(|text| text.parse().unwrap());
        let mut policies = PolicyInterner::default();
        let id = policies.intern(&one);
        assert_eq!(policies.intern(&"gcra 1/1m".parse().unwrap()), id);
        assert_ne!(policies.intern(&other), id);
        assert!(policies.is_policy(id, &one) && !policies.is_policy(id, &other));
        policies.release(id);
        assert!(policies.is_policy(id, &one));
        policies.release(id);
        assert_eq!(policies.get(id), None);
        assert_eq!(policies.intern(&other.clone().shadow()), id);
    }

    #[test]
    fn heap_bytes_stay_within_the_bound_for_few_policies() {
        let mut policies = PolicyInterner::default();
        for records in 1..20 {
            policies.intern(&format!("gcra {records}/1m").parse().unwrap());
            let (used, max) = (policies.heap_bytes(), PolicyInterner::max_heap_bytes(records));
            assert!(used <= max, "{used} of {max} bytes with {records}");
        }
    }
}
