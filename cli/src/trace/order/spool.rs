//! Stores records of inputs that cannot be read twice, because the records may have to be sorted
//! later.

use std::io::{self, BufReader, BufWriter, ErrorKind, Read, Seek, SeekFrom, Write};

use tempfile::SpooledTempFile;

use crate::trace::record::Record;

/// The maximum number of bytes that are stored in memory. A larger spool is moved to a temporary
/// file.
const IN_MEMORY: usize = 4 << 20;

/// Records that are sorted by time, in memory or in a temporary file without a name. A record takes
/// about 6 bytes: the time since the previous record, the subject and the costs, each as a number
/// of variable length (7 bits per byte).
pub(in crate::trace) struct Spool {
    file: BufWriter<SpooledTempFile>,
    records: u64,
    last: u64,
}

impl Spool {
    pub(in crate::trace) fn new() -> Self {
        let file = BufWriter::with_capacity(64 << 10, SpooledTempFile::new(IN_MEMORY));
        Self { file, records: 0, last: 0 }
    }

    /// Stores a record, whose time must not be earlier than the time of the previous record.
    pub(in crate::trace) fn push(&mut self, record: Record) -> io::Result<()> {
        let Record { time, subject, late_cost, cost } = record;
        let since = time.saturating_sub(self.last);
        self.last = time;
        self.records += 1;
        [since, u64::from(subject), u64::from(late_cost), cost]
            .into_iter()
            .try_for_each(|number| self.write(number))
    }

    fn write(&mut self, mut number: u64) -> io::Result<()> {
        let mut bytes = [0; 10];
        let mut length = 0;
        for byte in &mut bytes {
            length += 1;
            *byte = (number & 0x7f).to_le_bytes()[0];
            number >>= 7;
            if number == 0 {
                break;
            }
            *byte |= 0x80;
        }
        self.file.write_all(bytes.get(..length).unwrap_or_default())
    }

    /// Returns all records again.
    pub(in crate::trace) fn replay(self, mut each: impl FnMut(Record)) -> io::Result<()> {
        let mut file = self.file.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.seek(SeekFrom::Start(0))?;
        let mut file = BufReader::with_capacity(64 << 10, file);
        let mut time = 0;
        for _ in 0..self.records {
            time += read(&mut file)?;
            let (subject, late_cost) = (read_u32(&mut file)?, read_u32(&mut file)?);
            each(Record { time, subject, late_cost, cost: read(&mut file)? });
        }
        Ok(())
    }
}

fn read_u32(file: &mut impl Read) -> io::Result<u32> {
    u32::try_from(read(file)?).map_err(|_| ErrorKind::InvalidData.into())
}

fn read(file: &mut impl Read) -> io::Result<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let mut byte = [0];
        file.read_exact(&mut byte)?;
        number |= u64::from(byte[0] & 0x7f) << shift;
        if byte[0] & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err(ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_kept_comes_back(
            mut records in prop::collection::vec(
                (0..1_u64 << 52, any::<u32>(), any::<u32>(), 0..=1_u64 << 52)
                    .prop_map(|(time, subject, late_cost, cost)| Record { time, subject, late_cost, cost }),
                0..100,
            ),
        ) {
            records.sort_by_key(|record| record.time);
            let mut spool = Spool::new();
            for &record in &records {
                spool.push(record).unwrap();
            }
            let mut back = Vec::new();
            spool.replay(|record| back.push(record)).unwrap();
            prop_assert_eq!(back, records);
        }
    }

    #[test]
    fn more_than_fits_in_memory_comes_back_from_disk() {
        let record = |n: u32| Record {
            time: u64::from(n) << 20,
            subject: n,
            late_cost: n,
            cost: u64::from(n),
        };
        let mut spool = Spool::new();
        for n in 0..1_000_000 {
            spool.push(record(n)).unwrap();
        }
        let mut n = 0;
        spool
            .replay(|found| {
                assert_eq!(found, record(n));
                n += 1;
            })
            .unwrap();
        assert_eq!(n, 1_000_000);
    }
}
