//! What a slot of the table holds: as small as it can be, for a check that misses the cache pays for
//! each line.

use tidegate_core::engine::{Numbers, Record};
use tidegate_core::{Charge, Policy};

use crate::key::Key;
use crate::policies::{Id, Policies};

/// A key and its record.
pub(crate) enum Slot {
    /// A short key and a few numbers: all of it lies in the slot.
    Short { key: ShortKey, policy: Id, numbers: Numbers },
    /// A long key and a few numbers.
    Long { key: LongKey, numbers: Numbers },
    /// A log, or a record that is blocked.
    Whole(Box<Whole>),
}

/// A record that is more than a few numbers.
pub(crate) struct Whole {
    pub(crate) key: Key,
    pub(crate) policy: Id,
    pub(crate) record: Record,
}

impl Slot {
    /// The slot of a key that has none, and whose record is nothing but numbers.
    pub(crate) fn new(tenant: &[u8], subject: &[u8], policy: Id, numbers: Numbers) -> Self {
        match ShortKey::new(tenant, subject) {
            Some(key) => Self::Short { key, policy, numbers },
            None => Self::Long { key: LongKey::new(policy, tenant, subject), numbers },
        }
    }

    /// The policy that wrote the record.
    #[inline]
    pub(crate) fn policy(&self) -> Id {
        match self {
            Self::Short { policy, .. } => *policy,
            Self::Long { key, .. } => key.policy(),
            Self::Whole(whole) => whole.policy,
        }
    }

    pub(crate) fn tenant(&self) -> &[u8] {
        self.key().0
    }

    pub(crate) fn subject(&self) -> &[u8] {
        self.key().1
    }

    #[inline]
    fn key(&self) -> (&[u8], &[u8]) {
        match self {
            Self::Short { key, .. } => key.parts(),
            Self::Long { key, .. } => key.parts(),
            Self::Whole(whole) => (whole.key.tenant(), whole.key.subject()),
        }
    }

    /// Whether the slot is the charge's: of its subject, and of a policy of its policy's name.
    #[inline]
    pub(crate) fn is_of(&self, charge: &Charge<'_>, policies: &Policies) -> bool {
        let (tenant, subject) = self.key();
        let is_key = subject == charge.subject && tenant == charge.tenant;
        is_key
            && policies.get(self.policy()).is_some_and(|policy| has_name_of(policy, charge.policy))
    }

    /// The numbers, if there is nothing else.
    #[inline]
    pub(crate) fn numbers_mut(&mut self) -> Option<&mut Numbers> {
        match self {
            Self::Short { numbers, .. } | Self::Long { numbers, .. } => Some(numbers),
            Self::Whole(_) => None,
        }
    }

    /// The same key with another record.
    pub(crate) fn with(&self, policy: Id, record: Record) -> Self {
        let (tenant, subject) = self.key();
        Self::of(tenant, subject, policy, record)
    }

    pub(crate) fn of(tenant: &[u8], subject: &[u8], policy: Id, record: Record) -> Self {
        match Numbers::of(&record) {
            Some(numbers) => Self::new(tenant, subject, policy, numbers),
            None => Self::Whole(Box::new(Whole { key: Key::new(tenant, subject), policy, record })),
        }
    }

    #[inline]
    pub(crate) fn recovers_at(&self, policies: &Policies) -> u64 {
        match self {
            Self::Short { policy, numbers, .. } => recovers_at(*numbers, policies.get(*policy)),
            Self::Long { key, numbers } => recovers_at(*numbers, policies.get(key.policy())),
            Self::Whole(whole) => whole.record.recovers_at(),
        }
    }

    /// Bytes on the heap.
    #[inline]
    pub(crate) fn spilled(&self) -> usize {
        match self {
            Self::Short { .. } => 0,
            Self::Long { key, .. } => key.heap_bytes(),
            Self::Whole(whole) => whole.heap_bytes(),
        }
    }

    /// Bytes on the heap that the slot of such a key would take, if its record is a few numbers.
    #[inline]
    pub(crate) fn spilled_by(tenant: &[u8], subject: &[u8]) -> usize {
        if ShortKey::fits(tenant, subject) {
            0
        } else {
            LongKey::HEADER + tenant.len() + subject.len()
        }
    }
}

impl Whole {
    /// Bytes on the heap, its own included.
    pub(crate) fn heap_bytes(&self) -> usize {
        size_of::<Self>() + self.key.heap_bytes() + self.record.heap_bytes()
    }

