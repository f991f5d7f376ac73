//! Random subjects and tenants with bytes that a careless store handles wrongly.

use proptest::prelude::*;

use super::Bytes;

/// Bytes that are separators, escapes, wildcards or terminators in common formats.
const SPECIAL: &[u8] = b"{}:*%?[]\\/_-.,;|\"'` \0\n\r\t\x7f\x80\xc3\xff";

/// Returns a strategy for a subject or a tenant. The bytes are empty, special characters, not
/// UTF-8, arbitrary, or 1 MiB long.
pub fn hostile_subject() -> impl Strategy<Value = Bytes> {
    // Long subjects are rare, because a call with one takes a hundred times as long.
    let bytes = prop_oneof![
        4 => Just(vec![]),
        24 => prop::collection::vec(prop::sample::select(SPECIAL), 1..6),
        12 => prop::collection::vec(any::<u8>(), 1..40),
        8 => "[a-z]{1,8}".prop_map(String::into_bytes),
        1 => any::<u8>().prop_map(|byte| vec![byte; 1 << 20]),
    ];
    bytes.prop_map(Bytes::from)
}

/// Returns a strategy for two different pairs of a tenant and a subject. A store that joins tenant
/// and subject carelessly would give both pairs the same key.
pub fn confusable_pair() -> impl Strategy<Value = [(Bytes, Bytes); 2]> {
    let part = || prop::collection::vec(prop::sample::select(&b"ab{}:*%_\0\xff"[..]), 0..4);
    let joint = prop_oneof![
        Just(vec![]),
        prop::sample::select(SPECIAL).prop_map(|byte| vec![byte]),
        Just(b"%3A".to_vec()),
        Just(b"}:{".to_vec()),
    ];
    (part(), joint, part(), part()).prop_filter_map("the same", |(a, joint, b, c)| {
        // For example, one pair has the tenant "a" and the subject "b-c", and the other has the
        // tenant "a-b" and the subject "c".
        let left = (a.clone(), [&b[..], &joint, &c].concat());
        let right = ([&a[..], &joint, &b].concat(), c);
        (left != right).then(|| [left, right].map(|(a, b)| (Bytes::from(a), Bytes::from(b))))
    })
}
