//! Records, their sink, and the summary of a reading.

use crate::trace::Subjects;
use crate::trace::formats::Envelope;
use crate::trace::malformed::MalformedLine;
use crate::trace::options::Format;

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Microseconds since 1970, UTC; at most [`TIME_MAX`](super::TIME_MAX).
    pub time: u64,
    /// The subject's number in [`Subjects`]. The numbers count up from 0 as subjects are first
    /// seen in the input, so that a list can be indexed by them.
    pub subject: u32,
    /// The part of the cost that is known only when the request ends.
    // It lies next to the subject, so that a record takes no more bytes than without it.
    pub late_cost: u32,
    /// At most [`COST_MAX`](super::COST_MAX).
    pub cost: u64,
}

/// Receiver of the records.
pub trait Sink {
    /// Error of the sink; errors of the reader must convert to it.
    type Error: From<crate::trace::Error>;

    /// Takes the next record. Times never step back from one call to the next.
    ///
    /// # Errors
    ///
    /// An error ends the replay and is handed back by it.
    fn record(&mut self, record: Record, subjects: &Subjects) -> Result<(), Self::Error>;

    /// Drops every record so far: the input is not in order of time, and all records follow again from the
    /// first. Subjects keep their numbers. Called at most once.
    fn restart(&mut self);

    /// Receives the progress, a few hundred times a second at most.
    fn progress(&mut self, progress: Progress) {
        let _ = progress;
    }
}

/// Progress of a reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Inputs are being read.
    Reading {
        /// Bytes read, as they lie on disk (before any decompression).
        bytes: u64,
        /// All bytes there are, where that is known: not with standard input or a pipe.
        total: Option<u64>,
    },
    /// All inputs are read, and the sorted records are being handed out.
    Replaying {
        /// Records handed out.
        records: u64,
        /// All records there are.
        total: u64,
    },
}

/// Summary of a reading.
#[derive(Debug)]
pub struct Summary {
    /// Each input, in the order given.
    pub files: Vec<FileSummary>,
    /// Records handed out.
    pub records: u64,
    /// Malformed lines.
    pub malformed: u64,
    /// Lines whose subject is `-` or nothing. They are not handed out.
    pub without_subject: u64,
    /// The first few of the malformed lines.
    pub first_malformed: Vec<MalformedLine>,
    /// Records whose time is before that of the record just before them in the input.
    pub steps_back: u64,
    /// Whether the records had to be sorted.
    pub sorted: bool,
    /// The smallest time, if there is any record.
    pub first: Option<u64>,
    /// The largest time, if there is any record.
    pub last: Option<u64>,
    /// All subjects.
    pub subjects: Subjects,
}

/// Summary of one input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSummary {
    /// The name of the input, as [`Input::name`](super::Input::name) has it.
    pub name: String,
    /// The format; none if the input is empty.
    pub format: Option<Format>,
    /// The envelope of each line.
    pub envelope: Option<Envelope>,
    /// The field taken for the subject; none where all requests together are one.
    pub subject: Option<String>,
    /// Records read.
    pub records: u64,
    /// Malformed lines.
    pub malformed: u64,
    /// Lines whose subject is `-` or nothing.
    pub without_subject: u64,
}
