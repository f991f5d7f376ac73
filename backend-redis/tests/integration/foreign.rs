//! Tests values under Tidegate's keys that Tidegate did not write. A value that no call can have
//! written is a foreign value. With any other value, the scripts decide like the core with the same
//! state.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of a test that fails panics, as the test does"
)]

use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, TestRunner};
use tidegate_redis::core::algorithm::fair_pool::MemberId;
use tidegate_redis::core::algorithm::{
    fixed_window, interval_bucket, quota, sliding_counter, token_bucket,
};
use tidegate_redis::core::engine::{self, Record, Records, Rule, State};
use tidegate_redis::{
    Call, CallId, Charge, Clock, Decision, Error, ErrorKind, ManualClock, Operation, Policy,
    RedisStore, Store, Timestamp,
};
use tidegate_test_servers::{Client, Reply};

use crate::common::{builder_with, client, fresh_prefix, key_with_prefix, policy};

const NOW: u64 = 1_790_000_000_000_000;
const HOUR: u64 = 3_600_000_000;
const LIMIT: usize = 10;

/// The maximum of a count, a debt and a sum. A time is always less than this number.
const MAX_EXACT: u64 = 1 << 52;
/// The maximum of any number in a value.
const MODULUS: u64 = 1 << 53;

/// The policies, each with the kind of its values.
const POLICIES: [(&str, u8); 12] = [
    ("p: fixed-window 10/1h", 0x91),
    ("p: fixed-window 10/1h phased", 0x92),
    ("p: fixed-window 10/1h anchored", 0x93),
    ("p: sliding-log 10/1h", 0x94),
    ("p: sliding-log 10/1h grain 1m", 0x94),
    ("p: sliding-log 200/1h", 0x94),
    ("p: sliding-counter 10/1h", 0x95),
    ("p: token-bucket 10/1h", 0x96),
    ("p: token-bucket 10/1h by-interval", 0x97),
    ("p: quota 10/day in UTC", 0x9d),
    ("q: quota 10/day in UTC", 0x9e),
    ("p: quota 10/day in UTC rollover 1/2", TOPPED_UP),
];
const LOG: u8 = 0x94;
const TOPPED_UP: u8 = 0x9f;
const POOL: u8 = 0x8e;
const BLOCK_FLAG: u8 = 0x20;
const OFFENSES_FLAG: u8 = 0x40;

fn value(kind: u8, numbers: &[u64]) -> Vec<u8> {
    let mut value = vec![kind];
    numbers.iter().for_each(|number| value.extend_from_slice(&number.to_le_bytes()[..7]));
    value
}

fn numbers(value: &[u8]) -> Vec<u64> {
    let number = |bytes: &[u8]| {
        let mut number = [0; 8];
        number[..7].copy_from_slice(bytes);
        u64::from_le_bytes(number)
    };
    value[1..].chunks_exact(7).map(number).collect()
}

/// Returns the core's record for a value, and whether the store must decide exactly like the core.
/// The value of a bucket also contains its unit and the time of its recovery. If they contradict
/// the policy or the debt, the decisions can differ. Returns `None` if no call can have written the
/// value.
fn record_from(policy: &Policy, value: &[u8]) -> Option<(Record, bool)> {
    // A script computes with doubles, so it reads the number 2^53 + 1 as 2^53.
    let as_double = |number| if number == MODULUS + 1 { MODULUS } else { number };
    let has_offenses = value[0] & OFFENSES_FLAG > 0;
    // The offenses are the last 8 bytes of the value: the level and a number.
    let (value, offenses) = value.split_at(value.len() - if has_offenses { 8 } else { 0 });
    let offenses =
        offenses.split_first().map(|(&level, at)| (level, numbers(&[&[0], at].concat())));
    let state: Vec<u64> = numbers(value).into_iter().map(as_double).collect();
    let mut blocked_until = None;
    let has_block = has_offenses || value[0] & BLOCK_FLAG > 0;
    let size = state.len() - usize::from(has_block);
    if has_block {
        blocked_until = Some(state[size]).filter(|&until| until > 0 || !has_offenses);
    }
    let (state, is_complete, is_whole) = match (policy.rule(), &state[..size]) {
        (Rule::FixedWindow(_), &[ends, count]) => {
            (State::FixedWindow(fixed_window::State::new(ends, count)), true, None)
        }
        (Rule::SlidingCounter(_), &[ends, previous, current]) => {
            let state = sliding_counter::State::new(ends, previous, current);
            (State::SlidingCounter(state), true, None)
        }
        (Rule::TokenBucket(rule), &[time, debt, unit, recovers_at, expires_at]) => {
            let is_complete = (1..=MAX_EXACT).contains(&unit)
                && (time < recovers_at && recovers_at <= expires_at && expires_at <= MODULUS);
            let is_whole = (unit == rule.unit()).then_some(recovers_at);
            (State::TokenBucket(token_bucket::State::new(time, debt)), is_complete, is_whole)
        }
        (Rule::IntervalBucket(_), &[anchor, debt, recovers_at, expires_at]) => {
            let is_complete =
                anchor < recovers_at && recovers_at <= expires_at && expires_at <= MODULUS;
            let state = interval_bucket::State::new(anchor, debt);
            (State::IntervalBucket(state), is_complete, Some(recovers_at))
        }
        (Rule::Quota(_), &[start, ends, count]) => {
            (State::Quota(Box::new(quota::State::new(start, ends, count))), true, None)
        }
        (Rule::Quota(_), &[start, earliest_end, ends, count, carry]) => {
            let state = quota::State::new(start, ends, count).with_drift(earliest_end, carry);
            (State::Quota(Box::new(state)), true, None)
        }
        (Rule::Quota(_), &[start, earliest_end, ends, count, carry, ref top_ups @ ..]) => {
            let (own, grants) = top_ups.split_at(3);
            let is_complete = grants[0] == grants[1..].len() as u64 / 2;
            let top_ups = quota::TopUps::from_numbers(&[own, &grants[1..]].concat())?;
            let state = quota::State::new(start, ends, count).with_drift(earliest_end, carry);
            (State::Quota(Box::new(state.with_top_ups(top_ups))), is_complete, None)
        }
        other => panic!("{other:?}"),
    };
    let is_bucket = matches!(state, State::TokenBucket(_) | State::IntervalBucket(_));
    let mut record = Record::restore(policy, Some(state), blocked_until).ok()?;
    if let Some((level, at)) = offenses {
        record = record.restore_offenses(level, as_double(at[0])).ok()?;
    }
    let own_end = Record::restore(policy, record.state().cloned(), None).ok()?.recovers_at_micros();
    let is_exact = !is_bucket || is_whole == Some(own_end.min(MODULUS));
    is_complete.then_some((record, is_exact))
}

