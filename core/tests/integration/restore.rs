//! Tests of records that are stored as numbers and restored before each call. Such a record must
//! decide like a record that stays in memory. Invalid numbers must be rejected.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeMap;
use std::sync::Mutex;

use proptest::prelude::*;
use tidegate_core::algorithm::{
    fair_pool, fixed_window, interval_bucket, quota, sliding_counter, sliding_log, token_bucket,
};
use tidegate_core::engine::{self, Record, Records, State};
use tidegate_core::{
    Answer, Call, Charges, Clock, Decision, Error, ErrorKind, MAX_EXACT, ManualClock, Policy,
    Store, Timestamp,
};
use tidegate_testkit::fixture;

type Key = (String, Vec<u8>, Vec<u8>);

/// A record in the form of a row of a database table.
#[derive(Debug)]
struct Row {
    policy: Policy,
    kind: &'static str,
    numbers: Vec<u64>,
    blocked_until: Option<u64>,
    offenses: Option<(u8, u64)>,
}

impl Row {
    fn new(record: &Record, reads_policies: bool) -> Self {
        let (kind, numbers) = match record.state() {
            None => ("none", vec![]),
            Some(State::FixedWindow(s)) => ("window", vec![s.ends, s.count]),
            Some(State::SlidingLog(log)) => {
                ("log", log.records().flat_map(<[_; 2]>::from).collect())
            }
            Some(State::SlidingCounter(s)) => ("counter", vec![s.ends, s.previous, s.current]),
            Some(State::TokenBucket(s)) => ("bucket", vec![s.time, s.debt]),
            Some(State::IntervalBucket(s)) => ("interval", vec![s.anchor, s.debt]),
            Some(State::Quota(s)) => {
                let mut numbers = vec![s.start, s.earliest_end, s.end, s.count, s.carry];
                numbers.extend(s.top_ups.iter().flat_map(|top_ups| top_ups.to_numbers()));
                ("quota", numbers)
            }
            Some(State::FairPool(pool)) => ("pool", pool.to_numbers()),
            Some(other) => unreachable!("{other:?}"),
        };
        // Each number must fit into a signed 64-bit column of a database.
        assert!(numbers.iter().all(|&number| number < 1 << 53), "{numbers:?}");
        let policy = match reads_policies {
            true => record.policy().to_string().parse().unwrap(),
            false => record.policy().clone(),
        };
        let (blocked_until, offenses) = (record.blocked_until_micros(), record.offenses());
        Self { policy, kind, numbers, blocked_until, offenses }
    }

    fn record(&self) -> Record {
        let state = match (self.kind, &self.numbers[..]) {
            ("none", []) => None,
            ("window", &[ends, count]) => {
                Some(State::FixedWindow(fixed_window::State::new(ends, count)))
            }
            ("log", pairs) => {
                let log: sliding_log::State =
                    pairs.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
                Some(State::SlidingLog(Box::new(log)))
            }
            ("counter", &[ends, previous, current]) => {
                Some(State::SlidingCounter(sliding_counter::State::new(ends, previous, current)))
            }
            ("bucket", &[time, debt]) => {
                Some(State::TokenBucket(token_bucket::State::new(time, debt)))
            }
            ("interval", &[anchor, debt]) => {
                Some(State::IntervalBucket(interval_bucket::State::new(anchor, debt)))
            }
            ("quota", &[start, earliest_end, end, count, carry, ref top_ups @ ..]) => {
                let state = quota::State::new(start, end, count).with_drift(earliest_end, carry);
                let state = match quota::TopUps::from_numbers(top_ups) {
                    Some(top_ups) => state.with_top_ups(top_ups),
                    None => state,
                };
                Some(State::Quota(Box::new(state)))
            }
            ("pool", numbers) => {
                Some(State::FairPool(Box::new(fair_pool::State::from_numbers(numbers).unwrap())))
            }
            other => unreachable!("{other:?}"),
        };
        let record = Record::restore(&self.policy, state, self.blocked_until).unwrap();
        match self.offenses {
            Some((level, at)) => record.restore_offenses(level, at).unwrap(),
            None => record,
        }
    }
}

