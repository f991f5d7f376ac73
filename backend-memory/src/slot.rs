//! What a slot of the table holds: as small as it can be, for a check that misses the cache pays for
//! each line.

use std::hash::Hasher;

use tidegate_core::engine::{Numbers, Record, Taken};
use tidegate_core::{Charge, Policy};

use crate::key::{KeptKey, Key, LongKey, ShortKey};
use crate::policies::{Id, Policies};
use crate::shard::Shared;

/// A key that is looked for.
pub(crate) trait Wanted: Copy {
    fn hash_into(self, hasher: &mut impl Hasher);

    /// Whether the slot is of this key, whatever its policy.
    fn is_key_of(self, slot: &Slot) -> bool;

    /// The slot of this key, whose record is nothing but numbers.
    fn slot(self, policy: Id, numbers: Numbers) -> Slot;

    /// Bytes on the heap that such a slot takes.
    fn spilled(self) -> usize;
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

impl Wanted for AnyKey<'_> {
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
            Self::Long { tenant, subject } => slot.see_key(|a, b| a == tenant && b == subject),
        }
    }

    fn slot(self, policy: Id, numbers: Numbers) -> Slot {
        match self {
            Self::Short(key) => key.slot(policy, numbers),
            Self::Long { tenant, subject } => {
                Slot::Other(Other::Long { key: LongKey::new(policy, tenant, subject), numbers })
            }
        }
    }

    fn spilled(self) -> usize {
        match self {
            Self::Short(_) => 0,
            Self::Long { tenant, subject } => Key::heap_bytes_of(tenant, subject),
        }
    }
}

impl Wanted for ShortKey {
    #[inline(always)]
    fn hash_into(self, hasher: &mut impl Hasher) {
        hasher.write_u128(u128::from(self.low) | u128::from(self.middle) << 64);
        hasher.write_u64(self.rest);
    }

    #[inline(always)]
    fn is_key_of(self, slot: &Slot) -> bool {
        match slot {
            Slot::Short { key, .. } => key.key() == self,
            Slot::Other(Other::Whole(Some(whole))) => whole.has_short_key(self),
            Slot::Other(_) => false,
        }
    }

    #[inline(always)]
    fn slot(self, policy: Id, numbers: Numbers) -> Slot {
        Slot::Short { key: KeptKey::new(self, policy), numbers }
    }

    #[inline(always)]
    fn spilled(self) -> usize {
        0
    }
}

/// A key and its record.
pub(crate) enum Slot {
    /// A short key and a few numbers: all of it lies in the slot.
    Short {
        key: KeptKey,
        numbers: Numbers,
    },
    Other(Other),
}

/// What a slot holds seldom. (Told apart by itself, as a short key leaves it one value to be told by.)
pub(crate) enum Other {
    /// A long key and a few numbers.
    Long { key: LongKey, numbers: Numbers },
    /// A log, or a record that is blocked; or nothing, where the slot is free.
    Whole(Option<Box<Whole>>),
}

impl Default for Slot {
    /// A free one.
    fn default() -> Self {
        Self::Other(Other::Whole(None))
    }
}

/// A record that is more than a few numbers.
pub(crate) struct Whole {
    pub(crate) key: Key,
    pub(crate) record: Record,
}

impl Slot {
    /// The slot of a key whose record is nothing but numbers.
    pub(crate) fn new(tenant: &[u8], subject: &[u8], policy: Id, numbers: Numbers) -> Self {
        AnyKey::new(tenant, subject).slot(policy, numbers)
    }

    /// The policy that wrote the record.
    #[inline]
    pub(crate) fn policy(&self) -> Id {
        match self {
            Self::Short { key, .. } => key.policy(),
            Self::Other(Other::Long { key, .. }) => key.policy(),
            Self::Other(Other::Whole(whole)) => {
                whole.as_ref().map_or_else(Id::default, |whole| whole.key.policy())
            }
        }
    }