/// Returns the numbers of a value with this number of grants.
fn grants(count: u64) -> Vec<u64> {
    let start = NOW - NOW % (24 * HOUR);
    let end = start + 24 * HOUR;
    let grants = (1..=count).flat_map(|number| [end + number, 1]);
    [start, end, end, 1, 0, 0, 0, 0, count].into_iter().chain(grants).collect()
}

struct OneRecord<'p>(&'p Policy, Option<Record>);

impl Records for OneRecord<'_> {
    fn get(&mut self, _: usize) -> Option<&Record> {
        self.1.as_ref()
    }

    fn make_room(&mut self, _: &[usize]) -> Result<(), Error> {
        Ok(())
    }

    fn update(&mut self, _: usize, change: impl FnOnce(&mut Record)) {
        change(self.1.get_or_insert_with(|| Record::new(self.0)));
    }

    fn remove(&mut self, _: usize) {
        self.1 = None;
    }
}

/// The kinds of script calls that read a state.
#[derive(Debug, Clone, Copy)]
enum Path {
    /// One call at a time.
    Single,
    /// The usual batch.
    Usual,
    /// Any other batch.
    General,
}

struct Scene {
    store: RedisStore,
    clock: ManualClock,
    client: Client,
    prefix: String,
}

impl Scene {
    async fn new() -> Self {
        let (clock, prefix) = (ManualClock::new(Timestamp::from_micros(NOW)), fresh_prefix());
        let store = builder_with(&prefix).await.clock(clock.clone()).build().unwrap();
        Self { store, clock, client: client().await, prefix }
    }

    async fn set(&mut self, policy: &Policy, value: &[u8]) {
        let key = key_with_prefix(&self.prefix, policy);
        self.client.call(&["DEL", &key]).await.unwrap();
        let command = if is_list(policy) { "RPUSH" } else { "SET" };
        self.client.call(&[command.as_bytes(), key.as_bytes(), value]).await.unwrap();
    }

    async fn get(&mut self, policy: &Policy) -> Option<Vec<u8>> {
        let key = key_with_prefix(&self.prefix, policy);
        let reply = match is_list(policy) {
            true => self.client.call(&["LINDEX", &key, "-1"]).await.unwrap(),
            false => self.client.call(&["GET", &key]).await.unwrap(),
        };
        match reply {
            Reply::Bytes(value) => Some(value),
            _ => None,
        }
    }

    /// Makes `LIMIT + 1` acquires with the kind of script calls that `path` selects.
    async fn acquire(&self, policy: &Policy, path: Path) -> Vec<Result<Decision, Error>> {
        let charges = [Charge::new(policy, "s")];
        let mut calls = vec![Call::acquire(&charges); LIMIT + 1];
        match path {
            Path::Single => {
                let mut answers = vec![];
                for call in calls {
                    answers.push(self.store.decide(call).await);
                }
                answers
            }
            Path::Usual => self.store.decide_many(&calls).await,
            Path::General => {
                calls.push(Call::new(Operation::Peek, &charges));
                let mut answers = self.store.decide_many(&calls).await;
                answers.pop();
                answers
            }
        }
    }
}

fn bytes(reply: &Reply) -> Vec<u8> {
    match reply {
        Reply::Bytes(bytes) => bytes.clone(),
        other => panic!("{other:?}"),
    }
}

fn is_list(policy: &Policy) -> bool {
    policy.rule().max_records() > 128
}

fn is_foreign(answer: &Result<Decision, Error>) -> bool {
    answer.as_ref().is_err_and(|error| error.kind() == ErrorKind::ForeignValue)
}

