use std::fmt;

/// A tenant and a subject. Short ones lie within the key itself, where looking at them costs no
/// further cache miss.
pub(crate) struct Key(Repr);

enum Repr {
    Inline { tenant: u8, len: u8, bytes: [u8; INLINE] },
    Heap { tenant: u32, bytes: Box<[u8]> },
}

/// What fits beside two lengths in the three words that the other form needs anyway.
const INLINE: usize = 21;

impl Key {
    pub(crate) fn new(tenant: &[u8], subject: &[u8]) -> Self {
        let len = tenant.len() + subject.len();
        if let (true, Ok(tenant_len), Ok(short)) =
            (len <= INLINE, u8::try_from(tenant.len()), u8::try_from(len))
        {
            let mut bytes = [0; INLINE];
            bytes[..tenant.len()].copy_from_slice(tenant);
            bytes[tenant.len()..len].copy_from_slice(subject);
            return Self(Repr::Inline { tenant: tenant_len, len: short, bytes });
        }
        // A call is checked to have tenants of at most 1 MiB before it gets here.
        let tenant_len = u32::try_from(tenant.len()).unwrap_or(u32::MAX);
        Self(Repr::Heap { tenant: tenant_len, bytes: [tenant, subject].concat().into() })
    }

    pub(crate) fn tenant(&self) -> &[u8] {
        self.parts().0
    }

    pub(crate) fn subject(&self) -> &[u8] {
        self.parts().1
    }

    /// Bytes on the heap.
    pub(crate) fn heap_bytes(&self) -> usize {
        match &self.0 {
            Repr::Inline { .. } => 0,
            Repr::Heap { bytes, .. } => bytes.len(),
        }
    }

    /// Bytes on the heap that such a key would take.
    pub(crate) fn heap_bytes_of(tenant: &[u8], subject: &[u8]) -> usize {
        let len = tenant.len() + subject.len();
        if len <= INLINE { 0 } else { len }
    }

    fn parts(&self) -> (&[u8], &[u8]) {
        let (bytes, tenant) = match &self.0 {
            Repr::Inline { tenant, len, bytes } => {
                (&bytes[..usize::from(*len)], usize::from(*tenant))
            }
            Repr::Heap { tenant, bytes } => (&**bytes, *tenant as usize),
        };
        bytes.split_at(tenant)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (tenant, subject) = self.parts();
        write!(f, "{}/{}", tenant.escape_ascii(), subject.escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_equal_only_if_both_parts_are() {
        let cases: [(&[u8], &[u8]); 6] = [
            (b"", b"ab"),
            (b"a", b"b"),
            (b"ab", b""),
            (b"", b"ab\0"),
            (b"", &[b'x'; 21]),
            (b"x", &[b'x'; 21]),
        ];
        for (i, a) in cases.iter().enumerate() {
            let key = Key::new(a.0, a.1);
            assert_eq!((key.tenant(), key.subject()), *a);
            for (j, b) in cases.iter().enumerate() {
                assert_eq!((key.tenant(), key.subject()) == *b, i == j, "{key:?}");
            }
        }
    }

    #[test]
    fn only_long_keys_take_heap() {
        for len in [0, 20, 21, 22, 1 << 20] {
            let subject = vec![7; len];
            let key = Key::new(b"", &subject);
            assert_eq!(key.heap_bytes(), if len <= 21 { 0 } else { len });
            assert_eq!(key.heap_bytes(), Key::heap_bytes_of(b"", &subject));
        }
        assert_eq!(size_of::<Key>(), 24);
    }
}
