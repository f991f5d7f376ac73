//! The keys of the entries of a table. A key consists of a tenant and a subject. An entry stores
//! its key together with the id of its policy.
//!
//! A key of at most 20 bytes is stored in three words in the slot of the table. Such a key is
//! loaded, compared and hashed without a loop and without a function call. A longer key is stored
//! on the heap.
//!
//! ```text
//!              bytes 0..8   8..16    16..20        20       21          22..24
//! ShortKey     key          key      key           length   flags       0
//! StoredKey    key          key      key           length   flags|0x80  policy id
//! ```
//!
//! If bit 0 of byte 21 (the flags) is set, the key has a tenant. Such a key begins with one byte
//! for the length of the tenant, then the tenant, then the subject.

use std::num::NonZeroU64;

use crate::interner::PolicyId;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ShortKey {
    pub(crate) low: u64,
    pub(crate) middle: u64,
    /// The low six bytes of this word contain the last four bytes of the key, the length of the
    /// key, and the flag for a tenant. The two high bytes are 0.
    pub(crate) rest: u64,
}

/// The maximum length of a short key. With such a key, a slot of 40 bytes also has room for a
/// packed state.
const MAX_INLINE: usize = 20;

impl ShortKey {
    #[inline(always)]
    pub(crate) fn new(tenant: &[u8], subject: &[u8]) -> Option<Self> {
        match tenant.is_empty() {
            true if subject.len() <= MAX_INLINE => {
                Some(Self::from_words(words(subject), subject.len(), false))
            }
            true => None,
            false => Self::with_tenant(tenant, subject),
        }
    }

    #[inline(never)]
    fn with_tenant(tenant: &[u8], subject: &[u8]) -> Option<Self> {
        let (mut bytes, mut len) = ([0; MAX_INLINE], 0);
        for part in [&[low_byte(tenant.len())], tenant, subject] {
            bytes.get_mut(len..len + part.len())?.copy_from_slice(part);
            len += part.len();
        }
        Some(Self::from_words(words(&bytes), len, true))
    }

    #[inline(always)]
    fn from_words([low, middle, high]: [u64; 3], len: usize, has_tenant: bool) -> Self {
        let length_and_flags = u64::from(low_byte(len)) | u64::from(has_tenant) << 8;
        Self { low, middle, rest: high | length_and_flags << 32 }
    }

    pub(crate) fn with_parts<T>(self, f: impl FnOnce(&[u8], &[u8]) -> T) -> T {
        let words = [self.low, self.middle, self.rest].map(u64::to_le_bytes);
        let [_, _, _, _, len, has_tenant, _, _] = words[2];
        let bytes = words.as_flattened().get(..usize::from(len)).unwrap_or_default();
        let (tenant, subject) = match bytes.split_first() {
            Some((&tenant, bytes)) if has_tenant != 0 => split(bytes, usize::from(tenant)),
            _ => (&[][..], bytes),
        };
        f(tenant, subject)
    }
}

/// A short key and the id of a policy, as a slot of the table stores them. Two keys are compared as
/// three words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StoredKey {
    low: u64,
    middle: u64,
    /// The same as [`ShortKey::rest`], with [`STORED_BIT`], and with the policy id in the two high
    /// bytes. This number is never 0, so that the compiler can use 0 for the other variant of
    /// `Slot`.
    rest: NonZeroU64,
}

/// A bit of [`StoredKey::rest`] that is always set.
const STORED_BIT: NonZeroU64 = match NonZeroU64::new(1 << 47) {
    Some(bit) => bit,
    None => NonZeroU64::MIN,
};

impl StoredKey {
    #[inline(always)]
    pub(crate) fn new(ShortKey { low, middle, rest }: ShortKey, policy: PolicyId) -> Self {
        let [a, b] = policy.to_bytes();
        let policy = u64::from_le_bytes([0, 0, 0, 0, 0, 0, a, b]);
        Self { low, middle, rest: STORED_BIT | rest | policy }
    }

    #[inline(always)]
    pub(crate) fn key(self) -> ShortKey {
        let rest = self.rest.get() & (STORED_BIT.get() - 1);
        ShortKey { low: self.low, middle: self.middle, rest }
    }

    #[inline(always)]
    pub(crate) fn policy(self) -> PolicyId {
        let [.., a, b] = self.rest.get().to_le_bytes();
        PolicyId::from_bytes([a, b])
    }
}

/// Returns up to 20 bytes as little-endian words, padded with zeros.
// The function has no loop: the last load overlaps the load before it, and a shift removes the
// bytes that were loaded twice.
#[inline(always)]
fn words(bytes: &[u8]) -> [u64; 3] {
    let first = |bytes: &[u8]| bytes.first_chunk().map_or(0, |first| u64::from_le_bytes(*first));
    match *bytes {
        [.., a, b, c, d] if bytes.len() >= 16 => {
            let missing = MAX_INLINE.saturating_sub(bytes.len());
            let last = u64::from(u32::from_le_bytes([a, b, c, d])) >> (8 * missing);
            [first(bytes), bytes.get(8..).map_or(0, first), last]
        }
        [.., a, b, c, d, e, f, g, h] => {
            let last = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
            let missing = u32::from(16 - low_byte(bytes.len()));
            [first(bytes), last.checked_shr(8 * missing).unwrap_or(0), 0]
        }
        _ => [short_word(bytes), 0, 0],
    }
}