/// Tests each number of a value at its bounds and just beyond them.
#[tokio::test]
async fn b18_a_number_that_no_call_could_have_written_makes_a_value_foreign() {
    let window_end = NOW - NOW % HOUR + HOUR;
    let last_end = MAX_EXACT + HOUR - 1;
    let last_aligned_end = last_end - last_end % HOUR;
    let last_block = MAX_EXACT + (1 << 51) - 1;
    let aligned = policy("p: fixed-window 10/1h");
    let anchored = policy("p: fixed-window 10/1h anchored");
    let counter = policy("p: sliding-counter 10/1h");
    let bucket = policy("p: token-bucket 10/1h");
    let interval = policy("p: token-bucket 10/1h by-interval");
    let quota = policy("p: quota 10/day in UTC");
    let start = NOW - NOW % (24 * HOUR);
    let (end, longest) = (start + 24 * HOUR, 76 * HOUR);
    let last_quota_end = MAX_EXACT - 1 + longest;
    let Rule::TokenBucket(rule) = bucket.rule() else { panic!() };
    let unit = rule.unit();
    let cases: &[(&Policy, u8, &[u64], bool)] = &[
        (&aligned, 0x91, &[window_end, 1], true),
        (&aligned, 0x91, &[window_end, 0], false),
        (&aligned, 0x91, &[window_end, MAX_EXACT], true),
        (&aligned, 0x91, &[window_end, MAX_EXACT + 1], false),
        (&aligned, 0x91, &[window_end + 1, 1], false),
        (&aligned, 0x91, &[HOUR, 1], true),
        (&aligned, 0x91, &[0, 1], false),
        (&aligned, 0x91, &[last_aligned_end, 1], true),
        (&aligned, 0x91, &[last_aligned_end + HOUR, 1], false),
        (&aligned, 0xb1, &[window_end, 1, last_block], true),
        (&aligned, 0xb1, &[window_end, 1, last_block + 1], false),
        (&anchored, 0x93, &[0, 1], true),
        (&anchored, 0x93, &[last_end, 1], true),
        (&anchored, 0x93, &[last_end + 1, 1], false),
        (&counter, 0x95, &[window_end, 1, 0], true),
        (&counter, 0x95, &[window_end, 0, 1], true),
        (&counter, 0x95, &[window_end, 0, 0], false),
        (&counter, 0x95, &[window_end, MAX_EXACT, MAX_EXACT], true),
        (&counter, 0x95, &[window_end, MAX_EXACT + 1, 0], false),
        (&counter, 0x95, &[window_end, 0, MAX_EXACT + 1], false),
        (&counter, 0x95, &[window_end + 1, 0, 1], false),
        (&counter, 0x95, &[HOUR, 0, 1], true),
        (&counter, 0x95, &[0, 0, 1], false),
        (&counter, 0x95, &[last_aligned_end, 0, 1], true),
        (&counter, 0x95, &[last_aligned_end + HOUR, 0, 1], false),
        (&bucket, 0x96, &[NOW, 1, unit, NOW + 1, NOW + 1], true),
        (&bucket, 0x96, &[NOW, 0, unit, NOW + 1, NOW + 1], false),
        (&bucket, 0x96, &[NOW, MAX_EXACT, unit, MODULUS, MODULUS], true),
        (&bucket, 0x96, &[NOW, MAX_EXACT + 1, unit, MODULUS, MODULUS], false),
        (&bucket, 0x96, &[NOW, 1, 1, NOW + 1, NOW + 1], true),
        (&bucket, 0x96, &[NOW, 1, 0, NOW + 1, NOW + 1], false),
        (&bucket, 0x96, &[NOW, 1, MAX_EXACT, NOW + 1, NOW + 1], true),
        (&bucket, 0x96, &[NOW, 1, MAX_EXACT + 1, NOW + 1, NOW + 1], false),
        (&bucket, 0x96, &[NOW, 1, unit, NOW, NOW + 1], false),
        (&bucket, 0x96, &[NOW, 1, unit, NOW + 2, NOW + 1], false),
        (&bucket, 0x96, &[NOW, 1, unit, NOW + 1, MODULUS], true),
        (&bucket, 0x96, &[NOW, 1, unit, NOW + 1, MODULUS + 2], false),
        (&bucket, 0x96, &[MAX_EXACT - 1, 1, unit, MODULUS, MODULUS], true),
        (&bucket, 0x96, &[MAX_EXACT, 1, unit, MODULUS, MODULUS], false),
        (&interval, 0x97, &[NOW, 1, NOW + 1, NOW + 1], true),
        (&interval, 0x97, &[NOW, 0, NOW + 1, NOW + 1], false),
        (&interval, 0x97, &[NOW, MAX_EXACT, MODULUS, MODULUS], true),
        (&interval, 0x97, &[NOW, MAX_EXACT + 1, MODULUS, MODULUS], false),
        (&interval, 0x97, &[NOW, 1, NOW, NOW + 1], false),
        (&interval, 0x97, &[NOW, 1, NOW + 2, NOW + 1], false),
        (&interval, 0x97, &[NOW, 1, NOW + 1, MODULUS], true),
        (&interval, 0x97, &[NOW, 1, NOW + 1, MODULUS + 2], false),
        (&interval, 0x97, &[MAX_EXACT - 1, 1, MODULUS, MODULUS], true),
        (&interval, 0x97, &[MAX_EXACT, 1, MODULUS, MODULUS], false),
        (&quota, 0x9d, &[start, end, 1], true),
        (&quota, 0x9d, &[start, end, 0], false),
        (&quota, 0x9d, &[start, end, MAX_EXACT], true),
        (&quota, 0x9d, &[start, end, MAX_EXACT + 1], false),
        (&quota, 0x9d, &[end, end, 1], true),
        (&quota, 0x9d, &[end + 1, end, 1], false),
        (&quota, 0x9d, &[end - longest, end, 1], true),
        (&quota, 0x9d, &[end - longest - 1, end, 1], false),
        (&quota, 0x9d, &[last_quota_end - HOUR, last_quota_end, 1], true),
        (&quota, 0x9d, &[last_quota_end - HOUR, last_quota_end + 1, 1], false),
        (&quota, 0x9e, &[start, end, end, 1, 0], true),
        (&quota, 0x9e, &[start, end, end, 1, 1], false),
        (&quota, 0x9e, &[start, end - 1, end, 1, 1], true),
        (&quota, 0x9e, &[start, end - 1, end, 1, 2], false),
        (&quota, 0x9e, &[start, end + 1, end, 1, 0], false),
        (&quota, 0x9e, &[start, start, end, 1, 0], true),
        (&quota, 0x9e, &[start, start - 1, end, 1, 0], false),
        (&quota, 0x9f, &[start, end, end, 0, 0, 0, 0, 0, 0], true),
        (&quota, 0x9f, &[start, end, end, 0, 0, 0, 0, 0, 1], false),
        (&quota, 0x9f, &[end, end, end, 0, 0, 0, 0, 0, 0], true),
        (&quota, 0x9f, &[end + 1, end, end, 0, 0, 0, 0, 0, 0], false),
        (&quota, 0x9f, &[start, end, end, MAX_EXACT, 0, 0, 0, 0, 0], true),
        (&quota, 0x9f, &[start, end, end, MAX_EXACT + 1, 0, 0, 0, 0, 0], false),
        (&quota, 0x9f, &[start, end, end, 1, 0, MAX_EXACT, MAX_EXACT, last_block, 0], true),
        (&quota, 0x9f, &[start, end, end, 1, 0, MAX_EXACT + 1, 0, 0, 0], false),
        (&quota, 0x9f, &[start, end, end, 1, 0, 0, MAX_EXACT + 1, 0, 0], false),
        (&quota, 0x9f, &[start, end, end, 1, 0, 0, 0, last_block + 1, 0], false),
        (&quota, 0x9f, &[start, end, end, 1, 0, 0, 1, 0, 1, MAX_EXACT, MAX_EXACT - 1], true),
        (&quota, 0x9f, &[start, end, end, 1, 0, 0, 1, 0, 1, MAX_EXACT, MAX_EXACT], false),
        (&quota, 0x9f, &[start, end, end, 1, 0, 0, 0, 0, 1, MAX_EXACT + 1, 1], false),
        (&quota, 0x9f, &[start, end, end, 1, 0, 0, 0, 0, 1, 1, 0], false),
        (&quota, 0x9f, &[start, end, end, 1, 0, 0, 0, 0, 1, 0, 1], false),
        (&quota, 0x9f, &[start, end, end, 1, 0, 0, 0, 0, 2, 1, 1, 2, 1], true),
        (&quota, 0x9f, &[start, end, end, 1, 0, 0, 0, 0, 2, 2, 1, 2, 1], false),
        (&quota, 0x9f, &grants(16), true),
        (&quota, 0x9f, &grants(17), false),
    ];
    let mut scene = Scene::new().await;
    for (policy, kind, numbers, is_valid) in cases {
        let value = value(*kind, numbers);
        let what = format!("{policy}: {numbers:?}");
        assert_eq!(record_from(policy, &value).is_some(), *is_valid, "{what} in the core");
        for path in [Path::Single, Path::Usual, Path::General] {
            scene.set(policy, &value).await;
            let answers = scene.acquire(policy, path).await;
            if *is_valid {
                assert!(answers.iter().all(Result::is_ok), "{what} {path:?}: {answers:?}");
            } else {
                assert!(answers.iter().all(is_foreign), "{what} {path:?}: {answers:?}");
                assert_eq!(scene.get(policy).await, Some(value.clone()), "{what} {path:?}");
            }
        }
    }
}

