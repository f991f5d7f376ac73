use std::time::Duration;

use tidegate_redis::{DenyCache, ErrorKind, StoreExt};

use crate::scene::{acquire, error_kind, policy, redis, scripts_run, store};

#[tokio::test]
pub(crate) async fn a_refused_subject_stays_refused() {
    let redis = redis().await;
    // The test must not depend on the speed of the machine.
    let cache = DenyCache::new().max_age(Duration::from_secs(3600));
    let (store, limited) = (store(&redis).deny_cache(cache), policy("gcra 1/1h"));
    assert!(acquire(&store, &limited).await.unwrap().is_allowed());
    let first = acquire(&store, &limited).await.unwrap();
    assert!(first.is_denied());
    let before = scripts_run(&redis).await;
    for _ in 0..100 {
        let again = acquire(&store, &limited).await.unwrap();
        assert!(again.is_denied() && again.degraded().is_none());
        assert!(again.retry_after() <= first.retry_after());
    }
    assert_eq!(scripts_run(&redis).await, before);
    redis.kill().await.unwrap();
    assert!(acquire(&store, &limited).await.unwrap().is_denied());
    // The deny cache has no entry for a subject that was not refused.
    assert_eq!(error_kind(&store, &policy("other: gcra 1/1h")).await, ErrorKind::Unavailable);
}
