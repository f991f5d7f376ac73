use std::fs::File;
use std::io::{self, BufWriter, Seek, Write};

/// The decisions of one policy, `1` for admitted and `0` for denied, in a file of their own that has
/// no name: as many as there are requests, they do not belong in memory.
#[derive(Debug)]
pub struct Decisions(BufWriter<File>);

impl Decisions {
    /// No decisions.
    ///
    /// # Errors
    ///
    /// If no temporary file can be made.
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

    /// Writes all of them, without a line's end.
    ///
    /// # Errors
    ///
    /// If they cannot be read back, or `to` cannot be written.
    pub fn write_to(&mut self, to: &mut impl Write) -> io::Result<()> {
        self.0.rewind()?;
        io::copy(self.0.get_mut(), to)?;
        Ok(())
    }
}