/// Tests each number of a fair pool with one member at its bounds and just beyond them, and other
/// fields of the hash.
#[tokio::test]
async fn b18_a_hash_that_no_call_could_have_written_is_foreign() {
    let policy = policy("p: fair-pool 10/1h");
    let ends = NOW - NOW % HOUR + HOUR;
    let id = value(0, &MemberId::from_subject(b"s").numbers())[1..].to_vec();
    let fields = |ends, [total, reserved, rest, weights]: [u64; 4], member: [u64; 4]| {
        let [weight, demand, used, share] = member;
        let weight = u16::try_from(weight).unwrap().to_le_bytes();
        let numbers = [&weight, &value(0, &[demand, used, share])[1..]].concat();
        let head = value(POOL, &[ends, total, reserved, rest, weights]);
        vec![vec![], head, id.clone(), numbers]
    };
    let (head, member) = ([2, 3, 0, 0], [1, 4, 2, 5]);
    let (max_pool, max_weights) = (1 << 32, 1_000_000);
    let last = MAX_EXACT + HOUR - 1;
    let last = last - last % HOUR;
    let mut cases = vec![
        (fields(ends, head, member), true),
        (fields(last, head, member), true),
        (fields(last + HOUR, head, member), false),
        (fields(ends + 1, head, member), false),
        (fields(0, head, member), false),
        (fields(ends, [MAX_EXACT, 3, 0, 0], member), true),
        (fields(ends, [MAX_EXACT + 1, 3, 0, 0], member), false),
        (fields(ends, [1, 3, 0, 0], member), false),
        (fields(ends, [2, MAX_EXACT, 0, 0], member), true),
        (fields(ends, [2, MAX_EXACT + 1, 0, 0], member), false),
        (fields(ends, [2, 2, 0, 0], member), false),
        (fields(ends, [2, 3, max_pool, 1], member), true),
        (fields(ends, [2, 3, max_pool + 1, 1], member), false),
        (fields(ends, [2, 3, 1, max_weights], member), true),
        (fields(ends, [2, 3, 1, max_weights + 1], member), false),
        (fields(ends, head, [1, MAX_EXACT, 2, 5]), true),
        (fields(ends, head, [1, MAX_EXACT + 1, 2, 5]), false),
        (fields(ends, head, [1, 1, 2, 5]), false),
        (fields(ends, [2, max_pool, 0, 0], [1, 4, 2, max_pool]), true),
        (fields(ends, [2, max_pool + 1, 0, 0], [1, 4, 2, max_pool + 1]), false),
        // The weights are read at the end of a window.
        (fields(ends - HOUR, head, [1_000, 4, 2, 5]), true),
        (fields(ends - HOUR, head, [1_001, 4, 2, 5]), false),
        (fields(ends - HOUR, head, [0, 4, 2, 5]), false),
    ];
    let [empty, head, _, numbers] = <[_; 4]>::try_from(fields(ends, head, member)).unwrap();
    let longer = |bytes: &[u8]| [bytes, &[0]].concat();
    cases.push((vec![empty.clone(), head[..35].to_vec()], false));
    cases.push((vec![empty.clone(), longer(&head)], false));
    cases.push((vec![empty.clone(), head.clone(), id.clone(), numbers[..22].to_vec()], false));
    cases.push((vec![empty.clone(), head.clone(), id.clone(), longer(&numbers)], false));
    cases.push((vec![id.clone(), numbers.clone()], false));
    cases.push((vec![empty.clone(), [&[0x8f], &head[1..]].concat()], false));
    // Only the first call in a window reads the other members.
    let earlier = value(POOL, &[ends - HOUR, 2, 3, 0, 0]);
    cases.push((vec![empty.clone(), earlier.clone(), longer(&id), numbers.clone()], false));
    cases.push((vec![empty.clone(), earlier, vec![7; 14], longer(&numbers)], false));
    let mut scene = Scene::new().await;
    let key = key_with_prefix(&scene.prefix, &policy);
    for (fields, is_valid) in cases {
        for path in [Path::Single, Path::Usual, Path::General] {
            let set = [&[b"HSET".to_vec(), key.clone().into()], &fields[..]].concat();
            scene.client.call(&["DEL", &key]).await.unwrap();
            scene.client.call(&set).await.unwrap();
            let answers = scene.acquire(&policy, path).await;
            if is_valid {
                assert!(answers.iter().all(Result::is_ok), "{fields:?} {path:?}: {answers:?}");
            } else {
                assert!(answers.iter().all(is_foreign), "{fields:?} {path:?}: {answers:?}");
                let stored = scene.client.call(&["HGETALL", &key]).await.unwrap();
                let stored: Vec<_> = stored.list().iter().map(bytes).collect();
                assert_eq!(stored, fields, "{path:?}");
            }
        }
    }
}

