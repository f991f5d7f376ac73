use crate::trace::Record;

/// The subjects that may have a state in a store. Their states are deleted at the end.
///
/// The replay cannot use the table of subjects of the trace reader, because the reader returns its
/// table only if the replay succeeds.
#[derive(Debug, Default)]
pub(super) struct TouchedSubjects {
    /// `seen[number]` is `true` if `bytes` contains the subject with this number.
    seen: Vec<bool>,
    /// The concatenated subjects, and the end of each subject.
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl TouchedSubjects {
    /// Adds the subject of a record, before the record is decided.
    pub(super) fn note(&mut self, record: Record, subject: &[u8]) {
        let number = record.subject as usize;
        if number >= self.seen.len() {
            self.seen.resize(number + 1, false);
        }
        if !std::mem::replace(&mut self.seen[number], true) {
            self.bytes.extend_from_slice(subject);
            self.ends.push(self.bytes.len());
        }
    }

    /// Returns each subject once.
    pub(super) fn subjects(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, &end)| &self.bytes[start..end])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_subject_is_kept_once_whatever_the_order_of_their_numbers() {
        let mut touched = TouchedSubjects::default();
        for (subject, name) in [(7, "seven"), (2, ""), (7, "seven"), (0, "zero"), (2, "")] {
            touched.note(Record { time: 0, subject, late_cost: 0, cost: 1 }, name.as_bytes());
        }
        let names: Vec<&[u8]> = touched.subjects().collect();
        assert_eq!(names, [&b"seven"[..], b"", b"zero"]);
    }
}
