//! Reads and writes numbers in the format of the scripts: seven bytes, little-endian. Seven bytes
//! can represent 2^53.

pub(crate) const NUMBER: usize = 7;

/// The largest number that is written. A double represents every integer up to this number. A
/// larger number is written as `MAX_NUMBER`, which exceeds every limit.
pub(crate) const MAX_NUMBER: u64 = 1 << 53;

pub(crate) fn put(bytes: &mut Vec<u8>, number: u64) {
    bytes.extend_from_slice(&number.min(MAX_NUMBER).to_le_bytes()[..NUMBER]);
}

/// A reader that removes numbers and bytes from the front of its bytes. The methods return `None`
/// if the bytes end too early.
#[derive(Debug)]
pub(crate) struct Reader<'b>(pub(crate) &'b [u8]);

impl Reader<'_> {
    pub(crate) fn byte(&mut self) -> Option<u8> {
        let (&byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(byte)
    }

    pub(crate) fn number(&mut self) -> Option<u64> {
        let (number, rest) = self.0.split_at_checked(NUMBER)?;
        self.0 = rest;
        let mut bytes = [0; 8];
        bytes[..NUMBER].copy_from_slice(number);
        Some(u64::from_le_bytes(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_read_as_it_was_put_up_to_the_largest_exact_double() {
        for number in [0, 1, 255, 256, 1 << 52, MAX_NUMBER - 1, MAX_NUMBER] {
            let mut bytes = vec![];
            put(&mut bytes, number);
            assert_eq!(bytes.len(), NUMBER);
            assert_eq!(Reader(&bytes).number(), Some(number));
        }
        let mut bytes = vec![];
        put(&mut bytes, u64::MAX);
        assert_eq!(Reader(&bytes).number(), Some(MAX_NUMBER));
    }

    #[test]
    fn bytes_that_end_too_early_are_not_a_number() {
        assert_eq!(Reader(&[1; 6]).number(), None);
        assert_eq!(Reader(&[]).byte(), None);
    }
}
