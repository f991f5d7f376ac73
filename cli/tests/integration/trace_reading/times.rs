use tidegate::trace::{TIME_MAX, TimeUnit};

use super::*;

const AT: u64 = 1_431_857_103_000_000;

fn in_csv(time: &str, unit: Option<TimeUnit>) -> (Kept, Summary) {
    let options = Options { time_unit: unit, ..together() };
    read(format!("time,x\n\"{time}\",1\n"), &options).unwrap()
}

fn micros(time: &str) -> Option<u64> {
    in_csv(time, None).0.records.first().map(|record| record.0)
}

#[test]
fn every_usual_notation_is_the_same_instant() {
    for time in [
        "17/May/2015:10:05:03 +0000",
        "17/May/2015:12:05:03 +0200",
        "17/May/2015:04:35:03 -0530",
        "2015-05-17T10:05:03Z",
        "2015-05-17t10:05:03z",
        "2015-05-17 10:05:03",
        "2015/05/17 10:05:03",
        "2015-05-17 10:05:03 UTC",
        "2015-05-17T11:05:03+01:00",
        "2015-05-17T11:05:03+0100",
        "2015-05-17T11:05:03+01",
        "2015-05-17 11:05:03.0000009 +0100",
        "20150517T100503Z",
        "Sun, 17 May 2015 10:05:03 GMT",
        "Sun, 17 May 2015 10:05:03 +0000",
        " 2015-05-17T10:05:03Z ",
        "1431857103",
        "1431857103000",
        "1431857103000000",
        "1431857103000000999",
        "1431857103.0000009",
        "1.431857103e9",
    ] {
        assert_eq!(micros(time), Some(AT), "{time}");
    }
    assert_eq!(micros("2015-05-17"), Some(AT - 36_303_000_000));
    assert_eq!(micros("2015-05-17T10:05Z"), Some(AT - 3_000_000));
}

#[test]
fn decimals_are_cut_to_whole_microseconds() {
    for time in [
        "2015-05-17 10:05:03.9799699",
        "2015-05-17T10:05:03,979969Z",
        "17/May/2015:10:05:03.979969123 +0000",
        "1431857103.9799699999999999999999999999999999999999999999",
        "1431857103979.969999",
        "1431857103979969999",
    ] {
        assert_eq!(micros(time), Some(AT + 979_969), "{time}");
    }
    assert_eq!(micros("2015-05-17 10:05:03.5"), Some(AT + 500_000));
}

#[test]
fn a_leap_second_is_the_first_of_the_next_minute() {
    let next = micros("2017-01-01T00:00:00Z");
    assert_eq!(micros("2016-12-31T23:59:60Z"), next);
    assert_eq!(micros("31/Dec/2016:23:59:60 +0000"), next);
}

#[test]
fn the_unit_that_is_named_is_taken() {
    for (time, unit) in [
        ("1000000.5", TimeUnit::Seconds),
        ("1000000500", TimeUnit::Milliseconds),
        ("1000000500000", TimeUnit::Microseconds),
        ("1000000500000999", TimeUnit::Nanoseconds),
    ] {
        assert_eq!(in_csv(time, Some(unit)).0.records[0].0, 1_000_000_500_000, "{time}");
    }
    assert_eq!(in_csv("0", Some(TimeUnit::Seconds)).0.records[0].0, 0);
}

#[test]
fn a_unit_that_is_not_plain_is_asked_for() {
    for time in ["0", "99999999", "10000000000", "20150517100503", "-5", "1e30"] {
        let message = error(format!("time,x\n{time},1\n"), &together());
        assert!(message.contains("--time-unit s, ms, us or ns"), "{message}");
        assert!(
            message.starts_with(&format!("input:2: the unit of the time `{time}`")),
            "{message}"
        );
    }
}

#[test]
fn the_first_number_settles_the_unit_for_its_input() {
    let text = "time,x\n1431857103,1\n5000000,1\n";
    assert_eq!(read(text, &together()).unwrap().0.records[1].0, AT, "file order never steps back");
    assert_eq!(read(text, &together()).unwrap().1.first, Some(5_000_000_000_000));
}

#[test]
fn times_out_of_range_are_malformed() {
    for time in ["1969-12-31T23:59:59.999999999Z", "1970-01-01T00:30:00+01:00", "2113-01-01"] {
        let (kept, summary) = in_csv(time, None);
        assert_eq!((kept.records.len(), summary.malformed), (0, 1), "{time}");
    }
    let last = in_csv(&TIME_MAX.to_string(), Some(TimeUnit::Microseconds));
    assert_eq!(last.0.records[0].0, TIME_MAX);
    let beyond = in_csv(&(TIME_MAX + 1).to_string(), Some(TimeUnit::Microseconds));
    assert!(
        beyond.1.first_malformed[0].reason.contains("is beyond 4503599627370495 µs since 1970")
    );
}

#[test]
fn what_is_no_time_is_malformed() {
    for time in [
        "",
        "-",
        "yesterday",
        "2015-13-17 10:05:03",
        "2015-05-17 24:05:03",
        "2015-05-17 10:60:03",
        "2015-05-17 10:05:03.",
        "2015-05-17 10:05:03 CEST",
        "2015-05-17 10:05:03+1",
        "2015-05-17 10:05:03+01:60",
        "17/May/2015:10:05:3 +0000",
        "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0:03",
        "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0:03",
        "2015-02-29 00:00:00",
    ] {
        assert_eq!(in_csv(time, None).1.malformed, 1, "{time}");
    }
}

#[test]
fn the_plain_sizes_reach_to_their_bounds() {
    for (unit, low, high) in [
        ("s", "100000000", "4503599627"),
        ("ms", "100000000000", "4503599627370"),
        ("us", "100000000000000", "4503599627370495"),
        ("ns", "100000000000000000", "4503599627370495999"),
    ] {
        let unit: TimeUnit = unit.parse().unwrap();
        for time in [low, high] {
            let plain = in_csv(time, None).0;
            assert_eq!(plain, in_csv(time, Some(unit)).0, "{time} {unit}");
            assert_eq!(plain.records.len(), 1);
        }
    }
    for beyond in ["9999999999", "9999999999999", "9999999999999999", "9999999999999999999"] {
        assert!(in_csv(beyond, None).1.first_malformed[0].reason.contains("beyond"), "{beyond}");
    }
}
