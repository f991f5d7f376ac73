use std::time::Duration;

use tidegate_redis::{DegradedAnswer, ErrorKind, OnFailure, StoreExt};
use tidegate_test_servers::Data;

use crate::scene::{acquire, dead_redis, policy, store, until_it_decides};

#[tokio::test]
pub(crate) async fn a_request_is_refused_and_says_why() {
    let redis = dead_redis().await;
    let store = store(&redis).or_fail_closed();
    let decision = acquire(&store, &policy("fixed-window 5/1h")).await.unwrap();
    assert!(decision.is_denied());
    let degraded = decision.degraded().unwrap();
    assert_eq!(degraded.answer, DegradedAnswer::FailedClosed);
    assert_eq!(degraded.reason, ErrorKind::Unavailable);
}

#[tokio::test]
pub(crate) async fn the_retry_after_is_a_hint() {
    let redis = dead_redis().await;
    let policy = policy("fixed-window 5/1h");
    let usual = store(&redis).or_fail_closed();
    let decision = acquire(&usual, &policy).await.unwrap();
    assert_eq!(decision.retry_after(), Some(Duration::from_secs(1)));
    let hint = Duration::from_secs(30);
    let configured = store(&redis).on_failure(OnFailure::closed().retry_hint(hint));
    assert_eq!(acquire(&configured, &policy).await.unwrap().retry_after(), Some(hint));
    // The retry hint is not a promise: Redis is possibly available sooner.
    redis.restart(Data::Lost).await.unwrap();
    let _ = until_it_decides(&configured, &policy).await;
    assert!(acquire(&configured, &policy).await.unwrap().is_allowed());
}
