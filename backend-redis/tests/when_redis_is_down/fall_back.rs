use std::time::Duration;

use tidegate_memory::MemoryStore;
use tidegate_redis::{
    Call, CallId, Charge, DegradedAnswer, ErrorKind, Limiter, OnFailure, Operation, Policy, Share,
    Store, StoreExt,
};
use tidegate_test_servers::{Data, Redis};

use crate::scene::{acquire, dead_redis, policy, redis, store, until_it_decides, used};

fn node(redis: &Redis) -> impl Store {
    store(redis).or_fall_back_to(MemoryStore::new(), Share::new(1, 3).unwrap())
}

/// Makes `requests` requests. Returns the number of admitted requests, and whether all of them were
/// decided by the fallback.
async fn admitted(node: &impl Store, policy: &Policy, requests: u32) -> (u64, bool) {
    let (mut admitted, mut fell_back) = (0, true);
    for _ in 0..requests {
        let decision = acquire(node, policy).await.unwrap();
        admitted += u64::from(decision.is_allowed());
        let answer = decision.degraded().map(|degraded| degraded.answer);
        fell_back &= answer == Some(DegradedAnswer::FellBack);
    }
    (admitted, fell_back)
}

#[tokio::test]
pub(crate) async fn each_node_admits_its_share() {
    let redis = dead_redis().await;
    let policy = policy("sliding-log 20/1h");
    let mut together = 0;
    for _ in 0..3 {
        let (count, fell_back) = admitted(&node(&redis), &policy, 30).await;
        assert_eq!((count, fell_back), (6, true));
        together += count;
    }
    assert!(together <= 20);
}

#[tokio::test]
pub(crate) async fn a_share_of_nothing_is_refused() {
    let redis = dead_redis().await;
    let small = policy("sliding-log 2/1h");
    let error = Limiter::new(node(&redis), [small.clone()]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let decision = acquire(&node(&redis), &small).await.unwrap();
    assert!(decision.is_denied());
    assert_eq!(decision.degraded().unwrap().answer, DegradedAnswer::FailedClosed);
}

#[tokio::test]
pub(crate) async fn at_most_twice_the_limit_passes_and_three_times_if_data_is_lost() {
    let redis = redis().await;
    let policy = policy("fixed-window 30/1d anchored");
    let nodes = [node(&redis), node(&redis), node(&redis)];
    let mut total = 0;
    for node in &nodes {
        total += admitted(node, &policy, 5).await.0;
    }
    assert_eq!(total, 15, "admitted by Redis");
    redis.command(&["SAVE"]).await.unwrap();
    redis.kill().await.unwrap();
    for node in &nodes {
        total += admitted(node, &policy, 50).await.0;
    }
    assert_eq!(total, 15 + 30, "10 more are admitted by each node");
    redis.restart(Data::Kept).await.unwrap();
    for node in &nodes {
        let _ = until_it_decides(node, &policy).await;
        total += admitted(node, &policy, 50).await.0;
    }
    assert_eq!(total, 2 * 30, "Redis admits the rest of its limit");
    redis.restart(Data::Lost).await.unwrap();
    for node in &nodes {
        let _ = until_it_decides(node, &policy).await;
        total += admitted(node, &policy, 50).await.0;
    }
    assert_eq!(total, 3 * 30, "a Redis without data admits the limit once more");
}

#[tokio::test]
pub(crate) async fn holders_keep_their_slots() {
    let redis = redis().await;
    let slots = policy("slots: concurrent 3 lease 5m");
    let limiter = Limiter::new(node(&redis), [slots.clone()]).unwrap();
    let hour = Duration::from_secs(3600);
    let hold = async |id| limiter.subject("s").hold(id, hour).await.unwrap().into_ticket().ok();
    let kept_by_redis = hold("1").await.unwrap();
    redis.command(&["SAVE"]).await.unwrap();
    redis.kill().await.unwrap();
    let kept_by_node = hold("2").await.unwrap();
    assert!(kept_by_node.is_degraded() && hold("3").await.is_none());
    let charges = [Charge::new(&slots, "s")];
    let wait = async |place, id| {
        let call = Call::new(Operation::HoldInTurn { place }, &charges);
        limiter.store().decide(call.with_id(CallId::new(id, hour))).await.unwrap()
    };
    let place = wait(0, "waits").await.place().unwrap().number;
    assert!(limiter.extend(&kept_by_redis, hour).await.is_err());
    limiter.extend(&kept_by_node, hour).await.unwrap();
    redis.restart(Data::Kept).await.unwrap();
    let _ = until_it_decides(limiter.store(), &slots).await;
    for ticket in [&kept_by_redis, &kept_by_node] {
        limiter.extend(ticket, hour).await.unwrap();
    }
    assert_eq!(used(&store(&redis), &slots).await, 1);
    // In the queue of Redis, the place of the queue of the node has no meaning.
    let admitted = wait(place, "waits").await;
    assert!(admitted.is_allowed() && admitted.degraded().is_none());
    assert!(hold("fills Redis").await.is_some());
    assert!(wait(place, "waits too").await.place().unwrap().number < place);
    redis.kill().await.unwrap();
    assert!(hold("4").await.is_none(), "the slot of the node is still in use");
    limiter.settle(&kept_by_node, []).await.unwrap();
    assert!(hold("5").await.is_some());
}

#[tokio::test]
pub(crate) async fn each_policy_has_its_own_failure_policy() {
    let redis = dead_redis().await;
    let answers = || {
        OnFailure::open()
            .closed_for("otp")
            .with_fallback(MemoryStore::new())
            .fall_back_for("uploads", Share::new(1, 3).unwrap())
    };
    let [pages, otp, uploads] =
        ["pages: fixed-window 3/1h", "otp: fixed-window 3/1h", "uploads: fixed-window 3/1h"]
            .map(policy);
    for (policies, expected) in [
        (vec![pages.clone()], [true, true, true]),
        (vec![uploads.clone()], [true, false, false]),
        (vec![otp.clone()], [false, false, false]),
        (vec![pages.clone(), uploads], [true, false, false]),
        (vec![pages, otp], [false, false, false]),
    ] {
        let limiter = Limiter::new(store(&redis).on_failure(answers()), policies).unwrap();
        for is_allowed in expected {
            assert_eq!(limiter.acquire("s").await.unwrap().is_allowed(), is_allowed, "{limiter:?}");
        }
    }
}
