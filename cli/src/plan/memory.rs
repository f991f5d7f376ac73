//! Calculates the memory of a state in Redis, as the exact number of bytes that the allocator of
//! Redis allocates.
//!
//! `backend-redis/src/scripts/README.md` describes the layout of the values. For each key, Redis
//! 7.0 also allocates a string for the key, an object for the value, an entry in a table of keys,
//! and an entry in a table of expiries. `cli/tests/integration/plan_memory.rs` compares the results
//! with a real server.

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

/// Returns the bytes that a state of a policy takes. The state of a sliding log has `log_records`
/// records. If `log_records` is `None`, the log is full.
#[must_use]
pub fn state_bytes(
    policy: &Policy,
    names: &Names,
    log_records: Option<u64>,
    in_cluster: bool,
) -> Bytes {
    let name = key_bytes(policy, names);
    Bytes {
        name,
        key: allocated(string(name)),
        value: value(policy, log_records),
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
    log_records: Option<u64>,
    in_cluster: bool,
) -> Option<Bytes> {
    let most = policy.rule().max_records();
    let records = log_records.unwrap_or(most).clamp(1, most.max(1));
    let value = (1..=LONGEST_STRING).contains(&most).then(|| log(2 * records))?;
    Some(Bytes { value, ..state_bytes(policy, names, log_records, in_cluster) })
}

/// Returns the length of a key whose tenant and subject contain no characters that must be escaped.
fn key_bytes(policy: &Policy, names: &Names) -> u64 {
    let (tenant, subject) = (vec![b't'; names.tenant_bytes], vec![b's'; names.subject_bytes]);
    // With shards, a key contains the name of a share of the policy.
    let policy = policy.shares().first().unwrap_or(policy);
    let key = Keys::new(&names.prefix).key(&Charge::new(policy, &subject).tenant(&tenant));
    u64::try_from(key.len()).unwrap_or(u64::MAX)
}

fn value(policy: &Policy, log_records: Option<u64>) -> u64 {
    // A value consists of one byte for the kind, and of integers of seven bytes.
    let numbers = |count: u64| object(1 + 7 * count);
    match policy.rule() {
        Rule::FixedWindow(_) => numbers(2),
        Rule::SlidingCounter(_) => numbers(3),
        Rule::TokenBucket(_) => numbers(5),
        Rule::SlidingLog(_) => {
            let most = policy.rule().max_records();
            let records = log_records.unwrap_or(most).clamp(1, most.max(1));
            if most > LONGEST_STRING { list(records) } else { log(records) }
        }
        _ => numbers(4),
    }
}

/// The maximum number of records of a log that is stored as a string.
const LONGEST_STRING: u64 = 128;

/// Returns the bytes of a log that is stored as a string. The string consists of the kind (1 byte),
/// the total (7 bytes), the records (14 bytes each) and the foot (37 bytes).
fn log(records: u64) -> u64 {
    object(8 + 14 * records + 37)
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
