use tidegate::trace::{ErrorKind, Format};

use super::*;

const MAY_17: u64 = 1_431_857_103_000_000;

const COMBINED: &str = r#"83.149.9.216 - - [17/May/2015:10:05:03 +0000] "GET /a HTTP/1.1" 200 203023 "http://example.com/" "Mozilla/5.0 (X11)""#;

fn one(line: &str, options: &Options) -> (u64, String, u64) {
    let mut found = records(line, options);
    assert_eq!(found.len(), 1, "{line}");
    found.remove(0)
}

#[test]
fn a_combined_line_is_read() {
    assert_eq!(one(COMBINED, &Options::default()), (MAY_17, "83.149.9.216".into(), 1));
    assert_eq!(one(COMBINED, &costing("bytes")), (MAY_17, "83.149.9.216".into(), 203_023));
    let (_, summary) = read(COMBINED, &Options::default()).unwrap();
    assert_eq!(summary.files[0].format, Some(Format::AccessLog));
    assert_eq!(summary.files[0].subject.as_deref(), Some("ip"));
}

#[test]
fn a_common_line_is_read_and_no_bytes_are_none() {
    let line = r#"2001:db8::1 - frank [17/May/2015:11:05:03 +0100] "GET / HTTP/1.0" 304 -"#;
    assert_eq!(one(line, &costing("bytes")), (MAY_17, "2001:db8::1".into(), 0));
}

#[test]
fn every_field_can_be_the_subject() {
    let line = format!("{} \"extra\" 0.003", COMBINED.replace(" - - ", " me alice "));
    for (field, value) in [
        ("ip", "83.149.9.216"),
        ("ident", "me"),
        ("user", "alice"),
        ("request", "GET /a HTTP/1.1"),
        ("method", "GET"),
        ("path", "/a"),
        ("status", "200"),
        ("bytes", "203023"),
        ("referer", "http://example.com/"),
        ("agent", "Mozilla/5.0 (X11)"),
        ("time", "17/May/2015:10:05:03 +0000"),
        ("all", "all"),
    ] {
        assert_eq!(one(&line, &by(field)).1, value, "{field}");
    }
}

/// Regression test: all lines without a user belonged to one subject `-`, and most of its requests
/// were refused.
#[test]
fn lines_without_a_user_are_counted_and_left_out() {
    let text = format!("{COMBINED}\n{}\n", COMBINED.replace(" - - ", " - alice "));
    let (kept, summary) = read(text, &by("user")).unwrap();
    assert_eq!(kept.records, [(MAY_17, "alice".into(), 1)]);
    assert_eq!((summary.without_subject, summary.files[0].without_subject), (1, 1));
    assert_eq!((summary.records, summary.malformed), (1, 0));
}

/// Regression test: the reader always used the first word of a line as the address.
#[test]
fn the_address_is_found_by_what_it_looks_like() {
    for (front, ip) in [
        ("INFO 203.0.113.5", "203.0.113.5"),
        ("4f2c9a 203.0.113.5", "203.0.113.5"),
        ("2026-05-01T10:00:00.1Z 203.0.113.5", "203.0.113.5"),
        ("www.example.com 203.0.113.5", "203.0.113.5"),
        ("192.0.2.80 203.0.113.5", "203.0.113.5"),
        ("203.0.113.5:12345", "203.0.113.5"),
        ("[2001:db8::5]:443", "2001:db8::5"),
        ("[2001:db8::5]", "2001:db8::5"),
        ("May  1 10:00:00 web-1 nginx: 2001:db8::5", "2001:db8::5"),
        ("client.example.org", "client.example.org"),
        ("localhost", "localhost"),
        ("www.example.com:443 client.example.org", "client.example.org"),
    ] {
        for user in ["-", "alice", "J. van.der Smith"] {
            let line = COMBINED.replace("83.149.9.216 - - ", &format!("{front} - {user} "));
            assert_eq!(one(&line, &Options::default()).1, ip, "{line}");
            if user != "-" {
                assert_eq!(one(&line, &by("user")).1, user, "{line}");
            }
        }
    }
}

