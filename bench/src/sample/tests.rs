//! Checks the samples with the reader of `tidegate replay`.

use std::collections::HashMap;
use std::io::Cursor;

use tidegate::trace;

use super::{Options, START, write};

const USUAL: Options = Options { seed: 1, lines: 20_000 };

/// The number of requests, and the number that a fixed window of 60 per minute refuses.
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
    let seeded = |seed| log(&Options { seed, lines: 500 });
    assert_eq!(seeded(7), seeded(7));
    assert_ne!(seeded(7), seeded(8));
}

#[test]
fn a_sample_has_as_many_lines_as_asked_for_within_its_day() {
    for lines in [0, 1, 7, 3_000] {
        let options = Options { lines, ..USUAL };
        let (counts, summary) = read(&log(&options));
        assert_eq!(counts.requests, lines);
        let start = u64::try_from(START).unwrap();
        let day = start * 1_000_000..(start + 86_400) * 1_000_000;
        assert!(summary.first.is_none_or(|first| day.contains(&first)));
        assert!(summary.last.is_none_or(|last| day.contains(&last)));
    }
}

#[test]
fn the_usual_sample_is_worth_a_look() {
    let log = log(&USUAL);
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
    for line in log(&USUAL).lines() {
        let known = ["192.0.2.", "198.51.100.", "203.0.113.", "2001:db8:"];
        assert!(known.iter().any(|prefix| line.starts_with(prefix)), "{line}");
    }
}

#[test]
fn the_sample_in_the_repository_is_the_one_that_the_program_makes() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../samples/shop.log.zst");
    let kept = zstd::decode_all(std::fs::File::open(path).unwrap()).unwrap();
    assert!(
        kept == log(&USUAL).into_bytes(),
        "make the sample again: cargo run --manifest-path bench/Cargo.toml -- sample | zstd -19 >samples/shop.log.zst"
    );
}
