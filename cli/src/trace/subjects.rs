use std::fmt;
use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use crate::trace::error::{Error, ErrorKind};

/// A table of subjects. Each different subject is stored once and has a number.
///
/// The bytes of all subjects are concatenated in one vector, and a hash table finds the number of a
/// subject. The hash has a random seed, so that no log can be written that causes many collisions.
#[derive(Default)]
pub struct Subjects {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    numbers: HashTable<u32>,
    hasher: RandomState,
}

impl Subjects {
    /// Returns the number of subjects.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns `true` if there are no subjects.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Returns the subject with this number, as the input writes it. Returns `None` if there is no
    /// such number.
    #[must_use]
    pub fn get(&self, number: u32) -> Option<&[u8]> {
        name_of(&self.bytes, &self.ends, number)
    }

    /// Returns all subjects, in the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..=u32::MAX).map_while(|number| self.get(number))
    }

    /// Returns the number of a subject. A new subject gets a new number.
    pub(crate) fn number(&mut self, name: &[u8]) -> Result<u32, Error> {
        let Self { bytes, ends, numbers, hasher } = self;
        let hash = hasher.hash_one(name);
        if let Some(&known) = numbers.find(hash, |&n| name_of(bytes, ends, n) == Some(name)) {
            return Ok(known);
        }
        let number = u32::try_from(ends.len()).map_err(|_| {
            let message = format!("more than {} subjects: too many to tell apart", 1_u64 << 32);
            Error::new(ErrorKind::TooManySubjects, message)
        })?;
        bytes.extend_from_slice(name);
        ends.push(bytes.len());
        numbers.insert_unique(hash, number, |&n| {
            hasher.hash_one(name_of(bytes, ends, n).unwrap_or_default())
        });
        Ok(number)
    }
}

fn name_of<'a>(bytes: &'a [u8], ends: &[usize], number: u32) -> Option<&'a [u8]> {
    let number = usize::try_from(number).ok()?;
    let end = *ends.get(number)?;
    let start = if number == 0 { 0 } else { *ends.get(number - 1)? };
    bytes.get(start..end)
}

impl fmt::Debug for Subjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subjects").field("len", &self.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_keeps_its_number_and_its_bytes() {
        let mut subjects = Subjects::default();
        let names: Vec<Vec<u8>> = (0_u32..5_000).map(|n| n.to_string().into_bytes()).collect();
        for (n, name) in names.iter().enumerate() {
            assert_eq!(subjects.number(name).unwrap() as usize, n);
        }
        for (n, name) in names.iter().enumerate() {
            assert_eq!(subjects.number(name).unwrap() as usize, n);
            assert_eq!(subjects.get(u32::try_from(n).unwrap()), Some(&name[..]));
        }
        assert_eq!(subjects.len(), 5_000);
        assert!(subjects.iter().eq(names.iter().map(Vec::as_slice)));
        assert_eq!(subjects.get(5_000), None);
    }

    #[test]
    fn the_empty_subject_and_any_bytes_are_subjects_too() {
        let mut subjects = Subjects::default();
        assert_eq!(subjects.number(b"").unwrap(), 0);
        assert_eq!(subjects.number(&[0, 255]).unwrap(), 1);
        assert_eq!(subjects.number(b"").unwrap(), 0);
        assert_eq!(subjects.get(0), Some(&b""[..]));
        assert_eq!(subjects.get(1), Some(&[0_u8, 255][..]));
    }
}