/// A store that keeps rows, and restores records from these rows for each call.
#[derive(Debug)]
struct Rows {
    clock: ManualClock,
    rows: Mutex<BTreeMap<Key, Row>>,
    forgets: bool,
    /// Whether the policy of a row is stored as text and parsed again for each call.
    reads_policies: bool,
}

impl Rows {
    fn forgetting(clock: ManualClock) -> Self {
        Self { clock, rows: Mutex::default(), forgets: true, reads_policies: true }
    }

    fn keeping_all(clock: ManualClock) -> Self {
        Self { forgets: false, reads_policies: false, ..Self::forgetting(clock) }
    }

    fn snapshot(&self) -> Vec<u8> {
        format!("{:?}", *self.rows.lock().unwrap()).into_bytes()
    }
}

impl Store for Rows {
    fn decide<'a>(&'a self, call: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
        let (mut rows, now) = (self.rows.lock().unwrap(), self.clock.now());
        let restored = rows.iter().map(|(key, row)| (key.clone(), row.record()));
        let mut records = CallRecords { records: restored.collect(), charges: call.charges };
        if self.forgets && now < Timestamp::MAX {
            records.records.retain(|_, record| record.recovers_at().is_none_or(|at| at > now));
        }
        let answer = engine::decide(&call, now, &mut records);
        let row = |(key, record): (Key, Record)| {
            let row = Row::new(&record, self.reads_policies);
            assert_eq!(row.record(), record, "restored from {row:?}");
            assert_eq!(row.record().recovers_at(), record.recovers_at(), "restored from {row:?}");
            (key, row)
        };
        *rows = records.records.into_iter().map(row).collect();
        Answer::ready(answer)
    }

    fn now(&self) -> Answer<'_, Result<Timestamp, Error>> {
        Answer::ready(Ok(self.clock.now()))
    }
}

struct CallRecords<'c> {
    records: BTreeMap<Key, Record>,
    charges: Charges<'c>,
}

impl CallRecords<'_> {
    fn key(&self, index: usize) -> Key {
        let charge = self.charges.get(index).unwrap();
        let name = charge.policy.state_name().to_string();
        (name, charge.tenant.to_vec(), charge.state_subject().to_vec())
    }
}

impl Records for CallRecords<'_> {
    fn get(&mut self, index: usize) -> Option<&Record> {
        self.records.get(&self.key(index))
    }

    fn make_room(&mut self, _: &[usize]) -> Result<(), Error> {
        Ok(())
    }

    fn update(&mut self, index: usize, change: impl FnOnce(&mut Record)) {
        let (key, charge) = (self.key(index), self.charges.get(index).unwrap());
        change(self.records.entry(key).or_insert_with(|| Record::new(charge.policy)));
    }

    fn remove(&mut self, index: usize) {
        self.records.remove(&self.key(index));
    }
}

/// The conformance suite on restored records. Each call is made on records that were just restored.
/// After the call, each record must equal the record that is restored from its row.
mod suite {
    use super::*;

    tidegate_testkit::conformance!(
        stored_as_text_and_numbers,
        fixture: fixture(Rows::forgetting).with_snapshot(Rows::snapshot)
    );
    tidegate_testkit::conformance!(
        stored_forever,
        fixture: fixture(Rows::keeping_all).with_snapshot(Rows::snapshot)
    );
}

mod differential {
    use super::*;
    use tidegate_testkit::differential::DifferentialStore;

    struct Pair(Rows, ManualClock);

    impl DifferentialStore for Pair {
        type Store = Rows;

        fn store(&self) -> &Rows {
            &self.0
        }

        fn clock(&self) -> &ManualClock {
            &self.1
        }

        async fn empty(&mut self) {
            self.0.rows.lock().unwrap().clear();
        }
    }

    async fn open() -> (Vec<Pair>, ()) {
        let clock = ManualClock::default();
        (vec![Pair(Rows::keeping_all(clock.clone()), clock)], ())
    }

    tidegate_testkit::differential!(restored_between_calls, super::open);
}

const LAST: u64 = MAX_EXACT - 1;

fn window(ends: u64, count: u64) -> State {
    State::FixedWindow(fixed_window::State::new(ends, count))
}

