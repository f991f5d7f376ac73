//! Where the bytes come from: files, standard input, and what is packed in gzip or zstd.

use std::cell::Cell;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, BufReader, Cursor, Read};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use flate2::bufread::MultiGzDecoder;

use super::error::{Error, ErrorKind};
use super::faults::shown;

/// How much is asked of the system at once.
const BUFFER: usize = 256 << 10;

/// How many characters of a path are shown: as many as a path may have.
const NAME_SHOWN: usize = 4096;

const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// A zstd frame that holds no data, which some packers put first; its first byte is 0x50 to 0x5f.
const ZSTD_SKIPPED: [u8; 3] = [0x2a, 0x4d, 0x18];

/// One input.
#[derive(Debug)]
pub struct Input {
    name: String,
    source: Source,
}

enum Source {
    Path(PathBuf),
    Once(Option<Box<dyn Read>>),
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
            Self { name, source: Source::Path(argument.to_owned()) }
        }
    }

    /// An input that can be read only once.
    pub fn once(name: impl Into<String>, reader: impl Read + 'static) -> Self {
        Self { name: name.into(), source: Source::Once(Some(Box::new(reader))) }
    }

    /// What messages call it: the path, safe to print on a terminal, or `standard input`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it can be read a second time, and from the start.
    pub(super) fn reopens(&self) -> bool {
        self.size().is_some()
    }

    /// How many bytes it has on disk, where that is known.
    pub(super) fn size(&self) -> Option<u64> {
        let Source::Path(path) = &self.source else {
            return None;
        };
        fs::metadata(path).ok().filter(fs::Metadata::is_file).map(|metadata| metadata.len())
    }

    /// Opens it, unpacks it if it is packed, and adds the bytes read from it to `bytes`.
    pub(super) fn open(&mut self, bytes: &Rc<Cell<u64>>) -> Result<Unpacked, Error> {
        let reader: Box<dyn Read> = match &mut self.source {
            Source::Path(path) => match File::open(&*path) {
                Ok(file) => Box::new(file),
                Err(error) => return Err(unreadable(&self.name, "cannot be opened", error)),
            },
            Source::Once(reader) => reader.take().ok_or_else(|| {
                let message = format!("{} is given twice but can be read only once", self.name);
                Error::new(ErrorKind::Unreadable, message)
            })?,
        };
        unpack(Counted { reader, bytes: Rc::clone(bytes) })
            .map_err(|error| unreadable(&self.name, "cannot be read", error))
    }
}

/// The bytes of an input, unpacked.
pub(super) struct Unpacked {
    reader: Box<dyn Read>,
    packing: Option<&'static str>,
}

impl Unpacked {
    /// Reads on, until there is at least a byte or the end.
    pub(super) fn read(&mut self, into: &mut [u8], name: &str) -> Result<usize, Error> {
        loop {
            match self.reader.read(into) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(read) => return Ok(read),
                Err(error) => return Err(self.broken(name, error)),
            }
        }
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
