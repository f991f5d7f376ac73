//! Tests of the reports of a response that streams.

use super::*;
use Step::{Bytes as Sends, Tokens, Wait};

#[tokio::test(start_paused = true)]
async fn what_exceeds_the_estimate_is_charged_while_the_body_streams() {
    for delay in [0, 300] {
        let limiter = limiter(watched(Duration::from_millis(delay)), 10_000);
        let mut steps = vec![];
        for _ in 0..30 {
            steps.extend([Tokens(10), Wait(250), Sends(1)]);
        }
        let response = send(&layer(&limiter), plan(&[], 200, &steps)).await.unwrap();
        let mut body = response.into_body();
        let mut most = 0;
        for frame in 1..=30 {
            body.frame().await.unwrap().unwrap();
            let [_, tokens, _] = taken(&limiter).await;
            // The charge is later than the usage by at most one second (four frames) and the delay
            // of the store.
            assert!(tokens >= 100 && tokens + 80 > 10 * frame, "{tokens} at {frame}");
            assert!(tokens <= (10 * frame).max(100), "{tokens} at {frame}");
            most = most.max(tokens);
        }
        assert!(most > 200, "{most}");
        let reports = limiter.store().as_layer().count(Operation::SettleSoFar);
        assert!((3..=6).contains(&reports), "{reports}");
        assert_eq!(read(body).await, (0, None));
        assert_eq!(taken(&limiter).await, [1, 300, 30]);
    }
}

#[tokio::test(start_paused = true)]
async fn within_the_estimate_nothing_is_reported() {
    let limiter = limiter(watched(Duration::ZERO), 10_000);
    let steps: Vec<_> = (0..30).flat_map(|_| [Tokens(3), Wait(1_000), Sends(1)]).collect();
    let response = send(&layer(&limiter), plan(&[], 200, &steps)).await.unwrap();
    assert_eq!(read(response.into_body()).await, (30, None));
    assert_eq!(taken(&limiter).await, [1, 90, 30]);
    assert_eq!(limiter.store().as_layer().calls.lock().unwrap().len(), 3); // hold, settle, peek
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_takes_longer_than_its_hold_extends_it() {
    let store = watched(Duration::ZERO);
    let limiter = limiter(Arc::clone(&store), 10_000);
    let steps: Vec<_> = (0..60).flat_map(|_| [Tokens(1), Wait(10_000), Sends(1)]).collect();
    let response = send(&layer(&limiter), plan(&[], 200, &steps)).await.unwrap();
    let mut body = response.into_body();
    // The stream takes 600 s, which is six times the time of its hold.
    while let Some(frame) = body.frame().await {
        frame.unwrap();
        store.as_layer().clock.advance(Duration::from_secs(10));
    }
    assert!(store.as_layer().count(Operation::Extend) >= 10);
    assert_eq!(store.as_layer().open(), 0);
    assert_eq!(taken(&limiter).await, [1, 60, 60]);
}

#[tokio::test(start_paused = true)]
async fn reports_come_as_often_as_is_set() {
    let limiter = limiter(watched(Duration::ZERO), 10_000);
    let layer = layer(&limiter).report_every(Duration::ZERO);
    let steps: Vec<_> = (0..20).flat_map(|_| [Tokens(10), Sends(1)]).collect();
    let response = send(&layer, plan(&[], 200, &steps)).await.unwrap();
    assert_eq!(read(response.into_body()).await, (20, None));
    // The first ten of 20 frames are within the estimate. The last frame needs no report, because
    // the body knows that this frame is the last. The other nine frames are reported.
    assert_eq!(limiter.store().as_layer().count(Operation::SettleSoFar), 9);
}

/// A client can stop reading a body for so long that the store forgets the hold.
#[tokio::test(start_paused = true)]
async fn a_client_that_stops_reading_until_the_hold_is_forgotten_pays_for_the_whole_body() {
    let policies = ["requests: fixed-window 1000/1h", "bytes: fixed-window 1000000/1h"];
    for (tokens, used) in [
        ("tokens: fixed-window 1000000/1h", [1, 500]),
        ("tokens: fixed-window 1000000/1h", [1, 5]),
        ("tokens: fixed-window 1000000/1h", [300, 500]),
        ("tokens: fixed-window 1000000/1h refund-lapsed", [1, 500]),
        ("tokens: fixed-window 1000000/1h refund-lapsed", [1, 5]),
        ("tokens: fixed-window 1000000/1h refund-lapsed", [300, 500]),
    ] {
        let store = watched(Duration::ZERO);
        let policies = [policies[0], tokens, policies[1]].map(|text| text.parse().unwrap());
        let limiter = Limiter::new(Arc::clone(&store), policies).unwrap();
        let layer = layer(&limiter).report_every(Duration::ZERO);
        let [before, after] = used.map(Tokens);
        let steps = [before, Sends(1), after, Sends(1), Wait(0)];
        let mut body = send(&layer, plan(&[], 200, &steps)).await.unwrap().into_body();
        body.frame().await.unwrap().unwrap();
        store.as_layer().clock.advance(2 * TTL + Duration::from_secs(1));
        assert_eq!(read(body).await, (1, None));
        // Without `refund-lapsed`, the estimate of 100 tokens stays charged.
        let least = if tokens.ends_with("refund-lapsed") { 0 } else { 100 };
        let total: u64 = used.iter().sum();
        assert_eq!(taken(&limiter).await[..2], [1, total.max(least)], "{tokens} {used:?}");
    }
}
