//! Reads lines in the envelopes of containers, syslog and the journal.

use tidegate::trace::{Envelope, Format};

use super::*;

const LINES: [&str; 2] = [
    r#"203.0.113.5 - - [01/May/2026:10:00:00 +0000] "GET /a HTTP/1.1" 200 12 "-" "curl \"8\"""#,
    r#"2001:db8::5 - alice [01/May/2026:10:00:01 +0000] "GET /b HTTP/1.1" 200 7 "-" "Mozilla/5.0""#,
];

const JSON: [&str; 2] = [
    r#"{"time":"2026-05-01T10:00:00Z","ip":"203.0.113.5","bytes":12}"#,
    r#"{"time":"2026-05-01T10:00:01Z","ip":"2001:db8::5","bytes":7}"#,
];

const HAPROXY: [&str; 2] = [
    r#"203.0.113.5:1 [01/May/2026:10:00:00.000] in b/s 1/0/3/6/10 200 12 - - ---- 1/1/1/1/0 0/0 "GET / HTTP/1.1""#,
    r#"[2001:db8::5]:1 [01/May/2026:10:00:01.000] in b/s 1/0/3/6/10 200 7 - - ---- 1/1/1/1/0 0/0 "GET / HTTP/1.1""#,
];

/// Returns a line in this envelope. `place` is the number of the line, and selects one of two forms
/// of the envelope.
fn around(envelope: Envelope, line: &str, place: usize) -> String {
    let stream = ["stdout", "stderr"][place];
    match envelope {
        Envelope::Docker => {
            let text = serde_json::to_string(&format!("{line}\n")).unwrap();
            format!(r#"{{"log":{text},"stream":"{stream}","time":"2026-05-02T00:00:00.1Z"}}"#)
        }
        Envelope::Journal => {
            let text = match place {
                0 => serde_json::to_string(line).unwrap(),
                // The journal writes a message that is not UTF-8 as an array of bytes.
                _ => serde_json::to_string(line.as_bytes()).unwrap(),
            };
            format!(
                r#"{{"_HOSTNAME":"192.0.2.1","__REALTIME_TIMESTAMP":"1777680000100000","MESSAGE":{text}}}"#
            )
        }
        Envelope::Cri => format!("2026-05-02T00:00:00.123456789Z {stream} F {line}"),
        Envelope::Compose => format!("web-{place}      | {line}"),
        Envelope::Syslog5424 => {
            let data = ["-", r#"[ex@1 ip="192.0.2.1" q="\]\""][b c="d"]"#][place];
            format!("<134>1 2026-05-02T00:00:00.1Z 192.0.2.1 nginx 12 ID1 {data} {line}")
        }
        Envelope::Syslog3164 => [format!("May  2 00:00:00 192.0.2.1 nginx: {line}"), {
            format!("<134>2026-05-02T00:00:00.1+00:00 web.example.com nginx[12]: {line}")
        }][place]
            .clone(),
    }
}

#[test]
fn what_is_around_a_line_is_not_a_part_of_it() {
    for envelope in [
        Envelope::Docker,
        Envelope::Cri,
        Envelope::Compose,
        Envelope::Journal,
        Envelope::Syslog5424,
        Envelope::Syslog3164,
    ] {
        for (lines, format) in
            [(LINES, Format::AccessLog), (JSON, Format::JsonLines), (HAPROXY, Format::HaProxy)]
        {
            let bare = records(lines.join("\n"), &costing("bytes"));
            assert_eq!(bare[0].1, "203.0.113.5");
            let text: String = (0..2).map(|n| around(envelope, lines[n], n) + "\r\n").collect();
            let (kept, summary) = read(&text, &costing("bytes")).unwrap();
            assert_eq!(summary.first_malformed, [], "{text}");
            assert_eq!(summary.files[0].format, Some(format), "{text}");
            assert_eq!(summary.files[0].envelope, Some(envelope), "{text}");
            assert_eq!(kept.records, bare, "{text}");
            let named = Options { format: Some(format), ..costing("bytes") };
            assert_eq!(records(&text, &named), bare, "{text}");
        }
    }
}

#[test]
fn lines_without_a_time_have_that_of_their_envelope() {
    let logfmt = r#"level=info ip=203.0.113.5 path="/a b" bytes=12"#;
    let json = r#" {"level":"info","ip":"203.0.113.5","bytes":12}"#;
    for (line, format) in [(logfmt, Format::Logfmt), (json, Format::JsonLines)] {
        for envelope in [
            Envelope::Docker,
            Envelope::Cri,
            Envelope::Journal,
            Envelope::Syslog5424,
            Envelope::Syslog3164,
        ] {
            // For RFC 3164, the test uses the second form, because the first form has a time
            // without a year.
            let place = usize::from(envelope == Envelope::Syslog3164);
            let text = around(envelope, line, place) + "\n" + &around(envelope, line, place);
            let (kept, summary) = read(&text, &costing("bytes")).unwrap();
            assert_eq!(summary.first_malformed, [], "{text}");
            let file = &summary.files[0];
            assert_eq!((file.format, file.envelope), (Some(format), Some(envelope)), "{text}");
            let (time, subject, cost) = kept.records[1].clone();
            let second = time / 1_000_000;
            assert_eq!((second, &*subject, cost), (1_777_680_000, "203.0.113.5", 12), "{text}");
            assert_eq!(kept.records.len(), 2, "{text}");
        }
    }
    // If a line has its own time, the time of its envelope is ignored.
    let own = "time=2026-05-01T10:00:00Z level=info ip=203.0.113.5";
    let found = records(around(Envelope::Cri, own, 0), &Options::default());
    assert_eq!(found[0].0, 1_777_629_600_000_000);
    // If neither the line nor the envelope has a time, reading fails.
    assert!(read("web-1  | level=info ip=203.0.113.5", &Options::default()).is_err());
}

#[test]
fn a_line_of_syslog_without_a_year_is_of_the_last_possible_one() {
    let now = jiff::Timestamp::now();
    for age in [0, 1, 40, 200, 360] {
        let then = now - jiff::SignedDuration::from_hours(24 * age);
        let written = then.strftime("%b %e %H:%M:%S");
        let text = format!("{written} web app[12]: level=info ip=203.0.113.5");
        let found = records(&text, &Options::default());
        let second = u64::try_from(then.as_second()).unwrap();
        assert_eq!(found[0].0 / 1_000_000, second, "{text}");
    }
}

/// Regression test: the reader used the time at the beginning of each line as the address. So
/// almost every line was a new subject, and no request would have been refused.
#[test]
fn lines_of_kubernetes_have_few_subjects() {
    let line = |n: usize| format!("2026-05-01T10:00:00.{n:09}Z stdout F {}\n", LINES[n % 2]);
    let text: String = (0..500).map(line).collect();
    let (_, summary) = read(text, &Options::default()).unwrap();
    assert_eq!((summary.records, summary.subjects.len()), (500, 2));
}

#[test]
fn a_line_that_was_cut_is_put_together() {
    let long = LINES[0].replace("/a", &"x".repeat(40_000));
    let (head, tail) = long.split_at(20_000);
    let part = |flag: &str, text: &str| format!("2026-05-02T00:00:00Z stdout {flag} {text}\n");
    let cri = part("F", LINES[1]) + &part("P", head) + &part("F", tail) + &part("F", LINES[1]);
    let docker = |text: &str| {
        let text = serde_json::to_string(text).unwrap();
        format!("{{\"log\":{text},\"stream\":\"stdout\",\"time\":\"2026-05-02T00:00:00Z\"}}\n")
    };
    let ended = |text: &str| docker(&format!("{text}\n"));
    let docker = ended(LINES[1]) + &docker(head) + &ended(tail) + &ended(LINES[1]);
    for text in [cri, docker] {
        let found = records(&text, &Options::default());
        let subjects: Vec<&str> = found.iter().map(|record| record.1.as_str()).collect();
        assert_eq!(subjects, ["2001:db8::5", "203.0.113.5", "2001:db8::5"]);
    }
    // The second line has parts without an end. It is malformed as soon as it exceeds the maximum
    // length, so that it does not fill the memory.
    let endless = part("F", LINES[1]) + &part("P", &"x".repeat(1 << 20)).repeat(20);
    let reason = reason(endless, &Options::default());
    assert_eq!(reason, "its parts are longer than 16 MiB together");
}

#[test]
fn other_lines_among_them_are_malformed() {
    let text = format!(
        "web-1  | {}\nAttaching to web-1\nweb-1  | starting\nweb-1  | {}\n",
        LINES[0], LINES[1]
    );
    let (kept, summary) = read(text, &Options::default()).unwrap();
    assert_eq!((kept.records.len(), summary.malformed), (2, 2));
}

#[test]
fn json_with_a_field_called_log_is_not_always_an_envelope() {
    let text = r#"{"log":"started","time":"2026-05-01T10:00:00Z","ip":"203.0.113.5"}"#;
    let (kept, summary) = read(text, &Options::default()).unwrap();
    assert_eq!(summary.files[0].envelope, None);
    assert_eq!(kept.records[0].1, "203.0.113.5");
}
