//! Records, their sink, and the summary of a reading.

use crate::trace::Subjects;
use crate::trace::formats::Envelope;
use crate::trace::malformed::MalformedLine;
use crate::trace::options::Format;

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The microseconds since 1970, in UTC; at most [`TIME_MAX`](super::TIME_MAX).
    pub time: u64,
    /// The number of the subject in [`Subjects`]. Numbers are consecutive and start at 0, in the
    /// order of the first records of the subjects, so they can be used as indices.
    pub subject: u32,
    /// The part of the cost that is known only when the request ends.
    // `late_cost` uses four bytes that would otherwise be padding after `subject`, so it does not
    // make a record larger.
    pub late_cost: u32,
    /// The cost; at most [`COST_MAX`](super::COST_MAX).
    pub cost: u64,
}

/// A receiver of records.
pub trait Sink {
    /// The error of the sink. Errors of the reader are converted to it.
    type Error: From<crate::trace::Error>;

    /// Receives the next record. Times never decrease.
    ///
    /// # Errors
    ///
    /// If the sink returns an error, the replay ends and returns this error.
    fn record(&mut self, record: Record, subjects: &Subjects) -> Result<(), Self::Error>;

    /// Removes all records that the sink has received. The reader calls this at most once, when it
    /// detects that the input is not sorted by time. Then it sends all records again, in the order
    /// of time. Subjects keep their numbers.
    fn restart(&mut self);

    /// Receives the progress, at most a few hundred times per second.
    fn progress(&mut self, progress: Progress) {
        let _ = progress;
    }
}

/// The progress of a reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The reader reads inputs.
    Reading {
        /// The number of read bytes, before decompression.
        bytes: u64,
        /// The number of all bytes, if it is known. It is not known for standard input and pipes.
        total: Option<u64>,
    },
    /// All inputs are read, and the reader sends the sorted records.
    Replaying {
        /// The number of sent records.
        records: u64,
        /// The number of all records.
        total: u64,
    },
}

/// The summary of a reading.
#[derive(Debug)]
pub struct Summary {
    /// The summaries of all inputs, in their order.
    pub files: Vec<FileSummary>,
    /// The number of sent records.
    pub records: u64,
    /// The number of malformed lines.
    pub malformed: u64,
    /// The number of lines whose subject is `-` or empty. The reader does not send them to the
    /// sink.
    pub without_subject: u64,
    /// The first few malformed lines.
    pub first_malformed: Vec<MalformedLine>,
    /// The number of records whose time is earlier than the time of the previous record.
    pub steps_back: u64,
    /// Whether the records had to be sorted.
    pub sorted: bool,
    /// The earliest time, if there is a record.
    pub first: Option<u64>,
    /// The latest time, if there is a record.
    pub last: Option<u64>,
    /// All subjects.
    pub subjects: Subjects,
}

/// The summary of one input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSummary {
    /// The name of the input, as [`Input::name`](super::Input::name) returns it.
    pub name: String,
    /// The format, or `None` if the input is empty.
    pub format: Option<Format>,
    /// The envelope of each line.
    pub envelope: Option<Envelope>,
    /// The field of the subject, or `None` if all requests together are one subject.
    pub subject: Option<String>,
    /// The number of read records.
    pub records: u64,
    /// The number of malformed lines.
    pub malformed: u64,
    /// The number of lines whose subject is `-` or empty.
    pub without_subject: u64,
}
