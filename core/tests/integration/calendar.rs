//! The windows of quotas, compared with edges that were read from another time zone library.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use tidegate_core::civil::date;
use tidegate_core::engine::Rule;
use tidegate_core::{Call, Charge, ManualClock, Operation, Policy, PolicyError, Timestamp};
use tidegate_memory::MemoryStore;

/// Returns the window of a policy that contains a time, in seconds since 1970.
fn window(policy: &str, at: u64) -> (u64, u64) {
    let policy: Policy = policy.parse().unwrap();
    let Rule::Quota(rule) = policy.rule() else { panic!("{policy} is not a quota") };
    let window = rule.window_at(at * 1_000_000);
    assert!(window.start.is_multiple_of(1_000_000) && window.end.is_multiple_of(1_000_000));
    (window.start / 1_000_000, window.end / 1_000_000)
}

#[test]
fn days_with_a_change_of_the_clock_have_their_real_length() {
    for (zone, start, half_hours) in [
        ("Europe/Amsterdam", 1_774_738_800, 46),    // 2026-03-29
        ("Europe/Amsterdam", 1_792_879_200, 50),    // 2026-10-25
        ("America/New_York", 1_772_946_000, 46),    // 2026-03-08
        ("America/New_York", 1_793_505_600, 50),    // 2026-11-01
        ("Africa/Cairo", 1_776_981_600, 46),        // 2026-04-24 has no midnight
        ("Asia/Beirut", 1_774_735_200, 46),         // 2026-03-29 has no midnight
        ("America/Santiago", 1_788_667_200, 46),    // 2026-09-06 has no midnight
        ("America/Havana", 1_772_946_000, 46),      // 2026-03-08 has no midnight
        ("Atlantic/Azores", 1_792_886_400, 50),     // 2026-10-25 has two midnights
        ("Australia/Lord_Howe", 1_791_034_200, 47), // 2026-10-04
        ("Australia/Lord_Howe", 1_775_307_600, 49), // 2026-04-05
        ("Antarctica/Troll", 1_774_742_400, 44),    // 2026-03-29
        ("Asia/Kathmandu", 1_767_204_900, 48),      // 2026-01-01
        ("America/Sao_Paulo", 1_541_300_400, 46),   // 2018-11-04 has no midnight
    ] {
        let policy = format!("quota 1/day in {zone}");
        let end = start + half_hours * 1_800;
        for time in [start, start + 1, end - 1] {
            assert_eq!(window(&policy, time), (start, end), "{policy} at {time}");
        }
        assert_eq!(window(&policy, start - 1).1, start, "{policy}");
        assert_eq!(window(&policy, end).0, end, "{policy}");
    }
}

#[test]
fn months_have_their_real_length() {
    for (zone, start, end) in [
        ("Europe/Amsterdam", 1_772_319_600, 1_774_994_400), // 2026-03
        ("Europe/Amsterdam", 1_790_805_600, 1_793_487_600), // 2026-10
        ("America/New_York", 1_793_505_600, 1_796_101_200), // 2026-11
        ("Africa/Cairo", 1_774_994_400, 1_777_582_800),     // 2026-04
        ("UTC", 1_832_976_000, 1_835_481_600),              // 2028-02
        ("Asia/Kathmandu", 1_796_062_500, 1_798_740_900),   // 2026-12
    ] {
        let policy = format!("quota 1/month in {zone}");
        for time in [start, (start + end) / 2, end - 1] {
            assert_eq!(window(&policy, time), (start, end), "{policy} at {time}");
        }
    }
}

/// Samoa skipped December 30, 2011: the day before ends when December 31 begins.
#[test]
fn a_skipped_day_has_no_window() {
    let policy = "quota 1/day in Pacific/Apia";
    let (start, end) = window(policy, 1_325_239_199); // the last second of December 29
    assert_eq!((end, end - start), (1_325_239_200, 86_400));
    assert_eq!(window(policy, end), (end, end + 86_400));
}