    /// Shows the tenant and the subject.
    pub(crate) fn see_key<T>(&self, see: impl FnOnce(&[u8], &[u8]) -> T) -> T {
        match self {
            Self::Short { key, .. } => key.key().see(see),
            Self::Other(Other::Long { key, .. }) => {
                let (tenant, subject) = key.parts();
                see(tenant, subject)
            }
            Self::Other(Other::Whole(Some(whole))) => whole.key.see(see),
            Self::Other(Other::Whole(None)) => see(&[], &[]),
        }
    }

    /// Whether the slot is of a key, and of a policy that shares its states with this one.
    #[inline]
    pub(crate) fn is_of(&self, key: impl Wanted, policy: &Policy, policies: &Policies) -> bool {
        key.is_key_of(self)
            && policies.get(self.policy()).is_some_and(|mine| mine.shares_state_with(policy))
    }

    /// Whether the slot is of this short key and of the policy in this place, or holds what is seldom,
    /// and whose that is is for others to find out.
    #[inline(always)]
    pub(crate) fn may_be_of(&self, wanted: KeptKey) -> bool {
        match self {
            Self::Short { key, .. } => *key == wanted,
            Self::Other(_) => true,
        }
    }

    /// The record of this short key and of the policy in this place, if it is more than numbers.
    #[inline(always)]
    pub(crate) fn whole_of(&mut self, wanted: KeptKey) -> Option<&mut Whole> {
        match self {
            Self::Other(Other::Whole(Some(whole))) => {
                matches!(whole.key, Key::Short(key) if key == wanted).then_some(whole)
            }
            _ => None,
        }
    }

    /// The numbers with a short key.
    #[inline(always)]
    pub(crate) fn short_numbers(&mut self) -> Option<&mut Numbers> {
        match self {
            Self::Short { numbers, .. } => Some(numbers),
            Self::Other(_) => None,
        }
    }

    /// The same key with another record.
    pub(crate) fn with(&self, policy: Id, record: Record) -> Self {
        self.see_key(|tenant, subject| Self::of(tenant, subject, policy, record))
    }

    pub(crate) fn of(tenant: &[u8], subject: &[u8], policy: Id, record: Record) -> Self {
        match Numbers::of(&record) {
            Some(numbers) => Self::new(tenant, subject, policy, numbers),
            None => {
                let key = Key::new(policy, tenant, subject);
                Self::Other(Other::Whole(Some(Box::new(Whole { key, record }))))
            }
        }
    }

    #[inline]
    pub(crate) fn recovers_at(&self, policies: &Policies) -> u64 {
        match self {
            Self::Short { key, numbers } => recovers_at(*numbers, policies.get(key.policy())),
            Self::Other(Other::Long { key, numbers }) => {
                recovers_at(*numbers, policies.get(key.policy()))
            }
            Self::Other(Other::Whole(whole)) => {
                whole.as_ref().map_or(0, |whole| whole.record.recovers_at())
            }
        }
    }

    /// Bytes on the heap.
    #[inline]
    pub(crate) fn spilled(&self) -> usize {
        match self {
            Self::Short { .. } => 0,
            Self::Other(Other::Long { key, .. }) => key.heap_bytes(),
            Self::Other(Other::Whole(whole)) => {
                whole.as_ref().map_or(0, |whole| whole.heap_bytes())
            }
        }
    }
}

impl Whole {
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
        shared.spill.moved(before, self.record.heap_bytes());
        taken
    }

    /// The most that such a key takes on the heap, apart from what its record does.
    pub(crate) fn heap_bytes_of(tenant: &[u8], subject: &[u8]) -> usize {
        size_of::<Self>() + Key::heap_bytes_of(tenant, subject)
    }
}

#[inline]
fn recovers_at(numbers: Numbers, policy: Option<&Policy>) -> u64 {
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
        let mut policies = Policies::default();
        let id = policies.intern(&policy);
        for (i, a) in cases.iter().enumerate() {
            let slot = Slot::new(a.0, a.1, id, Numbers::NONE);
            slot.see_key(|tenant, subject| assert_eq!((tenant, subject), *a));
            assert_eq!(slot.policy(), id);
            assert_eq!(slot.spilled(), AnyKey::new(a.0, a.1).spilled());
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
            assert_eq!(AnyKey::new(&tenant, &subject).spilled(), heap);
        }
    }
}
