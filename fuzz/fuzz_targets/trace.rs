//! Any bytes are read as a trace, or rejected. The times of the records that are passed on never
//! decrease, and no record is counted twice.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate::trace::{By, Error, Input, Options, Order, Record, Sink, Subjects, replay_in_order};

#[derive(Default)]
struct Checked {
    last: u64,
    records: u64,
}

impl Sink for Checked {
    type Error = Error;

    fn record(&mut self, record: Record, subjects: &Subjects) -> Result<(), Error> {
        assert!(record.time >= self.last, "time steps back");
        assert!(subjects.get(record.subject).is_some());
        self.last = record.time;
        self.records += 1;
        Ok(())
    }

    fn restart(&mut self) {
        *self = Self::default();
    }
}

fuzz_target!(|data: &[u8]| {
    // With `By::All`, a record needs no subject, so the reader reads more of the random inputs to
    // their end.
    for (order, by) in [(Order::Time, By::Auto), (Order::Time, By::All), (Order::File, By::All)] {
        let mut sink = Checked::default();
        let inputs = vec![Input::once("fuzz", std::io::Cursor::new(data.to_vec()))];
        let options = Options { by, ..Options::default() };
        if let Ok(summary) = replay_in_order(inputs, &options, order, &mut sink) {
            assert_eq!(summary.records, sink.records);
            assert!(summary.first_malformed.len() as u64 <= summary.malformed);
            assert!(summary.subjects.iter().all(|name| !matches!(name, b"" | b"-")));
        }
    }
});
