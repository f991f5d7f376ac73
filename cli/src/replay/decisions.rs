use std::fs::File;
use std::io::{self, BufWriter, Seek, Write};

/// The decisions of one policy: `1` for admitted and `0` for denied. They are in a temporary file
/// without a name, because there can be too many for the memory.
#[derive(Debug)]
pub struct Decisions(BufWriter<File>);

impl Decisions {
    /// Creates an empty file of decisions.
    ///
    /// # Errors
    ///
    /// Returns an error if the temporary file cannot be created.
    pub fn new() -> io::Result<Self> {
        Ok(Self(BufWriter::new(tempfile::tempfile()?)))
    }

    pub(super) fn push(&mut self, admitted: bool) -> io::Result<()> {
        self.0.write_all(if admitted { b"1" } else { b"0" })
    }

    pub(super) fn clear(&mut self) -> io::Result<()> {
        self.0.rewind()?;
        self.0.get_ref().set_len(0)
    }

    /// Writes all decisions, without a line ending.
    ///
    /// # Errors
    ///
    /// Returns an error if the decisions cannot be read, or if `to` cannot be written.
    pub fn write_to(&mut self, to: &mut impl Write) -> io::Result<()> {
        self.0.rewind()?;
        io::copy(self.0.get_mut(), to)?;
        Ok(())
    }
}
