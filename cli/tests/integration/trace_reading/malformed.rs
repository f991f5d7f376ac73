use tidegate::trace::ErrorKind;

use super::*;

const GOOD: &str = "::1 - - [17/May/2015:10:05:03 +0000] \"GET / HTTP/1.1\" 200 5\n";

#[test]
fn malformed_lines_are_counted_and_the_first_few_kept() {
    let text = format!("{GOOD}{}{GOOD}", "bad \x1b[31m\n".repeat(7));
    let (kept, summary) = read(text, &Options::default()).unwrap();
    assert_eq!((kept.records.len(), summary.records, summary.malformed), (2, 2, 7));
    assert_eq!((summary.files[0].records, summary.files[0].malformed), (2, 7));
    let lines: Vec<u64> = summary.first_malformed.iter().map(|line| line.line).collect();
    assert_eq!(lines, [2, 3, 4, 5, 6]);
    assert_eq!(summary.first_malformed[0].excerpt, "bad \\u{1b}[31m");
    assert_eq!(summary.first_malformed[0].file, "input");
}

#[test]
fn a_cost_that_is_not_a_number_is_malformed_and_only_no_bytes_are_none() {
    let dash = |user: &str, bytes: &str| {
        format!("::1 - {user} [17/May/2015:10:05:03 +0000] \"GET / HTTP/1.1\" 304 {bytes}\n")
    };
    let text = dash("-", "-") + &dash("7", "5");
    let (kept, summary) = read(&text, &costing("bytes")).unwrap();
    let costs: Vec<u64> = kept.records.iter().map(|(.., cost)| *cost).collect();
    assert_eq!((costs, summary.malformed), (vec![0, 5], 0));
    let (kept, summary) = read(&text, &costing("user+bytes")).unwrap();
    assert_eq!((kept.records[0].2, summary.records, summary.malformed), (12, 1, 1));
    let line = &summary.first_malformed[0];
    assert_eq!((line.line, &*line.reason), (1, "the cost `-` of `user` is not a number"));

    let w3c = |cost: &str| {
        let fields = "#Fields: date time c-ip sc-bytes time-taken\n";
        let text = format!("{fields}2026-05-01 10:00:00 203.0.113.5 - -\n");
        read(text, &costing(cost)).unwrap().1
    };
    assert_eq!((w3c("sc-bytes").records, w3c("sc-bytes").malformed), (1, 0));
    assert_eq!(
        w3c("time-taken").first_malformed[0].reason,
        "the cost `-` of `time-taken` is not a number"
    );
    let options = Options {
        pattern: Some(r"^(?<time>\S+) (?<ip>\S+) (?<cost>\S+)$".parse().unwrap()),
        ..Options::default()
    };
    let reason = reason("2026-05-01T10:00:00Z ::1 -\n", &options);
    assert_eq!(reason, "the cost `-` of `cost` is not a number");
}

#[test]
fn a_strict_reading_ends_at_the_first() {
    let options = Options { strict: true, ..Options::default() };
    let failed = read(format!("{GOOD}\n{GOOD}bad\n"), &options).unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::Malformed);
    assert_eq!(failed.to_string(), "input:4: there is no time in brackets: bad");
}

#[test]
fn a_line_that_is_too_long_is_skipped_without_being_held() {
    let long = "x".repeat((16 << 20) + 1);
    for text in [format!("{GOOD}{long}\n{GOOD}"), format!("{GOOD}{GOOD}{long}")] {
        let (kept, summary) = read(text, &Options::default()).unwrap();
        assert_eq!((kept.records.len(), summary.malformed), (2, 1));
        let line = &summary.first_malformed[0];
        assert_eq!(line.reason, "the line is longer than 16 MiB");
        assert_eq!(line.excerpt.chars().count(), 121);
    }
}

#[test]
fn the_longest_line_is_read() {
    let agent = "x".repeat((16 << 20) - GOOD.len() - 5);
    let text = format!("{GOOD}{} \"-\" \"{agent}\n{GOOD}", GOOD.trim_end());
    assert_eq!(records(text, &Options::default()).len(), 3);
}

#[test]
fn what_is_in_no_known_format_is_an_error_that_shows_how_it_begins() {
    for text in ["hello\nworld\n", "a,b,c\n1,2,3\n", "\u{0}\u{1}\u{2}", "\n\n\nhello"] {
        assert!(read(text, &Options::default()).is_err(), "{text:?}");
    }
    let message = error("hello\x07 world\n", &Options::default());
    assert_eq!(
        message,
        "input: this is in no known format; it begins with `hello\\u{7} world`; see --format, and \
         --pattern to describe its lines"
    );
    for text in
        [&b"\x7fELF\x02\x01\x01\0\0\0,\0"[..], b"\xff\xd8\x10JFIF,\x01\n", b"t\0i\0m\0e\0,\0"]
    {
        assert!(error(text, &Options::default()).contains("this is binary data"), "{text:?}");
    }
}

/// Regression test: the reader accepted a subject that is too long for a store. The store refused
/// it, so the whole replay ended.
#[test]
fn a_subject_that_no_store_takes_is_a_malformed_line() {
    for (length, malformed) in [((1 << 20) + 1, 1), (1 << 20, 0)] {
        let line = |user: &str| format!("{{\"ts\":1431857103,\"user\":\"{user}\"}}\n");
        let text = line("a") + &line(&"x".repeat(length)) + &line("b");
        let (kept, summary) = read(text, &by("user")).unwrap();
        assert_eq!((kept.records.len() as u64, summary.malformed), (3 - malformed, malformed));
        if let Some(line) = summary.first_malformed.first() {
            let wanted = "the subject has 1048577 bytes; at most 1048576 are taken";
            assert_eq!((line.line, line.reason.as_str()), (2, wanted));
        }
    }
}
