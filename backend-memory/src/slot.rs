//! A slot of the table, which contains a key and a record. The record is packed into two words if
//! possible.
//!
//! A slot has 40 bytes. Its size matters, because a call waits for each cache line that is not in
//! the processor's cache.

use std::hash::Hasher;

use tidegate_core::engine::{Record, State};
use tidegate_core::no_semver::{FastOutcome, PackedState};
use tidegate_core::{Charge, Policy};

use crate::interner::{PolicyId, PolicyInterner};
use crate::key::{Key, LongKey, ShortKey, StoredKey};
use crate::shared::Shared;

pub(crate) trait KeyQuery: Copy {
    fn hash_into(self, hasher: &mut impl Hasher);

    #[inline]
    fn hash(self, mut hasher: impl Hasher) -> u64 {
        self.hash_into(&mut hasher);
        hasher.finish()
    }

    /// Returns `true` if the slot of the table contains the key, under any policy.
    fn is_key_of(self, slot: &Slot) -> bool;

    fn slot(self, policy: PolicyId, numbers: PackedState) -> Slot;

    /// Returns the number of heap bytes of a slot with this key and a packed state.
    fn heap_bytes(self) -> usize;
}

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

    fn slot(self, policy: PolicyId, numbers: PackedState) -> Slot {
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
            Slot::Uncommon(Uncommon::Boxed(Some(entry))) => entry.has_short_key(self),
            Slot::Uncommon(_) => false,
        }
    }

    #[inline(always)]
    fn slot(self, policy: PolicyId, numbers: PackedState) -> Slot {
        Slot::Short { key: StoredKey::new(self, policy), numbers }
    }

    #[inline(always)]
    fn heap_bytes(self) -> usize {
        0
    }
}

/// The default value is a free slot. The table does not read a slot to find out whether it is free,
/// because the tag of the slot contains this information.
pub(crate) enum Slot {
    /// A short key and a packed state. The slot of the table itself contains both.
    Short {
        key: StoredKey,
        numbers: PackedState,
    },
    Uncommon(Uncommon),
}

/// The contents of a slot in uncommon cases: a long key or a record on the heap.
// The niche of `StoredKey` can distinguish only one more variant of `Slot`, so all uncommon cases
// are one variant with this enum.
pub(crate) enum Uncommon {
    /// A key on the heap and a packed state.
    Long { key: LongKey, numbers: PackedState },
    /// A record that does not fit into two words: a log, a large count, or a record with a block or
    /// holds. `None` is a free slot.
    Boxed(Option<Box<BoxedEntry>>),
}

impl Default for Slot {
    fn default() -> Self {
        Self::Uncommon(Uncommon::Boxed(None))
    }
}

/// A key, and a record that cannot be packed.
pub(crate) struct BoxedEntry {
    pub(crate) key: Key,
    pub(crate) record: Record,
}

impl Slot {
    pub(crate) fn new(
        tenant: &[u8],
        subject: &[u8],
        policy: PolicyId,
        numbers: PackedState,
    ) -> Self {
        AnyKey::new(tenant, subject).slot(policy, numbers)
    }

    /// Returns the id of the policy that wrote the record.
    #[inline]
    pub(crate) fn policy(&self) -> PolicyId {
        match self {
            Self::Short { key, .. } => key.policy(),
            Self::Uncommon(Uncommon::Long { key, .. }) => key.policy(),
            Self::Uncommon(Uncommon::Boxed(entry)) => {
                entry.as_ref().map_or_else(PolicyId::default, |entry| entry.key.policy())
            }
        }
    }

    pub(crate) fn with_key<T>(&self, f: impl FnOnce(&[u8], &[u8]) -> T) -> T {
        match self {
            Self::Short { key, .. } => key.key().with_parts(f),
            Self::Uncommon(Uncommon::Long { key, .. }) => {
                let (tenant, subject) = key.parts();
                f(tenant, subject)
            }
            Self::Uncommon(Uncommon::Boxed(Some(entry))) => entry.key.with_parts(f),
            Self::Uncommon(Uncommon::Boxed(None)) => f(&[], &[]),
        }
    }

    /// Returns `true` if the slot contains `key`, and if the policy of the slot shares its states
    /// with `policy`.
    #[inline]
    pub(crate) fn matches(
        &self,
        key: impl KeyQuery,
        policy: &Policy,
        policies: &PolicyInterner,
    ) -> bool {
        key.is_key_of(self)
            && policies.get(self.policy()).is_some_and(|own| own.shares_state_with(policy))
    }

