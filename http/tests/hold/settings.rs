//! Tests of invalid settings of a layer, of the ids of holds, and of the usage.

use super::*;
use Step::{Bytes as Sends, Tokens};
use tidegate_memory::ErrorKind;

fn error(limits: &[&'static str], ttl: Duration, settled: &str) -> String {
    let limiter = limiter(watched(Duration::ZERO), 1_000);
    let limits = limits.iter().map(|name| Limit::by(*name, Everybody));
    let layer = RateLimitLayer::new(limiter, limits).unwrap();
    let error = layer.hold_for(ttl, [(settled, ActualCost::body_bytes())]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidConfig);
    error.to_string().replacen("invalid-config: ", "", 1)
}

#[test]
fn a_layer_that_makes_no_sense_is_an_error() {
    assert_eq!(
        error(&["requests", "tokens"], TTL, "token"),
        "the cost of `token` cannot be settled; it must be one of the limits `requests`, `tokens`"
    );
    assert_eq!(
        error(&["tokens", "requests", "tokens"], TTL, "tokens"),
        "two limits of the layer have the policy `tokens`; costs are settled by the names of policies, so give each \
         limit its own policy"
    );
    for ttl in [Duration::ZERO, Duration::MAX] {
        assert!(error(&["tokens"], ttl, "tokens").starts_with("the time of a hold is"));
    }
}

/// Returns a layer whose ids are the idempotency keys of the requests.
fn by_key<S: Store>(limiter: &Limiter<S>) -> HoldLayer<S> {
    layer(limiter)
        .id_by(|request| request.headers.get("idempotency-key").map(|key| key.as_bytes().to_vec()))
}

fn with_key(key: &str, mut request: Request<Plan>) -> Request<Plan> {
    request.headers_mut().insert("idempotency-key", key.parse().unwrap());
    request
}

/// A client repeats a request that was refunded. The repetition does the work, so it is charged.
#[tokio::test]
async fn a_repetition_pays_what_the_first_request_did_not_pay() {
    let limiter = limiter(watched(Duration::ZERO), 1_000);
    let layer = by_key(&limiter);
    for (status, tokens, expected) in
        [(500, 9, [0, 0, 0]), (502, 9, [0, 0, 0]), (200, 40, [1, 40, 7]), (200, 40, [1, 40, 7])]
    {
        let request = plan(&[Tokens(tokens)], status, &[Sends(3), Sends(4)]);
        read(send(&layer, with_key("a", request)).await.unwrap().into_body()).await;
        assert_eq!(taken(&limiter).await, expected, "{status}");
    }
}

/// The server drops the body of the repetition before it has read the end.
#[tokio::test(start_paused = true)]
async fn a_repetition_whose_body_is_dropped_pays_what_the_first_request_did_not_pay() {
    for delay in [Duration::ZERO, Duration::from_millis(10)] {
        let limiter = limiter(watched(delay), 1_000);
        let layer = by_key(&limiter);
        for (status, expected) in [(500, [0, 0, 0]), (200, [1, 40, 7]), (200, [1, 40, 7])] {
            let request = plan(&[Tokens(40)], status, &[Sends(3), Sends(4)]);
            let response = send(&layer, with_key("a", request)).await.unwrap();
            let mut body = response.into_body();
            for _ in 0..2 {
                body.frame().await.unwrap().unwrap();
            }
            drop(body);
            limiter.guards_settled().await;
            assert_eq!(taken(&limiter).await, expected, "{status} {delay:?}");
        }
    }
}

/// Two requests with one id share a hold. If one of them disconnects, the other still pays.
#[tokio::test(start_paused = true)]
async fn a_request_that_disconnects_before_its_decision_does_not_cancel_a_hold_that_it_shares() {
    for wait in [0, 5, 15] {
        let limiter = limiter(watched(Duration::from_millis(10)), 1_000);
        let layer = by_key(&limiter);
        let request =
            || with_key("a", plan(&[Tokens(40)], 200, &[Sends(3), Sends(4), Step::Wait(0)]));
        let disconnect = async || {
            let wait = Duration::from_millis(wait);
            assert!(tokio::time::timeout(wait, send(&layer, request())).await.is_err());
            sleep(Duration::from_secs(1)).await;
        };
        disconnect().await;
        let response = send(&layer, request()).await.unwrap();
        disconnect().await;
        read(response.into_body()).await;
        assert_eq!(taken(&limiter).await, [1, 40, 7], "{wait}");
    }
}

#[tokio::test]
async fn a_request_with_the_id_of_an_earlier_one_is_charged_once() {
    let limiter = limiter(watched(Duration::ZERO), 1_000);
    let layer = by_key(&limiter);
    let request = |key: &str| with_key(key, plan(&[Tokens(40)], 200, &[Sends(3), Sends(4)]));
    let too_long = "k".repeat(300);
    for (key, expected) in [
        ("a", [1, 40, 7]),
        ("a", [1, 40, 7]),
        ("b", [2, 80, 14]),
        (&*too_long, [3, 120, 21]),
        (&*too_long, [3, 120, 21]),
        // An empty id is replaced by a random id.
        ("", [4, 160, 28]),
        ("", [5, 200, 35]),
    ] {
        let response = send(&layer, request(key)).await.unwrap();
        assert_eq!(response.status(), 200);
        read(response.into_body()).await;
        assert_eq!(taken(&limiter).await, expected, "{key}");
    }
    assert_eq!(limiter.store().as_layer().open(), 0);
}

#[test]
fn usage_counts_by_measures_and_ignores_others() {
    let usage = Usage::default();
    usage.add("tokens", 5);
    assert_eq!(usage.total("tokens"), None);
}

#[tokio::test]
async fn usage_can_be_set_and_is_shared_by_clones() {
    let limiter = limiter(watched(Duration::ZERO), 1_000);
    let layer = layer(&limiter);
    let handler = async |request: Request<()>| {
        let usage = Usage::from_extensions(request.extensions());
        assert_eq!(usage.total("tokens"), None);
        usage.add("tokens", 7);
        usage.add("rows", 7);
        usage.clone().set("tokens", 30);
        usage.add("tokens", 1);
        assert_eq!((usage.total("tokens"), usage.total("rows")), (Some(31), None));
        Ok::<_, Failed>(Response::new(PlannedBody::from(String::new())))
    };
    let mut service = layer.layer(tower::service_fn(handler));
    poll_fn(|context| Service::<Request<()>>::poll_ready(&mut service, context)).await.unwrap();
    let response = service.call(Request::new(())).await.unwrap();
    read(response.into_body()).await;
    assert_eq!(taken(&limiter).await, [1, 31, 0]);
}
