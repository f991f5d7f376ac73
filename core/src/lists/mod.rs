//! Lists that allow and deny subjects.

mod parse;
mod policy_lists;
mod prefix;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;

pub use parse::ListError;
pub(crate) use parse::{entries, split};
pub use policy_lists::PolicyLists;
use prefix::{Prefix, Prefixes};

/// The action of an entry of [`Lists`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum ListAction {
    /// The charges of the subject pass, and are counted beyond the limit.
    Allow,
    /// The charges of the subject are refused.
    Deny,
}

impl ListAction {
    /// Returns the name of the action in files and metrics: `allow` or `deny`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
        }
    }
}

/// Entries that allow or deny subjects, addresses and prefixes of addresses.
///
/// The most specific entry decides: the exact subject, then the longest prefix that contains the
/// address. If two entries for the same subject or prefix differ, the subject is denied. The order
/// of the entries does not matter.
///
/// A subject that is the text of an address, or of a network such as `2001:db8:0:1::/64`, matches
/// the prefixes that contain it. The address `::ffff:a.b.c.d` is the IPv4 address `a.b.c.d`, in
/// entries and in subjects. An IPv6 prefix that is shorter than `::ffff:0:0/96`, such as `::/0`,
/// contains no IPv4 addresses. Other subjects match only the entries for exact subjects.
///
/// ```
/// use tidegate_core::{ListAction, Lists};
///
/// let lists: Lists = "\
///     deny 203.0.113.0/24 # a scanner, without its office
///     allow 203.0.113.9
///     deny 2001:db8::/32
///     deny subject mallory
/// "
/// .parse()?;
/// assert_eq!(lists.find(b"203.0.113.7"), Some(ListAction::Deny));
/// assert_eq!(lists.find(b"::ffff:203.0.113.9"), Some(ListAction::Allow));
/// assert_eq!(lists.find(b"mallory"), Some(ListAction::Deny));
/// assert_eq!(lists.find(b"alice"), None);
///
/// let same = Lists::new()
///     .prefix(ListAction::Deny, "203.0.113.0/24")?
///     .address(ListAction::Allow, [203, 0, 113, 9])
///     .prefix(ListAction::Deny, "2001:db8::/32")?
///     .subject(ListAction::Deny, "mallory");
/// assert_eq!(same, lists);
/// # Ok::<(), tidegate_core::ListError>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lists {
    subjects: HashMap<Box<[u8]>, ListAction>,
    prefixes: Prefixes,
}

impl Lists {
    /// Creates lists without entries.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an entry for a subject. Any bytes are valid. The entry matches only a subject with
    /// exactly these bytes, even if they are the text of an address.
    #[must_use]
    pub fn subject(mut self, action: ListAction, subject: impl AsRef<[u8]>) -> Self {
        add(&mut self.subjects, subject.as_ref().into(), action);
        self
    }

    /// Adds an entry for an address.
    #[must_use]
    pub fn address(mut self, action: ListAction, address: impl Into<IpAddr>) -> Self {
        self.prefixes.add(Prefix::from_address(address.into()), action);
        self
    }

    /// Adds an entry for a prefix such as `203.0.113.0/24`, or for an address.
    ///
    /// # Errors
    ///
    /// Returns an error if the text is not a prefix and not an address, or if the address has bits
    /// after the prefix.
    pub fn prefix(mut self, action: ListAction, prefix: &str) -> Result<Self, ListError> {
        self.prefixes.add(prefix.parse().map_err(ListError::new)?, action);
        Ok(self)
    }

    /// Returns the action for a subject, or `None` if no entry matches. A prefix matches the text
    /// of each address in it, and of each network in it, such as `2001:db8:0:1::/64`.
    #[must_use]
    pub fn find(&self, subject: &[u8]) -> Option<ListAction> {
        self.subjects.get(subject).copied().or_else(|| {
            if self.prefixes.is_empty() {
                return None;
            }
            self.prefixes.find(Prefix::from_subject(subject)?)
        })
    }

    /// Returns the number of different subjects and prefixes with an entry.
    #[must_use]
    pub fn len(&self) -> usize {
        self.subjects.len() + self.prefixes.len()
    }

