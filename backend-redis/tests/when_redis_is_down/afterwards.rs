use tidegate_testkit::servers::Data;

use crate::scene::{acquire, policy, redis, store, taken, until_it_decides};

#[tokio::test]
pub(crate) async fn what_was_kept_counts() {
    let redis = redis().await;
    let (store, policy) = (store(&redis), policy("fixed-window 1000/1d"));
    for _ in 0..7 {
        assert!(acquire(&store, &policy).await.unwrap().is_allowed());
    }
    for (data, known) in [(Data::Kept, 7), (Data::Lost, 0)] {
        redis.restart(data).await.unwrap();
        let _ = until_it_decides(&store, &policy).await;
        assert_eq!(taken(&store, &policy).await, known);
    }
}