fn short_word(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte))
}

#[inline]
fn low_byte(len: usize) -> u8 {
    len.to_le_bytes()[0]
}

pub(crate) enum Key {
    Short(StoredKey),
    Long(LongKey),
}

impl Key {
    pub(crate) fn new(policy: PolicyId, tenant: &[u8], subject: &[u8]) -> Self {
        match ShortKey::new(tenant, subject) {
            Some(key) => Self::Short(StoredKey::new(key, policy)),
            None => Self::Long(LongKey::new(policy, tenant, subject)),
        }
    }

    #[inline]
    pub(crate) fn policy(&self) -> PolicyId {
        match self {
            Self::Short(key) => key.policy(),
            Self::Long(key) => key.policy(),
        }
    }

    pub(crate) fn set_policy(&mut self, policy: PolicyId) {
        match self {
            Self::Short(key) => *key = StoredKey::new(key.key(), policy),
            Self::Long(key) => key.set_policy(policy),
        }
    }

    pub(crate) fn with_parts<T>(&self, f: impl FnOnce(&[u8], &[u8]) -> T) -> T {
        match self {
            Self::Short(key) => key.key().with_parts(f),
            Self::Long(key) => {
                let (tenant, subject) = key.parts();
                f(tenant, subject)
            }
        }
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        match self {
            Self::Short(_) => 0,
            Self::Long(key) => key.heap_bytes(),
        }
    }

    pub(crate) fn heap_bytes_for(tenant: &[u8], subject: &[u8]) -> usize {
        match ShortKey::new(tenant, subject) {
            Some(_) => 0,
            None => LongKey::HEADER + tenant.len() + subject.len(),
        }
    }
}

/// A pointer of two words to a key on the heap.
///
/// On the heap, the key consists of the policy id (2 bytes), the length of the tenant (4 bytes),
/// the tenant and the subject.
pub(crate) struct LongKey(Box<[u8]>);

impl LongKey {
    /// The number of bytes before the tenant. These bytes contain the policy id and the length of
    /// the tenant.
    const HEADER: usize = 2 + 4;

    pub(crate) fn new(policy: PolicyId, tenant: &[u8], subject: &[u8]) -> Self {
        // The length fits into 32 bits, because `Call::check` rejects tenants that are longer than
        // 1 MiB.
        let tenant_len = u32::try_from(tenant.len()).unwrap_or(u32::MAX);
        let parts = [&policy.to_bytes()[..], &tenant_len.to_le_bytes(), tenant, subject];
        Self(parts.concat().into())
    }

    pub(crate) fn policy(&self) -> PolicyId {
        self.0.first_chunk().map_or_else(PolicyId::default, |bytes| PolicyId::from_bytes(*bytes))
    }

    fn set_policy(&mut self, policy: PolicyId) {
        if let Some(bytes) = self.0.first_chunk_mut() {
            *bytes = policy.to_bytes();
        }
    }

    pub(crate) fn parts(&self) -> (&[u8], &[u8]) {
        let Some((header, bytes)) = self.0.split_first_chunk::<{ Self::HEADER }>() else {
            return (&[], &[]);
        };
        let [_, _, tenant @ ..] = *header;
        split(bytes, usize::try_from(u32::from_le_bytes(tenant)).unwrap_or(0))
    }

    pub(crate) fn heap_bytes(&self) -> usize {
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
    fn a_key_takes_three_words() {
        assert_eq!(size_of::<Key>(), 24);
    }

    #[test]
    fn a_short_key_round_trips_every_byte() {
        for len in 0..=MAX_INLINE {
            let subject: Vec<u8> = (1..=20).take(len).collect();
            let key = ShortKey::new(b"", &subject).unwrap();
            key.with_parts(|tenant, seen| assert_eq!((tenant, seen), (&b""[..], &subject[..])));
            for tenant in 1..(MAX_INLINE - len).max(1) {
                let tenant = vec![9; tenant];
                let key = ShortKey::new(&tenant, &subject).unwrap();
                key.with_parts(|seen, rest| assert_eq!((seen, rest), (&tenant[..], &subject[..])));
            }
        }
        assert_eq!(ShortKey::new(b"", &[0; MAX_INLINE + 1]), None);
        assert_eq!(ShortKey::new(&[0; MAX_INLINE], b""), None);
    }

    #[test]
    fn the_policy_of_a_key_can_be_replaced() {
        let [one, other] = [[1, 2], [0xff, 0xff]].map(PolicyId::from_bytes);
        for len in [0, 19, 20, 21, 100] {
            let subject = vec![0xff; len];
            let mut key = Key::new(one, b"", &subject);
            assert_eq!(key.policy(), one);
            key.set_policy(other);
            assert_eq!(key.policy(), other);
            key.with_parts(|tenant, seen| assert_eq!((tenant, seen), (&b""[..], &subject[..])));
            assert_eq!(key.heap_bytes(), Key::heap_bytes_for(b"", &subject));
        }
    }
}