    /// Returns `true` if the slot contains the short key and the policy id in `wanted`, or if the
    /// slot has a long key or a boxed record. In the second case, the caller must compare the whole
    /// key.
    #[inline(always)]
    pub(crate) fn may_match(&self, wanted: StoredKey) -> bool {
        match self {
            Self::Short { key, .. } => *key == wanted,
            Self::Uncommon(_) => true,
        }
    }

    /// Returns the entry on the heap if it has the short key and the policy id in `wanted`.
    #[inline(always)]
    pub(crate) fn boxed_with_key(&mut self, wanted: StoredKey) -> Option<&mut BoxedEntry> {
        match self {
            Self::Uncommon(Uncommon::Boxed(Some(entry))) => {
                matches!(entry.key, Key::Short(key) if key == wanted).then_some(entry)
            }
            _ => None,
        }
    }

    #[inline(always)]
    pub(crate) fn short_numbers(&mut self) -> Option<&mut PackedState> {
        match self {
            Self::Short { numbers, .. } => Some(numbers),
            Self::Uncommon(_) => None,
        }
    }

    /// Returns a slot with the key of this slot, and with another policy id and record.
    pub(crate) fn with_record(&self, policy: PolicyId, record: Record) -> Self {
        self.with_key(|tenant, subject| Self::from_record(tenant, subject, policy, record))
    }

    pub(crate) fn from_record(
        tenant: &[u8],
        subject: &[u8],
        policy: PolicyId,
        record: Record,
    ) -> Self {
        match PackedState::new(&record) {
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
            Self::Uncommon(Uncommon::Boxed(entry)) => {
                entry.as_ref().map_or(0, |entry| entry.record.recovers_at_micros())
            }
        }
    }

    /// Returns `true` if the slot has credits or a grant without an end. Such a slot never expires
    /// and is never evicted.
    pub(crate) fn is_kept(&self) -> bool {
        match self {
            Self::Uncommon(Uncommon::Boxed(Some(entry))) => {
                matches!(entry.record.state(), Some(State::Quota(_)))
                    && entry.record.recovers_at().is_none()
            }
            _ => false,
        }
    }

    #[inline]
    pub(crate) fn heap_bytes(&self) -> usize {
        match self {
            Self::Short { .. } => 0,
            Self::Uncommon(Uncommon::Long { key, .. }) => key.heap_bytes(),
            Self::Uncommon(Uncommon::Boxed(entry)) => {
                entry.as_ref().map_or(0, |entry| entry.heap_bytes())
            }
        }
    }
}

impl BoxedEntry {
    /// Returns the number of heap bytes of the entry, including the box of the entry.
    pub(crate) fn heap_bytes(&self) -> usize {
        size_of::<Self>() + self.key.heap_bytes() + self.record.heap_bytes()
    }

    #[inline]
    fn has_short_key(&self, wanted: ShortKey) -> bool {
        matches!(self.key, Key::Short(key) if key.key() == wanted)
    }

    /// Acquires one charge to a log. Returns `None` and changes nothing if the heap budget has no
    /// room for the possible growth of the log, or if [`Record::acquire_log`] returns `None`.
    pub(crate) fn acquire_log(
        &mut self,
        charge: &Charge<'_>,
        now: u64,
        shared: &Shared,
    ) -> Option<FastOutcome> {
        let reserved = Record::growth(Some(&self.record), charge.policy);
        if !shared.heap.reserve(reserved) {
            return None;
        }
        let before = self.record.heap_bytes();
        let outcome = self.record.acquire_log(charge, now);
        shared.heap.adjust(before + reserved, self.record.heap_bytes());
        outcome
    }

    /// Returns the number of heap bytes of an entry with this tenant and subject, without the heap
    /// bytes of its record.
    pub(crate) fn heap_bytes_for(tenant: &[u8], subject: &[u8]) -> usize {
        size_of::<Self>() + Key::heap_bytes_for(tenant, subject)
    }
}

#[inline]
fn expires_at(numbers: PackedState, policy: Option<&Policy>) -> u64 {
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
            let slot = Slot::new(a.0, a.1, id, PackedState::NONE);
            slot.with_key(|tenant, subject| assert_eq!((tenant, subject), *a));
            assert_eq!(slot.policy(), id);
            assert_eq!(slot.heap_bytes(), AnyKey::new(a.0, a.1).heap_bytes());
            for (j, b) in cases.iter().enumerate() {
                let key = AnyKey::new(b.0, b.1);
                assert_eq!(slot.matches(key, &policy, &policies), i == j, "{a:?} and {b:?}");
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
