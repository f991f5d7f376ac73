//! Tests the texts in reports: numbers, waits, times, and visible text.

use std::time::Duration;

use proptest::prelude::*;
use tidegate::report::escape::{printable, shorten, visible};
use tidegate::report::number::{compact, counted, scaled, share, thousands};
use tidegate::report::time::{moment, period, utc};
use tidegate::report::wait_text;

#[test]
fn numbers_have_separators() {
    let cases = [(0, "0"), (999, "999"), (1_000, "1,000"), (100_000, "100,000")];
    for (number, text) in cases {
        assert_eq!(thousands(number), text);
    }
    assert_eq!(thousands(u64::MAX), "18,446,744,073,709,551,615");
    assert_eq!(
        (counted(1, "line", "lines"), counted(2, "line", "lines")),
        ("1 line".into(), "2 lines".into())
    );
}

#[test]
fn compact_numbers_are_cut_and_not_rounded_up() {
    let cases = [
        (9_999, "9,999"),
        (10_000, "10k"),
        (12_399, "12.3k"),
        (99_999, "99.9k"),
        (999_999, "999k"),
        (1_000_000, "1M"),
        (u64::MAX, "18.4E"),
    ];
    for (number, text) in cases {
        assert_eq!(compact(number), text);
    }
}

#[test]
fn a_share_is_exact_at_its_ends_and_to_a_tenth_between() {
    let cases = [
        ((0, 0), "–"),
        ((0, 7), "0 %"),
        ((7, 7), "100 %"),
        ((1, 1_001), "<0.1 %"),
        ((1, 1_000), "0.1 %"),
        ((999, 1_000), "99.9 %"),
        ((1_000, 1_001), ">99.9 %"),
        ((1, 3), "33.3 %"),
        ((2, 3), "66.7 %"),
        ((1, 2_000), "<0.1 %"),
        ((3, 2_000), "0.2 %"),
        ((u64::MAX - 1, u64::MAX), ">99.9 %"),
        ((9, 7), "100 %"),
    ];
    for ((part, whole), text) in cases {
        assert_eq!(share(part, whole), text, "{part} of {whole}");
    }
}

#[test]
fn a_wait_has_two_units_at_most_and_is_rounded_up() {
    let cases = [
        (0, "0s"),
        (1, "1µs"),
        (999, "999µs"),
        (1_000, "1ms"),
        (1_250, "1.3ms"),
        (9_901, "10ms"),
        (250_000, "250ms"),
        (998_001, "999ms"),
        (999_001, "1s"),
        (12_500_000, "12.5s"),
        (12_500_001, "12.6s"),
        (59_900_001, "1m"),
        (200_000_000, "3m 20s"),
        (3_599_000_001, "1h"),
        (7_500_000_000, "2h 5m"),
        (86_399_000_000, "1d"),
        (273_600_000_000, "3d 4h"),
    ];
    for (micros, text) in cases {
        assert_eq!(wait_text(Duration::from_micros(micros)), text, "{micros}");
    }
    assert_eq!(wait_text(Duration::from_nanos(1)), "1µs");
    assert_eq!(wait_text(Duration::MAX), "213503982334601d 8h");
}

#[test]
fn moments_are_utc_and_a_period_says_its_date_once() {
    let (noon, second) = (1_762_171_200_000_000, 1_000_000);
    assert_eq!(moment(noon + 999_999), "2025-11-03 12:00:00");
    assert_eq!(period(noon, noon + second), "2025-11-03 12:00:00 to 12:00:01 UTC");
    assert_eq!(
        period(noon, noon + 43_200 * second),
        "2025-11-03 12:00:00 to 2025-11-04 00:00:00 UTC"
    );
    assert_eq!(utc(u64::MAX), None);
    assert_eq!(moment(u64::MAX), "18446744073709551615µs after 1970");
}

#[test]
fn bytes_that_are_no_text_can_still_be_told_apart() {
    assert_eq!(printable(b"a\xffb"), r"a\xffb");
    assert_eq!(printable(br"a\xffb"), r"a\\xffb");
    assert_eq!(printable("é \u{301}日本".as_bytes()), "é \u{301}日本");
    assert_eq!(printable("a\u{a0}b\u{2003}".as_bytes()), r"a\u{a0}b\u{2003}");
}

#[test]
fn an_escape_is_cut_as_a_whole_or_not_at_all() {
    assert_eq!(shorten("\u{1b}\u{1b}\u{1b}", 15), r"\u{1b}…\u{1b}");
    assert_eq!(shorten("\u{1b}\u{1b}\u{1b}", 18), r"\u{1b}\u{1b}\u{1b}");
    assert_eq!(shorten("\u{1b}\u{1b}\u{1b}", 5), "…");
    assert_eq!(shorten("abc", 0), "…");
}

proptest! {
    #[test]
    fn visible_twice_is_visible_once(text: String) {
        let once = visible(&text).into_owned();
        prop_assert_eq!(visible(&once), once.as_str());
    }

    #[test]
    fn no_two_subjects_print_alike(a: Vec<u8>, b: Vec<u8>) {
        prop_assert_eq!(printable(&a) == printable(&b), a == b);
    }

    #[test]
    fn short_is_short(text: String, max in 1_usize..40) {
        prop_assert!(shorten(&text, max).chars().count() <= max);
    }

    #[test]
    fn a_longer_wait_never_shows_a_shorter_number_of_units(micros: u64, more in 0_u64..1_000_000) {
        // A wait that is rounded up to a whole unit is written in that unit: never as `60s`, `60m`,
        // `24h` or `1000ms`.
        let text = wait_text(Duration::from_micros(micros.saturating_add(more) >> (more % 60)));
        for impossible in ["60s", "60m", "24h", "1000ms", "1000µs"] {
            prop_assert!(text.split(' ').all(|part| part != impossible), "{}", text);
        }
    }

    #[test]
    fn scaled_is_between_nothing_and_all(part: u64, whole: u64, length: u32) {
        prop_assert!(scaled(part, whole, length) <= length);
    }
}
