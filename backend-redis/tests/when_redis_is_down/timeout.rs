use std::time::{Duration, Instant};

use tidegate_redis::{ErrorKind, StoreExt};

use crate::scene::{SOON, acquire, error_kind, patient_store, policy, redis};

#[tokio::test]
pub(crate) async fn a_call_ends_within_the_timeout() {
    let redis = redis().await;
    let policy = policy("fixed-window 5/1h");
    let store = patient_store(&redis).timeout(Duration::from_millis(50));
    // The first call makes the connection, which possibly takes long on a busy machine.
    while acquire(&store, &policy).await.is_err() {}
    redis.pause().await.unwrap();
    let start = Instant::now();
    assert_eq!(error_kind(&store, &policy).await, ErrorKind::Timeout);
    assert!(start.elapsed() >= Duration::from_millis(50) && start.elapsed() < SOON);
}
