//! Reads the bytes of files and of standard input, and decompresses gzip and zstd.

mod json_layout;
pub(super) mod lines;
mod stop;
mod stoppable;

use std::cell::Cell;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, BufReader, Cursor, Read};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use encoding_rs_io::DecodeReaderBytesBuilder;
use flate2::bufread::MultiGzDecoder;

use self::json_layout::OneALine;
pub use self::stop::Stop;
use self::stoppable::Stoppable;
use crate::trace::error::{Error, ErrorKind};
use crate::trace::formats::BYTE_ORDER_MARK;
use crate::trace::malformed::shown;

/// The number of bytes that the decompression reads at one time.
const BUFFER: usize = 256 << 10;

/// The maximum number of characters of a path that are shown. No path of Linux is longer.
const NAME_SHOWN: usize = 4096;

/// The number of bytes at the beginning of a text from which its layout is detected.
const HEAD: usize = 256;

const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// The second to the fourth byte of a skippable zstd frame, which some programs write before the
/// data. The first byte of this frame is from 0x50 to 0x5f.
const ZSTD_SKIPPED: [u8; 3] = [0x2a, 0x4d, 0x18];

/// One input.
#[derive(Debug)]
pub struct Input {
    name: String,
    source: Source,
    stop: Option<Stop>,
}

enum Source {
    Path(PathBuf),
    Once(Option<Box<dyn Read + Send>>),
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => f.debug_tuple("Path").field(path).finish(),
            Self::Once(_) => f.debug_tuple("Once").finish_non_exhaustive(),
        }
    }
}

impl Input {
    /// Returns the input that an argument names: a path, or `-` for standard input.
    #[must_use]
    pub fn from_arg(argument: &Path) -> Self {
        if argument == Path::new("-") {
            Self::once("standard input", io::stdin())
        } else {
            let name = shown(argument.as_os_str().as_encoded_bytes(), NAME_SHOWN);
            Self { name, source: Source::Path(argument.to_owned()), stop: None }
        }
    }

    /// Creates an input that can be read only once.
    pub fn once(name: impl Into<String>, reader: impl Read + Send + 'static) -> Self {
        Self { name: name.into(), source: Source::Once(Some(Box::new(reader))), stop: None }
    }

    /// Returns this input, whose reading fails when `stop` requests it, even while a read waits for
    /// a pipe.
    #[must_use]
    pub fn until(self, stop: &Stop) -> Self {
        Self { stop: Some(stop.clone()), ..self }
    }

    /// Returns the name of the input for messages: the path, which is safe to print on a terminal,
    /// or `standard input`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns `true` if the input can be read again from the start.
    pub(in crate::trace) fn reopens(&self) -> bool {
        self.size().is_some()
    }

    /// Returns the size of the input on disk, if it is known.
    pub(in crate::trace) fn size(&self) -> Option<u64> {
        let Source::Path(path) = &self.source else {
            return None;
        };
        fs::metadata(path).ok().filter(fs::Metadata::is_file).map(|metadata| metadata.len())
    }

    /// Opens the input, and decompresses it if necessary. The number of read bytes is added to
    /// `bytes`.
    pub(in crate::trace) fn open(&mut self, bytes: &Rc<Cell<u64>>) -> Result<Unpacked, Error> {
        let waits = !self.reopens();
        let reader: Box<dyn Read + Send> = match &mut self.source {
            Source::Path(path) => match File::open(&*path) {
                Ok(file) => Box::new(file),
                Err(error) => return Err(unreadable(&self.name, "cannot be opened", error)),
            },
            Source::Once(reader) => reader.take().ok_or_else(|| {
                let message = format!("{} is given twice but can be read only once", self.name);
                Error::new(ErrorKind::Unreadable, message)
            })?,
        };
        let reader: Box<dyn Read> = match &self.stop {
            Some(stop) if waits => Box::new(
                Stoppable::new(reader, stop.clone())
                    .map_err(|error| unreadable(&self.name, "cannot be read", error))?,
            ),
            _ => reader,
        };
        let unpacked = unpack(Counted { reader, bytes: Rc::clone(bytes) })
            .map_err(|error| unreadable(&self.name, "cannot be read", error))?;
        unpacked.decoded(&self.name)?.laid_out(&self.name)
    }
}

/// The decompressed bytes of an input.
pub(in crate::trace) struct Unpacked {
    reader: Box<dyn Read>,
    packing: Option<&'static str>,
}