fn counter(ends: u64, previous: u64, current: u64) -> State {
    State::SlidingCounter(sliding_counter::State::new(ends, previous, current))
}

fn bucket(time: u64, debt: u64) -> State {
    State::TokenBucket(token_bucket::State::new(time, debt))
}

fn interval(anchor: u64, debt: u64) -> State {
    State::IntervalBucket(interval_bucket::State::new(anchor, debt))
}

const DAY: u64 = 86_400_000_000;

/// Returns the state of a window that begins on 2 January 1970.
fn day(earliest_end: u64, end: u64, count: u64, carry: u64) -> State {
    let state = quota::State::new(DAY, end, count).with_drift(earliest_end, carry);
    State::Quota(Box::new(state))
}

fn log(records: &[(u64, u64)]) -> State {
    State::SlidingLog(Box::new(records.iter().copied().collect()))
}

fn restore(policy: &str, state: State) -> Result<Record, Error> {
    Record::restore(&policy.parse().unwrap(), Some(state), None)
}

#[test]
fn invalid_parts_of_a_record_are_errors_with_the_value_and_the_bound() {
    let beyond = LAST + 1;
    for (policy, state, value, bound) in [
        ("fixed-window 5/10us", bucket(1, 1), "a bucket with continuous refill", "a fixed window"),
        (
            "gcra 5/10us burst 5",
            interval(1, 1),
            "a bucket by intervals",
            "a bucket with continuous refill",
        ),
        ("sliding-log 5/10us", window(10, 1), "a fixed window", "a sliding log"),
        ("fixed-window 5/10us", window(10, 0), "its count is 0", "1 to 4503599627370496"),
        ("fixed-window 5/10us", window(10, beyond + 1), "4503599627370497", "4503599627370496"),
        ("fixed-window 5/10us", window(11, 1), "ends at 11", "multiple of 10 us"),
        ("fixed-window 5/10us", window(0, 1), "ends at 0", "multiple of 10 us"),
        (
            "fixed-window 5/10us anchored",
            window(LAST + 11, 1),
            "ends at 4503599627370506",
            "at most 4503599627370505",
        ),
        ("sliding-counter 5/10us", counter(12, 1, 1), "ends at 12", "multiple of 10 us"),
        ("sliding-counter 5/10us", counter(10, 0, 0), "its count is 0", "1 to 4503599627370496"),
        (
            "sliding-counter 5/10us",
            counter(10, u64::MAX, 1),
            "previous window is 18446744073709551615",
            "45",
        ),
        ("sliding-counter 5/10us", counter(10, 1, u64::MAX), "is 18446744073709551615", "4503"),
        (
            "gcra 5/10us burst 5",
            bucket(beyond, 1),
            "debt is 4503599627370496",
            "at most 4503599627370495",
        ),
        ("gcra 5/10us burst 5", bucket(1, 0), "debt in units is 0", "1 to 4503599627370496"),
        (
            "gcra 5/10us burst 5",
            bucket(1, beyond + 1),
            "is 4503599627370497",
            "1 to 4503599627370496",
        ),
        (
            "token-bucket 5/1s burst 5 by-interval",
            interval(beyond, 1),
            "began at 45035",
            "at most 45035",
        ),
        (
            "token-bucket 5/1s burst 5 by-interval",
            interval(1, u64::MAX),
            "in tokens is 1844",
            "1 to 45035",
        ),
        ("quota 5/day in UTC", window(10, 1), "a fixed window", "a quota"),
        ("quota 5/day in UTC", day(2 * DAY, 2 * DAY, 0, 0), "its count is 0", "1 to 4503"),
        ("quota 5/day in UTC", day(2 * DAY - 1, 2 * DAY, 1, 2), "window too is 2", "at most 1"),
        ("quota 5/day in UTC", day(2 * DAY, 2 * DAY, 1, 1), "window too is 1", "at most 0"),
        ("quota 5/day in UTC", day(3, 2 * DAY, 1, 0), "starts at 86400000000", "at most 3"),
        ("quota 5/day in UTC", day(DAY + 9, DAY + 8, 1, 0), "window is 86400000009", "86400000008"),
        ("quota 5/day in UTC", day(9 * DAY, 9 * DAY, 1, 0), "is 691200000000", "273600000000"),
        ("quota 5/day in UTC", day(beyond, beyond * 2, 1, 0), "ends at 900719", "at most 450387"),
        ("sliding-log 5/10us", log(&[]), "log is empty", "no state"),
        ("sliding-log 5/10us", log(&[(7, 1), (7, 1)]), "record 1 is 7", "must be after 7"),
        ("sliding-log 5/10us", log(&[(7, 1), (6, 1)]), "record 1 is 6", "must be after 7"),
        ("sliding-log 5/10us", log(&[(7, 1), (8, 0)]), "cost of record 1 is 0", "1 to 4503"),
        ("sliding-log 5/10us", log(&[(7, 1 << 52), (8, 1)]), "add up to 4503599627370497", "96"),
        ("sliding-log 5/10us", log(&[(1, 1 << 63), (2, 1 << 63)]), "record 0 is 9223", "1 to 45"),
        ("sliding-log 5/10us", log(&[(beyond, 1)]), "record 0 is 45035", "at most 45035"),
        ("sliding-log 5/10us grain 2us", log(&[(7, 1)]), "record 0 is 7", "multiple of 2 us"),
    ] {
        let error = restore(policy, state).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ForeignValue);
        let text = error.to_string();
        assert!(text.contains(policy), "{text}");
        assert!(text.contains(value) && text.contains(bound), "{value}, {bound}: {text}");
    }
    let records: Vec<_> = (0..=1 << 20).map(|time| (time, 1)).collect();
    let error = restore("sliding-log 5/10us", log(&records)).unwrap_err().to_string();
    assert!(error.contains("records is 1048577; it must be at most 1048576"), "{error}");
    let policy: Policy = "gcra 5/10us burst 5".parse().unwrap();
    let latest = LAST + (1 << 51);
    let error = Record::restore(&policy, None, Some(latest + 1)).unwrap_err().to_string();
    assert!(
        error.contains(&format!("until {}; it must be at most {latest}", latest + 1)),
        "{error}"
    );
}

