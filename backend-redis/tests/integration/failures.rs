//! Tests faults of Redis that happen in production, on real servers. Each test has its own server.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of a test that fails panics, as the test does"
)]

use std::time::{Duration, Instant};

use tidegate_redis::{
    Call, Charge, Decision, Error, ErrorKind, Operation, Policy, RedisStore, Store,
};
use tidegate_test_servers::{Data, End, Mode, Proxy, Redis, Reply, eventually};

use crate::common::{impatient_store as store, policy, used};

async fn acquire(store: &RedisStore, policy: &Policy) -> Result<Decision, Error> {
    store.decide(Call::acquire(&[Charge::new(policy, "s")])).await
}

fn wide() -> Policy {
    policy("wide: fixed-window 1000000/1d anchored")
}

#[tokio::test]
async fn b22_flushed_scripts_cause_no_error_and_no_wrong_count() {
    let redis = Redis::start().await.unwrap();
    let store = store(&redis.url());
    let policies = [wide(), policy("log: sliding-log 1000/1d"), policy("b: gcra 1000/1d")];
    for round in 1..=20 {
        redis.command(&["SCRIPT", "FLUSH"]).await.unwrap();
        for policy in &policies {
            assert!(acquire(&store, policy).await.unwrap().is_allowed());
        }
        let charges: Vec<_> = policies.iter().map(|policy| Charge::new(policy, "t")).collect();
        let all = store.decide(Call::acquire(&charges)).await.unwrap();
        assert_eq!(all.verdicts()[0].remaining(), 1_000_000 - round);
    }
    assert_eq!(used(&store, &policies[1]).await, 20);
}

#[tokio::test]
async fn a_killed_connection_is_replaced() {
    let redis = Redis::start().await.unwrap();
    let store = store(&redis.url());
    let wide = wide();
    let (mut min, mut max) = (0, 0);
    for round in 0..200 {
        if round % 20 == 10 {
            redis.command(&["CLIENT", "KILL", "TYPE", "normal"]).await.unwrap();
        }
        match acquire(&store, &wide).await {
            Ok(decision) => {
                assert!(decision.is_allowed());
                (min, max) = (min + 1, max + 1);
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
                max += 1;
            }
        }
    }
    assert!(max - min <= 10, "at most one call fails per connection");
    let used = used(&store, &wide).await;
    assert!((min..=max).contains(&used), "{used} is not within {min} to {max}");
}

#[tokio::test]
async fn a_restarted_server_is_found_again_and_keeps_what_it_saved() {
    let redis = Redis::start().await.unwrap();
    let store = store(&redis.url());
    let wide = wide();
    assert!(acquire(&store, &wide).await.unwrap().is_allowed());
    for (data, before) in [(Data::Kept, 1), (Data::Lost, 0)] {
        redis.restart(data).await.unwrap();
        let is_back = async || acquire(&store, &wide).await.ok();
        let decision = eventually(Duration::from_secs(5), "the store", is_back).await.unwrap();
        assert_eq!(decision.verdicts()[0].remaining(), 1_000_000 - before - 1);
    }
}

