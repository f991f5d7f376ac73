//! The sample that `tidegate sample` writes.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, and so do its helpers")]

use std::collections::HashMap;
use std::io::Cursor;

use tidegate::sample::{LINES_MAX, Options, write};
use tidegate::trace;

/// Counts, by subject, the requests and those that a fixed window of 60 a minute refuses.
#[derive(Default)]
struct Counts {
    minute: HashMap<(u32, u64), u64>,
    requests: u64,
    refused: u64,
}

impl trace::Sink for Counts {
    type Error = trace::Error;

    fn record(&mut self, record: trace::Record, _: &trace::Subjects) -> Result<(), trace::Error> {
        let count = self.minute.entry((record.subject, record.time / 60_000_000)).or_default();
        *count += 1;
        self.requests += 1;
        self.refused += u64::from(*count > 60);
        Ok(())
    }

    fn restart(&mut self) {
        *self = Self::default();
    }
}

fn log(options: &Options) -> String {
    let mut log = Vec::new();
    write(options, &mut log).unwrap();
    String::from_utf8(log).unwrap()
}

fn read(log: &str) -> (Counts, trace::Summary) {
    let inputs = vec![trace::Input::once("sample", Cursor::new(log.to_owned()))];
    let mut counts = Counts::default();
    let options = trace::Options { strict: true, ..trace::Options::default() };
    let summary =
        trace::replay_in_order(inputs, &options, trace::Order::Time, &mut counts).unwrap();
    (counts, summary)
}

#[test]
fn the_same_seed_gives_the_same_log_and_another_another() {
    let of = |seed| log(&Options { seed, lines: 500, ..Options::default() });
    assert_eq!(of(7), of(7));
    assert_ne!(of(7), of(8));
}

#[test]
fn a_sample_has_as_many_lines_as_asked_for_within_its_day() {
    for lines in [0, 1, 7, 3_000] {
        let options = Options { lines, ..Options::default() };
        let (counts, summary) = read(&log(&options));
        assert_eq!(counts.requests, lines);
        let day = options.start * 1_000_000..(options.start + 86_400) * 1_000_000;
        assert!(summary.first.is_none_or(|first| day.contains(&first)));
        assert!(summary.last.is_none_or(|last| day.contains(&last)));
    }
}

#[test]
fn the_usual_sample_is_worth_a_look() {
    let log = log(&Options::default());
    let (counts, summary) = read(&log);
    assert_eq!(counts.requests, 20_000);
    assert!((200..2_000).contains(&counts.refused), "{} refused", counts.refused);
    assert!((300..5_000).contains(&summary.subjects.len()), "{} subjects", summary.subjects.len());
    assert!((20..2_000).contains(&summary.steps_back), "{} late lines", summary.steps_back);
    assert!(summary.sorted);
    for part in [
        "2001:db8:",
        "POST /login",
        "python-requests",
        "robots.txt",
        " - amira [",
        "news.example.net",
    ] {
        assert!(log.contains(part), "{part}");
    }
}

#[test]
fn every_address_is_reserved_for_documentation() {
    for line in log(&Options::default()).lines() {
        let known = ["192.0.2.", "198.51.100.", "203.0.113.", "2001:db8:"];
        assert!(known.iter().any(|prefix| line.starts_with(prefix)), "{line}");
    }
}

#[test]
fn options_out_of_bounds_are_refused() {
    let too_many = Options { lines: LINES_MAX + 1, ..Options::default() };
    let message = write(&too_many, &mut Vec::new()).unwrap_err().to_string();
    assert_eq!(message, "5000001 lines are too many for a sample: at most 5000000");
    let never = Options { start: u64::MAX, ..Options::default() };
    assert!(write(&never, &mut Vec::new()).unwrap_err().to_string().contains("that is no date"));
}
