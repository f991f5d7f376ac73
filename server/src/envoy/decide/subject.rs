//! Creates the subject for which hits are counted. It consists of the domain and all entries of a
//! descriptor.

use crate::envoy::request::Entry;

/// Returns the subject in the form `domain|key=value|key=value`. If the values of a pattern share
/// one count, the subject contains the pattern instead of the value: `domain|key*=pattern`.
///
/// Different descriptors have different subjects, except for values that share a pattern, because
/// separators in keys and values are escaped. envoyproxy/ratelimit does not escape separators: the
/// key `a_b` with the value `c` and the key `a` with the value `b_c` share a count.
pub(super) fn subject(domain: &[u8], entries: &[Entry], shared: &[Option<&str>]) -> Vec<u8> {
    let len: usize = entries.iter().map(|entry| entry.key.len() + entry.value.len() + 2).sum();
    let mut bytes = Vec::with_capacity(domain.len() + len);
    escape(domain, &mut bytes);
    for (index, entry) in entries.iter().enumerate() {
        bytes.push(b'|');
        escape(&entry.key, &mut bytes);
        match shared.get(index).copied().flatten() {
            Some(pattern) => {
                bytes.extend(b"*=");
                escape(pattern.as_bytes(), &mut bytes);
            }
            None => {
                bytes.push(b'=');
                escape(&entry.value, &mut bytes);
            }
        }
    }
    bytes
}

/// Returns the subject whose slots a descriptor takes, in the form `domain|key=value|key`. The value
/// of the last entry is the id of a hold, so the subject contains only the key of this entry.
pub(super) fn subject_of_slots(
    domain: &[u8],
    entries: &[Entry],
    shared: &[Option<&str>],
) -> Vec<u8> {
    let (id, entries) =
        entries.split_last().map_or((&[][..], entries), |(id, rest)| (&id.key, rest));
    let mut bytes = subject(domain, entries, shared);
    bytes.push(b'|');
    escape(id, &mut bytes);
    bytes
}

fn escape(text: &[u8], bytes: &mut Vec<u8>) {
    for byte in text {
        match byte {
            b'%' => bytes.extend(b"%25"),
            b'*' => bytes.extend(b"%2A"),
            b'=' => bytes.extend(b"%3D"),
            b'|' => bytes.extend(b"%7C"),
            _ => bytes.push(*byte),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn entries(pairs: &[(&str, &str)]) -> Vec<Entry> {
        let entry = |(key, value): &(&str, &str)| Entry {
            key: (*key).to_owned().into(),
            value: (*value).to_owned().into(),
        };
        pairs.iter().map(entry).collect()
    }

    #[test]
    fn b70_parts_that_look_alike_when_joined_are_different_subjects() {
        let subjects = [
            subject(b"d", &entries(&[("a_b", "c")]), &[]),
            subject(b"d", &entries(&[("a", "b_c")]), &[]),
            subject(b"d_a", &entries(&[("b", "c")]), &[]),
            subject(b"d", &entries(&[("a", "b"), ("c", "")]), &[]),
            subject(b"d", &entries(&[("a", "b|c=")]), &[]),
            subject(b"d", &entries(&[("a|b", "c")]), &[]),
            subject(b"d", &entries(&[("a", "=b")]), &[]),
            subject(b"d", &entries(&[("a=", "b")]), &[]),
            subject(b"d|a", &entries(&[("b", "c")]), &[]),
            subject(b"d", &entries(&[("a", "%7C")]), &[]),
            subject(b"d", &entries(&[("a", "|")]), &[]),
            subject(b"d", &entries(&[("a", "x*")]), &[]),
            subject(b"d", &entries(&[("a", "x")]), &[Some("x*")]),
            subject(b"d", &entries(&[("a*", "x*")]), &[]),
            subject(b"d", &[Entry { key: "a".into(), value: b"\xff"[..].into() }], &[]),
            subject(b"d", &[Entry { key: "a".into(), value: b"\xfe"[..].into() }], &[]),
            subject(b"d", &entries(&[("a", "\u{fffd}")]), &[]),
        ];
        let different: HashSet<_> = subjects.iter().collect();
        assert_eq!(different.len(), subjects.len());
    }

    #[test]
    fn subjects_of_slots_have_no_id_and_differ_from_subjects_of_rates() {
        let slots = |pairs| subject_of_slots(b"d", &entries(pairs), &[]);
        assert_eq!(slots(&[("a", "b"), ("i|d", "1")]), b"d|a=b|i%7Cd");
        let one = slots(&[("a", "b"), ("id", "1")]);
        assert_eq!(one, slots(&[("a", "b"), ("id", "2")]));
        let others = [
            subject(b"d", &entries(&[("a", "b")]), &[]),
            subject(b"d", &entries(&[("a", "b"), ("id", "")]), &[]),
            slots(&[("a", "b"), ("other", "1")]),
            slots(&[("a", "c"), ("id", "1")]),
        ];
        assert!(!others.contains(&one));
    }

    #[test]
    fn values_of_a_pattern_that_share_a_count_are_one_subject() {
        let subject =
            |value| subject(b"d", &entries(&[("f", value), ("g", "h")]), &[Some("x/*"), None]);
        assert_eq!(subject("x/1"), subject("x/2"));
        assert_eq!(subject("x/1"), b"d|f*=x/%2A|g=h");
    }
}
