//! What a slot of the table holds: as small as it can be, for a check that misses the cache pays for
//! each line.

use std::hash::Hasher;

use tidegate_core::engine::{Numbers, Record, Taken};
use tidegate_core::{Charge, Policy};

use crate::interner::{PolicyId, PolicyInterner};
use crate::key::{Key, LongKey, ShortKey, StoredKey};
use crate::shard::Shared;

/// A key that is looked for.
pub(crate) trait KeyQuery: Copy {
    fn hash_into(self, hasher: &mut impl Hasher);

    /// Whether the slot is of this key, whatever its policy.
    fn is_key_of(self, slot: &Slot) -> bool;

    /// The slot of this key, whose record is nothing but numbers.
    fn slot(self, policy: PolicyId, numbers: Numbers) -> Slot;

    /// Bytes on the heap that such a slot takes.
    fn heap_bytes(self) -> usize;
}

/// Any key that is looked for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum AnyKey<'a> {
    Short(ShortKey),
    Long { tenant: &'a [u8], subject: &'a [u8] },
}

impl<'a> AnyKey<'a> {
    #[inline]
    pub(crate) fn new(tenant: &'a [u8], subject: &'a [u8]) -> Self {
        ShortKey::new(tenant, subject).map_or(Self::Long { tenant, subject }, Self::Short)
    }
}

impl KeyQuery for AnyKey<'_> {
    fn hash_into(self, hasher: &mut impl Hasher) {
        match self {
            Self::Short(key) => key.hash_into(hasher),
            Self::Long { tenant, subject } => {
                hasher.write(tenant);
                hasher.write(subject);
            }
        }
    }

    fn is_key_of(self, slot: &Slot) -> bool {
        match self {
            Self::Short(key) => key.is_key_of(slot),
            Self::Long { .. } if matches!(slot, Slot::Short { .. }) => false,
            Self::Long { tenant, subject } => slot.with_key(|a, b| a == tenant && b == subject),
        }
    }

    fn slot(self, policy: PolicyId, numbers: Numbers) -> Slot {
        match self {
            Self::Short(key) => key.slot(policy, numbers),
            Self::Long { tenant, subject } => Slot::Uncommon(Uncommon::Long {
                key: LongKey::new(policy, tenant, subject),
                numbers,
            }),
        }
    }

    fn heap_bytes(self) -> usize {
        match self {
            Self::Short(_) => 0,
            Self::Long { tenant, subject } => Key::heap_bytes_for(tenant, subject),
        }
    }
}

impl KeyQuery for ShortKey {
    #[inline(always)]
    fn hash_into(self, hasher: &mut impl Hasher) {
        hasher.write_u128(u128::from(self.low) | u128::from(self.middle) << 64);
        hasher.write_u64(self.rest);
    }

    #[inline(always)]
    fn is_key_of(self, slot: &Slot) -> bool {
        match slot {
            Slot::Short { key, .. } => key.key() == self,
            Slot::Uncommon(Uncommon::Boxed(Some(boxed))) => boxed.has_short_key(self),
            Slot::Uncommon(_) => false,
        }
    }

    #[inline(always)]
    fn slot(self, policy: PolicyId, numbers: Numbers) -> Slot {
        Slot::Short { key: StoredKey::new(self, policy), numbers }
    }

    #[inline(always)]
    fn heap_bytes(self) -> usize {
        0
    }
}

/// A key and its record.
pub(crate) enum Slot {
    /// A short key and a few numbers: all of it lies in the slot.
    Short {
        key: StoredKey,
        numbers: Numbers,
    },
    Uncommon(Uncommon),
}

/// What a slot holds seldom. (Told apart by itself, as a short key leaves it one value to be told by.)
pub(crate) enum Uncommon {
    /// A long key and a few numbers.
    Long { key: LongKey, numbers: Numbers },
    /// A log, or a record that is blocked; or nothing, where the slot is free.
    Boxed(Option<Box<BoxedEntry>>),
}

