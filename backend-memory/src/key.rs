//! Keys as they are kept: a tenant and a subject, and the policy that wrote the record. Short ones are
//! three words, which compare and hash without a call, and lie where they are kept.

use std::num::NonZeroU64;

use crate::interner::PolicyId;

/// A key of at most 20 bytes, in words: these compare and hash without a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ShortKey {
    pub(crate) low: u64,
    pub(crate) middle: u64,
    /// Four more bytes, the length, and whether the first byte is the length of a tenant, which
    /// follows, before the subject: 6 bytes of 8.
    pub(crate) rest: u64,
}

/// What leaves room for two numbers in 40 bytes.
const INLINE: usize = 20;

impl ShortKey {
    #[inline(always)]
    pub(crate) fn new(tenant: &[u8], subject: &[u8]) -> Option<Self> {
        match tenant.is_empty() {
            true if subject.len() <= INLINE => Some(Self::of(words(subject), subject.len(), false)),
            true => None,
            false => Self::with_tenant(tenant, subject),
        }
    }

    #[inline(never)]
    fn with_tenant(tenant: &[u8], subject: &[u8]) -> Option<Self> {
        let (mut bytes, mut len) = ([0; INLINE], 0);
        for part in [&[low_byte(tenant.len())], tenant, subject] {
            bytes.get_mut(len..len + part.len())?.copy_from_slice(part);
            len += part.len();
        }
        Some(Self::of(words(&bytes), len, true))
    }

    #[inline(always)]
    fn of([low, middle, high]: [u64; 3], len: usize, has_tenant: bool) -> Self {
        let about = u64::from(low_byte(len)) | u64::from(has_tenant) << 8;
        Self { low, middle, rest: high | about << 32 }
    }

    pub(crate) fn see<T>(self, see: impl FnOnce(&[u8], &[u8]) -> T) -> T {
        let words = [self.low, self.middle, self.rest].map(u64::to_le_bytes);
        let [_, _, _, _, len, has_tenant, _, _] = words[2];
        let bytes = words.as_flattened().get(..usize::from(len)).unwrap_or_default();
        let (tenant, subject) = match bytes.split_first() {
            Some((&tenant, bytes)) if has_tenant != 0 => split(bytes, usize::from(tenant)),
            _ => (&[][..], bytes),
        };
        see(tenant, subject)
    }
}

/// The same within a slot, with its policy: compared in three words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StoredKey {
    low: u64,
    middle: u64,
    /// The rest of the key, a bit that is always set, and the policy in the two highest bytes. What a
    /// slot holds otherwise is told by this being 0.
    rest: NonZeroU64,
}

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

/// Up to 20 bytes as little-endian words, padded with zeros. Without a loop: the last load overlaps
/// the one before, and what they share is shifted out.
#[inline(always)]
fn words(bytes: &[u8]) -> [u64; 3] {
    let first = |bytes: &[u8]| bytes.first_chunk().map_or(0, |first| u64::from_le_bytes(*first));
    match *bytes {
        [.., a, b, c, d] if bytes.len() >= 16 => {
            let missing = INLINE.saturating_sub(bytes.len());
            let last = u64::from(u32::from_le_bytes([a, b, c, d])) >> (8 * missing);
            [first(bytes), bytes.get(8..).map_or(0, first), last]
        }
        [.., a, b, c, d, e, f, g, h] => {
            let last = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
            let missing = u32::from(16 - low_byte(bytes.len()));
            [first(bytes), last.checked_shr(8 * missing).unwrap_or(0), 0]
        }
        _ => [few(bytes), 0, 0],
    }
}

/// The same of less than 8 bytes.
fn few(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte))
}

/// Of a length that is known to be small.
#[inline]
fn low_byte(len: usize) -> u8 {
    len.to_le_bytes()[0]
}

/// Any key that is kept.
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

    /// The same key with another policy.
    pub(crate) fn set_policy(&mut self, policy: PolicyId) {
        match self {
            Self::Short(key) => *key = StoredKey::new(key.key(), policy),
            Self::Long(key) => key.set_policy(policy),
        }
    }

    /// Shows the tenant and the subject.
    pub(crate) fn see<T>(&self, see: impl FnOnce(&[u8], &[u8]) -> T) -> T {
        match self {
            Self::Short(key) => key.key().see(see),
            Self::Long(key) => {
                let (tenant, subject) = key.parts();
                see(tenant, subject)
            }
        }
    }

    /// Bytes on the heap.
    pub(crate) fn heap_bytes(&self) -> usize {
        match self {
            Self::Short(_) => 0,
            Self::Long(key) => key.heap_bytes(),
        }
    }

    /// The same of the key of these.
    pub(crate) fn heap_bytes_for(tenant: &[u8], subject: &[u8]) -> usize {
        match ShortKey::new(tenant, subject) {
            Some(_) => 0,
            None => LongKey::HEADER + tenant.len() + subject.len(),
        }
    }
}

/// A key on the heap, in two words: the policy's id and the tenant's length lie before its bytes.
pub(crate) struct LongKey(Box<[u8]>);

impl LongKey {
    /// Bytes of the id and of the length.
    const HEADER: usize = 2 + 4;

    pub(crate) fn new(policy: PolicyId, tenant: &[u8], subject: &[u8]) -> Self {
        // A call is checked to have tenants of at most 1 MiB before it gets here.
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
    fn a_short_key_keeps_every_byte() {
        for len in 0..=INLINE {
            let subject: Vec<u8> = (1..=20).take(len).collect();
            let key = ShortKey::new(b"", &subject).unwrap();
            key.see(|tenant, seen| assert_eq!((tenant, seen), (&b""[..], &subject[..])));
            for tenant in 1..(INLINE - len).max(1) {
                let tenant = vec![9; tenant];
                let key = ShortKey::new(&tenant, &subject).unwrap();
                key.see(|seen, rest| assert_eq!((seen, rest), (&tenant[..], &subject[..])));
            }
        }
        assert_eq!(ShortKey::new(b"", &[0; INLINE + 1]), None);
        assert_eq!(ShortKey::new(&[0; INLINE], b""), None);
    }

    #[test]
    fn a_key_has_a_policy_and_can_get_another() {
        let [one, other] = [[1, 2], [0xff, 0xff]].map(PolicyId::from_bytes);
        for len in [0, 19, 20, 21, 100] {
            let subject = vec![0xff; len];
            let mut key = Key::new(one, b"", &subject);
            assert_eq!(key.policy(), one);
            key.set_policy(other);
            assert_eq!(key.policy(), other);
            key.see(|tenant, seen| assert_eq!((tenant, seen), (&b""[..], &subject[..])));
            assert_eq!(key.heap_bytes(), Key::heap_bytes_for(b"", &subject));
        }
    }
}