/// The numbers of a log: its records and its foot.
#[derive(Clone)]
struct Log {
    records: Vec<(u64, u64)>,
    total_before: u64,
    oldest_place: u16,
    oldest: (u64, u64),
    sealed: u32,
    count: u16,
    expires_at: u64,
}

impl Log {
    /// Returns a log whose records all count toward the limit.
    fn new(records: &[(u64, u64)]) -> Self {
        Self {
            records: records.to_vec(),
            total_before: 0,
            oldest_place: 0,
            oldest: records[0],
            sealed: 0,
            count: u16::try_from(records.len()).unwrap(),
            expires_at: records.last().unwrap().0 + HOUR,
        }
    }

    fn with(&self, change: impl FnOnce(&mut Self)) -> Self {
        let mut log = self.clone();
        change(&mut log);
        log
    }

    fn value(&self) -> Vec<u8> {
        let mut numbers = vec![0];
        self.records.iter().for_each(|(stamp, total)| numbers.extend([*stamp, *total]));
        numbers.push(self.total_before);
        let mut value = value(LOG, &numbers);
        value.extend_from_slice(&self.oldest_place.to_le_bytes());
        value.extend_from_slice(&self::value(0, &[self.oldest.0, self.oldest.1])[1..]);
        value.extend_from_slice(&self.sealed.to_le_bytes());
        value.extend_from_slice(&self.count.to_le_bytes());
        value.extend_from_slice(&self::value(0, &[self.expires_at])[1..]);
        value.push(LOG);
        value
    }
}