#[test]
fn an_access_log_without_addresses_needs_to_be_told_what_a_subject_is() {
    for front in ["INFO", "unix:", "-"] {
        let line = COMBINED.replace("83.149.9.216 ", &format!("{front} "));
        let failed = read(&line, &Options::default()).unwrap_err();
        assert_eq!(failed.kind(), ErrorKind::UnknownSubject);
        let message = failed.to_string();
        assert!(message.contains("there is none before the time"), "{message}");
        assert!(message.contains("`path`") && message.contains("--by all"), "{message}");
        assert_eq!(one(&line, &by("all")).1, "all");
        assert_eq!(one(&line, &by("path")).1, "/a");
        // If other lines have an address, a line without an address is only counted and skipped.
        let (kept, summary) = read(format!("{line}\n{COMBINED}\n"), &Options::default()).unwrap();
        assert_eq!((kept.records.len(), summary.without_subject), (1, 1));
    }
}

#[test]
fn the_addresses_that_a_proxy_was_sent_can_be_the_subject() {
    for (behind, found) in [
        (r#" "198.51.100.7""#, "198.51.100.7"),
        (r#" "10.0.0.1, 198.51.100.7:99""#, "198.51.100.7"),
        (r#" "198.51.100.7" 0.003 "api""#, "198.51.100.7"),
        (r#" 0.003 "198.51.100.7""#, "198.51.100.7"),
    ] {
        assert_eq!(one(&format!("{COMBINED}{behind}"), &by("forwarded")).1, found);
    }
    let without = format!("{COMBINED} \"-\"");
    assert_eq!(read(without, &by("forwarded")).unwrap().1.without_subject, 1);
}

#[test]
fn a_user_may_hold_spaces_and_brackets() {
    let line = COMBINED.replace(" - - ", " - A [B] [1 C ");
    assert_eq!(one(&line, &by("user")), (MAY_17, "A [B] [1 C".into(), 1));
    assert_eq!(one(&line, &by("ip")).1, "83.149.9.216");
}

#[test]
fn a_virtual_host_in_front_is_not_the_address() {
    let line = format!("www.example.com:443 {COMBINED}");
    assert_eq!(one(&line, &by("ip")).1, "83.149.9.216");
    assert_eq!(one(&line, &by("vhost")).1, "www.example.com:443");
    let address = COMBINED.replace("83.149.9.216 - - ", "2001:db8::1 - John Smith ");
    assert_eq!(one(&address, &by("ip")).1, "2001:db8::1");
    assert_eq!(one(&address, &by("user")).1, "John Smith");
}

#[test]
fn quotes_in_the_request_do_not_end_it() {
    for request in [
        r#"GET /\"x\" 1"#,
        r#"GET /\" 404 5 "#,
        r#"GET /"x" HTTP/1.1"#,
        r#"\"\\"#,
        "",
        "-",
        "\\x16\\x03",
        "[1]",
    ] {
        let line = COMBINED.replace("GET /a HTTP/1.1", request);
        // If the request is empty or `-`, the line has no subject.
        if !matches!(request, "" | "-") {
            assert_eq!(one(&line, &by("request")).1, request);
        }
        assert_eq!(one(&line, &costing("bytes")).2, 203_023, "{request}");
    }
}

#[test]
fn a_last_quote_that_is_never_closed_harms_nobody() {
    let line = COMBINED.strip_suffix('"').unwrap();
    assert_eq!(one(line, &by("ip")), (MAY_17, "83.149.9.216".into(), 1));
    assert_eq!(one(line, &by("agent")).1, "Mozilla/5.0 (X11)");
    let after_bytes = COMBINED.split(" \"http").next().unwrap();
    assert_eq!(one(&format!("{after_bytes} \""), &by("ip")).0, MAY_17);
}

#[test]
fn bytes_that_are_no_utf8_do_not_matter() {
    let mut line = COMBINED.as_bytes().to_vec();
    line.splice(52..52, [0xff, 0xfe, 0x00]);
    assert_eq!(records(&line, &Options::default()).len(), 1);
}

#[test]
fn lines_that_are_not_whole_are_malformed_and_say_why() {
    for (damage, wanted) in [
        (COMBINED.replace(" - - [", " ["), "there are not three fields before the time"),
        (COMBINED.replace('[', "("), "there is no time in brackets"),
        (COMBINED.replace("May", "Mai"), "`17/Mai/2015:10:05:03 +0000` is not a valid time"),
        (COMBINED.replace("17/May", "31/Jun"), "`31/Jun/2015:10:05:03 +0000` is not a valid time"),
        (COMBINED.replace(":03 ", ":61 "), "`17/May/2015:10:05:61 +0000` is not a valid time"),
        (COMBINED.replace("2015", "1969"), "the time `17/May/1969:10:05:03 +0000` is before 1970"),
        (COMBINED.replace("] \"GET", "] GET"), "there is no quoted request after the time"),
        (
            COMBINED.replace(" 200 ", " 20 "),
            "there is no status and number of bytes after the request",
        ),
        (
            COMBINED.replace("203023", "-203"),
            "there is no status and number of bytes after the request",
        ),
        (COMBINED[..60].to_owned(), "the quote around the request is never closed"),
    ] {
        let text = format!("{COMBINED}\n{damage}\n");
        assert_eq!(reason(text, &Options::default()), wanted, "{damage}");
    }
}

#[test]
fn a_field_that_no_access_log_has_is_an_error() {
    let message = error(COMBINED, &costing("tokens"));
    assert!(message.starts_with(
        "input: there is no field `tokens` for the cost; the fields are `time`, `ip`"
    ));
}

#[test]
fn other_notations_of_time_may_stand_in_the_brackets() {
    for time in ["2015-05-17T10:05:03+00:00", "1431857103.000", "17/May/2015:10:05:03.0001 +0000"] {
        let line = COMBINED.replace("17/May/2015:10:05:03 +0000", time);
        assert_eq!(one(&line, &by("ip")).0 / 1_000_000, MAY_17 / 1_000_000, "{time}");
    }
}

#[test]
fn lines_before_the_first_good_one_do_not_hide_the_format() {
    let text = format!("Server starting, please wait\n\n{COMBINED}\r\n");
    let (kept, summary) = read(text, &Options::default()).unwrap();
    assert_eq!((kept.records.len(), summary.malformed), (1, 1));
}

/// The standard output of a program can contain its own messages too, with numbers in brackets.
#[test]
fn a_number_in_brackets_is_no_time_and_stops_nothing() {
    let text = format!("[2026-05-01 10:00:00 +0000] [7] [INFO] Starting\n{COMBINED}\n");
    let (kept, summary) = read(text, &Options::default()).unwrap();
    assert_eq!((kept.records.len(), summary.malformed), (1, 1));
}

/// A client chooses the name of the user, and servers escape only the quotes in it.
#[test]
fn the_name_of_the_user_forges_neither_the_address_nor_the_time() {
    for (leading, address) in [
        ("www.example.com 203.0.113.9 - evil 6.6.6.6 - z", "203.0.113.9"),
        ("7f3 2001:db8::1 - 6.6.6.6 - 6.6.6.7 - z", "2001:db8::1"),
        ("203.0.113.9 - x [1700000000]", "203.0.113.9"),
        ("203.0.113.9 - x [17/May/2014:10:05:03 +0000] z", "203.0.113.9"),
        ("www.example.com 203.0.113.9 - x [1700000000]", "203.0.113.9"),
    ] {
        let line = format!(r#"{leading} [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 5"#);
        assert_eq!(one(&line, &Options::default()), (MAY_17, address.into(), 1), "{leading}");
    }
}