impl Unpacked {
    /// Reads at least one byte, unless the input has ended.
    pub(in crate::trace) fn read(&mut self, into: &mut [u8], name: &str) -> Result<usize, Error> {
        loop {
            match self.reader.read(into) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(read) => return Ok(read),
                Err(error) => return Err(self.broken(name, error)),
            }
        }
    }

    /// Converts UTF-16 to UTF-8 if the input begins with a byte-order mark of UTF-16, as text from
    /// PowerShell does. Invalid UTF-16 becomes the replacement character.
    fn decoded(mut self, name: &str) -> Result<Self, Error> {
        if let [0xff, 0xfe, ..] | [0xfe, 0xff, ..] = self.peek(name)?[..] {
            self.reader = Box::new(DecodeReaderBytesBuilder::new().build(self.reader));
        }
        Ok(self)
    }

    /// Converts JSON that does not have one object per line to JSON with one object per line.
    fn laid_out(mut self, name: &str) -> Result<Self, Error> {
        let head = self.peek(name)?;
        let head = head.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&head);
        if json_layout::needs_lines(head) {
            self.reader = Box::new(OneALine::new(self.reader, head));
        }
        Ok(self)
    }

    /// Returns the first bytes without consuming them.
    fn peek(&mut self, name: &str) -> Result<Vec<u8>, Error> {
        let mut head = vec![0; HEAD];
        let mut length = 0;
        while let Some(room) = head.get_mut(length..).filter(|room| !room.is_empty()) {
            match self.read(room, name)? {
                0 => break,
                read => length += read,
            }
        }
        head.truncate(length);
        let rest = std::mem::replace(&mut self.reader, Box::new(io::empty()));
        self.reader = Box::new(Cursor::new(head.clone()).chain(rest));
        Ok(head)
    }

    fn broken(&self, name: &str, error: io::Error) -> Error {
        match self.packing {
            None => unreadable(name, "cannot be read", error),
            Some(packing) if error.kind() == io::ErrorKind::UnexpectedEof => {
                let what = format!("the {packing} data stops in the middle: the file is truncated");
                unreadable(name, &what, error)
            }
            Some(packing) => {
                unreadable(name, &format!("the {packing} data cannot be unpacked"), error)
            }
        }
    }
}

fn unreadable(name: &str, what: &str, error: io::Error) -> Error {
    Error::with_source(ErrorKind::Unreadable, format!("{name}: {what}"), error)
}

/// Detects the compression by the first bytes of the input, regardless of the name of the file.
/// Returns a reader that decompresses the input.
fn unpack(mut reader: Counted) -> io::Result<Unpacked> {
    let mut head = Vec::with_capacity(ZSTD.len());
    reader.by_ref().take(4).read_to_end(&mut head)?;
    let packed = head.clone();
    let whole = Cursor::new(head).chain(reader);
    Ok(if packed.starts_with(&GZIP) {
        let reader = MultiGzDecoder::new(BufReader::with_capacity(BUFFER, whole));
        Unpacked { reader: Box::new(reader), packing: Some("gzip") }
    } else if is_zstd(&packed) {
        let reader = zstd::Decoder::with_buffer(BufReader::with_capacity(BUFFER, whole))?;
        Unpacked { reader: Box::new(reader), packing: Some("zstd") }
    } else {
        Unpacked { reader: Box::new(whole), packing: None }
    })
}

fn is_zstd(head: &[u8]) -> bool {
    head == ZSTD || matches!(head, [0x50..=0x5f, rest @ ..] if rest == ZSTD_SKIPPED)
}

/// A reader that counts its bytes.
struct Counted {
    reader: Box<dyn Read>,
    bytes: Rc<Cell<u64>>,
}

impl Read for Counted {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(into)?;
        self.bytes.set(self.bytes.get().saturating_add(read as u64));
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A reader that returns one byte at a time.
    struct Drip(Cursor<Vec<u8>>);

    impl Read for Drip {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let one = into.len().min(1);
            self.0.read(&mut into[..one])
        }
    }

    /// Returns the text of an input, without its byte-order mark.
    fn text(reader: impl Read + Send + 'static) -> String {
        let unpacked = Input::once("input", reader).open(&Rc::default()).unwrap();
        let mut text = String::new();
        BufReader::new(unpacked.reader).read_to_string(&mut text).unwrap();
        text.strip_prefix('\u{feff}').unwrap_or(&text).to_owned()
    }

    proptest! {
        #[test]
        fn utf_16_is_converted_in_whatever_pieces_it_arrives(
            rest in "\\PC{0,50}",
            is_big in any::<bool>(),
        ) {
            let expected = format!("a{rest}");
            let bytes: Vec<u8> = format!("\u{feff}{expected}")
                .encode_utf16()
                .flat_map(|unit| if is_big { unit.to_be_bytes() } else { unit.to_le_bytes() })
                .collect();
            prop_assert_eq!(&text(Cursor::new(bytes.clone())), &expected);
            prop_assert_eq!(&text(Drip(Cursor::new(bytes))), &expected);
        }
    }

    #[test]
    fn truncated_or_invalid_utf_16_becomes_the_replacement_character() {
        for (bytes, expected) in [
            (&b"\xff\xfea\0\x3d\xd8"[..], "a\u{fffd}"),
            (b"\xff\xfea\0b", "a\u{fffd}"),
            (b"\xff\xfe\x00\xdca\0", "\u{fffd}a"),
        ] {
            assert_eq!(text(bytes), expected);
        }
    }
}