/// Tests each number of a log's foot at its bounds and just beyond them.
#[tokio::test]
async fn b18_a_foot_that_no_call_could_have_written_makes_a_log_foreign() {
    const GRAIN: u64 = 60_000_000;
    let string = policy("p: sliding-log 10/1h");
    let grained = policy("p: sliding-log 10/1h grain 1m");
    let list = policy("p: sliding-log 200/1h");
    let one = Log::new(&[(NOW, 1)]);
    let two = Log::new(&[(NOW - 1, 1), (NOW, 2)]);
    let at = |stamp| Log::new(&[(stamp, 1)]);
    let grain_end = NOW - NOW % GRAIN + GRAIN;
    let last_grain_end = MAX_EXACT - MAX_EXACT % GRAIN + GRAIN;
    let with_total = |total| Log::new(&[(NOW, total)]);
    let records = |count: u64| {
        let records: Vec<_> = (1..=count).map(|number| (NOW + number - count, number)).collect();
        Log::new(&records)
    };
    let cases = [
        (&string, one.clone(), true),
        (&string, one.with(|log| log.expires_at -= 1), false),
        (&string, one.with(|log| log.expires_at = MODULUS), true),
        (&string, one.with(|log| log.expires_at = MODULUS + 2), false),
        (&string, one.with(|log| log.oldest_place = 1), false),
        (&string, one.with(|log| log.sealed = 1), false),
        (&string, one.with(|log| log.oldest.0 += 1), false),
        (&string, one.with(|log| log.oldest.0 -= 1), false),
        (&string, two.clone(), true),
        (&string, two.with(|log| log.oldest.1 = 2), false),
        (&string, two.with(|log| log.oldest.1 = 0), false),
        (&string, two.with(|log| log.oldest.1 = 3), false),
        (&string, two.with(|log| log.oldest.0 += 1), false),
        (&string, two.with(|log| log.oldest_place = 2), false),
        (&string, with_total(MAX_EXACT), true),
        (&string, with_total(MAX_EXACT + 1), false),
        (&string, one.with(|log| log.total_before = MODULUS), true),
        (&string, one.with(|log| log.total_before = MODULUS + 2), false),
        (&string, two.with(|log| log.total_before = MODULUS - 1), true),
        (&string, with_total(MODULUS + 2), false),
        (&string, at(MAX_EXACT - 1), true),
        (&string, at(MAX_EXACT), false),
        (&string, at(0), true),
        (&grained, at(grain_end), true),
        (&grained, at(grain_end + 1), false),
        (&grained, at(GRAIN), true),
        (&grained, at(0), false),
        (&grained, at(last_grain_end), true),
        (&grained, at(last_grain_end + GRAIN), false),
        (&list, records(14), true),
        (&list, records(15), false),
        (&list, records(14).with(|log| log.count = 13), false),
        (&list, records(14).with(|log| log.oldest_place = 14), false),
        (&list, one.with(|log| log.sealed = 1), false),
    ];
    let mut scene = Scene::new().await;
    for (number, (policy, log, is_valid)) in cases.iter().enumerate() {
        let value = log.value();
        for path in [Path::Single, Path::Usual, Path::General] {
            scene.set(policy, &value).await;
            let answers = scene.acquire(policy, path).await;
            let what = format!("case {number} of {policy}, {path:?}: {answers:?}");
            if *is_valid {
                assert!(answers.iter().all(Result::is_ok), "{what}");
            } else {
                assert!(answers.iter().all(is_foreign), "{what}");
                assert_eq!(scene.get(policy).await.as_ref(), Some(&value), "{what}");
            }
        }
    }
}

/// A settlement on a foreign value changes neither the value nor the hold.
#[tokio::test]
async fn b18_a_settlement_does_not_change_a_foreign_value() {
    let mut scene = Scene::new().await;
    for (text, kind) in POLICIES {
        let policy = policy(text);
        let charges = [Charge::new(&policy, "s").cost(4)];
        let id = |operation| {
            Call::new(operation, &charges).with_id(CallId::new(text, Duration::from_secs(60)))
        };
        assert!(scene.store.decide(id(Operation::Hold)).await.unwrap().is_allowed());
        let valid = scene.get(&policy).await.unwrap();
        let mut forged = valid.clone();
        // The offset of the number that the test replaces: the count, the debt, or the total of a
        // log.
        let at = if kind == LOG { valid.len() - 44 } else { 8 };
        forged[at..at + 7].fill(0xff);
        scene.set(&policy, &forged).await;
        let used = [charges[0].cost(1)];
        let settle =
            Call::new(Operation::Settle, &used).with_id(CallId::new(text, Duration::from_secs(60)));
        let answer = scene.store.decide(settle).await;
        assert!(is_foreign(&answer), "{text}: {answer:?}");
        assert_eq!(scene.get(&policy).await, Some(forged), "{text}");
        scene.set(&policy, &valid).await;
        assert_eq!(scene.store.decide(settle).await.unwrap().amounts(), [3], "{text}");
    }
}

/// Guards against a defect. The foot of a log, the fixed-size end of its value, contains the number
/// of records. If the value had more records, the script wrote the next record before the foot. The
/// next call read the old foot again, so the log admitted without a limit.
#[tokio::test]
async fn b18_a_log_with_more_records_than_its_foot_says_admits_nothing() {
    let mut scene = Scene::new().await;
    let policy = policy("p: sliding-log 10/1h");
    let charges = [Charge::new(&policy, "s")];
    for _ in 0..4 {
        scene.clock.advance(Duration::from_secs(1));
        assert!(scene.store.decide(Call::acquire(&charges)).await.unwrap().is_allowed());
    }
    let mut forged = scene.get(&policy).await.unwrap();
    let count = forged.len() - 10;
    forged[count] = 2;
    for path in [Path::Single, Path::Usual, Path::General] {
        scene.set(&policy, &forged).await;
        for _ in 0..3 {
            scene.clock.advance(Duration::from_secs(1));
            let answers = scene.acquire(&policy, path).await;
            assert!(answers.iter().all(is_foreign), "{path:?}: {answers:?}");
        }
        // The script for a single charge notices the wrong size only when its own write returns the
        // size of the value. So it has possibly changed the value.
        if !matches!(path, Path::Single) {
            assert_eq!(scene.get(&policy).await.as_ref(), Some(&forged), "{path:?}");
        }
    }
    // A call that was not executed leaves no record of its id.
    scene.set(&policy, &forged).await;
    for operation in [Operation::Acquire, Operation::Hold] {
        let id = CallId::new("once", Duration::from_secs(60));
        for _ in 0..2 {
            let answer = scene.store.decide(Call::new(operation, &charges).with_id(id)).await;
            assert!(is_foreign(&answer), "{operation:?}: {answer:?}");
        }
    }
}

