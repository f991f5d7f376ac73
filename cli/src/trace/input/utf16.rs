//! Text in UTF-16, as PowerShell writes it, to UTF-8.

use std::io::{self, Read};

/// How much is taken in at once.
const CHUNK: usize = 64 << 10;

/// The byte order that a mark at the beginning names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::trace) enum ByteOrder {
    Little,
    Big,
}

impl ByteOrder {
    /// The order of a text that begins with a byte-order mark of UTF-16.
    pub(in crate::trace) fn of(head: &[u8]) -> Option<Self> {
        match head {
            [0xff, 0xfe, ..] => Some(Self::Little),
            [0xfe, 0xff, ..] => Some(Self::Big),
            _ => None,
        }
    }

    fn unit(self, bytes: [u8; 2]) -> u16 {
        match self {
            Self::Little => u16::from_le_bytes(bytes),
            Self::Big => u16::from_be_bytes(bytes),
        }
    }
}

/// Reads UTF-16 as UTF-8. What is no UTF-16 becomes the replacement character.
pub(in crate::trace) struct Utf16<R> {
    inner: R,
    order: ByteOrder,
    /// Bytes that do not make up a whole character yet.
    rest: Vec<u8>,
    /// Text not handed out yet, and how much of it is handed out.
    text: Vec<u8>,
    given: usize,
}

impl<R: Read> Utf16<R> {
    pub(in crate::trace) fn new(inner: R, order: ByteOrder) -> Self {
        Self { inner, order, rest: Vec::new(), text: Vec::new(), given: 0 }
    }

    /// Takes in more, and says whether there was any.
    fn refill(&mut self) -> io::Result<bool> {
        let read = self.inner.by_ref().take(CHUNK as u64).read_to_end(&mut self.rest)?;
        let (order, ended) = (self.order, read == 0);
        let mut units: Vec<u16> =
            self.rest.chunks_exact(2).map(|pair| order.unit([pair[0], pair[1]])).collect();
        // The second half of the last character may come with the next bytes.
        if !ended && units.last().is_some_and(|unit| (0xd800..0xdc00).contains(unit)) {
            units.pop();
        }
        self.rest.drain(..units.len() * 2);
        let chars = char::decode_utf16(units).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER));
        let mut text: String = chars.collect();
        if ended && !self.rest.is_empty() {
            self.rest.clear();
            text.push(char::REPLACEMENT_CHARACTER);
        }
        (self.text, self.given) = (text.into_bytes(), 0);
        Ok(!ended)
    }
}

impl<R: Read> Read for Utf16<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.given == self.text.len() {
            if !self.refill()? && self.text.is_empty() {
                return Ok(0);
            }
        }
        let mut text = self.text.get(self.given..).unwrap_or_default();
        let read = text.read(into)?;
        self.given += read;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Hands out a byte at a time.
    struct Drip<'a>(&'a [u8]);

    impl Read for Drip<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let one = into.len().min(1);
            self.0.read(&mut into[..one])
        }
    }

    proptest! {
        #[test]
        fn text_comes_back_in_whatever_pieces_it_comes(text in "\\PC{0,50}", big in any::<bool>()) {
            let order = if big { ByteOrder::Big } else { ByteOrder::Little };
            let bytes: Vec<u8> = text
                .encode_utf16()
                .flat_map(|unit| if big { unit.to_be_bytes() } else { unit.to_le_bytes() })
                .collect();
            for whole in [true, false] {
                let mut found = String::new();
                if whole {
                    Utf16::new(&bytes[..], order).read_to_string(&mut found).unwrap();
                } else {
                    Utf16::new(Drip(&bytes), order).read_to_string(&mut found).unwrap();
                }
                prop_assert_eq!(&found, &text);
            }
        }
    }

    #[test]
    fn what_is_cut_or_broken_is_replaced() {
        for (bytes, wanted) in [
            (&b"a\0\x3d\xd8"[..], "a\u{fffd}"),
            (b"a\0b", "a\u{fffd}"),
            (b"\x00\xdca\0", "\u{fffd}a"),
        ] {
            let mut found = String::new();
            Utf16::new(bytes, ByteOrder::Little).read_to_string(&mut found).unwrap();
            assert_eq!(found, wanted);
        }
    }
}
