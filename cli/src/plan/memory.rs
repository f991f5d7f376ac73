//! Calculates the memory of a state in Redis, as the exact number of bytes that the allocator of
//! Redis allocates.
//!
//! `backend-redis/src/scripts/README.md` describes the layout of the values. For each key, Redis
//! 7.0 also allocates a string for the key, an object for the value, an entry in a table of keys,
//! and an entry in a table of expiries. `cli/tests/integration/plan_memory.rs` compares the results
//! with a real server.

use tidegate_core::algorithm::fair_pool::MAX_MEMBERS;
use tidegate_core::engine::Rule;
use tidegate_core::{Charge, Policy};
use tidegate_redis::protocol::Keys;

/// The bytes of one state, by their purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bytes {
    /// The number of characters of the key. The bytes in `key` include them.
    pub name: u64,
    /// The string with the key.
    pub key: u64,
    /// The value, with its object.
    pub value: u64,
    /// The entry in the table of keys.
    pub entry: u64,
    /// The entry in the table of expiries.
    pub expiry: u64,
    /// The pointers to the entries of the key. A table has up to twice as many pointers as entries.
    pub places: u64,
}

impl Bytes {
    /// Returns the sum of all bytes.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.key + self.value + self.entry + self.expiry + self.places
    }

    /// Returns the bytes that the command MEMORY USAGE reports. The command counts neither the
    /// expiry nor the tables. For the entry of the key, it counts the requested bytes, which are 8
    /// less than the allocated bytes.
    #[must_use]
    pub fn told(&self) -> u64 {
        self.key + self.value + self.entry - 8
    }
}

/// The number of entries in a state.
#[derive(Debug, Clone, Copy, Default)]
pub struct Entries {
    /// The number of records in a sliding log. If it is `None`, the log is full.
    pub log_records: Option<u64>,
    /// The number of open holds on a state with holds, or `None` if the state has no holds.
    pub holds: Option<u64>,
    /// The number of open grants to a quota or credits.
    pub grants: u64,
    /// The number of members of a fair pool with a request in the current or the previous window. A
    /// state has at most [`MAX_MEMBERS`] members.
    pub members: u64,
}

/// The parts of a key.
#[derive(Debug, Clone)]
pub struct Names {
    /// The prefix of the store.
    pub prefix: String,
    /// The length of tenants, or 0 if there are no tenants.
    pub tenant_bytes: usize,
    /// The length of subjects.
    pub subject_bytes: usize,
}

/// The bytes of an entry in a table: three words, or five words in a cluster.
const ENTRY: u64 = 24;
const CLUSTER_ENTRY: u64 = 40;
/// The bytes of the pointers for one key. The key has an entry in two tables, and a table has up to
/// two pointers of 8 bytes for each entry.
const PLACES: u64 = 2 * 2 * 8;
/// The bytes of the object (`robj`) that Redis allocates for each value.
const OBJECT: u64 = 16;
/// The maximum length of a string that Redis stores within the object of the value.
const WITHIN_OBJECT: u64 = 44;
/// The length of the foot of a state with holds.
const FOOT: u64 = 91;
/// The length of a hold on a state.
const HOLD: u64 = 51;
/// The average bytes of a node in a skip list.
const MEMBER_NODE: u64 = 54;
/// The length of an epoch.
const EPOCH: u64 = 38;
/// The length of the id of a hold. A UUID has this length.
pub const ID: usize = 36;

/// Returns the bytes that a state of a policy takes.
#[must_use]
pub fn state_bytes(policy: &Policy, names: &Names, entries: Entries, in_cluster: bool) -> Bytes {
    key_value(policy, names, Keys::key, value(policy, entries), in_cluster)
}

/// Returns the bytes of the epoch of a state. Redis keeps an epoch for each state with holds whose
/// policy does not refund lapsed holds.
#[must_use]
pub fn epoch_bytes(policy: &Policy, names: &Names, in_cluster: bool) -> Bytes {
    key_value(policy, names, Keys::epoch_key, object(EPOCH), in_cluster)
}

/// Returns the bytes of the record of a hold with `charges` charges. `policy` is the policy of the
/// first charge. The key of the record contains the id of the hold, which has [`ID`] characters.
#[must_use]
pub fn record_bytes(
    policy: &Policy,
    charges: u64,
    is_settled: bool,
    names: &Names,
    in_cluster: bool,
) -> Bytes {
    let key = |keys: &Keys, charge: &Charge<'_>| keys.id_key(charge, &[b'i'; ID]);
    let value = if is_settled { 70 + 140 * charges } else { 61 + 88 * charges };
    key_value(policy, names, key, object(value), in_cluster)
}