/// The value under a key before the first call.
#[derive(Debug, Clone)]
enum Forgery {
    /// The numbers of a value with the right kind and size, and possibly a block and offenses.
    Numbers { numbers: Vec<u64>, block: Option<u64>, offenses: Option<(u8, u64)> },
    /// A value that `calls` calls have written, with some of its bytes replaced.
    Changed { calls: usize, changes: Vec<(Index, Vec<u8>)> },
    /// Random bytes after the right first byte. A log also has the right last byte.
    Bytes(Vec<u8>),
}

/// Returns the maximum number of calls that a value admits at one instant. This is the limit of the
/// policy. A value of the kind `TOPPED_UP` can have a rest of earlier periods in addition, so the
/// core decides about it.
fn max_admitted(policy: &Policy, forged: &[u8], now: Timestamp) -> u64 {
    let (kind, flags) = (forged[0] & 0x9f, forged[0] & !0x9f);
    let tail = match flags {
        0 => 0,
        BLOCK_FLAG => 7,
        _ => 15,
    };
    let is_topped_up = kind == TOPPED_UP && forged.len() >= 64 + tail;
    if !is_topped_up || !matches!(policy.rule(), Rule::Quota(_)) {
        return policy.limit();
    }
    let Some((record, _)) = record_from(policy, forged) else { return policy.limit() };
    let charges = [Charge::new(policy, "s")];
    let peek = Call::new(Operation::Peek, &charges);
    let decision = engine::decide(&peek, now, &mut OneRecord(policy, Some(record))).unwrap();
    decision.verdicts()[0].remaining()
}

fn number() -> impl Strategy<Value = u64> {
    const EDGES: &[u64] =
        &[0, NOW, NOW - NOW % HOUR + HOUR, MAX_EXACT, MODULUS, 1 << 55, (1 << 56) - 1];
    let near = (prop::sample::select(EDGES), -2..=2_i64)
        .prop_map(|(edge, offset)| edge.saturating_add_signed(offset) & ((1 << 56) - 1));
    let later = (0..4 * HOUR).prop_map(|span| NOW - HOUR + span);
    prop_oneof![4 => near, 2 => later, 3 => 0..12_u64, 1 => 0..1_u64 << 56]
}

fn forgery() -> impl Strategy<Value = Forgery> {
    let bytes = |max| {
        let byte = prop_oneof![Just(0), Just(1), Just(0x7f), Just(0xff), any::<u8>()];
        prop::collection::vec(byte, 1..max)
    };
    let block = prop::option::weighted(0.2, number());
    let level = prop_oneof![8 => 1..=52_u8, 1 => Just(0), 1 => Just(53)];
    let offenses = prop::option::weighted(0.2, (level, number()));
    prop_oneof![
        3 => (prop::collection::vec(number(), 8), block, offenses).prop_map(
            |(numbers, block, offenses)| Forgery::Numbers { numbers, block, offenses }
        ),
        4 => (1..12_usize, prop::collection::vec((any::<Index>(), bytes(9)), 1..4))
            .prop_map(|(calls, changes)| Forgery::Changed { calls, changes }),
        1 => bytes(300).prop_map(Forgery::Bytes),
    ]
}

impl Scene {
    /// Writes a forged value, and returns it.
    async fn forge(&mut self, policy: &Policy, kind: u8, forgery: &Forgery) -> Vec<u8> {
        let forged = match forgery {
            Forgery::Numbers { numbers, block, offenses } => {
                let count = match kind {
                    0x91..=0x93 => 2,
                    0x95 | 0x9d => 3,
                    0x97 => 4,
                    TOPPED_UP => 8,
                    _ => 5,
                };
                let mut all = numbers[..count].to_vec();
                if kind == TOPPED_UP {
                    all.push(0); // the number of grants
                }
                let Some((level, at)) = offenses else {
                    all.extend(block);
                    let forged = value(kind | if block.is_some() { BLOCK_FLAG } else { 0 }, &all);
                    self.set(policy, &forged).await;
                    return forged;
                };
                all.push(block.unwrap_or(0));
                [value(kind | OFFENSES_FLAG, &all), value(*level, &[*at])].concat()
            }
            Forgery::Changed { calls, changes } => {
                let key = key_with_prefix(&self.prefix, policy);
                self.client.call(&["DEL", &key]).await.unwrap();
                let charges = [Charge::new(policy, "s")];
                for _ in 0..*calls {
                    self.clock.advance(Duration::from_micros(9));
                    let _ = self.store.decide(Call::acquire(&charges)).await.unwrap();
                }
                let mut value = self.get(policy).await.unwrap();
                for (index, bytes) in changes {
                    let start = index.index(value.len());
                    let end = value.len().min(start + bytes.len());
                    value.splice(start..end, bytes.iter().copied().take(end - start));
                }
                value
            }
            Forgery::Bytes(bytes) => {
                let mut value = vec![kind];
                value.extend_from_slice(bytes);
                if kind == LOG {
                    value.push(LOG);
                }
                value
            }
        };
        self.set(policy, &forged).await;
        forged
    }

