//! What a state takes in Redis, to the byte that its allocator gives.
//!
//! The layouts of the values stand on the front page of `tidegate-redis`, those around them in the
//! sources of Redis 7.0: a key is an entry in a table, a string and an object; its expiry is an entry
//! in another table. Held against a real server by `cli/tests/integration/plan_memory.rs`.

use tidegate_core::engine::Rule;
use tidegate_core::{Charge, Policy};
use tidegate_redis::protocol::Keys;

/// Bytes of one state, and of what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bytes {
    /// Characters of the key, of which `key` is what they take.
    pub name: u64,
    /// The string that is the key.
    pub key: u64,
    /// The value, with its object.
    pub value: u64,
    /// The key's entry in the table of keys.
    pub entry: u64,
    /// That in the table of expiries.
    pub expiry: u64,
    /// Places in both tables, which have up to twice as many as there are keys.
    pub places: u64,
}

impl Bytes {
    /// All of them.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.key + self.value + self.entry + self.expiry + self.places
    }

    /// What the command MEMORY USAGE tells of it: neither the expiry nor the tables, and of the entry
    /// just what is asked of the allocator, which gives 8 more.
    #[must_use]
    pub fn told(&self) -> u64 {
        self.key + self.value + self.entry - 8
    }
}

/// What a key is made of.
#[derive(Debug, Clone)]
pub struct Names {
    /// The store's prefix.
    pub prefix: String,
    /// The length of tenants, 0 if there are none.
    pub tenant_bytes: usize,
    /// The length of subjects.
    pub subject_bytes: usize,
}

/// Bytes of an entry of a table; three words, or five in a cluster.
const ENTRY: u64 = 24;
const CLUSTER_ENTRY: u64 = 40;
/// A place in a table is a pointer, and a table has up to twice as many as entries.
const PLACES: u64 = 2 * 2 * 8;
/// The object around a value.
const OBJECT: u64 = 16;
/// A string of at most so many bytes lies within its object.
const WITHIN_OBJECT: u64 = 44;

/// What a state of a policy takes: a log with so many records, or, if not said, a full one.
#[must_use]
pub fn of_state(
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

/// The most that the state of a busy log takes, if that is a string: records that are over stay until
/// they are half of it. `None` for what has no such records.
#[must_use]
pub fn of_busy_log(
    policy: &Policy,
    names: &Names,
    log_records: Option<u64>,
    in_cluster: bool,
) -> Option<Bytes> {
    let most = policy.rule().max_records();
    let records = log_records.unwrap_or(most).clamp(1, most.max(1));
    let value = (1..=LONGEST_STRING).contains(&most).then(|| log(2 * records))?;
    Some(Bytes { value, ..of_state(policy, names, log_records, in_cluster) })
}

/// The length of the key of a subject without characters that need escaping.
fn key_bytes(policy: &Policy, names: &Names) -> u64 {
    let (tenant, subject) = (vec![b't'; names.tenant_bytes], vec![b's'; names.subject_bytes]);
    // Of a policy with shards, a state is one of a share.
    let policy = policy.shares().first().unwrap_or(policy);
    let key = Keys::new(&names.prefix).key(&Charge::new(policy, &subject).tenant(&tenant));
    u64::try_from(key.len()).unwrap_or(u64::MAX)
}

fn value(policy: &Policy, log_records: Option<u64>) -> u64 {
    // A byte for the kind, and integers of seven.
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

/// The most records of a log that is a string.
const LONGEST_STRING: u64 = 128;

/// A log in a string: 7 bytes and the kind before the records of 14, and 37 behind them.
fn log(records: u64) -> u64 {
    object(8 + 14 * records + 37)
}

/// A log in a list: elements of 14 records, which lie in nodes of at most 8 KiB.
fn list(records: u64) -> u64 {
    let elements = records.div_ceil(14);
    let element = 7 + 14 * 14 + 4;
    let per_node = 8_192 / element;
    let (full, rest) = (elements / per_node, elements % per_node);
    let node = |elements: u64| allocated(32) + allocated(7 + elements * element);
    let last = if rest > 0 { node(rest) } else { 0 };
    OBJECT + allocated(40) + full * node(per_node) + last
}

/// A string value.
fn object(bytes: u64) -> u64 {
    if bytes <= WITHIN_OBJECT {
        return allocated(OBJECT + 3 + bytes + 1);
    }
    OBJECT + allocated(string(bytes))
}

/// A string with its head, which tells its length, and the zero at its end.
fn string(bytes: u64) -> u64 {
    let head = match bytes {
        0..32 => 1,
        32..256 => 3,
        256..65_536 => 5,
        _ => 9,
    };
    head + bytes + 1
}

/// What jemalloc gives for so many bytes: multiples of 16 up to 128, and then four sizes for each
/// doubling. (The one that comes with Redis has some sizes between, and takes a little less.)
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
