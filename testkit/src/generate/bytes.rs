//! Bytes with a short `Debug` output.

use std::fmt;
use std::ops::Deref;

use crate::show;

/// Bytes whose `Debug` output is one short line.
///
/// proptest prints the input of a failing property with `{:#?}`. In this format, a `Vec<u8>` has
/// one line for each byte. The longest subject would have a million lines.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(Vec<u8>);

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&show::bytes(&self.0))
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }
}

impl From<String> for Bytes {
    fn from(text: String) -> Self {
        Self(text.into_bytes())
    }
}

impl From<&str> for Bytes {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}
