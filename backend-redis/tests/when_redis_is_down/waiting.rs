use std::time::{Duration, Instant};

use tidegate_redis::{ErrorKind, Limiter, StoreExt};

use crate::scene::{PATIENCE, SOON, dead_redis, policy, redis, store};

#[tokio::test]
pub(crate) async fn until_ready_does_not_wait_for_redis() {
    let redis = dead_redis().await;
    let policies = || [policy("gcra 1/1h")];
    let start = Instant::now();
    let limiter = Limiter::new(store(&redis), policies()).unwrap().max_wait(PATIENCE);
    assert_eq!(limiter.until_ready("s").await.unwrap_err().kind(), ErrorKind::Unavailable);
    let limiter = |store| Limiter::new(store, policies()).unwrap().max_wait(PATIENCE);
    let open = limiter(store(&redis).or_fail_open()).until_ready("s").await.unwrap();
    assert!(open.decision().degraded().is_some());
    let closed = limiter(store(&redis).or_fail_closed()).until_ready("s").await.unwrap_err();
    assert_eq!(closed.kind(), ErrorKind::Unavailable);
    assert!(start.elapsed() < SOON);
}

#[tokio::test]
pub(crate) async fn a_caller_that_holds_a_place_proceeds() {
    let redis = redis().await;
    let limiter = Limiter::new(store(&redis), [policy("gcra 2/1s burst 1")]).unwrap();
    assert!(limiter.until_ready("s").await.unwrap().wait().is_zero());
    let mut booked = Box::pin(limiter.until_ready("s"));
    // The caller has a place in the queue and still waits when the test kills the server.
    let waits = tokio::time::timeout(Duration::from_millis(100), &mut booked).await;
    assert!(waits.is_err());
    redis.kill().await.unwrap();
    assert!(booked.await.is_ok());
}
