//! Tests of the public interface of the reader.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking, and so do its helpers"
)]

mod access_logs;
mod delimited;
mod envelopes;
mod formats;
mod inputs;
mod json_lines;
mod late_cost;
mod malformed;
mod order;
mod properties;
mod times;

use std::io::Cursor;

use tidegate::trace::{
    By, Error, Input, Options, Order, Record, Sink, Subjects, Summary, replay_in_order,
};

/// A sink that stores all records, with the names of the subjects.
#[derive(Debug, Default, PartialEq, Eq)]
struct Kept {
    records: Vec<(u64, String, u64)>,
    restarts: u32,
}

impl Sink for Kept {
    type Error = Error;

    fn record(&mut self, record: Record, subjects: &Subjects) -> Result<(), Error> {
        let name = subjects.get(record.subject).expect("a known subject");
        self.records.push((record.time, String::from_utf8_lossy(name).into(), record.cost));
        Ok(())
    }

    fn restart(&mut self) {
        self.records.clear();
        self.restarts += 1;
    }
}

fn bytes(text: impl AsRef<[u8]>) -> Input {
    Input::once("input", Cursor::new(text.as_ref().to_vec()))
}

/// Reads a text with these options, in the order of the file.
fn read(text: impl AsRef<[u8]>, options: &Options) -> Result<(Kept, Summary), Error> {
    let mut kept = Kept::default();
    let summary = replay_in_order(vec![bytes(text)], options, Order::File, &mut kept)?;
    Ok((kept, summary))
}

/// Returns the records of a text without malformed lines.
fn records(text: impl AsRef<[u8]>, options: &Options) -> Vec<(u64, String, u64)> {
    let (kept, summary) = read(text, options).unwrap();
    assert_eq!(summary.first_malformed, []);
    kept.records
}

/// Returns the reason why the first malformed line of a text is malformed.
fn reason(text: impl AsRef<[u8]>, options: &Options) -> String {
    let (_, summary) = read(text, options).unwrap();
    summary.first_malformed.first().expect("a malformed line").reason.clone()
}

/// Returns the message of the error with which reading a text fails.
fn error(text: impl AsRef<[u8]>, options: &Options) -> String {
    read(text, options).expect_err("an error").to_string()
}

fn by(text: &str) -> Options {
    Options { by: text.parse().unwrap(), ..Options::default() }
}

/// Returns options with which all requests together are one subject.
fn together() -> Options {
    Options { by: By::All, ..Options::default() }
}

fn costing_together(text: &str) -> Options {
    Options { by: By::All, ..costing(text) }
}

fn costing(text: &str) -> Options {
    Options { cost: text.parse().unwrap(), ..Options::default() }
}
