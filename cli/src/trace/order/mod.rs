//! Sorts records for the replay, with as few records in memory as possible.
//!
//! If the order is by time, the reader sends records immediately, until a record is earlier than
//! the previous one. Then the sink restarts, and the reader collects and sorts the records. For
//! this, it reads files again from the start. If an input cannot be read again, the reader has
//! stored its records in a [`Spool`].

mod merge_sort;
mod spool;

use self::merge_sort::Runs;
use self::spool::Spool;
use crate::trace::error::{Error, ErrorKind};
use crate::trace::formats::Entry;
use crate::trace::options::Order;
use crate::trace::record::{Progress, Record, Sink};
use crate::trace::subjects::Subjects;

/// The number of records between two reports of progress.
const REPORT_EVERY: u64 = 1 << 16;

/// The next step of the reader after each record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(in crate::trace) enum Flow {
    Continue,
    /// Read all inputs again from the start.
    StartOver,
}

enum Mode {
    /// Send records in the order of the input. A record that is earlier than a previous record gets
    /// the latest previous time.
    InputOrder,
    /// Send records until a record is earlier than a previous record. Then read all inputs again,
    /// and change to `Gathering`.
    Optimistic,
    /// Send records and store them, because at least one input cannot be read again. If a record is
    /// earlier than a previous record, change to `Gathering` with the stored records.
    Keeping(Spool),
    /// Collect records to sort them by time.
    Gathering(Runs),
}

/// Receives records in the order of the input, and sends them to the sink in the wanted order.
pub(in crate::trace) struct Replay<'s, S> {
    pub(in crate::trace) sink: &'s mut S,
    pub(in crate::trace) subjects: Subjects,
    pub(in crate::trace) stats: Stats,
    mode: Mode,
}

/// The statistics of the records so far.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::trace) struct Stats {
    pub(in crate::trace) records: u64,
    pub(in crate::trace) steps_back: u64,
    pub(in crate::trace) first: Option<u64>,
    pub(in crate::trace) last: Option<u64>,
    previous: u64,
}

impl Stats {
    #[inline]
    fn add(&mut self, time: u64) {
        self.records += 1;
        self.steps_back += u64::from(time < self.previous);
        self.previous = time;
        self.first = Some(self.first.map_or(time, |first| first.min(time)));
        self.last = Some(self.last.map_or(time, |last| last.max(time)));
    }
}

impl<'s, S: Sink> Replay<'s, S> {
    pub(in crate::trace) fn new(sink: &'s mut S, order: Order, inputs_reopen: bool) -> Self {
        let mode = match order {
            Order::File => Mode::InputOrder,
            Order::Time if inputs_reopen => Mode::Optimistic,
            Order::Time => Mode::Keeping(Spool::new()),
        };
        Self { sink, subjects: Subjects::default(), stats: Stats::default(), mode }
    }

    /// Returns `true` if the records are not sorted by time and must be sorted.
    pub(in crate::trace) fn sorts(&self) -> bool {
        matches!(self.mode, Mode::Gathering(_))
    }

    /// Receives the next record of the input.
    #[inline]
    pub(in crate::trace) fn take(&mut self, entry: Entry<'_>) -> Result<Flow, S::Error> {
        let largest = self.stats.last.unwrap_or(0);
        let Entry { time, cost, .. } = entry;
        let subject = self.subjects.number(entry.subject)?;
        let mut record = Record { time, subject, late_cost: cost.late, cost: cost.total };
        self.stats.add(time);
        match &mut self.mode {
            Mode::Gathering(runs) => {
                runs.push(record);
                return Ok(Flow::Continue);
            }
            Mode::InputOrder => record.time = time.max(largest),
            Mode::Optimistic | Mode::Keeping(_) if time < largest => return self.step_back(record),
            Mode::Optimistic => {}
            Mode::Keeping(spool) => spool.push(record).map_err(broken_spool)?,
        }
        self.sink.record(record, &self.subjects)?;
        Ok(Flow::Continue)
    }

    /// Restarts the sink, and begins to collect records so that they can be sorted. `record` is the
    /// first record that is earlier than a previous record.
    #[cold]
    fn step_back(&mut self, record: Record) -> Result<Flow, S::Error> {
        self.sink.restart();
        let mut runs = Runs::default();
        match std::mem::replace(&mut self.mode, Mode::Optimistic) {
            Mode::Keeping(spool) => {
                spool.replay(|record| runs.push(record)).map_err(broken_spool)?;
                runs.push(record);
                self.mode = Mode::Gathering(runs);
                Ok(Flow::Continue)
            }
            _ => {
                self.stats = Stats::default();
                self.mode = Mode::Gathering(runs);
                Ok(Flow::StartOver)
            }
        }
    }

    /// Sends the collected records after all inputs are read.
    pub(in crate::trace) fn finish(&mut self) -> Result<(), S::Error> {
        let Mode::Gathering(runs) = &mut self.mode else {
            return Ok(());
        };
        let runs = std::mem::take(runs);
        let total = runs.len();
        for (records, record) in (0_u64..).zip(runs.sorted()) {
            if records.is_multiple_of(REPORT_EVERY) {
                self.sink.progress(Progress::Replaying { records, total });
            }
            self.sink.record(record, &self.subjects)?;
        }
        Ok(())
    }
}

#[cold]
fn broken_spool(error: std::io::Error) -> Error {
    Error::with_source(
        ErrorKind::Unreadable,
        "the temporary file that keeps what standard input said cannot be used",
        error,
    )
}
