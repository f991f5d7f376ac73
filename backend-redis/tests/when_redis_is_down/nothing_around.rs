use std::time::{Duration, Instant};

use tidegate_redis::{Breaker, ErrorKind, Limiter, OnFailure, RedisStore, Store, StoreExt};
use tidegate_test_servers::{Data, Redis};

use crate::scene::{
    SOON, acquire, dead_redis, error_kind, policy, redis, store, until_it_decides, used,
};

#[tokio::test]
pub(crate) async fn a_limiter_is_built_immediately() {
    let redis = dead_redis().await;
    let start = Instant::now();
    assert!(Limiter::new(store(&redis), [policy("fixed-window 5/1h")]).is_ok());
    assert!(start.elapsed() < SOON);
}

#[tokio::test]
pub(crate) async fn a_call_fails_with_an_error() {
    let redis = redis().await;
    let (store, policy) = (store(&redis), policy("fixed-window 0/1h"));
    assert!(acquire(&store, &policy).await.unwrap().is_denied());
    redis.pause().await.unwrap();
    assert_eq!(error_kind(&store, &policy).await, ErrorKind::Timeout);
    // Later calls try a new connection, which cannot be established.
    let mut errors = vec![];
    while errors.last() != Some(&ErrorKind::Unavailable) {
        errors.push(error_kind(&store, &policy).await);
        assert!(errors.len() < 10, "{errors:?}");
    }
    errors.pop();
    assert!(errors.iter().all(|&kind| kind == ErrorKind::Timeout), "{errors:?}");
    redis.resume().await.unwrap();
    redis.kill().await.unwrap();
    assert_eq!(error_kind(&store, &policy).await, ErrorKind::Unavailable);
}

#[tokio::test]
pub(crate) async fn a_call_times_out() {
    let redis = redis().await;
    let policy = policy("fixed-window 5/1h");
    let usual = store(&redis);
    let longer = Duration::from_millis(1_500);
    let longer = RedisStore::builder().url(redis.url()).response_timeout(longer).build().unwrap();
    for store in [&usual, &longer] {
        assert!(acquire(store, &policy).await.unwrap().is_allowed());
    }
    redis.pause().await.unwrap();
    let start = Instant::now();
    let (usual, longer) =
        tokio::join!(async { (error_kind(&usual, &policy).await, start.elapsed()) }, async {
            (error_kind(&longer, &policy).await, start.elapsed())
        },);
    assert_eq!((usual.0, longer.0), (ErrorKind::Timeout, ErrorKind::Timeout));
    assert!(usual.1 >= Duration::from_millis(500) && usual.1 < longer.1, "{usual:?} {longer:?}");
    assert!(longer.1 >= Duration::from_millis(1_500) && longer.1 < SOON, "{longer:?}");
}

#[tokio::test]
pub(crate) async fn a_call_waits_for_a_connection() {
    let redis = redis().await;
    let policy = policy("fixed-window 5/1h");
    // A paused server accepts connections and does not reply on them.
    redis.pause().await.unwrap();
    let usual = store(&redis);
    let shorter = Duration::from_millis(200);
    let shorter = RedisStore::builder().url(redis.url()).connect_timeout(shorter).build().unwrap();
    let start = Instant::now();
    let (usual, shorter) =
        tokio::join!(async { (error_kind(&usual, &policy).await, start.elapsed()) }, async {
            (error_kind(&shorter, &policy).await, start.elapsed())
        },);
    assert_eq!((usual.0, shorter.0), (ErrorKind::Unavailable, ErrorKind::Unavailable));
    assert!(shorter.1 >= Duration::from_millis(200) && shorter.1 < usual.1, "{shorter:?}");
    assert!(usual.1 >= Duration::from_secs(1) && usual.1 < SOON, "{usual:?}");
}

#[tokio::test]
pub(crate) async fn a_call_that_timed_out_is_charged_at_most_once() {
    let redis = redis().await;
    let (store, policy) = (store(&redis), policy("fixed-window 1000/1d"));
    assert!(acquire(&store, &policy).await.unwrap().is_allowed());
    redis.pause().await.unwrap();
    assert_eq!(error_kind(&store, &policy).await, ErrorKind::Timeout);
    redis.resume().await.unwrap();
    let _ = until_it_decides(&store, &policy).await;
    let used = used(&store, &policy).await;
    assert!((1..=2).contains(&used), "{used}");
}

#[tokio::test]
pub(crate) async fn redis_decides_again_when_it_is_back() {
    let redis = dead_redis().await;
    let (store, policy) = (store(&redis), policy("fixed-window 5/1h"));
    assert_eq!(error_kind(&store, &policy).await, ErrorKind::Unavailable);
    redis.restart(Data::Lost).await.unwrap();
    let _ = until_it_decides(&store, &policy).await;
    assert!(acquire(&store, &policy).await.unwrap().is_allowed());
}

#[tokio::test]
pub(crate) async fn a_wrong_password_is_hidden_only_if_configured() {
    let redis = Redis::builder().password("sesame").start().await.unwrap();
    let policy = policy("fixed-window 5/1h");
    let store = || {
        let builder = RedisStore::builder().url(redis.url()).user("default", "guess");
        builder.build().unwrap().breaker(Breaker::new().failures(1))
    };
    let on_failure = OnFailure::open;
    let (plain, configured) = (
        store().on_failure(on_failure()),
        store().on_failure(on_failure().also_on(ErrorKind::Misconfigured)),
    );
    for _ in 0..3 {
        assert_eq!(error_kind(&plain, &policy).await, ErrorKind::Misconfigured);
        let decision = acquire(&configured, &policy).await.unwrap();
        assert!(decision.is_allowed());
        assert_eq!(decision.degraded().unwrap().reason, ErrorKind::Misconfigured);
    }
}

#[tokio::test]
pub(crate) async fn ready_fails_with_the_error_of_a_call() {
    let redis = redis().await;
    let layered = store(&redis).timeout(SOON).breaker(Breaker::new().failures(1)).or_fail_open();
    layered.ready().await.unwrap();
    redis.kill().await.unwrap();
    for _ in 0..3 {
        assert_eq!(layered.ready().await.unwrap_err().kind(), ErrorKind::Unavailable);
    }
}
