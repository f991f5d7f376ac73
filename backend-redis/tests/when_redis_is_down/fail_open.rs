use std::time::Duration;

use tidegate_redis::protocol::Keys;
use tidegate_redis::{
    Call, Charge, DegradedAnswer, ErrorKind, Operation, Store, StoreExt, Timestamp,
};
use tidegate_test_servers::Data;

use crate::scene::{acquire, dead_redis, decide, policy, redis, store, until_it_decides, used};

#[tokio::test]
pub(crate) async fn a_request_passes_and_says_why() {
    let redis = dead_redis().await;
    let store = store(&redis).or_fail_open();
    for _ in 0..20 {
        let decision = acquire(&store, &policy("fixed-window 5/1h")).await.unwrap();
        assert!(decision.is_allowed());
        let degraded = decision.degraded().unwrap();
        assert_eq!(degraded.answer, DegradedAnswer::FailedOpen);
        assert_eq!(degraded.reason, ErrorKind::Unavailable);
    }
}

#[tokio::test]
pub(crate) async fn a_cost_above_the_limit_is_refused() {
    let redis = dead_redis().await;
    let (store, policy) = (store(&redis).or_fail_open(), policy("fixed-window 5/1h"));
    let charges = [Charge::new(&policy, "s").cost(6)];
    let decision = store.decide(Call::acquire(&charges)).await.unwrap();
    assert!(decision.is_denied());
    assert_eq!(decision.retry_after(), None);
}

#[tokio::test]
pub(crate) async fn calls_that_failed_open_are_not_charged() {
    let redis = redis().await;
    let (plain, policy) = (store(&redis), policy("fixed-window 1000/1d"));
    let store = store(&redis).or_fail_open();
    redis.kill().await.unwrap();
    for _ in 0..20 {
        assert!(acquire(&store, &policy).await.unwrap().is_allowed());
    }
    redis.restart(Data::Kept).await.unwrap();
    let _ = until_it_decides(&store, &policy).await;
    let decision = acquire(&store, &policy).await.unwrap();
    assert!(decision.is_allowed() && decision.degraded().is_none());
    assert_eq!(used(&plain, &policy).await, 1);
}

#[tokio::test]
pub(crate) async fn a_write_that_fails_is_an_error() {
    let redis = dead_redis().await;
    let (store, policy) = (store(&redis).or_fail_open(), policy("fixed-window 5/1h"));
    let block = Operation::Block { span: Duration::from_secs(1) };
    let undo = Operation::Undo { at: Timestamp::EPOCH };
    for operation in [Operation::Refund, undo, Operation::Reset, block] {
        let error = decide(&store, operation, &policy).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
    }
}

#[tokio::test]
pub(crate) async fn a_foreign_value_passes_until_its_key_is_deleted() {
    let redis = redis().await;
    let (store, policy) = (store(&redis).or_fail_open(), policy("p: fixed-window 5/1h"));
    let key = Keys::new("tidegate").key(&Charge::new(&policy, "s"));
    redis.command(&[b"SET", &key[..], b"what is this"]).await.unwrap();
    for _ in 0..20 {
        let decision = acquire(&store, &policy).await.unwrap();
        assert!(decision.is_allowed());
        assert_eq!(decision.degraded().unwrap().reason, ErrorKind::ForeignValue);
    }
    let error = decide(&store, Operation::Reset, &policy).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ForeignValue);
    redis.command(&[b"DEL", &key[..]]).await.unwrap();
    let decision = acquire(&store, &policy).await.unwrap();
    assert_eq!((decision.degraded(), decision.verdicts()[0].remaining()), (None, 4));
}

#[tokio::test]
pub(crate) async fn an_invalid_call_is_an_error() {
    let redis = dead_redis().await;
    let (store, window) = (store(&redis).or_fail_open(), policy("fixed-window 5/1h"));
    let error = store.decide(Call::acquire(&[])).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidCall);
    let reserve = Operation::Reserve { max_wait: Duration::from_secs(1) };
    let error = decide(&store, reserve, &window).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}
