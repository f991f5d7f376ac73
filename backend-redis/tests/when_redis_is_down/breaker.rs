use std::time::Duration;

use tidegate_redis::core::layers::CircuitState;
use tidegate_redis::{Breaker, Call, Charge, ErrorKind, ManualClock, Store, StoreExt};
use tidegate_test_servers::Data;

use crate::scene::{acquire, dead_redis, error_kind, policy, redis, store, until_it_decides};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test]
pub(crate) async fn after_five_failures_redis_is_not_called() {
    let redis = dead_redis().await;
    let (clock, policy) = (ManualClock::default(), policy("fixed-window 5/1h"));
    let store = store(&redis).breaker(Breaker::new().clock(clock.clone()));
    for _ in 0..5 {
        assert_eq!(error_kind(&store, &policy).await, ErrorKind::Unavailable);
    }
    redis.restart(Data::Lost).await.unwrap();
    for _ in 0..100 {
        assert_eq!(error_kind(&store, &policy).await, ErrorKind::CircuitOpen);
    }
    clock.advance(SECOND - Duration::from_micros(1));
    assert_eq!(error_kind(&store, &policy).await, ErrorKind::CircuitOpen);
    clock.advance(Duration::from_micros(1));
    assert_eq!(store.state(), CircuitState::HalfOpen);
}

#[tokio::test]
pub(crate) async fn one_call_probes_redis() {
    let redis = redis().await;
    let (clock, policy) = (ManualClock::default(), policy("fixed-window 5/1h"));
    let store = store(&redis).breaker(Breaker::new().failures(1).clock(clock.clone()));
    assert!(acquire(&store, &policy).await.unwrap().is_allowed());
    redis.pause().await.unwrap();
    assert_eq!(error_kind(&store, &policy).await, ErrorKind::Timeout);
    assert_eq!(error_kind(&store, &policy).await, ErrorKind::CircuitOpen);
    clock.advance(SECOND);
    let charges = [Charge::new(&policy, "s")];
    let mut probe = store.decide(Call::acquire(&charges));
    let waits = tokio::time::timeout(Duration::from_millis(50), &mut probe).await;
    assert!(waits.is_err(), "the probe has no answer yet");
    for _ in 0..100 {
        let answer = store.decide(Call::acquire(&charges)).into_ready().unwrap();
        assert_eq!(answer.unwrap_err().kind(), ErrorKind::CircuitOpen);
    }
    // The probe fails because the paused server does not complete the new connection.
    assert_eq!(probe.await.unwrap_err().kind(), ErrorKind::Unavailable);
}

#[tokio::test]
pub(crate) async fn the_result_of_the_probe_decides() {
    let redis = dead_redis().await;
    let (clock, policy) = (ManualClock::default(), policy("fixed-window 5/1h"));
    let plain = store(&redis);
    let store = store(&redis).breaker(Breaker::new().clock(clock.clone()));
    for _ in 0..5 {
        assert_eq!(error_kind(&store, &policy).await, ErrorKind::Unavailable);
    }
    clock.advance(SECOND);
    assert_eq!(error_kind(&store, &policy).await, ErrorKind::Unavailable);
    clock.advance(SECOND - Duration::from_micros(1));
    assert_eq!(error_kind(&store, &policy).await, ErrorKind::CircuitOpen);

    redis.restart(Data::Lost).await.unwrap();
    let _ = until_it_decides(&plain, &policy).await;
    let decided = async || {
        clock.advance(SECOND);
        acquire(&store, &policy).await.ok()
    };
    let decided = tidegate_test_servers::eventually(Duration::from_secs(20), "an answer", decided);
    assert!(decided.await.unwrap().is_allowed());
    for _ in 0..4 {
        assert!(acquire(&store, &policy).await.unwrap().is_allowed());
    }
}

#[tokio::test]
pub(crate) async fn a_foreign_value_opens_no_circuit() {
    let redis = redis().await;
    let policy = policy("fixed-window 50/1h");
    let store = store(&redis).breaker(Breaker::new());
    assert!(acquire(&store, &policy).await.unwrap().is_allowed());
    let key = redis.command(&["RANDOMKEY"]).await.unwrap().text();
    redis.command(&["SET", &key, "foreign"]).await.unwrap();
    for _ in 0..20 {
        assert_eq!(error_kind(&store, &policy).await, ErrorKind::ForeignValue);
    }
    let others = [Charge::new(&policy, "another")];
    assert!(store.decide(Call::acquire(&others)).await.unwrap().is_allowed());
    assert_eq!(store.state(), CircuitState::Closed);
}
