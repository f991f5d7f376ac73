//! Subjects that a store might stumble over.

use proptest::prelude::*;

use super::Bytes;

/// What separates, escapes, matches or ends something somewhere.
const SPECIAL: &[u8] = b"{}:*%?[]\\/_-.,;|\"'` \0\n\r\t\x7f\x80\xc3\xff";

/// A subject or a tenant: empty, of special characters, not UTF-8, of any bytes, or 1 MiB long.
pub fn hostile_subject() -> impl Strategy<Value = Bytes> {
    let bytes = prop_oneof![
        1 => Just(vec![]),
        6 => prop::collection::vec(prop::sample::select(SPECIAL), 1..6),
        3 => prop::collection::vec(any::<u8>(), 1..40),
        2 => "[a-z]{1,8}".prop_map(String::into_bytes),
        1 => any::<u8>().prop_map(|byte| vec![byte; 1 << 20]),
    ];
    bytes.prop_map(Bytes::from)
}

/// Two different pairs of a tenant and a subject that some way of joining would make one.
pub fn confusable_pair() -> impl Strategy<Value = [(Bytes, Bytes); 2]> {
    let part = || prop::collection::vec(prop::sample::select(&b"ab{}:*%_\0\xff"[..]), 0..4);
    let joint = prop_oneof![
        Just(vec![]),
        prop::sample::select(SPECIAL).prop_map(|byte| vec![byte]),
        Just(b"%3A".to_vec()),
        Just(b"}:{".to_vec()),
    ];
    (part(), joint, part(), part()).prop_filter_map("the same", |(a, joint, b, c)| {
        // "a" and "b-c" against "a-b" and "c".
        let left = (a.clone(), [&b[..], &joint, &c].concat());
        let right = ([&a[..], &joint, &b].concat(), c);
        (left != right).then(|| [left, right].map(|(a, b)| (Bytes::from(a), Bytes::from(b))))
    })
}
