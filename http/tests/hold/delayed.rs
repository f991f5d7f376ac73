//! Tests with stores that answer late, or that return errors.

use super::*;
use Step::{Bytes as Sends, Tokens, Wait};
use std::pin::pin;
use std::task::Waker;
use tidegate_memory::{ErrorKind, StoreExt};
use tidegate_testkit::faults::{Fault, Faults};
use tokio::time::timeout;

const DELAY: Duration = Duration::from_millis(10);

#[tokio::test(start_paused = true)]
async fn the_end_of_a_body_waits_for_the_store_and_its_data_does_not() {
    let limiter = limiter(watched(DELAY), 10_000);
    let start = tokio::time::Instant::now();
    let response = send(&layer(&limiter), plan(&[Tokens(40)], 200, &[Sends(3), Sends(4), Wait(0)]));
    let mut body = response.await.unwrap().into_body();
    assert_eq!(start.elapsed(), 2 * DELAY); // the hold
    for _ in 0..2 {
        body.frame().await.unwrap().unwrap();
        assert!(!body.is_end_stream());
    }
    assert_eq!(start.elapsed(), 2 * DELAY);
    assert!(body.frame().await.is_none());
    assert_eq!(start.elapsed(), 4 * DELAY);
    assert!(body.frame().await.is_none());
    assert_eq!(taken(&limiter).await, [1, 40, 7]);
}

#[tokio::test(start_paused = true)]
async fn dropped_while_it_is_settled_a_request_is_settled_once() {
    let limiter = limiter(watched(DELAY), 10_000);
    for millis in [0, 5, 15] {
        let response = send(&layer(&limiter), plan(&[Tokens(40)], 200, &[Sends(3), Wait(0)]));
        let mut body = response.await.unwrap().into_body();
        body.frame().await.unwrap().unwrap();
        assert!(timeout(Duration::from_millis(millis), body.frame()).await.is_err());
        drop(body);
        sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(taken(&limiter).await, [3, 120, 9]);
    assert_eq!(limiter.store().as_layer().open(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_ends_waits_until_each_request_is_settled() {
    let limiter = limiter(watched(DELAY), 10_000);
    // The client disconnects while the hold is in flight. The guard of the hold does not exist yet,
    // but `guards_settled` must wait for it.
    let deciding = send(&layer(&limiter), plan(&[], 200, &[]));
    assert!(timeout(DELAY / 2, deciding).await.is_err());
    limiter.guards_settled().await;
    assert_eq!(
        (limiter.store().as_layer().count(Operation::Hold), limiter.store().as_layer().open()),
        (1, 0)
    );

    let streaming = send(&layer(&limiter), plan(&[Tokens(40)], 200, &[Sends(3), Step::Hang]));
    let mut streaming = streaming.await.unwrap().into_body();
    streaming.frame().await.unwrap().unwrap();
    let ended = send(&layer(&limiter), plan(&[Tokens(2)], 200, &[Sends(4), Wait(0)]));
    let mut ended = ended.await.unwrap().into_body();
    ended.frame().await.unwrap().unwrap();
    assert!(timeout(DELAY / 2, ended.frame()).await.is_err());
    assert_eq!(limiter.store().as_layer().open(), 2);
    drop((streaming, ended));
    limiter.guards_settled().await;
    assert_eq!(limiter.store().as_layer().open(), 0);
    assert_eq!(taken(&limiter).await, [2, 42, 7]);
}

#[tokio::test]
async fn what_cannot_be_settled_stays_charged_and_changes_no_response() {
    let store = MemoryStore::builder().clock(ManualClock::default()).build();
    let faults = vec![Fault::None, Fault::Before(ErrorKind::Unavailable)];
    let limiter = limiter(Arc::new(store.layer(Faults::new(faults))), 10_000);
    let response = send(&layer(&limiter), plan(&[Tokens(40)], 200, &[Sends(3)])).await.unwrap();
    assert_eq!(read(response.into_body()).await, (3, None));
    assert_eq!(taken(&limiter).await, [1, 100, 1_000]);
}

#[tokio::test]
async fn a_store_that_is_down_refuses_and_a_failure_policy_admits() {
    let down = |faults: usize| {
        let store = MemoryStore::builder().clock(ManualClock::default()).build();
        store.layer(Faults::new(vec![Fault::Before(ErrorKind::Unavailable); faults]))
    };
    let limiter_down = limiter(down(1), 10_000);
    let response = send(&layer(&limiter_down), plan(&[Tokens(40)], 200, &[])).await.unwrap();
    assert_eq!(response.status(), 503);

    // The failure policy admits the request without the store. The settlement charges the request,
    // because the store answers again.
    let limiter = limiter(down(1).or_fail_open(), 10_000);
    let response = send(&layer(&limiter), plan(&[Tokens(40)], 200, &[Sends(7)])).await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(taken(&limiter).await, [0, 0, 0]);
    assert_eq!(read(response.into_body()).await, (7, None));
    assert_eq!(taken(&limiter).await, [1, 40, 7]);
}

#[test]
fn outside_of_a_runtime_a_request_is_refused() {
    let limiter = limiter(watched(Duration::ZERO), 10_000);
    let mut sent = pin!(send(&layer(&limiter), plan(&[], 200, &[])));
    let Poll::Ready(response) = sent.as_mut().poll(&mut Context::from_waker(Waker::noop())) else {
        panic!("the store has answered");
    };
    assert_eq!(response.unwrap().status(), 500);
    assert_eq!(limiter.store().as_layer().count(Operation::Hold), 0);
}
