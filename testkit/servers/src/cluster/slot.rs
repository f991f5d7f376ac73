//! The slots of keys in a Redis Cluster.

pub(super) const SLOTS: u16 = 16_384;

/// Returns the slot of a key. If the key has a text between its first opening brace and the next
/// closing brace, the slot depends only on this text. If there is no such text, or it is empty, the
/// slot depends on the whole key.
pub(super) fn slot_of(key: &[u8]) -> u16 {
    crc16(tag(key).unwrap_or(key)) % SLOTS
}

fn tag(key: &[u8]) -> Option<&[u8]> {
    let open = key.iter().position(|&byte| byte == b'{')?;
    let rest = key.get(open + 1..)?;
    let close = rest.iter().position(|&byte| byte == b'}')?;
    rest.get(..close).filter(|tag| !tag.is_empty())
}

/// Computes the checksum CRC-16/XMODEM bit by bit, in the slow and obvious way.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, &byte| {
        (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| {
            let shifted = crc << 1;
            if crc & 0x8000 == 0 { shifted } else { shifted ^ 0x1021 }
        })
    })
}
