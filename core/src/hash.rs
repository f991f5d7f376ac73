/// Returns a hash of the concatenated byte strings. The hash is the same on every machine and in
/// every version. It has no key, so an attacker can find byte strings with a given hash.
pub(crate) fn stable_hash<const N: usize>(parts: [&[u8]; N]) -> u64 {
    // The hash is FNV-1a, followed by the last step of MurmurHash3. The last step is necessary
    // because FNV-1a distributes the high bits badly.
    let fnv = parts.into_iter().flatten().fold(0xcbf2_9ce4_8422_2325, |hash: u64, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let hash = (fnv ^ (fnv >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

pub(crate) fn mix(hash: u64, number: u64) -> u64 {
    let hash = (hash ^ number).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^ (hash >> 33)
}

/// Maps a hash to `0..count` by its high bits.
pub(crate) fn spread(hash: u64, count: usize) -> usize {
    usize::try_from((u128::from(hash) * count as u128) >> 64).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// States in a shared store depend on these hashes, so the hashes must never change.
    #[test]
    fn hashes_stay_as_they_are() {
        assert_eq!(stable_hash([b""]), 0xefd0_1f60_ba99_2926);
        assert_eq!(stable_hash([b"ab"]), 0xda71_cbd1_1dd9_bde4);
        assert_eq!(stable_hash([b"a", b"b"]), 0xda71_cbd1_1dd9_bde4);
    }
}