/// Returns the days between the starts of windows that follow each other, from the window that
/// contains `time`.
fn lengths(policy: &str, time: u64, count: usize) -> Vec<u64> {
    let mut time = window(policy, time).0;
    let mut next = || {
        let (start, end) = window(policy, time);
        time = end;
        assert_eq!((end - start) % 86_400, 0, "{policy}");
        (end - start) / 86_400
    };
    (0..count).map(|_| next()).collect()
}

#[test]
fn an_anniversary_is_computed_from_the_anchor() {
    let from = 1_769_850_000; // 2026-01-31T09:00Z
    let policy = "quota 1/month anchored 2026-01-31T09:00 in UTC";
    assert_eq!(window(policy, from).0, from);
    let months = [28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31, 31, 28];
    assert_eq!(lengths(policy, from, 13), months);
    // The same windows follow from an anchor in the past and from one in the future.
    for anchor in ["2020-01-31T09:00", "2031-12-31T09:00"] {
        let policy = format!("quota 1/month anchored {anchor} in UTC");
        assert_eq!(lengths(&policy, from, 13), months, "{policy}");
    }
    // 2028-02-29, 2029-02-28, 2030-02-28, 2031-02-28, 2032-02-29.
    let policy = "quota 1/year anchored 2028-02-29 in UTC";
    assert_eq!(lengths(policy, 1_835_395_200, 5), [365, 365, 365, 366, 365]);
}

/// Each customer has its own anchor. All other settings stay, and the states are the same.
#[test]
fn a_policy_takes_the_anchor_of_a_customer() {
    let plan: Policy =
        "plan: quota 9/month in UTC block 1m refund-lapsed max-open-holds 7".parse().unwrap();
    let anchored = plan.anchored_at(date(2026, 1, 31).at(9, 0, 0, 0)).unwrap();
    let text = "plan: quota 9/month anchored 2026-01-31T09:00 in UTC block 1m refund-lapsed \
                max-open-holds 7";
    assert_eq!(anchored.to_string(), text);
    assert!(Charge::new(&plan, "a").shares_state_with(&Charge::new(&anchored, "a")));
    assert_eq!(lengths(text, 1_769_850_000, 3), [28, 31, 30]);
    let subsecond = date(2026, 1, 31).at(9, 0, 0, 1);
    for (text, anchor, message) in [
        ("gcra 1/1s", date(2026, 1, 31).at(9, 0, 0, 0), "is not a quota"),
        ("quota 1/day in UTC", date(2026, 1, 31).at(9, 0, 0, 0), "per day has no anchor"),
        ("quota 1/month in UTC at 05:00", date(2026, 1, 31).at(9, 0, 0, 0), "exclude each other"),
        ("quota 1/month in UTC", subsecond, "it must begin at a whole second"),
    ] {
        let error = text.parse::<Policy>().unwrap().anchored_at(anchor).unwrap_err().to_string();
        assert!(error.contains(message), "{text}: {error}");
    }
}

#[test]
fn a_window_begins_at_its_time_of_day() {
    let day = "quota 1/day in UTC at 05:00";
    assert_eq!(window(day, 1_790_000_000), (1_789_966_800, 1_790_053_200));
    let month = "quota 1/month in UTC at 05:00:30";
    assert_eq!(window(month, 1_790_000_000), (1_788_238_830, 1_790_830_830));
    // September 21, 2026 is a Monday.
    for (first_day, start) in [("monday", 1_789_948_800), ("sunday", 1_789_862_400)] {
        let week = format!("quota 1/week from {first_day} in UTC");
        assert_eq!(window(&week, 1_790_000_000), (start, start + 7 * 86_400), "{week}");
    }
    let year = "quota 1/year in Europe/Amsterdam";
    assert_eq!(window(year, 1_790_000_000), (1_767_222_000, 1_798_758_000));
    assert_eq!(window(year, 0).0, 0); // a window never begins before 1970
}

fn error(text: &str) -> PolicyError {
    text.parse::<Policy>().expect_err(text)
}

