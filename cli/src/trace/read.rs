//! Reads all inputs line by line, and sends their records to a sink.

use std::cell::Cell;
use std::rc::Rc;

use crate::trace::formats::{BYTE_ORDER_MARK, Detected, Entry, Parse, Reader, detect};
use crate::trace::input::Input;
use crate::trace::input::lines::{JOINED_MAX, LINE_MAX, Lines, Next};
use crate::trace::malformed::{Fault, MalformedLines};
use crate::trace::options::{Options, Order};
use crate::trace::order::{Flow, Replay};
use crate::trace::record::{FileSummary, Progress, Sink, Summary};
use tidegate_core::MAX_SUBJECT;

/// Reads the inputs one after another, and sends every record to the sink in the wanted order.
///
/// If the input is in order, the reader sends records while it reads, and the memory grows only
/// with the number of subjects. If the order is by time and the input is not sorted, the reader
/// sorts the records, which takes 24 bytes per record. In this case it calls
/// [`restart`](Sink::restart) of the sink.
///
/// # Errors
///
/// Returns an error if an input cannot be read to its end, has no known format, or lacks a needed
/// field, if a line is malformed and the options are strict, or if the sink fails.
pub fn replay_in_order<S: Sink>(
    mut inputs: Vec<Input>,
    options: &Options,
    order: Order,
    sink: &mut S,
) -> Result<Summary, S::Error> {
    let mut replay = Replay::new(sink, order, inputs.iter().all(Input::reopens));
    let mut pass = Pass::new(options, &inputs);
    if pass.read_all(&mut inputs, &mut replay)? == Flow::StartOver {
        pass = Pass::new(options, &inputs);
        // The second pass collects all records, so it never requests another pass.
        let _ = pass.read_all(&mut inputs, &mut replay)?;
    }
    let sorted = replay.sorts();
    replay.finish()?;
    let stats = replay.stats;
    Ok(Summary {
        files: pass.files,
        records: stats.records,
        malformed: pass.malformed.count,
        without_subject: pass.without_subject,
        first_malformed: pass.malformed.first,
        steps_back: stats.steps_back,
        sorted,
        first: stats.first,
        last: stats.last,
        subjects: replay.subjects,
    })
}

/// One pass over all inputs.
struct Pass<'o> {
    options: &'o Options,
    files: Vec<FileSummary>,
    malformed: MalformedLines,
    without_subject: u64,
    bytes: Rc<Cell<u64>>,
    total: Option<u64>,
}

impl<'o> Pass<'o> {
    fn new(options: &'o Options, inputs: &[Input]) -> Self {
        Self {
            options,
            files: Vec::new(),
            malformed: MalformedLines { strict: options.strict, ..MalformedLines::default() },
            without_subject: 0,
            bytes: Rc::default(),
            total: inputs.iter().map(Input::size).sum(),
        }
    }

    fn read_all<S: Sink>(
        &mut self,
        inputs: &mut [Input],
        replay: &mut Replay<'_, S>,
    ) -> Result<Flow, S::Error> {
        for input in inputs {
            if self.read_input(input, replay)? == Flow::StartOver {
                return Ok(Flow::StartOver);
            }
        }
        Ok(Flow::Continue)
    }