#[tokio::test]
async fn b48_a_server_that_is_down_delays_no_building_and_fails_calls_soon() {
    let redis = Redis::start().await.unwrap();
    redis.kill().await.unwrap();
    let store = store(&redis.url());
    let start = Instant::now();
    for _ in 0..50 {
        let error = acquire(&store, &wide()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    }
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    redis.restart(Data::Lost).await.unwrap();
    let is_back = async || acquire(&store, &wide()).await.ok();
    let _ = eventually(Duration::from_secs(5), "the store", is_back).await.unwrap();
}

#[tokio::test]
async fn b42_a_paused_server_times_out_and_may_charge_later_but_once() {
    let redis = Redis::start().await.unwrap();
    let store = store(&redis.url());
    let wide = wide();
    assert!(acquire(&store, &wide).await.unwrap().is_allowed());
    redis.pause().await.unwrap();
    let start = Instant::now();
    let error = acquire(&store, &wide).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    assert!(start.elapsed() < Duration::from_secs(1));
    redis.resume().await.unwrap();
    let is_back = async || acquire(&store, &wide).await.ok();
    let _ = eventually(Duration::from_secs(5), "the store", is_back).await.unwrap();
    let used = used(&store, &wide).await;
    assert!((2..=3).contains(&used), "{used}");
}

#[tokio::test]
async fn b42_a_call_whose_answer_is_lost_is_not_sent_again() {
    let redis = Redis::start().await.unwrap();
    let wide = wide();
    let direct = store(&redis.url());
    for mode in [
        Mode::LoseAnswer(End::Close),
        Mode::LoseAnswer(End::Reset),
        Mode::HalveAnswer(End::Reset),
        Mode::SwallowAnswers,
    ] {
        let proxy = Proxy::start(redis.port()).await.unwrap();
        let store = store(&proxy.url());
        assert!(acquire(&store, &wide).await.unwrap().is_allowed());
        let before = used(&direct, &wide).await;
        proxy.set(mode).await.unwrap();
        let error = acquire(&store, &wide).await.unwrap_err();
        assert!(!error.kind().is_definitely_not_charged(), "{mode:?}: {error}");
        proxy.set(Mode::Pass).await.unwrap();
        assert_eq!(used(&direct, &wide).await, before + 1, "{mode:?}");
        let is_back = async || acquire(&store, &wide).await.ok();
        let _ = eventually(Duration::from_secs(5), "the store", is_back).await.unwrap();
    }
}

#[tokio::test]
async fn a_silent_connection_is_replaced() {
    let redis = Redis::start().await.unwrap();
    let proxy = Proxy::start(redis.port()).await.unwrap();
    let store = store(&proxy.url());
    assert!(acquire(&store, &wide()).await.unwrap().is_allowed());
    proxy.set(Mode::BlackHole).await.unwrap();
    assert_eq!(acquire(&store, &wide()).await.unwrap_err().kind(), ErrorKind::Timeout);
    // The store drops the silent connection, but cannot establish a new connection.
    for _ in 0..2 {
        assert_eq!(acquire(&store, &wide()).await.unwrap_err().kind(), ErrorKind::Unavailable);
    }
    proxy.set(Mode::Pass).await.unwrap();
    let is_back = async || acquire(&store, &wide()).await.ok();
    let _ = eventually(Duration::from_secs(5), "the store", is_back).await.unwrap();
}

#[tokio::test]
async fn a_replica_is_read_only_and_nothing_is_written() {
    let (primary, replica) = (Redis::start().await.unwrap(), Redis::start().await.unwrap());
    replica.replica_of(&primary).await.unwrap();
    let store = store(&replica.url());
    for text in ["w: fixed-window 5/1h", "l: sliding-log 500/1h", "g: gcra 5/1h"] {
        let error = acquire(&store, &policy(text)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error}");
    }
    assert_eq!(primary.command(&["DBSIZE"]).await.unwrap().text(), "0");
}

#[tokio::test]
async fn a_server_without_memory_is_an_error_and_nothing_is_written() {
    let redis = Redis::start().await.unwrap();
    let store = store(&redis.url());
    let (wide, log) = (wide(), policy("l: sliding-log 500/1h"));
    assert!(acquire(&store, &wide).await.unwrap().is_allowed());
    redis.command(&["CONFIG", "SET", "maxmemory", "1"]).await.unwrap();
    for policy in [&wide, &log] {
        assert_eq!(acquire(&store, policy).await.unwrap_err().kind(), ErrorKind::OutOfMemory);
    }
    let charges = [Charge::new(&wide, "s"), Charge::new(&log, "s")];
    let error = store.decide(Call::acquire(&charges)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    assert_eq!(used(&store, &wide).await, 1);
    redis.command(&["CONFIG", "SET", "maxmemory", "0"]).await.unwrap();
    assert!(acquire(&store, &log).await.unwrap().is_allowed());
}

#[tokio::test]
async fn a_server_that_is_busy_with_a_script_is_an_error() {
    let redis = Redis::builder().config("lua-time-limit", "50").start().await.unwrap();
    let store = store(&redis.url());
    assert!(acquire(&store, &wide()).await.unwrap().is_allowed());
    let mut other = redis.client().await.unwrap();
    let endless = tokio::spawn(async move {
        let _ = other.call(&["EVAL", "while true do end", "0"]).await;
    });
    let busy =
        async || acquire(&store, &wide()).await.err().filter(|e| e.kind() == ErrorKind::Busy);
    let error = eventually(Duration::from_secs(5), "BUSY", busy).await.unwrap();
    assert!(error.kind().is_definitely_not_charged());
    redis.command(&["SCRIPT", "KILL"]).await.unwrap();
    let is_back = async || acquire(&store, &wide()).await.ok();
    let _ = eventually(Duration::from_secs(5), "the store", is_back).await.unwrap();
    endless.await.unwrap();
}

#[tokio::test]
async fn a_server_that_loads_its_data_is_an_error() {
    // While a server loads its data, it replies once per 2 MB. In this test, the server replies
    // every 100 ms, for 2 s.
    let slow = Redis::builder().config("rdbcompression", "no").config("key-load-delay", "10000");
    let redis = slow.start().await.unwrap();
    redis.command(&["DEBUG", "POPULATE", "200", "key", "200000"]).await.unwrap();
    let store = store(&redis.url());
    let url = redis.url();
    redis.command(&["SAVE"]).await.unwrap();
    let restart = tokio::spawn(async move {
        redis.restart(Data::Kept).await.unwrap();
        redis
    });
    let loading = async || {
        let error = acquire(&store, &wide()).await.err()?;
        (error.kind() == ErrorKind::Busy).then_some(error)
    };
    let error = eventually(Duration::from_secs(10), "LOADING", loading).await.unwrap();
    assert!(format!("{error:#}").contains("LOADING"), "{error} from {url}");
    drop(restart.await.unwrap());
}

#[tokio::test]
async fn users_passwords_databases_and_sockets_are_used_as_configured() {
    let rules = "~tidegate:* +evalsha +eval +time +get +mget +set +psetex +getrange +setrange +exists \
                 +pttl +pexpire +unlink +llen +lindex +lset +ltrim +rpush +select";
    let redis = Redis::builder().user("limiter", "secret", rules).start().await.unwrap();
    let builder = RedisStore::builder().url(redis.socket_url()).user("limiter", "secret");
    let store = builder.database(3).build().unwrap();
    for text in ["w: fixed-window 500/1h", "l: sliding-log 500/1h", "b: sliding-log 5/1h block 1h"]
    {
        let policy = policy(text);
        let charges = [Charge::new(&policy, "s")];
        for operation in [
            Operation::Acquire,
            Operation::Acquire,
            Operation::Refund,
            Operation::Block { span: Duration::from_secs(1) },
            Operation::Reset,
        ] {
            let _ = store.decide(Call::new(operation, &charges)).await.unwrap();
        }
        let _ = store.decide_many(&[Call::acquire(&charges), Call::acquire(&charges)]).await;
    }
    // A fair pool needs more commands.
    let pool = policy("p: fair-pool 500/1h");
    let charges = [Charge::new(&pool, "s")];
    let error = store.decide(Call::acquire(&charges)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:#}");
    let more = ["ACL", "SETUSER", "limiter", "+hmget", "+hset", "+hdel", "+hlen", "+hgetall"];
    assert_eq!(redis.command(&more).await.unwrap().text(), "OK");
    for operation in [Operation::Acquire, Operation::Acquire, Operation::Peek] {
        let _ = store.decide(Call::new(operation, &charges)).await.unwrap();
    }
    for answer in store.decide_many(&[Call::acquire(&charges), Call::acquire(&charges)]).await {
        let _ = answer.unwrap();
    }
    assert!(redis.command(&["INFO", "keyspace"]).await.unwrap().text().contains("db3:keys=4"));
    let wrong = RedisStore::builder().url(redis.url()).user("limiter", "guess").build().unwrap();
    let error = acquire(&wrong, &wide()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
    let outside = RedisStore::builder().url(redis.url()).user("limiter", "secret").prefix("other");
    let error = acquire(&outside.build().unwrap(), &wide()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
}

#[test]
fn an_invalid_url_is_rejected_when_the_store_is_built() {
    for url in ["", "http://127.0.0.1", "redis://:secret@127.0.0.1:port"] {
        let error = RedisStore::new(url).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfig);
        assert!(!error.to_string().contains("secret"), "{error}");
    }
}

/// Without defect B23, a script writes the same values, regardless of when and on which server it
/// runs, so that a replica has the same state.
#[tokio::test]
async fn b23_a_promoted_replica_has_the_same_state() {
    let (primary, replica) = (Redis::start().await.unwrap(), Redis::start().await.unwrap());
    replica.replica_of(&primary).await.unwrap();
    let before = store(&primary.url());
    let policies = [
        "w: fixed-window 900/1d anchored",
        "l: sliding-log 900/1d",
        "s: sliding-log 90/1d grain 1h",
        "c: sliding-counter 900/1d",
        "b: gcra 900/1d",
        "i: token-bucket 900/1d by-interval block 2d",
    ]
    .map(policy);
    for policy in &policies {
        let one = [Charge::new(policy, "one").cost(3)];
        let other = [Charge::new(policy, "other"), Charge::new(&policies[0], "too")];
        for round in 0..200 {
            let operation = if round % 7 == 6 { Operation::Refund } else { Operation::Acquire };
            let _ = before.decide(Call::new(operation, &one)).await.unwrap();
        }
        let _ = before.decide(Call::acquire(&other)).await.unwrap();
        let span = Duration::from_secs(90_000);
        let _ = before.decide(Call::new(Operation::Block { span }, &other)).await.unwrap();
        let _ = before.decide(Call::new(Operation::Reset, &other[1..])).await.unwrap();
    }
    let mut writer = primary.client().await.unwrap();
    writer.call(&["SET", "marker", ""]).await.unwrap();
    assert_eq!(writer.call(&["WAIT", "1", "9000"]).await.unwrap().text(), "1");
    replica.command(&["REPLICAOF", "NO", "ONE"]).await.unwrap();
    assert_eq!(state(&primary).await, state(&replica).await);
    let after = store(&replica.url());
    for policy in &policies {
        assert_eq!(used(&after, policy).await, used(&before, policy).await, "{policy}");
        let _ = acquire(&after, policy).await.unwrap();
    }
}

/// Returns all keys of a server with their values and the second of their expiry.
async fn state(redis: &Redis) -> Vec<(String, String, i64)> {
    let mut client = redis.client().await.unwrap();
    let mut state = vec![];
    for key in client.call(&["KEYS", "tidegate:*"]).await.unwrap().list() {
        let key = key.text();
        let value = match client.call(&["GET", &key]).await.unwrap() {
            Reply::Error(_) => client.call(&["LRANGE", &key, "0", "-1"]).await.unwrap(),
            value => value,
        };
        let lives = "return redis.call('TIME')[1] * 1000 + redis.call('TIME')[2] / 1000 + \
                     redis.call('PTTL', KEYS[1])";
        let end = client.call(&["EVAL", lives, "1", &key]).await.unwrap();
        let end: i64 = end.text().parse().unwrap();
        state.push((key, format!("{value:?}"), (end + 500) / 1_000));
    }
    assert!(state.len() >= 10);
    state.sort();
    state
}