    /// Returns `true` if the lists have no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Adds an entry. If the key already has an entry with another action, the key is denied.
fn add<K: std::hash::Hash + Eq, H: std::hash::BuildHasher>(
    entries: &mut HashMap<K, ListAction, H>,
    key: K,
    action: ListAction,
) {
    match entries.entry(key) {
        Entry::Occupied(mut entry) => {
            let stricter = action.max(*entry.get());
            entry.insert(stricter);
        }
        Entry::Vacant(entry) => {
            entry.insert(action);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ACTIONS: [ListAction; 2] = [ListAction::Allow, ListAction::Deny];

    /// Returns the bits of an address. An IPv4-mapped address has 32 bits.
    fn bits(text: &str) -> Vec<bool> {
        let bytes = match text.parse::<IpAddr>().unwrap().to_canonical() {
            IpAddr::V4(address) => address.octets().to_vec(),
            IpAddr::V6(address) => address.octets().to_vec(),
        };
        bytes.iter().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1 == 1)).collect()
    }

    #[derive(Debug, Clone)]
    struct Entry {
        action: ListAction,
        /// The text of an address without bits after the prefix, or a subject.
        text: String,
        /// The length of the prefix, or `None` for an exact subject.
        len: Option<usize>,
    }

    /// Scans all entries in their order.
    fn find_slowly(entries: &[Entry], subject: &str) -> Option<ListAction> {
        let mut best: Option<(usize, ListAction)> = None;
        for entry in entries {
            let rank = match entry.len {
                None if entry.text == subject => 1_000,
                None => continue,
                Some(len) => {
                    let (address, network) = subject.split_once('/').unwrap_or((subject, "128"));
                    if address.parse::<IpAddr>().is_err() {
                        continue;
                    }
                    let (own, other) = (bits(&entry.text), bits(address));
                    if own.len() != other.len()
                        || len > network.parse().unwrap()
                        || own[..len] != other[..len]
                    {
                        continue;
                    }
                    len
                }
            };
            best = match best {
                Some((before, action)) if before == rank && action == ListAction::Deny => best,
                Some((before, _)) if before > rank => best,
                _ => Some((rank, entry.action)),
            };
        }
        best.map(|(_, action)| action)
    }

    /// Addresses that share long prefixes.
    fn address() -> impl Strategy<Value = IpAddr> {
        let near = prop::sample::select(vec![0_u8, 1, 2, 127, 128, 255]);
        prop_oneof![
            (near.clone(), near.clone()).prop_map(|(c, d)| IpAddr::from([10, 0, c, d])),
            (near.clone(), near.clone()).prop_map(|(c, d)| {
                IpAddr::from(std::net::Ipv4Addr::from([10, 0, c, d]).to_ipv6_mapped())
            }),
            (near.clone(), near).prop_map(|(a, b)| {
                IpAddr::from([0x20, 1, a, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, b])
            }),
            (0_u16..3).prop_map(|last| IpAddr::from([0, 0, 0, 0, 0, 0, 0, last])),
        ]
    }

    fn entry() -> impl Strategy<Value = Entry> {
        let prefix = (prop::sample::select(&ACTIONS[..]), address(), 0..=128_usize).prop_map(
            |(action, address, len)| {
                // A mapped address has the length of its IPv4 prefix here.
                let max = bits(&address.to_string()).len();
                let len = len % (max + 1);
                let text = Prefix::truncated(address.to_canonical(), len).to_string();
                Entry { action, text, len: Some(len) }
            },
        );
        let subject = (prop::sample::select(&ACTIONS[..]), subject())
            .prop_map(|(action, text)| Entry { action, text, len: None });
        prop_oneof![4 => prefix, 1 => subject]
    }

    fn subject() -> impl Strategy<Value = String> {
        prop_oneof![
            4 => address().prop_map(|address| address.to_string()),
            2 => (address(), 0..=128_usize).prop_map(|(address, len)| {
                let address = address.to_canonical();
                let len = len % (bits(&address.to_string()).len() + 1);
                format!("{}/{len}", Prefix::truncated(address, len))
            }),
            1 => prop::sample::select(vec!["alice", "bob", "10.0.0", "10.0.0.0/8"])
                .prop_map(str::to_owned),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn the_look_up_finds_what_a_scan_of_all_entries_finds(
            entries in prop::collection::vec(entry(), 0..12),
            subjects in prop::collection::vec(subject(), 1..20),
        ) {
            let lines = entries.iter().map(|Entry { action, text, len }| match len {
                None => format!("{} subject {text}\n", action.as_str()),
                Some(len) => format!("{} {text}/{len}\n", action.as_str()),
            });
            let lists: Lists = lines.collect::<String>().parse().unwrap();
            for subject in subjects {
                let expected = find_slowly(&entries, &subject);
                prop_assert_eq!(lists.find(subject.as_bytes()), expected, "{}", subject);
            }
        }
    }
}