    fn read_input<S: Sink>(
        &mut self,
        input: &mut Input,
        replay: &mut Replay<'_, S>,
    ) -> Result<Flow, S::Error> {
        let unpacked = input.open(&self.bytes)?;
        let name = input.name();
        let mut file = FileSummary {
            name: name.to_owned(),
            format: None,
            envelope: None,
            subject: None,
            records: 0,
            malformed: 0,
            without_subject: 0,
        };
        let before = (replay.stats.records, self.malformed.count, self.without_subject);
        let mut lines = Lines::new(unpacked, name);
        self.fill(&mut lines, replay)?;
        if lines.unread().starts_with(BYTE_ORDER_MARK) {
            lines.skip(BYTE_ORDER_MARK.len());
        }
        self.first_line(&mut lines, replay)?;
        if lines.only_blank() {
            file.malformed = self.malformed.count.saturating_sub(before.1);
            self.files.push(file);
            return Ok(Flow::Continue);
        }
        let Detected { reader, format, envelope, names } =
            detect(lines.unread(), self.options).map_err(|error| error.at(name))?;
        file.format = Some(format);
        file.envelope = envelope;
        file.subject = names.subject;
        let flow = match reader {
            Reader::AccessLog(parser) => self.read_lines(parser, &mut lines, name, replay),
            Reader::JsonLines(parser) => self.read_lines(parser, &mut lines, name, replay),
            Reader::Delimited(parser) => self.read_lines(parser, &mut lines, name, replay),
            parser => self.read_lines(parser, &mut lines, name, replay),
        }?;
        file.records = replay.stats.records.saturating_sub(before.0);
        file.malformed = self.malformed.count.saturating_sub(before.1);
        file.without_subject = self.without_subject.saturating_sub(before.2);
        self.files.push(file);
        Ok(flow)
    }

    /// Reads until the buffer contains the whole first line that is not blank, because the reader
    /// detects the format by this line. Lines that are too long are skipped.
    fn first_line<S: Sink>(
        &mut self,
        lines: &mut Lines<'_>,
        replay: &mut Replay<'_, S>,
    ) -> Result<(), S::Error> {
        let name = lines.name();
        while !lines.has_first_line() {
            if lines.unread().len() <= LINE_MAX {
                self.fill(lines, replay)?;
            } else if let Next::TooLong { number, text } = lines.next(|_, _| true)? {
                self.malformed.note(name, number, too_long(), text)?;
            }
        }
        Ok(())
    }

    /// Reads more bytes, and reports the progress.
    fn fill<S: Sink>(
        &self,
        lines: &mut Lines<'_>,
        replay: &mut Replay<'_, S>,
    ) -> Result<(), S::Error> {
        lines.fill()?;
        let (bytes, total) = (self.bytes.get(), self.total);
        replay.sink.progress(Progress::Reading { bytes, total });
        Ok(())
    }

    fn read_lines<P: Parse, S: Sink>(
        &mut self,
        mut parser: P,
        lines: &mut Lines<'_>,
        name: &str,
        replay: &mut Replay<'_, S>,
    ) -> Result<Flow, S::Error> {
        loop {
            let (number, text, reason) =
                match lines.next(|first, line| parser.closes(first, line))? {
                    Next::Line { number, text } => match parser.parse(text) {
                        Ok(Some(Entry { subject: b"" | b"-", .. })) => {
                            self.without_subject += 1;
                            continue;
                        }
                        Ok(Some(entry)) if entry.subject.len() > MAX_SUBJECT => {
                            (number, text, subject_too_long(entry.subject.len()))
                        }
                        Ok(Some(entry)) => match replay.take(entry)? {
                            Flow::Continue => continue,
                            Flow::StartOver => return Ok(Flow::StartOver),
                        },
                        Ok(None) => continue,
                        Err(Fault::Malformed(reason)) => (number, text, reason),
                        Err(Fault::Fatal(error)) => {
                            return Err(error.at(format_args!("{name}:{number}")).into());
                        }
                    },
                    Next::Unclosed { number, text } => (number, text, unclosed()),
                    Next::TooLong { number, text } => (number, text, too_long()),
                    Next::Empty => {
                        lines.fill()?;
                        let (bytes, total) = (self.bytes.get(), self.total);
                        replay.sink.progress(Progress::Reading { bytes, total });
                        continue;
                    }
                    Next::End => return Ok(Flow::Continue),
                };
            self.malformed.note(name, number, reason, text)?;
        }
    }
}

#[cold]
fn unclosed() -> String {
    format!("a quote opened here is not closed within {} MiB or the input", JOINED_MAX >> 20)
}

#[cold]
fn subject_too_long(bytes: usize) -> String {
    format!("the subject has {bytes} bytes; at most {MAX_SUBJECT} are taken")
}

#[cold]
fn too_long() -> String {
    format!("the line is longer than {} MiB", LINE_MAX >> 20)
}