#[test]
fn the_latest_times_and_the_largest_numbers_of_a_record_are_restored() {
    for (policy, state) in [
        ("fixed-window 5/10us anchored", window(LAST + 10, 1 << 52)),
        ("fixed-window 5/10us phased", window(3, 1)),
        ("sliding-counter 5/10us", counter(LAST / 10 * 10 + 10, 1 << 52, 1 << 52)),
        ("sliding-counter 5/10us", counter(10, 1, 0)),
        ("gcra 5/10us burst 5", bucket(LAST, 1 << 52)),
        ("gcra 5/10us burst 5", bucket(0, 1)),
        ("token-bucket 5/1s burst 5 by-interval", interval(LAST, 1 << 52)),
        ("sliding-log 5/10us", log(&[(0, 1), (LAST, (1 << 52) - 1)])),
        ("sliding-log 5/10us grain 2us", log(&[(2, 1), (LAST + 1, 4)])),
    ] {
        let record = restore(policy, state.clone()).unwrap();
        assert_eq!(record.state(), Some(&state));
    }
    let policy: Policy = "gcra 5/10us burst 5".parse().unwrap();
    let latest = LAST + (1 << 51);
    let record = Record::restore(&policy, None, Some(latest)).unwrap();
    assert_eq!(record.blocked_until_micros(), Some(latest));
    assert_eq!(record.recovers_at(), None);
    assert_eq!(Record::restore(&policy, None, None).unwrap(), Record::new(&policy));
    let forgotten_at = latest + (1 << 51);
    let record = record.restore_offenses(52, forgotten_at).unwrap();
    assert_eq!(record.offenses(), Some((52, forgotten_at)));
    assert_eq!(record.recovers_at_micros(), forgotten_at);
}

