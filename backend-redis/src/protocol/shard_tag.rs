//! The end of a shard's tag, which is chosen so that the slots of the shards are far apart.

use tidegate_core::Shard;

/// Appends the end of a shard's hash tag to a key: `%.`, the number of shards, `.`, and two
/// characters that determine the slot of the shard. The tag begins at the index `begins` of the
/// key.
///
/// Escaping never produces `%.`, so the tag of a shard differs from every tenant and every subject.
/// The slots are divided into 256 equal parts. For each part, a pair of characters exists that
/// gives the tag a slot in this part. The function chooses the pairs so that the slots of the
/// shards are evenly spaced: with 4 shards, they are a quarter of all slots apart. Therefore, if
/// two nodes have the same number of slots, their numbers of shards differ by at most two.
///
/// The choice of the characters must never change, because it determines the slots of existing
/// states.
pub(super) fn end(key: &mut Vec<u8>, begins: usize, shard: Shard) {
    key.extend_from_slice(format!("%.{}.", shard.count()).as_bytes());
    let before = crc(crc(0, key.get(begins..).unwrap_or_default()), &[0, 0]);
    let first = usize::from(cell(before));
    let apart = usize::try_from(u64::from(shard.index()) * 256 / u64::from(shard.count()));
    let wanted = (first + apart.unwrap_or_default()) % 256;
    // `first` is the part of the slots for the tag with two zero bytes at its end. A CRC is linear:
    // with the two characters of part `n` at its end, the tag is in the part `first ^ n`.
    key.extend_from_slice(&PAIRS[first ^ wanted]);
}

/// Returns the number of the part that contains the slot of the checksum `crc`. The slots are
/// divided into 256 equal parts, numbered from 0. A slot has 14 bits, and their upper 8 bits are
/// the number of the part.
const fn cell(crc: u16) -> u8 {
    let [low, high] = crc.to_le_bytes();
    high << 2 | low >> 6
}

/// Computes the checksum that determines the slot of a tag in Redis Cluster: CRC-16/XMODEM of
/// `bytes`, continued from `crc`.
const fn crc(crc: u16, bytes: &[u8]) -> u16 {
    let (mut crc, mut place) = (crc, 0);
    while place < bytes.len() {
        crc ^= u16::from_le_bytes([0, bytes[place]]);
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 };
            bit += 1;
        }
        place += 1;
    }
    crc
}

/// For each of the 256 equal parts of the slots: two characters whose slot is in this part.
const PAIRS: [[u8; 2]; 256] = {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut pairs = [[0; 2]; 256];
    let mut place = LETTERS.len() * LETTERS.len();
    // The loop runs backwards, so that the first matching pair remains.
    while place > 0 {
        place -= 1;
        let pair = [LETTERS[place / LETTERS.len()], LETTERS[place % LETTERS.len()]];
        pairs[cell(crc(0, &pair)) as usize] = pair;
    }
    pairs
};

#[cfg(test)]
mod tests {
    use tidegate_core::{Policy, Shards};

    use super::*;

    fn slot(tag: &[u8]) -> u16 {
        crc(0, tag) % 16_384
    }

    fn tags(tenant: &[u8], count: u32) -> Vec<Vec<u8>> {
        let policy: Policy = "p: fixed-window 1000/1s".parse().unwrap();
        let policy = policy.sharded(Shards::any(count)).unwrap();
        let shards = policy.shares().iter().filter_map(Policy::shard);
        let tag = |shard| {
            let mut tag = tenant.to_vec();
            end(&mut tag, 0, shard);
            tag
        };
        shards.map(tag).collect()
    }

    #[test]
    fn the_checksum_is_that_of_the_cluster_specification() {
        assert_eq!(crc(0, b"123456789"), 0x31c3);
    }

    #[test]
    fn every_part_of_the_slots_has_a_pair() {
        for (wanted, pair) in PAIRS.iter().enumerate() {
            assert_eq!(usize::from(cell(crc(0, pair))), wanted);
        }
    }

    /// The slots of states must not change between versions.
    #[test]
    fn the_tags_of_existing_states_do_not_change() {
        let tags = tags(b"acme", 3).into_iter().map(|tag| String::from_utf8(tag).unwrap());
        assert_eq!(tags.collect::<Vec<_>>(), ["acme%.3.F9", "acme%.3.EM", "acme%.3.Ey"]);
    }

    #[test]
    fn the_numbers_of_shards_of_equal_nodes_differ_by_at_most_one() {
        for tenant in 0..50 {
            for count in 2..40_u16 {
                let tags = tags(format!("tenant-{tenant}").as_bytes(), count.into());
                for nodes in 1..12_u16 {
                    let mut on_node = vec![0; usize::from(nodes)];
                    for tag in &tags {
                        let node = u32::from(slot(tag)) * u32::from(nodes) / 16_384;
                        on_node[usize::try_from(node).unwrap()] += 1;
                    }
                    let (min, max) = (on_node.iter().min().unwrap(), on_node.iter().max());
                    // The numbers of shards on two nodes differ by 1 because shards are whole, and
                    // by another 1 because the slots are rounded to 256 parts.
                    let difference = max.unwrap() - min;
                    assert!(difference <= 2, "{count} shards on {nodes} nodes: {on_node:?}");
                }
            }
        }
    }
}
