use tidegate_test_servers::Data;

use crate::scene::{acquire, policy, redis, store, until_it_decides, used};

#[tokio::test]
pub(crate) async fn kept_data_counts() {
    let redis = redis().await;
    let (store, policy) = (store(&redis), policy("fixed-window 1000/1d"));
    for _ in 0..7 {
        assert!(acquire(&store, &policy).await.unwrap().is_allowed());
    }
    for (data, known) in [(Data::Kept, 7), (Data::Lost, 0)] {
        redis.restart(data).await.unwrap();
        let _ = until_it_decides(&store, &policy).await;
        assert_eq!(used(&store, &policy).await, known);
    }
}
