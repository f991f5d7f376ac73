//! Tests requests that are cut: the client disconnects, the handler panics, or the body fails.

use super::*;
use Step::{Bytes as Sends, Fail, Hang, Panic, Tokens};
use tidegate_core::OnDrop;

/// Sends a request, and reads at most `frames` frames of its response. Cancels the request if this
/// takes more than a second.
async fn cut<S: Store + 'static>(layer: &HoldLayer<S>, request: Request<Plan>, frames: usize) {
    let sent = send(layer, request);
    let exchange = tokio::spawn(async move {
        let mut body = sent.await?.into_body();
        for _ in 0..frames {
            body.frame().await.transpose()?;
        }
        Ok::<_, Failed>(())
    });
    let abort = exchange.abort_handle();
    let _ = tokio::time::timeout(Duration::from_secs(1), exchange).await;
    abort.abort();
    sleep(Duration::from_secs(1)).await;
}

#[tokio::test(start_paused = true)]
async fn a_request_that_was_cut_costs_what_the_rule_says() {
    let reported = [Tokens(30), Sends(5), Tokens(4), Sends(6), Hang];
    let silent = [Sends(5), Sends(6), Hang];
    for (case, request, frames, settle, cancel) in [
        ("handler, reported", plan(&[Tokens(30), Hang], 200, &[]), 0, [30, 0], [30, 0]),
        ("handler, silent", plan(&[Hang], 200, &[]), 0, [100, 0], [0, 0]),
        ("panic, reported", plan(&[Tokens(30), Panic], 200, &[]), 0, [30, 0], [30, 0]),
        ("panic, silent", plan(&[Panic], 200, &[]), 0, [100, 0], [0, 0]),
        ("body unread", plan(&[], 200, &reported), 0, [100, 0], [0, 0]),
        ("body, one frame", plan(&[], 200, &reported), 1, [30, 5], [30, 5]),
        ("body that hangs", plan(&[], 200, &reported), 9, [34, 11], [34, 11]),
        ("body, silent", plan(&[], 200, &silent), 1, [100, 5], [0, 5]),
        ("body fails", plan(&[], 200, &[Tokens(9), Sends(5), Fail]), 9, [9, 5], [9, 5]),
        ("body fails, silent", plan(&[], 200, &[Sends(5), Fail]), 9, [100, 5], [0, 5]),
        ("body panics", plan(&[], 200, &[Tokens(9), Sends(5), Panic]), 9, [9, 5], [9, 5]),
    ] {
        for (rule, tokens_and_bytes) in
            [(OnDrop::Settle, settle), (OnDrop::Cancel, cancel), (OnDrop::Keep, [100, 1_000])]
        {
            for delay in [Duration::ZERO, Duration::from_millis(10)] {
                let limiter = limiter(watched(delay), 10_000);
                cut(&layer(&limiter).if_cut(rule), request.clone(), frames).await;
                let [tokens, bytes] = tokens_and_bytes;
                let case = format!("{case}, {rule:?}, {delay:?}");
                assert_eq!(taken(&limiter).await, [1, tokens, bytes], "{case}");
                assert_eq!(limiter.store().as_layer().open(), 0, "{case}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn dropped_before_the_decision_a_request_costs_nothing() {
    let limiter = limiter(watched(Duration::from_millis(10)), 10_000);
    for millis in [0, 5, 15] {
        let sent = send(&layer(&limiter), plan(&[Panic], 200, &[]));
        let wait = Duration::from_millis(millis);
        assert!(tokio::time::timeout(wait, sent).await.is_err());
        sleep(Duration::from_secs(1)).await;
        assert_eq!(taken(&limiter).await, [0, 0, 0], "{millis} ms");
    }
    assert_eq!(
        (limiter.store().as_layer().open(), limiter.store().as_layer().count(Operation::Settle)),
        (0, 3)
    );
}

/// A server stops reading after the announced length, and does not read the body of a response to
/// HEAD.
#[tokio::test(start_paused = true)]
async fn a_response_that_was_sent_as_announced_was_not_cut() {
    for (method, length, frames, expected) in [
        ("GET", "11", 2, [1, 100, 11]),
        ("GET", "11", 1, [1, 0, 5]),
        ("GET", "12", 2, [1, 0, 11]),
        ("HEAD", "11", 0, [1, 100, 0]),
        ("GET", "0", 0, [1, 100, 0]),
    ] {
        let limiter = limiter(watched(Duration::ZERO), 10_000);
        let layer = layer(&limiter).if_cut(OnDrop::Cancel);
        let mut request = plan(&[], 200, &[Sends(5), Sends(6), Hang]);
        *request.method_mut() = method.parse().unwrap();
        request.headers_mut().insert("announced", length.parse().unwrap());
        let mut body = send(&layer, request).await.unwrap().into_body();
        for _ in 0..frames {
            body.frame().await.unwrap().unwrap();
        }
        drop(body);
        assert_eq!(taken(&limiter).await, expected, "{method} {length} {frames}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_in_memory_that_was_sent_was_not_cut() {
    let limiter = limiter(watched(Duration::ZERO), 10_000);
    let layer = layer(&limiter).if_cut(OnDrop::Cancel);
    let mut body = send(&layer, plan(&[], 200, &[Sends(5), Sends(6)])).await.unwrap().into_body();
    for _ in 0..2 {
        body.frame().await.unwrap().unwrap();
    }
    drop(body); // a server that knows the length of the body reads no further
    assert_eq!(taken(&limiter).await, [1, 100, 11]); // nothing was reported
}