#[test]
fn offenses_that_no_subject_can_have_are_refused() {
    let policy: Policy = "gcra 5/10us burst 5 block 1s x2 up to 1d forget 7d".parse().unwrap();
    let record = |until| Record::restore(&policy, None, Some(until)).unwrap();
    assert!(record(7).restore_offenses(1, 7).is_ok());
    let latest = LAST + (1 << 52);
    for (level, forgotten_at, bound) in [
        (0, 7, "level must be from 1 to 52"),
        (53, 7, "level must be from 1 to 52"),
        (1, 6, "the time from 7 to"),
        (1, latest + 1, &*format!("to {latest}")),
    ] {
        let error = record(7).restore_offenses(level, forgotten_at).unwrap_err();
        let text = error.to_string();
        assert!(text.contains(&format!("level {level} is forgotten at {forgotten_at}")), "{text}");
        assert!(text.contains(bound), "{text}");
    }
}

/// Returns numbers near the bounds of the arithmetic.
fn number() -> impl Strategy<Value = u64> {
    let power = (0..64_u32, -2..=2_i64)
        .prop_map(|(bits, more)| (1_u64 << bits).saturating_add_signed(more));
    prop_oneof![3 => 0..30_u64, 3 => power, 1 => any::<u64>()]
}

fn any_state() -> impl Strategy<Value = State> {
    prop_oneof![
        (number(), number()).prop_map(|(ends, count)| window(ends, count)),
        (number(), number(), number()).prop_map(|(ends, a, b)| counter(ends, a, b)),
        (number(), number()).prop_map(|(time, debt)| bucket(time, debt)),
        (number(), number()).prop_map(|(anchor, debt)| interval(anchor, debt)),
        prop::collection::vec((number(), number()), 0..5).prop_map(|mut records| {
            records.sort_unstable();
            log(&records)
        }),
    ]
}

/// A store that contains at most one record.
struct OneRecord(Option<Record>);

impl Records for OneRecord {
    fn get(&mut self, _: usize) -> Option<&Record> {
        self.0.as_ref()
    }

    fn make_room(&mut self, _: &[usize]) -> Result<(), Error> {
        Ok(())
    }

    fn update(&mut self, _: usize, change: impl FnOnce(&mut Record)) {
        change(self.0.as_mut().unwrap());
    }

    fn remove(&mut self, _: usize) {
        self.0 = None;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    /// No decision on a restored record must overflow. The record is decided under its own policy
    /// and under another policy.
    #[test]
    fn a_decision_on_a_restored_record_never_panics(
        state in any_state(),
        blocked in prop::option::of(number()),
        offenses in (1..=52_u8, number()),
        now in number(),
        cost in number(),
        at in number(),
    ) {
        use tidegate_core::{Charge, Operation};
        for (own, other) in [
            ("fixed-window 5/10us", "fixed-window 9/10us block 1us x100 up to 2d forget 1w restart"),
            ("fixed-window 5/10us anchored", "fixed-window 4503599627370496/10us anchored"),
            ("sliding-log 5/10us", "sliding-log 1000000/10us"),
            ("sliding-log 5/10us grain 2us", "sliding-log 2/10us grain 2us"),
            ("sliding-counter 5/10us", "sliding-counter 450359962737049/10us"),
            ("token-bucket 5/10us burst 5", "gcra 1000003/7s burst 100"),
            ("token-bucket 5/10us by-interval", "token-bucket 1/10us burst 1 by-interval"),
        ] {
            let [own, other] = [own, other].map(|text| format!("p: {text}").parse::<Policy>().unwrap());
            let Ok(record) = Record::restore(&own, Some(state.clone()), blocked) else { continue };
            let (level, forgotten_at) = offenses;
            let record = record.clone().restore_offenses(level, forgotten_at).unwrap_or(record);
            let now = Timestamp::from_micros(now);
            for policy in [&own, &other] {
                for operation in [
                    Operation::Acquire,
                    Operation::Peek,
                    Operation::Refund,
                    Operation::Undo { at: Timestamp::from_micros(at) },
                    Operation::Reserve { max_wait: std::time::Duration::MAX },
                ] {
                    let charges = [Charge::new(policy, "s").cost(cost)];
                    let mut records = OneRecord(Some(record.clone()));
                    let _ = engine::decide(&Call::new(operation, &charges), now, &mut records);
                    if let Some(record) = &records.0 {
                        // The record after the call can also be stored and restored.
                        prop_assert_eq!(&Row::new(record, false).record(), record);
                    }
                }
            }
        }
    }
}
