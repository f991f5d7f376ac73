//! The suffix of a shard's tag, chosen so that shards lie in slots far from each other.

use tidegate_core::Shard;

/// Ends a tag, which begins at this place of the key, as the shard's: `%.`, how many there are, `.`, and two
/// characters.
///
/// No escaping writes `%.`, so that no tenant and no subject has such a tag. Of the two characters
/// there are pairs for each of the 256ths of all slots; they are chosen so that the slots of `n` shards
/// lie an `n`th of all slots apart, beginning anywhere: nodes that have as many slots as each other
/// have as many shards, or one more.
///
/// The choice of the characters must never change: it determines the slots of existing states.
pub(super) fn end(key: &mut Vec<u8>, begins: usize, shard: Shard) {
    key.extend_from_slice(format!("%.{}.", shard.count()).as_bytes());
    let before = crc(crc(0, key.get(begins..).unwrap_or_default()), &[0, 0]);
    let first = usize::from(cell(before));
    let apart = usize::try_from(u64::from(shard.index()) * 256 / u64::from(shard.count()));
    let wanted = (first + apart.unwrap_or_default()) % 256;
    // CRCs are linear: the suffix is XORed with the effect of two zero bytes.
    key.extend_from_slice(&PAIRS[first ^ wanted]);
}

/// The 256th of the 16,384 slots, which are the lower 14 bits.
const fn cell(crc: u16) -> u8 {
    let [low, high] = crc.to_le_bytes();
    high << 2 | low >> 6
}

/// The checksum from which Redis Cluster computes the slot of a tag: CRC-16/XMODEM, of `bytes` after those of
/// `crc`.
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

/// For each 256th of all slots two characters whose checksum is in it.
const PAIRS: [[u8; 2]; 256] = {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut pairs = [[0; 2]; 256];
    let mut place = LETTERS.len() * LETTERS.len();
    // Backwards, so that the first matching pair is the one that stays.
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

    fn tags(of: &[u8], count: u32) -> Vec<Vec<u8>> {
        let policy: Policy = "p: fixed-window 1000/1s".parse().unwrap();
        let policy = policy.sharded(Shards::any(count)).unwrap();
        let shards = policy.shares().iter().filter_map(Policy::shard);
        let tag = |shard| {
            let mut tag = of.to_vec();
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
    fn every_part_of_the_slots_can_be_aimed_at() {
        for (wanted, pair) in PAIRS.iter().enumerate() {
            assert_eq!(usize::from(cell(crc(0, pair))), wanted);
        }
    }

    /// Where states lie must not change from one version to the next.
    #[test]
    fn tags_stay_as_they_are() {
        let tags = tags(b"acme", 3).into_iter().map(|tag| String::from_utf8(tag).unwrap());
        assert_eq!(tags.collect::<Vec<_>>(), ["acme%.3.F9", "acme%.3.EM", "acme%.3.Ey"]);
    }

    #[test]
    fn equal_nodes_have_as_many_shards_as_each_other_or_one_more() {
        for tenant in 0..50 {
            for count in 2..40_u16 {
                let tags = tags(format!("tenant-{tenant}").as_bytes(), count.into());
                for nodes in 1..12_u16 {
                    let mut on_node = vec![0; usize::from(nodes)];
                    for tag in &tags {
                        let node = u32::from(slot(tag)) * u32::from(nodes) / 16_384;
                        on_node[usize::try_from(node).unwrap()] += 1;
                    }
                    let (least, most) = (on_node.iter().min().unwrap(), on_node.iter().max());
                    // One for the rounding to shards, and one for that to 256ths.
                    let apart = most.unwrap() - least;
                    assert!(apart <= 2, "{count} shards on {nodes} nodes: {on_node:?}");
                }
            }
        }
    }
}