    /// The most that such a key takes on the heap, apart from what its record does.
    pub(crate) fn heap_bytes_of(tenant: &[u8], subject: &[u8]) -> usize {
        size_of::<Self>() + Key::heap_bytes_of(tenant, subject)
    }
}

#[inline]
fn has_name_of(one: &Policy, other: &Policy) -> bool {
    one.is_same_object(other) || one.name() == other.name()
}

#[inline]
fn recovers_at(numbers: Numbers, policy: Option<&Policy>) -> u64 {
    policy.map_or(0, |policy| numbers.recovers_at(policy))
}

/// A key that lies within the slot.
///
/// The `bool` comes last, as the compiler keeps what kind a slot is in values that a `bool` never has,
/// and at the end of the slot the other kinds have room before it.
#[repr(C)]
pub(crate) struct ShortKey {
    bytes: [u8; INLINE],
    len: u8,
    /// Whether the first byte is the length of a tenant, which follows, before the subject.
    has_tenant: bool,
}

/// What leaves room for three numbers in 48 bytes.
const INLINE: usize = 20;

impl ShortKey {
    #[inline]
    fn fits(tenant: &[u8], subject: &[u8]) -> bool {
        match tenant.len() {
            0 => subject.len() <= INLINE,
            tenant => 1 + tenant + subject.len() <= INLINE,
        }
    }

    fn new(tenant: &[u8], subject: &[u8]) -> Option<Self> {
        if !Self::fits(tenant, subject) {
            return None;
        }
        let tenant_len = u8::try_from(tenant.len()).ok()?;
        let has_tenant = tenant_len > 0;
        let header = if has_tenant { &[tenant_len][..] } else { &[] };
        let (mut bytes, mut len) = ([0; INLINE], 0);
        for part in [header, tenant, subject] {
            bytes[len..len + part.len()].copy_from_slice(part);
            len += part.len();
        }
        Some(Self { bytes, len: u8::try_from(len).ok()?, has_tenant })
    }

    #[inline]
    fn parts(&self) -> (&[u8], &[u8]) {
        let bytes = self.bytes.get(..usize::from(self.len)).unwrap_or_default();
        match bytes.split_first() {
            Some((&tenant, bytes)) if self.has_tenant => split(bytes, usize::from(tenant)),
            _ => (&[], bytes),
        }
    }
}

/// A key on the heap, in two words: the policy's id and the tenant's length lie before its bytes.
pub(crate) struct LongKey(Box<[u8]>);

impl LongKey {
    /// Bytes of the id and of the length.
    const HEADER: usize = 2 + 4;

    fn new(policy: Id, tenant: &[u8], subject: &[u8]) -> Self {
        // A call is checked to have tenants of at most 1 MiB before it gets here.
        let tenant_len = u32::try_from(tenant.len()).unwrap_or(u32::MAX);
        let parts = [&policy.to_bytes()[..], &tenant_len.to_le_bytes(), tenant, subject];
        Self(parts.concat().into())
    }

    fn policy(&self) -> Id {
        self.0.first_chunk().map_or_else(Id::default, |bytes| Id::from_bytes(*bytes))
    }

    fn parts(&self) -> (&[u8], &[u8]) {
        let Some((header, bytes)) = self.0.split_first_chunk::<{ Self::HEADER }>() else {
            return (&[], &[]);
        };
        let [_, _, tenant @ ..] = *header;
        split(bytes, usize::try_from(u32::from_le_bytes(tenant)).unwrap_or(0))
    }

    fn heap_bytes(&self) -> usize {
        self.0.len()
    }
}

#[inline]
fn split(bytes: &[u8], at: usize) -> (&[u8], &[u8]) {
    bytes.split_at_checked(at).unwrap_or((&[], bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_takes_48_bytes() {
        assert_eq!(size_of::<Option<Slot>>(), 48);
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
            assert_eq!((slot.tenant(), slot.subject(), slot.policy()), (a.0, a.1, id));
            assert_eq!(slot.spilled(), Slot::spilled_by(a.0, a.1));
            for (j, b) in cases.iter().enumerate() {
                let charge = Charge::new(&policy, b.1).tenant(b.0);
                assert_eq!(slot.is_of(&charge, &policies), i == j, "{a:?} and {b:?}");
            }
        }
    }

    #[test]
    fn only_long_keys_take_heap() {
        for (tenant, len, heap) in [(0, 20, 0), (0, 21, 27), (4, 15, 0), (4, 16, 26), (20, 0, 26)] {
            let (tenant, subject) = (vec![7; tenant], vec![7; len]);
            assert_eq!(Slot::spilled_by(&tenant, &subject), heap);
        }
    }
}