#[test]
fn a_quota_that_is_not_complete_or_contradicts_itself_is_refused() {
    for (text, message) in [
        ("quota 9/day", "a quota needs a time zone, such as `in Europe/Amsterdam` or `in UTC`"),
        ("quota 9/day in +02:00", "`+02:00` is not a time zone of the IANA database"),
        ("quota 9/day in CET-1CEST", "`CET-1CEST` is not a time zone of the IANA database"),
        ("quota 9/day in Etc/Unknown", "`Etc/Unknown` is not a time zone"),
        ("quota 9/day in Europe/Amsterdm", "did you mean `Europe/Amsterdam`?"),
        ("quota 9/day in europe/amsterdam", "did you mean `Europe/Amsterdam`?"),
        ("quota 9/week in UTC", "a quota per week needs its first day"),
        ("quota 9/day from monday in UTC", "`from` is only for a quota per week, and not per day"),
        ("quota 9/week from mon in UTC", "`mon` is not a day of the week, such as `monday`"),
        ("quota 9/hour in UTC", "`hour` is not a unit of the calendar"),
        ("quota 9/1d in UTC", "`1d` is not a unit of the calendar"),
        ("quota 9 in UTC", "write a count, a slash and a day, week, month or year: `1000/month`"),
        ("quota 9/day in UTC at 5:00", "`5:00` is not a time of day, such as `05:00`"),
        ("quota 9/day in UTC at 24:00", "`24:00` is not a time of day, such as `05:00`"),
        ("quota 9/month anchored 2026-02-30 in UTC", "`2026-02-30` is not a date"),
        ("quota 9/month anchored 2026-01-31 in UTC at 05:00", "`at` and `anchored` exclude each"),
        ("quota 9/day anchored 2026-01-31 in UTC", "a quota per day has no anchor"),
        ("quota 9/week from monday anchored 2026-01-31 in UTC", "`from` and `anchored` exclude"),
        ("quota 9/day in UTC in UTC", "`in` is given twice"),
        ("fixed-window 9/1d in UTC", "`in` is not an option of fixed-window"),
    ] {
        let error = error(text);
        assert!(error.to_string().contains(message), "{text}: {error}");
        assert!(error.span().is_some(), "{text}");
    }
}

#[test]
fn a_quota_is_printed_as_it_is_read() {
    for text in [
        "quota 1000/day in Europe/Amsterdam",
        "plan: quota 1000/week from sunday in UTC at 05:00",
        "quota 1000/month anchored 2026-01-31T09:00 in America/Argentina/Ushuaia",
        "plan: quota 1000/year anchored 2026-01-31T09:00:01 in UTC block 1m shadow",
        "plan: quota 1000/month in UTC refund-lapsed leased",
    ] {
        let policy: Policy = text.parse().unwrap();
        assert_eq!(policy.to_string(), text);
        assert_eq!(policy.to_string().parse::<Policy>().unwrap(), policy);
    }
    let named: Policy = "plan: quota 9/month in UTC".parse().unwrap();
    let other: Policy = "plan: quota 5/month anchored 2026-01-31 in Asia/Tokyo".parse().unwrap();
    assert_eq!(named.state_name().to_string(), "plan:quota.month");
    assert!(named.shares_state_with(&other));
}

/// A quota has recovered when a window begins that is not pro-rated.
#[test]
fn a_subscription_that_begins_with_a_window_resets_at_its_start() {
    for (since, full_at) in [
        ("2026-05-01T00:00", 1_777_593_600), // in the window that begins then
        ("2026-05-01T00:01", 1_780_272_000), // on June 1, because the window in May is pro-rated
    ] {
        let policy: Policy = format!("quota 1000/month in UTC since {since}").parse().unwrap();
        // April 20, 2026.
        let now = Timestamp::from_micros(1_776_643_200_000_000);
        let store = MemoryStore::builder().clock(ManualClock::new(now)).build();
        let charges = [Charge::new(&policy, "s")];
        let peek = store.decide_now(&Call::new(Operation::Peek, &charges)).unwrap();
        let wanted = full_at - now.as_micros() / 1_000_000;
        assert_eq!(peek.verdicts()[0].reset_after().as_secs(), wanted, "{policy}");
    }
}