impl Default for Slot {
    /// A free one.
    fn default() -> Self {
        Self::Uncommon(Uncommon::Boxed(None))
    }
}

/// A record that is more than a few numbers.
pub(crate) struct BoxedEntry {
    pub(crate) key: Key,
    pub(crate) record: Record,
}

impl Slot {
    /// The slot of a key whose record is nothing but numbers.
    pub(crate) fn new(tenant: &[u8], subject: &[u8], policy: PolicyId, numbers: Numbers) -> Self {
        AnyKey::new(tenant, subject).slot(policy, numbers)
    }

    /// The policy that wrote the record.
    #[inline]
    pub(crate) fn policy(&self) -> PolicyId {
        match self {
            Self::Short { key, .. } => key.policy(),
            Self::Uncommon(Uncommon::Long { key, .. }) => key.policy(),
            Self::Uncommon(Uncommon::Boxed(boxed)) => {
                boxed.as_ref().map_or_else(PolicyId::default, |boxed| boxed.key.policy())
            }
        }
    }

    /// Shows the tenant and the subject.
    pub(crate) fn with_key<T>(&self, see: impl FnOnce(&[u8], &[u8]) -> T) -> T {
        match self {
            Self::Short { key, .. } => key.key().see(see),
            Self::Uncommon(Uncommon::Long { key, .. }) => {
                let (tenant, subject) = key.parts();
                see(tenant, subject)
            }
            Self::Uncommon(Uncommon::Boxed(Some(boxed))) => boxed.key.see(see),
            Self::Uncommon(Uncommon::Boxed(None)) => see(&[], &[]),
        }
    }

    /// Whether the slot is of a key, and of a policy that shares its states with this one.
    #[inline]
    pub(crate) fn is_of(
        &self,
        key: impl KeyQuery,
        policy: &Policy,
        policies: &PolicyInterner,
    ) -> bool {
        key.is_key_of(self)
            && policies.get(self.policy()).is_some_and(|mine| mine.shares_state_with(policy))
    }

    /// Whether the slot is of this short key and of the policy in this place, or holds what is seldom,
    /// and whose that is is for others to find out.
    #[inline(always)]
    pub(crate) fn may_be_of(&self, wanted: StoredKey) -> bool {
        match self {
            Self::Short { key, .. } => *key == wanted,
            Self::Uncommon(_) => true,
        }
    }

    /// The record of this short key and of the policy in this place, if it is more than numbers.
    #[inline(always)]
    pub(crate) fn boxed_with_key(&mut self, wanted: StoredKey) -> Option<&mut BoxedEntry> {
        match self {
            Self::Uncommon(Uncommon::Boxed(Some(boxed))) => {
                matches!(boxed.key, Key::Short(key) if key == wanted).then_some(boxed)
            }
            _ => None,
        }
    }

    /// The numbers with a short key.
    #[inline(always)]
    pub(crate) fn short_numbers(&mut self) -> Option<&mut Numbers> {
        match self {
            Self::Short { numbers, .. } => Some(numbers),
            Self::Uncommon(_) => None,
        }
    }

    /// The same key with another record.
    pub(crate) fn with(&self, policy: PolicyId, record: Record) -> Self {
        self.with_key(|tenant, subject| Self::of(tenant, subject, policy, record))
    }

    pub(crate) fn of(tenant: &[u8], subject: &[u8], policy: PolicyId, record: Record) -> Self {
        match Numbers::of(&record) {
            Some(numbers) => Self::new(tenant, subject, policy, numbers),
            None => {
                let key = Key::new(policy, tenant, subject);
                Self::Uncommon(Uncommon::Boxed(Some(Box::new(BoxedEntry { key, record }))))
            }
        }
    }

