//! Where the bytes come from: files, standard input, and what is packed in gzip or zstd.

mod json_layout;
pub(super) mod lines;
mod stop;
mod stoppable;
mod utf16;

use std::cell::Cell;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, BufReader, Cursor, Read};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use flate2::bufread::MultiGzDecoder;

use self::json_layout::OneALine;
pub use self::stop::Stop;
use self::stoppable::Stoppable;
use self::utf16::{ByteOrder, Utf16};
use crate::trace::error::{Error, ErrorKind};
use crate::trace::formats::BYTE_ORDER_MARK;
use crate::trace::malformed::shown;

/// How much is asked of the system at once.
const BUFFER: usize = 256 << 10;

/// How many characters of a path are shown: as many as a path may have.
const NAME_SHOWN: usize = 4096;

/// How many of the first bytes are looked at for how a text is written.
const HEAD: usize = 256;

const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// A zstd frame that holds no data, which some packers put first; its first byte is 0x50 to 0x5f.
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
    /// The input that an argument names: a path, or `-` for standard input.
    #[must_use]
    pub fn from_arg(argument: &Path) -> Self {
        if argument == Path::new("-") {
            Self::once("standard input", io::stdin())
        } else {
            let name = shown(argument.as_os_str().as_encoded_bytes(), NAME_SHOWN);
            Self { name, source: Source::Path(argument.to_owned()), stop: None }
        }
    }

    /// An input that can be read only once.
    pub fn once(name: impl Into<String>, reader: impl Read + Send + 'static) -> Self {
        Self { name: name.into(), source: Source::Once(Some(Box::new(reader))), stop: None }
    }

    /// The same input, whose reading ends with an error when `stop` asks for it, even while it waits for
    /// more from a pipe.
    #[must_use]
    pub fn until(self, stop: &Stop) -> Self {
        Self { stop: Some(stop.clone()), ..self }
    }

    /// What messages call it: the path, safe to print on a terminal, or `standard input`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it can be read a second time, and from the start.
    pub(in crate::trace) fn reopens(&self) -> bool {
        self.size().is_some()
    }

    /// How many bytes it has on disk, where that is known.
    pub(in crate::trace) fn size(&self) -> Option<u64> {
        let Source::Path(path) = &self.source else {
            return None;
        };
        fs::metadata(path).ok().filter(fs::Metadata::is_file).map(|metadata| metadata.len())
    }

    /// Opens it, unpacks it if it is packed, and adds the bytes read from it to `bytes`.
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

/// The bytes of an input, unpacked.
pub(in crate::trace) struct Unpacked {
    reader: Box<dyn Read>,
    packing: Option<&'static str>,
}

impl Unpacked {
    /// Reads on, until there is at least a byte or the end.
    pub(in crate::trace) fn read(&mut self, into: &mut [u8], name: &str) -> Result<usize, Error> {
        loop {
            match self.reader.read(into) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(read) => return Ok(read),
                Err(error) => return Err(self.broken(name, error)),
            }
        }
    }

    /// As UTF-8, where it begins with a byte-order mark of UTF-16.
    fn decoded(mut self, name: &str) -> Result<Self, Error> {
        let head = self.peek(name)?;
        if let Some(order) = ByteOrder::of(&head) {
            self.reader = Box::new(Utf16::new(self.reader, order));
        }
        Ok(self)
    }

    /// As one object a line, where it begins as JSON that is laid out in another way.
    fn laid_out(mut self, name: &str) -> Result<Self, Error> {
        let head = self.peek(name)?;
        let head = head.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&head);
        if json_layout::needs_lines(head) {
            self.reader = Box::new(OneALine::new(self.reader, head));
        }
        Ok(self)
    }

    /// The first bytes, which are still to be read.
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

/// Looks at the first bytes, whatever the file is called.
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

/// Counts the bytes that pass.
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