    async fn try_forgery(
        &mut self,
        text: &str,
        kind: u8,
        forgery: &Forgery,
        later: u64,
    ) -> Result<(), String> {
        let policy = policy(text);
        let charges = [Charge::new(&policy, "s")];
        for path in [Path::Single, Path::Usual, Path::General] {
            self.clock.set(Timestamp::from_micros(NOW));
            let forged = self.forge(&policy, kind, forgery).await;
            let now = self.clock.now();
            for now in [now, now.saturating_add(Duration::from_micros(later))] {
                self.clock.set(now);
                let answers = self.acquire(&policy, path).await;
                let what = || format!("{text}, {path:?}, {forged:?} at {now}: {answers:#?}");
                // All calls are made at one instant, so they must not be admitted beyond the limit,
                // even if the value is forged.
                let allowed = |answer: &&Result<Decision, Error>| {
                    answer.as_ref().is_ok_and(Decision::is_allowed)
                };
                let max = max_admitted(&policy, &forged, now);
                if answers.iter().filter(allowed).count() as u64 > max {
                    return Err(what());
                }
                if !answers.iter().all(|answer| answer.is_ok() || is_foreign(answer)) {
                    return Err(what());
                }
                // For a log, it is possible that only some of the answers are errors, because the
                // scripts read only the parts of a log that they need.
                if kind != LOG && answers.iter().any(is_foreign) {
                    let is_unchanged = self.get(&policy).await.as_ref() == Some(&forged);
                    if !is_unchanged || !answers.iter().all(is_foreign) {
                        return Err(what());
                    }
                }
            }
            if kind != LOG && !matches!(forgery, Forgery::Bytes(_)) {
                self.compare(&policy, kind, &forged, path).await?;
            }
        }
        // Each operation either succeeds or fails because of the foreign value.
        for operation in [
            Operation::Peek,
            Operation::Refund,
            Operation::Undo { at: Timestamp::from_micros(NOW) },
            Operation::Reserve { max_wait: Duration::from_secs(9_000) },
            Operation::Charge,
            Operation::AcquireUpTo { min: 1 },
            Operation::Block { span: Duration::from_secs(1) },
            Operation::Reset,
        ] {
            let can_reserve = policy.rule().can_reserve();
            if matches!(operation, Operation::Reserve { .. }) && !can_reserve {
                continue;
            }
            self.clock.set(Timestamp::from_micros(NOW));
            let forged = self.forge(&policy, kind, forgery).await;
            let answer = self.store.decide(Call::new(operation, &charges)).await;
            if answer.is_err() && !is_foreign(&answer) {
                return Err(format!("{text}, {operation:?}, {forged:?}: {answer:?}"));
            }
        }
        Ok(())
    }

    /// Compares the store's decisions on a value with the core's decisions on the same record.
    async fn compare(
        &mut self,
        policy: &Policy,
        kind: u8,
        forged: &[u8],
        path: Path,
    ) -> Result<(), String> {
        // If the first byte was replaced, the value has another kind, or its last 7 bytes are read
        // as the end of a block. The function compares only values of the right kind and size.
        let tail = match forged[0] ^ kind {
            0 => 0,
            BLOCK_FLAG => 7,
            OFFENSES_FLAG => 15,
            _ => return Ok(()),
        };
        let size = match kind {
            0x91..=0x93 => 15,
            0x95 | 0x9d => 22,
            0x96 | 0x9e => 36,
            TOPPED_UP => 64,
            _ => 29,
        };
        if forged.len() != size + tail {
            return Ok(());
        }
        self.set(policy, forged).await;
        let now = self.clock.now();
        let answers = self.acquire(policy, path).await;
        let Some((record, is_exact)) = record_from(policy, forged) else {
            return match answers.iter().all(is_foreign) {
                true => Ok(()),
                false => Err(format!("{policy}, {path:?}, {forged:?} is foreign: {answers:#?}")),
            };
        };
        let mut core = OneRecord(policy, Some(record));
        let charges = [Charge::new(policy, "s")];
        for answer in &answers {
            let expected = engine::decide(&Call::acquire(&charges), now, &mut core).unwrap();
            match answer {
                Ok(answer) if !is_exact || *answer == expected => {}
                _ => {
                    return Err(format!(
                        "{policy}, {path:?}, {forged:?}: {answers:#?} {expected:?}"
                    ));
                }
            }
        }
        Ok(())
    }
}

#[test]
fn b18_a_value_that_tidegate_did_not_write_never_admits_more_than_the_limit() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut scene = runtime.block_on(Scene::new());
    let config = Config { source_file: Some(file!()), ..Config::with_cases(150) };
    let inputs = (prop::sample::select(&POLICIES), forgery(), 0..3 * HOUR);
    let scene = std::cell::RefCell::new(&mut scene);
    let result = TestRunner::new(config).run(&inputs, |((text, kind), forgery, later)| {
        let result = runtime.block_on(scene.borrow_mut().try_forgery(text, kind, &forgery, later));
        result.map_err(TestCaseError::fail)
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}