    #[inline]
    pub(crate) fn expires_at(&self, policies: &PolicyInterner) -> u64 {
        match self {
            Self::Short { key, numbers } => expires_at(*numbers, policies.get(key.policy())),
            Self::Uncommon(Uncommon::Long { key, numbers }) => {
                expires_at(*numbers, policies.get(key.policy()))
            }
            Self::Uncommon(Uncommon::Boxed(boxed)) => {
                boxed.as_ref().map_or(0, |boxed| boxed.record.recovers_at())
            }
        }
    }

    /// Bytes on the heap.
    #[inline]
    pub(crate) fn heap_bytes(&self) -> usize {
        match self {
            Self::Short { .. } => 0,
            Self::Uncommon(Uncommon::Long { key, .. }) => key.heap_bytes(),
            Self::Uncommon(Uncommon::Boxed(boxed)) => {
                boxed.as_ref().map_or(0, |boxed| boxed.heap_bytes())
            }
        }
    }
}

impl BoxedEntry {
    /// Bytes on the heap, its own included.
    pub(crate) fn heap_bytes(&self) -> usize {
        size_of::<Self>() + self.key.heap_bytes() + self.record.heap_bytes()
    }

    #[inline]
    fn has_short_key(&self, wanted: ShortKey) -> bool {
        matches!(self.key, Key::Short(key) if key.key() == wanted)
    }

    /// Decides on one charge to a log that need not grow.
    pub(crate) fn acquire_log(
        &mut self,
        charge: &Charge<'_>,
        now: u64,
        shared: &Shared,
    ) -> Option<Taken> {
        if Record::growth(Some(&self.record), charge.policy) > 0 {
            return None;
        }
        let before = self.record.heap_bytes();
        let taken = self.record.acquire_log(charge, now);
        shared.heap.adjust(before, self.record.heap_bytes());
        taken
    }

    /// The most that such a key takes on the heap, apart from what its record does.
    pub(crate) fn heap_bytes_for(tenant: &[u8], subject: &[u8]) -> usize {
        size_of::<Self>() + Key::heap_bytes_for(tenant, subject)
    }
}

#[inline]
fn expires_at(numbers: Numbers, policy: Option<&Policy>) -> u64 {
    policy.map_or(0, |policy| numbers.recovers_at(policy))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_takes_40_bytes() {
        assert_eq!(size_of::<Slot>(), 40);
    }

    #[test]
    fn keys_are_equal_only_if_both_parts_are() {
        let cases: [(&[u8], &[u8]); 9] = [
            (b"", b""),
            (b"", b"ab"),
            (b"a", b"b"),
            (b"ab", b""),
            (b"", b"ab\0"),
            (b"", b"\x01ab"),
            (b"", &[b'x'; 20]),
            (b"", &[b'x'; 21]),
            (b"x", &[b'x'; 20]),
        ];
        let policy: Policy = "gcra 1/1m".parse().unwrap();
        let mut policies = PolicyInterner::default();
        let id = policies.intern(&policy);
        for (i, a) in cases.iter().enumerate() {
            let slot = Slot::new(a.0, a.1, id, Numbers::NONE);
            slot.with_key(|tenant, subject| assert_eq!((tenant, subject), *a));
            assert_eq!(slot.policy(), id);
            assert_eq!(slot.heap_bytes(), AnyKey::new(a.0, a.1).heap_bytes());
            for (j, b) in cases.iter().enumerate() {
                let key = AnyKey::new(b.0, b.1);
                assert_eq!(slot.is_of(key, &policy, &policies), i == j, "{a:?} and {b:?}");
            }
        }
    }

    #[test]
    fn only_long_keys_take_heap() {
        for (tenant, len, heap) in [(0, 20, 0), (0, 21, 27), (4, 15, 0), (4, 16, 26), (20, 0, 26)] {
            let (tenant, subject) = (vec![7; tenant], vec![7; len]);
            assert_eq!(AnyKey::new(&tenant, &subject).heap_bytes(), heap);
        }
    }
}