/// Returns the bytes of a key and its value. `key` returns the key for a charge whose tenant and
/// subject contain no characters that must be escaped.
fn key_value(
    policy: &Policy,
    names: &Names,
    key: impl FnOnce(&Keys, &Charge<'_>) -> Vec<u8>,
    value: u64,
    in_cluster: bool,
) -> Bytes {
    let (tenant, subject) = (vec![b't'; names.tenant_bytes], vec![b's'; names.subject_bytes]);
    // With shards, a key contains the name of a share of the policy.
    let policy = policy.shares().first().unwrap_or(policy);
    let charge = Charge::new(policy, &subject).tenant(&tenant);
    let name = u64::try_from(key(&Keys::new(&names.prefix), &charge).len()).unwrap_or(u64::MAX);
    Bytes {
        name,
        key: allocated(string(name)),
        value,
        entry: allocated(if in_cluster { CLUSTER_ENTRY } else { ENTRY }),
        expiry: allocated(ENTRY),
        places: PLACES,
    }
}

/// Returns the maximum bytes of a sliding log of a subject that is always busy. A log that is
/// stored as a string keeps expired records until half of its records are expired, so it can have
/// twice as many records. Returns `None` for other states.
#[must_use]
pub fn busy_log(
    policy: &Policy,
    names: &Names,
    entries: Entries,
    in_cluster: bool,
) -> Option<Bytes> {
    let most = policy.rule().max_records();
    let is_string = (1..=LONGEST_STRING).contains(&most) && entries.holds.is_none();
    let value = is_string.then(|| object(log(2 * log_records(policy, entries))))?;
    Some(Bytes { value, ..state_bytes(policy, names, entries, in_cluster) })
}

fn log_records(policy: &Policy, entries: Entries) -> u64 {
    let most = policy.rule().max_records().max(1);
    entries.log_records.unwrap_or(most).clamp(1, most)
}

fn value(policy: &Policy, entries: Entries) -> u64 {
    // A value consists of one byte for the kind, and of integers of seven bytes.
    let numbers = |count: u64| 1 + 7 * count;
    let state = match policy.rule() {
        Rule::FixedWindow(_) | Rule::Concurrent(_) => numbers(2),
        // The value of a quota that rolls over or has grants also has the number of grants, and
        // two integers for each grant.
        Rule::Quota(quota) if quota.rollover().is_some() || entries.grants > 0 => {
            numbers(9 + 2 * entries.grants)
        }
        Rule::SlidingCounter(_) | Rule::Quota(_) => numbers(3),
        Rule::TokenBucket(_) => numbers(5),
        Rule::SlidingLog(_) => {
            let records = log_records(policy, entries);
            if policy.rule().max_records() > LONGEST_STRING && entries.holds.is_none() {
                return list(records);
            }
            log(records)
        }
        Rule::FairPool(_) => return pool(entries.members.min(MAX_MEMBERS as u64)),
        _ => numbers(4),
    };
    entries.holds.map_or_else(|| object(state), |holds| sorted_set(state + FOOT, holds))
}

/// Returns the bytes of a sorted set with a state of `state` bytes and with `holds` holds. The
/// state is too long for a listpack, so Redis uses a skip list and a table of the members.
fn sorted_set(state: u64, holds: u64) -> u64 {
    // The header of the skip list has 32 levels. A member has 1.33 levels on average.
    let header = allocated(16) + allocated(56) + allocated(32) + allocated(24 + 32 * 16);
    let member = |bytes: u64| allocated(string(bytes)) + MEMBER_NODE + allocated(ENTRY);
    let table = allocated(8 * (holds + 1).next_power_of_two().max(4));
    OBJECT + header + table + member(state) + holds * member(HOLD)
}

/// The maximum number of records of a log that is stored as a string.
const LONGEST_STRING: u64 = 128;

/// Returns the length of a log that is stored as a string. The string consists of the kind (1
/// byte), the total (7 bytes), the records (14 bytes each) and the foot (37 bytes).
fn log(records: u64) -> u64 {
    8 + 14 * records + 37
}

/// Returns the bytes of a log that is stored as a list. An element of the list has 14 records, and
/// a node of the list has at most 8 KiB of elements.
fn list(records: u64) -> u64 {
    let elements = records.div_ceil(14);
    let element = 7 + 14 * 14 + 4;
    let per_node = 8_192 / element;
    let (full, rest) = (elements / per_node, elements % per_node);
    let node = |elements: u64| allocated(32) + allocated(7 + elements * element);
    let last = if rest > 0 { node(rest) } else { 0 };
    OBJECT + allocated(40) + full * node(per_node) + last
}

/// Returns the bytes of a fair pool, which is a hash. The empty field has 36 bytes. The field of a
/// member has a name of 14 bytes and a value of 23 bytes. A hash of at most 512 fields is a
/// listpack, in which a name or a value takes 2 more bytes.
fn pool(members: u64) -> u64 {
    let fields = members + 1;
    if fields <= 512 {
        return OBJECT + allocated(7 + 2 + 38 + (16 + 25) * members);
    }
    // The allocator has a size of 24 bytes for the entry of a field.
    let field = 24 + allocated(string(14)) + allocated(string(23));
    OBJECT + allocated(8 * fields.next_power_of_two()) + field * fields
}

/// Returns the bytes of a string value.
fn object(bytes: u64) -> u64 {
    if bytes <= WITHIN_OBJECT {
        return allocated(OBJECT + 3 + bytes + 1);
    }
    OBJECT + allocated(string(bytes))
}

/// Returns the bytes of a string of `bytes` characters, including the header with the length and
/// the zero byte at the end.
fn string(bytes: u64) -> u64 {
    let head = match bytes {
        0..32 => 1,
        32..256 => 3,
        256..65_536 => 5,
        _ => 9,
    };
    head + bytes + 1
}

/// Returns the bytes that jemalloc allocates if Redis requests `bytes`. Up to 128, the sizes are
/// multiples of 16. Above, each doubling has four sizes, such as 160, 192, 224 and 256. The
/// jemalloc in Redis has some additional sizes, so it sometimes allocates slightly less.
fn allocated(bytes: u64) -> u64 {
    if bytes <= 128 {
        return bytes.next_multiple_of(16);
    }
    let step = 1_u64 << ((bytes - 1).ilog2() - 2);
    bytes.next_multiple_of(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_allocator_has_four_sizes_for_each_doubling() {
        let sizes = [1, 16, 17, 113, 128, 129, 160, 161, 193, 256, 257, 320, 1_464, 8_193, 16_385]
            .map(allocated);
        let expected =
            [16, 16, 32, 128, 128, 160, 160, 192, 224, 256, 320, 320, 1_536, 10_240, 20_480];
        assert_eq!(sizes, expected);
    }
}
