use tidegate::trace::Format;

use super::*;

#[test]
fn usual_names_are_found() {
    let text = r#"{"level":"info","@timestamp":"2015-05-17T10:05:03.5Z","remote_addr":"::1"}"#;
    assert_eq!(records(text, &Options::default()), [(1_431_857_103_500_000, "::1".into(), 1)]);
    let (_, summary) = read(text, &Options::default()).unwrap();
    assert_eq!(summary.files[0].format, Some(Format::JsonLines));
    assert_eq!(summary.files[0].subject.as_deref(), Some("remote_addr"));
}

#[test]
fn names_may_be_paths_or_hold_dots() {
    let text = r#"{"ts":1431857103.25,"a":{"x":{},"b":{"who":7}},"u.n":{"c":3},"skip":[{"ts":1}]}"#;
    let options = Options { cost: "u.n.c".parse().unwrap(), ..by("a.b.who") };
    assert_eq!(records(text, &options), [(1_431_857_103_250_000, "7".into(), 3)]);
}

#[test]
fn numbers_are_taken_as_they_are_written() {
    let text = r#"{"ts":1431857103.1234567,"id":123456789012345678901234567890.10,"n":9007199254740993e-1}"#;
    assert_eq!(
        records(text, &by("id"))[0],
        (1_431_857_103_123_456, "123456789012345678901234567890.10".into(), 1)
    );
    assert_eq!(
        reason(text, &costing_together("n")),
        "the cost `9007199254740993e-1` of `n` is not whole"
    );
}

#[test]
fn strings_lose_their_escapes() {
    let text = "{\"ts\":\"1431857103\",\"ip\":\"a\\u00e9\\\"\",\"n\":\"12\"}";
    let found = records(text, &costing("n"));
    assert_eq!(found, [(1_431_857_103_000_000, "aé\"".into(), 12)]);
}

#[test]
fn one_field_can_be_several_things() {
    let text = r#"{"ts":1431857103}"#;
    let options = Options { cost: "ts+ts".parse().unwrap(), ..by("ts") };
    assert_eq!(
        records(text, &options),
        [(1_431_857_103_000_000, "1431857103".into(), 2_863_714_206)]
    );
}

#[test]
fn what_is_no_object_or_lacks_a_field_is_malformed() {
    let good = r#"{"ts":1431857103,"ip":"x"}"#;
    for (line, wanted) in [
        ("[1]", "this is not a JSON object"),
        (
            "{\"ts\":1431857103,\"ip\":\"x\"",
            "this is not a JSON object: EOF while parsing an object",
        ),
        ("{\"ts\":1431857103,\"ip\":\"x\"} x", "this is not a JSON object: trailing characters"),
        ("{\"ts\":1431857103}", "there is no field `ip`"),
        ("{\"ts\":1431857103,\"ip\":null}", "`ip` is `null`, not a string or a number"),
        ("{\"ts\":{},\"ip\":\"x\"}", "`ts` is `{}`, not a string or a number"),
        ("{\"ts\":true,\"ip\":\"x\"}", "`true` is not a valid time"),
        ("{\"ts\":1431857103,\"ip\":\"\\ud800\"}", "`ip` is not a valid string"),
    ] {
        let found = reason(format!("{good}\n{line}\n"), &Options::default());
        assert!(found.starts_with(wanted), "{line}: {found}");
    }
}

#[test]
fn a_name_that_no_line_has_is_an_error() {
    let message = error("{\"ts\":1431857103,\"a\":{\"b\":1}}", &costing_together("tokens"));
    assert_eq!(
        message,
        "input: there is no field `tokens` for the cost; the fields are `a.b`, `ts`"
    );
}

#[test]
fn deep_nesting_neither_fails_nor_overflows() {
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let text = format!("{{\"ts\":1431857103,\"deep\":{deep},\"ip\":\"x\"}}");
    assert_eq!(records(text, &Options::default())[0].1, "x");
    let deep = format!("{}1{}", "{\"a\":".repeat(10_000), "}".repeat(10_000));
    let text = format!("{{\"ts\":1431857103,\"deep\":{deep},\"ip\":\"x\"}}");
    assert_eq!(records(text, &Options::default())[0].1, "x");
}

#[test]
fn a_key_with_a_dot_does_not_hide_the_key_before_the_dot() {
    let text = r#"{"a":1431857103,"a.b":3}"#;
    let options = Options { time: Some("a".to_owned()), ..costing_together("a.b") };
    assert_eq!(records(text, &options)[0], (1_431_857_103_000_000, "all".into(), 3));
}

/// Regression test: the reader searched the fields only in its first read of a quarter of a MiB, so
/// that it did not find the fields of a longer first line.
#[test]
fn a_first_line_of_any_length_tells_the_fields() {
    let long = "x".repeat(2 << 20);
    let text = format!("\n{{\"long\":\"{long}\",\"time\":\"2015-05-17\",\"user\":\"a\"}}\n");
    assert_eq!(records(&text, &by("user"))[0].1, "a");
    let named =
        Options { time: Some("time".to_owned()), format: Some(Format::JsonLines), ..by("user") };
    assert_eq!(records(text.trim_end(), &named)[0].1, "a");

    let too_long = "x".repeat((16 << 20) + 1);
    let text = format!("{too_long}\n\n{{\"time\":\"2015-05-17\",\"user\":\"a\"}}\n");
    let (kept, summary) = read(text, &by("user")).unwrap();
    assert_eq!((kept.records.len(), summary.malformed, summary.files[0].malformed), (1, 1, 1));
}
