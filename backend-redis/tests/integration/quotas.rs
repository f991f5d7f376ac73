//! Tests quotas whose windows the caller computes at another time than the time of the server.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of a test that fails panics, as the test does"
)]

use std::time::{Duration, SystemTime};

use tidegate_redis::protocol::{Keys, Reply, Request, probable_time};
use tidegate_redis::{Call, CallId, Charge, ManualClock, Operation, RedisStore, Store, Timestamp};
use tidegate_test_servers::Redis;
use tidegate_testkit::ModelStore;

use crate::common::policy;

const DAY: Duration = Duration::from_secs(86_400);

fn now() -> Timestamp {
    SystemTime::now().into()
}

fn days_from_now(days: i64) -> Timestamp {
    let micros = i64::try_from(DAY.as_micros()).unwrap() * days;
    Timestamp::from_micros(now().as_micros().saturating_add_signed(micros))
}

#[tokio::test]
async fn a_request_with_the_windows_of_another_time_changes_nothing() {
    let redis = Redis::start().await.unwrap();
    let client = redis::Client::open(redis.socket_url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let mut client = redis.client().await.unwrap();
    let keys = Keys::new("any");
    let (quota, window) = (policy("p: quota 9/day in Asia/Tokyo"), policy("q: fixed-window 9/1h"));
    let lapsing = policy("p: quota 9/day in Asia/Tokyo refund-lapsed");
    let (one, lapsing) = ([Charge::new(&quota, "s")], [Charge::new(&lapsing, "s")]);
    let two = [Charge::new(&window, "s"), one[0]];
    let id = CallId::new("id", DAY);
    let calls = [
        Call::acquire(&one),
        Call::acquire(&two),
        Call::acquire(&one).with_id(id),
        Call::acquire(&two).with_id(id),
        Call::new(Operation::Hold, &one).with_id(id),
        Call::new(Operation::Hold, &two).with_id(id),
        Call::new(Operation::Hold, &lapsing).with_id(id),
        Call::new(Operation::Settle, &one).with_id(id),
        Call::new(Operation::Settle, &lapsing).with_id(id),
        Call::new(Operation::Charge, &one),
        Call::new(Operation::Peek, &one),
        Call::new(Operation::Grant { ends_at: None }, &one).with_id(id),
    ];
    for days in [-400, -2, 2, 400] {
        let single = |call| Request::new(&keys, call, days_from_now(days)).unwrap();
        let usual = Request::usual_batch(&keys, &calls[..1], days_from_now(days)).unwrap();
        for request in calls.iter().map(single).chain([usual]) {
            let before = now();
            let reply: Vec<u8> = request.eval().query_async(&mut connection).await.unwrap();
            let replies = request.read(&reply).unwrap();
            assert!(
                matches!(replies[..], [Reply::OtherWindow(server)] if before <= server && server <= now()),
                "{days} days: {replies:?}"
            );
            assert_eq!(client.call(&["DBSIZE"]).await.unwrap().text(), "0");
        }
    }
    let request = Request::new(&keys, &calls[0], probable_time()).unwrap();
    let reply: Vec<u8> = request.eval().query_async(&mut connection).await.unwrap();
    assert!(matches!(request.read(&reply).unwrap()[..], [Reply::Decided(Ok(_))]));
}

#[tokio::test]
async fn a_key_lives_until_no_window_of_a_caller_is_its_window() {
    let redis = Redis::start().await.unwrap();
    let store = RedisStore::new(&redis.socket_url()).unwrap();
    let mut client = redis.client().await.unwrap();
    let quota = policy("p: quota 9/month in Europe/Amsterdam");
    let charge = [Charge::new(&quota, "s")];
    let decision = store.decide(Call::acquire(&charge)).await.unwrap();
    let verdict = decision.verdicts()[0];
    assert_eq!((verdict.limit(), verdict.remaining()), (9, 8));
    // A month has at most 31 days. October has an hour more.
    assert!(verdict.reset_after() <= 31 * DAY + DAY / 24, "{verdict:?}");
    let key = String::from_utf8(Keys::new("tidegate").key(&charge[0])).unwrap();
    let life: u64 = client.call(&["PTTL", &key]).await.unwrap().text().parse().unwrap();
    let expected = verdict.reset_after() + DAY + DAY / 12;
    let difference = expected.abs_diff(Duration::from_millis(life));
    assert!(difference < Duration::from_secs(60), "{life} {expected:?}");
}

/// A charge after the earliest end of a window also counts in the next window. So its state is kept
/// until the end of the next window, although the end of the first window does not change.
#[tokio::test]
async fn a_key_with_a_carried_cost_lives_until_the_end_of_the_next_window() {
    let redis = Redis::start().await.unwrap();
    let clock = ManualClock::default();
    let store = RedisStore::builder().url(redis.socket_url()).clock(clock.clone()).build().unwrap();
    let mut client = redis.client().await.unwrap();
    let (early, late) = (policy("p: quota 9/day in UTC"), policy("p: quota 9/day in UTC at 02:00"));
    let key = String::from_utf8(Keys::new("tidegate").key(&Charge::new(&late, "s"))).unwrap();
    let hour = DAY / 24;
    // 1,000 days after 1970, at these hours. The window ends at 24:00 for one caller, and at 26:00
    // for the other.
    for (policy, now, lives) in [
        (&early, 12, 24 + 26),
        (&late, 13, 26 + 26),
        (&late, 25, 26 + 26 + 50 + 26),
        (&late, 25, 26 + 26 + 50 + 26),
    ] {
        clock.set(Timestamp::from(SystemTime::UNIX_EPOCH + 1_000 * DAY + now * hour));
        let charge = [Charge::new(policy, "s")];
        assert!(store.decide(Call::acquire(&charge)).await.unwrap().is_allowed());
        let life: u64 = client.call(&["PTTL", &key]).await.unwrap().text().parse().unwrap();
        let difference = ((lives - now) * hour).abs_diff(Duration::from_millis(life));
        assert!(difference < Duration::from_secs(60), "at {now}: {life} ms, until {lives}");
    }
}

/// The first charge of a batch changes the kind of the value, and the next charge reads this value.
#[tokio::test]
async fn a_batch_of_a_caller_with_another_window_is_decided_as_in_the_core() {
    let redis = Redis::start().await.unwrap();
    let clock = ManualClock::default();
    let store = RedisStore::builder().url(redis.socket_url()).clock(clock.clone()).build().unwrap();
    let model = ModelStore::keeping_all(clock.clone());
    let (early, late) = (policy("p: quota 9/day in UTC"), policy("p: quota 9/day in UTC at 02:00"));
    for (policy, hour) in [(&early, 12), (&late, 13), (&early, 14), (&late, 25), (&late, 26)] {
        clock.set(Timestamp::from(SystemTime::UNIX_EPOCH + 1_000 * DAY + hour * DAY / 24));
        let charge = [Charge::new(policy, "s")];
        let calls = [Call::acquire(&charge); 3];
        let (answers, expected) =
            (store.decide_many(&calls).await, model.decide_many(&calls).await);
        for (answer, expected) in answers.iter().zip(&expected) {
            assert_eq!(answer.as_ref().unwrap(), expected.as_ref().unwrap(), "{policy} at {hour}");
        }
    }
}

/// A server evicts a key only if its policy for evictions permits it, and credits never expire. So
/// their key lives until the last time that a clock can show.
#[tokio::test]
async fn credits_and_grants_without_an_end_never_expire() {
    let redis = Redis::start().await.unwrap();
    let store = RedisStore::new(&redis.socket_url()).unwrap();
    let mut client = redis.client().await.unwrap();
    let (credits, quota) = (policy("c: credits 9"), policy("q: quota 9/day in UTC"));
    let ends_at = Some(days_from_now(40));
    for (policy, operation, days) in [
        (&credits, Operation::Acquire, None),
        (&quota, Operation::Grant { ends_at: None }, None),
        (&credits, Operation::Grant { ends_at }, None),
        (&quota, Operation::Grant { ends_at }, Some(40)),
    ] {
        client.call(&["FLUSHALL"]).await.unwrap();
        let charge = [Charge::new(policy, "s")];
        let call = Call::new(operation, &charge).with_id(CallId::new("id", DAY));
        assert!(store.decide(call).await.unwrap().is_allowed());
        let key = String::from_utf8(Keys::new("tidegate").key(&charge[0])).unwrap();
        let life: u64 = client.call(&["PTTL", &key]).await.unwrap().text().parse().unwrap();
        let never = (Timestamp::MAX.as_micros() - now().as_micros()) / 1_000;
        let expected = days.map_or(never, |days| days * 86_400_000);
        assert!(life.abs_diff(expected) < 60_000, "{policy} {operation:?}: {life} {expected}");
    }
}
