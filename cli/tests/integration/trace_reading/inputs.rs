use std::error::Error as _;
use std::fs;
use std::io::Write as _;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use tidegate::trace::{ErrorKind, Progress};

use super::*;

const CSV: &str = "time,ip\n2015-05-17,::1\n2015-05-18,::2\n";

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

fn zstd(text: &str) -> Vec<u8> {
    zstd::encode_all(text.as_bytes(), 1).unwrap()
}

fn joined(parts: &[Vec<u8>]) -> Vec<u8> {
    parts.concat()
}

#[test]
fn packed_inputs_are_known_by_their_first_bytes() {
    let wanted = records(CSV, &Options::default());
    let (head, tail) = CSV.split_at(20);
    let skipped = b"\x50\x2a\x4d\x18\x02\0\0\0ab".to_vec();
    for packed in [
        gzip(CSV),
        joined(&[gzip(head), gzip(""), gzip(tail)]),
        zstd(CSV),
        joined(&[skipped, zstd(head), zstd(tail)]),
    ] {
        assert_eq!(records(packed, &Options::default()), wanted);
    }
}

#[test]
fn packed_input_that_stops_in_the_middle_is_an_error_that_names_it() {
    let many = CSV.repeat(1000);
    for packed in [gzip(&many), zstd(&many)] {
        for cut in [5, 12, packed.len() / 2, packed.len() - 1] {
            let failed = read(&packed[..cut], &Options::default()).unwrap_err();
            assert_eq!(failed.kind(), ErrorKind::Unreadable);
            let message = failed.to_string();
            assert!(message.starts_with("input: the "), "{message}");
            assert!(
                message.ends_with("data stops in the middle: the file is truncated"),
                "{message}"
            );
            assert!(failed.source().is_some());
        }
    }
    let second = joined(&[gzip(CSV), gzip(CSV)[..7].to_vec()]);
    assert!(error(second, &Options::default()).contains("truncated"));
}

#[test]
fn damaged_input_is_an_error() {
    let mut packed = gzip(CSV);
    let last = packed.len() - 6;
    packed[last] ^= 1;
    assert!(
        error(packed, &Options::default()).starts_with("input: the gzip data cannot be unpacked")
    );
}

#[test]
fn empty_inputs_are_fine() {
    for nothing in [vec![], gzip(""), zstd(""), b"\n \r\n".to_vec(), b"\xef\xbb\xbf".to_vec()] {
        let (kept, summary) = read(nothing, &Options::default()).unwrap();
        assert_eq!((kept.records.len(), summary.malformed), (0, 0));
        assert_eq!(summary.files[0].format, None);
    }
    assert_eq!(records("time,ip\n", &Options::default()), []);
}

#[test]
fn each_input_has_its_own_format_and_subjects_are_shared() {
    let inputs = vec![
        bytes(gzip(CSV)),
        bytes(""),
        bytes("::2 - - [19/May/2015:10:05:03 +0000] \"GET / HTTP/1.1\" 200 5\n"),
        bytes("{\"ts\":1531857103,\"ip\":\"::3\"}\n"),
    ];
    let mut kept = Kept::default();
    let summary = replay_in_order(inputs, &Options::default(), Order::Time, &mut kept).unwrap();
    let names: Vec<&str> = kept.records.iter().map(|record| record.1.as_str()).collect();
    assert_eq!(names, ["::1", "::2", "::2", "::3"]);
    assert_eq!(summary.subjects.len(), 3);
    assert_eq!(summary.files.iter().map(|file| file.records).collect::<Vec<_>>(), [2, 0, 1, 1]);
    assert!(!summary.sorted);
}

#[test]
fn what_cannot_be_opened_is_named() {
    let directory = tempfile::tempdir().unwrap();
    for (path, what) in [
        (directory.path().join("none"), "cannot be opened"),
        (directory.path().join("\u{1b}[31m\u{202e}"), "cannot be opened"),
        (directory.path().to_owned(), "cannot be read"),
    ] {
        let inputs = vec![Input::from_arg(&path)];
        let failed =
            replay_in_order(inputs, &Options::default(), Order::Time, &mut Kept::default());
        let failed = failed.unwrap_err();
        let name = path.display().to_string();
        let name = name.replace('\u{1b}', "\\u{1b}").replace('\u{202e}', "\\u{202e}");
        assert_eq!(failed.to_string(), format!("{name}: {what}"));
        assert!(failed.source().is_some());
    }
}

#[test]
fn a_dash_is_standard_input() {
    assert_eq!(Input::from_arg(Path::new("-")).name(), "standard input");
}

#[test]
fn progress_is_told_in_bytes_on_disk() {
    #[derive(Default)]
    struct Watch(Vec<Progress>);
    impl Sink for Watch {
        type Error = Error;
        fn record(&mut self, _: Record, _: &Subjects) -> Result<(), Error> {
            Ok(())
        }
        fn restart(&mut self) {}
        fn progress(&mut self, progress: Progress) {
            self.0.push(progress);
        }
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    let packed = gzip(&format!("{CSV}2015-05-17,::3\n"));
    fs::write(&path, &packed).unwrap();
    let size = packed.len() as u64;
    let mut watch = Watch::default();
    replay_in_order(vec![Input::from_arg(&path)], &Options::default(), Order::Time, &mut watch)
        .unwrap();
    assert!(
        watch.0.contains(&Progress::Reading { bytes: size, total: Some(size) }),
        "{:?}",
        watch.0
    );
    assert_eq!(watch.0.last(), Some(&Progress::Replaying { records: 0, total: 3 }));
}
