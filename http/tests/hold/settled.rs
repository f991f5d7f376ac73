//! Tests of the costs of requests that are answered.

use super::*;
use Step::{Bytes as Sends, Fail, Tokens, Trailers, Wait};
use tidegate_http::server::GrpcStatus;

#[tokio::test(start_paused = true)]
async fn a_response_costs_what_it_used() {
    // The handler reports its usage before or after the head of the response, once or several
    // times, with or without a body, and once above the estimate.
    for (before, after, expected) in [
        (vec![Tokens(40)], vec![Sends(10)], [1, 40, 10]),
        (vec![], vec![Tokens(7), Sends(3), Tokens(8), Sends(4)], [1, 15, 7]),
        (vec![Tokens(1)], vec![Sends(5), Tokens(2), Trailers], [1, 3, 5]),
        (vec![Tokens(0)], vec![], [1, 0, 0]),
        (vec![Tokens(250)], vec![Sends(2_000), Sends(1)], [1, 250, 2_001]),
        // Nothing was reported, so the cost is the estimate.
        (vec![], vec![Sends(1), Wait(5)], [1, 100, 1]),
    ] {
        let store = watched(Duration::ZERO);
        let limiter = limiter(Arc::clone(&store), 10_000);
        let response = send(&layer(&limiter), plan(&before, 200, &after)).await.unwrap();
        if !response.body().is_end_stream() {
            assert_eq!(taken(&limiter).await, [1, 100, 1_000], "{before:?}, {after:?}");
        }
        let (bytes, error) = read(response.into_body()).await;
        assert_eq!((bytes as u64, error), (expected[2], None));
        assert_eq!(taken(&limiter).await, expected, "{before:?}, {after:?}");
        assert_eq!((store.as_layer().open(), store.as_layer().count(Operation::Settle)), (0, 1));
    }
}

#[tokio::test]
async fn a_refunded_response_costs_nothing_at_once() {
    let limiter = limiter(watched(Duration::ZERO), 10_000);
    let response = send(&layer(&limiter), plan(&[Tokens(40)], 503, &[Sends(10)])).await.unwrap();
    assert_eq!(taken(&limiter).await, [0, 0, 0]);
    assert_eq!(read(response.into_body()).await, (10, None));
    assert_eq!(
        send(&layer(&limiter), plan(&[Tokens(9), Fail], 200, &[])).await.err(),
        Some(Failed)
    );
    assert_eq!(taken(&limiter).await, [0, 0, 0]);
    assert_eq!(limiter.store().as_layer().open(), 0);
}

#[tokio::test]
async fn a_limit_without_refund_keeps_what_was_used() {
    let limiter = limiter(watched(Duration::ZERO), 10_000);
    let limits =
        [Limit::by("requests", Everybody).without_refund(), Limit::by("tokens", Everybody)];
    let layer = RateLimitLayer::new(limiter.clone(), limits).unwrap().refund_server_errors();
    let layer = layer.hold_for(TTL, [("tokens", ActualCost::usage("tokens"))]).unwrap();
    send(&layer, plan(&[Tokens(40)], 500, &[])).await.unwrap();
    assert_eq!(taken(&limiter).await, [1, 0, 0]);
}

#[tokio::test]
async fn a_cost_by_the_head_is_settled_before_the_response_is_returned() {
    let limiter = limiter(watched(Duration::ZERO), 10_000);
    let cost = ActualCost::by_response(|head| (head.status == 404).then_some(3));
    let limits = [Limit::by("tokens", Everybody).cost(100)];
    let layer = RateLimitLayer::new(limiter.clone(), limits).unwrap();
    let layer = layer.hold_for(TTL, [("tokens", cost)]).unwrap();
    let _response = send(&layer, plan(&[], 404, &[Sends(10), Wait(1)])).await.unwrap();
    assert_eq!(taken(&limiter).await, [0, 3, 0]);
    let _response = send(&layer, plan(&[], 200, &[Sends(10), Wait(1)])).await.unwrap();
    assert_eq!(taken(&limiter).await, [0, 103, 0]); // the estimate
    assert_eq!(limiter.store().as_layer().open(), 0);
}

#[tokio::test]
async fn the_fields_tell_what_is_left_after_the_estimate() {
    let limiter = limiter(watched(Duration::ZERO), 250);
    let layer = layer(&limiter);
    let response = send(&layer, plan(&[Tokens(5)], 200, &[Sends(10), Wait(1)])).await.unwrap();
    let field = response.headers()["ratelimit"].to_str().unwrap();
    assert!(field.contains(r#""tokens";r=150;"#), "{field}");
    drop(response);
    let second = send(&layer, plan(&[Tokens(5)], 200, &[Sends(10), Wait(1)])).await.unwrap();
    let field = second.headers()["ratelimit"].to_str().unwrap();
    assert!(field.contains(r#""tokens";r=145;"#), "{field}");
    let third = send(&layer, plan(&[], 200, &[Sends(1), Wait(1)])).await.unwrap();
    assert_eq!(third.status(), 200);
    // 205 of 250 tokens are charged: 5 for the first request, and 100 for each of the two open
    // requests, their estimate. The next request does not fit into the remaining 45.
    let refused = send(&layer, plan(&[Tokens(900)], 200, &[])).await.unwrap();
    assert_eq!(refused.status(), 429);
    assert!(refused.headers().contains_key("retry-after"));
    assert_eq!(taken(&limiter).await[1], 205); // nothing for the refused request
    drop((second, third));
    // The first two requests used 5 tokens each. The third request was cut and reported nothing, so
    // it costs its estimate of 100.
    assert_eq!(taken(&limiter).await[1], 110);
}

#[tokio::test]
async fn an_estimate_above_the_share_of_a_hold_is_refused() {
    let store = watched(Duration::ZERO);
    let policy: Policy = "tokens: fixed-window 1000/1h max-hold 1/4".parse().unwrap();
    let limiter = Limiter::new(store, [policy]).unwrap();
    for (estimate, status) in [(250, 200), (251, 429), (u64::MAX, 429)] {
        let limits = [Limit::by("tokens", Everybody).cost(estimate)];
        let layer = RateLimitLayer::new(limiter.clone(), limits).unwrap();
        let layer = layer.hold_for(TTL, [("tokens", ActualCost::usage("tokens"))]).unwrap();
        let response = send(&layer, plan(&[Tokens(0)], 200, &[])).await.unwrap();
        assert_eq!(response.status(), status, "{estimate}");
        assert!(!response.headers().contains_key("retry-after"), "{estimate}");
    }
}

#[tokio::test]
async fn trailers_and_the_length_of_a_body_are_passed_on() {
    let limiter = limiter(watched(Duration::ZERO), 1_000);
    let response = send(&layer(&limiter), plan(&[], 200, &[Sends(2), Trailers])).await.unwrap();
    let mut body = response.into_body();
    assert_eq!(body.size_hint().exact(), Some(4711));
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap().len(), 2);
    assert!(body.frame().await.unwrap().unwrap().is_trailers());
    // A server does not poll a body again after its trailers.
    drop(body);
    assert_eq!(taken(&limiter).await, [1, 100, 2]);
}

#[tokio::test]
async fn an_exempt_request_has_no_hold() {
    let limiter = limiter(watched(Duration::ZERO), 1_000);
    let limits = [Limit::by("tokens", Everybody).cost(100)];
    let layer = RateLimitLayer::new(limiter.clone(), limits).unwrap().exempt_path("/");
    let layer = layer.hold_for(TTL, [("tokens", ActualCost::usage("tokens"))]).unwrap();
    let response = send(&layer, plan(&[Tokens(40)], 200, &[Sends(2)])).await.unwrap();
    assert_eq!(read(response.into_body()).await, (2, None));
    assert_eq!(taken(&limiter).await, [0, 0, 0]);
}

#[tokio::test]
async fn a_plan_of_the_request_is_held_and_settled() {
    let limiter = limiter(watched(Duration::ZERO), 1_000);
    let larger: Policy = "tokens: fixed-window 5000/1h".parse().unwrap();
    let limits =
        [Limit::by("tokens", Everybody).cost(3_000).policy_by(|request| request.extensions.get())];
    let layer = RateLimitLayer::new(limiter.clone(), limits).unwrap();
    let layer = layer.hold_for(TTL, [("tokens", ActualCost::usage("tokens"))]).unwrap();
    let mut request = plan(&[Tokens(20)], 200, &[]);
    assert_eq!(send(&layer, request.clone()).await.unwrap().status(), 429);
    request.extensions_mut().insert(larger);
    assert_eq!(send(&layer, request).await.unwrap().status(), 200);
    assert_eq!(taken(&limiter).await, [0, 20, 0]);
}

#[tokio::test]
async fn a_rule_for_refunds_sees_the_response_before_the_fields_are_added() {
    let limiter = limiter(watched(Duration::ZERO), 1_000);
    let layer =
        RateLimitLayer::new(limiter.clone(), [Limit::by("tokens", Everybody).cost(100)]).unwrap();
    let layer = layer.refund_when(|response| !response.headers.contains_key("ratelimit"));
    let layer = layer.hold_for(TTL, [("tokens", ActualCost::usage("tokens"))]).unwrap();
    let response = send(&layer, plan(&[Tokens(20)], 200, &[])).await.unwrap();
    assert!(response.headers().contains_key("ratelimit"));
    assert_eq!(taken(&limiter).await, [0, 0, 0]);
}

#[test]
fn a_held_request_takes_few_allocations() {
    let store = MemoryStore::builder().clock(ManualClock::default()).build();
    let limiter = limiter(store, 1_000_000);
    let layer = layer(&limiter);
    let mut service = layer.layer(Handler);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let _guard = runtime.enter();
    // The first request may need any number of allocations, because it creates the states.
    for most in [u64::MAX, 34] {
        let request = Request::new(());
        let counted = allocation_counter::measure(|| {
            let mut sent = std::pin::pin!(service.call(request));
            let mut context = Context::from_waker(std::task::Waker::noop());
            let Poll::Ready(Ok(response)) = sent.as_mut().poll(&mut context) else {
                panic!("the store and the handler answer immediately");
            };
            let mut body = std::pin::pin!(response.into_body());
            while let Poll::Ready(Some(_)) = body.as_mut().poll_frame(&mut context) {}
        });
        assert!(counted.count_total <= most, "{} allocations", counted.count_total);
    }
}

/// A service that allocates nothing for its response.
#[derive(Clone)]
struct Handler;

impl Service<Request<()>> for Handler {
    type Response = Response<PlannedBody>;
    type Error = Failed;
    type Future = std::future::Ready<Result<Self::Response, Failed>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Failed>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<()>) -> Self::Future {
        let usage = Usage::from_extensions(request.extensions());
        usage.add("tokens", 7);
        let steps = VecDeque::new();
        let body = PlannedBody { steps, usage, waiting: None, knows_its_end: false };
        std::future::ready(Ok(Response::new(body)))
    }
}

#[tokio::test(start_paused = true)]
async fn slots_are_held_until_the_body_has_ended_or_is_dropped() {
    let policies = ["tokens: fixed-window 10000/1h", "slots: concurrent 1 lease 5m"];
    let policies = policies.map(|text| text.parse::<Policy>().unwrap());
    let limiter = Limiter::new(watched(Duration::ZERO), policies).unwrap();
    let limits = [Limit::by("tokens", Everybody).cost(100), Limit::by("slots", Everybody)];
    let costs = [("tokens", ActualCost::usage("tokens"))];
    let layer = RateLimitLayer::new(limiter.clone(), limits).unwrap();
    let layer = layer.hold_for(TTL, costs).unwrap();
    let request = || plan(&[], 200, &[Tokens(7), Sends(1)]);
    for is_read in [true, false] {
        let response = send(&layer, request()).await.unwrap();
        assert_eq!(response.status(), 200);
        let refused = send(&layer, request()).await.unwrap();
        assert_eq!((refused.status().as_u16(), refused.headers().get("retry-after")), (429, None));
        if is_read {
            assert_eq!(read(response.into_body()).await, (1, None));
        } else {
            drop(response);
        }
        limiter.guards_settled().await;
    }
    let peek = limiter.subject("").cost(0).peek().await.unwrap();
    let [tokens, slots] = peek.verdicts() else { panic!("{peek:?}") };
    assert_eq!((10_000 - tokens.remaining(), slots.remaining()), (107, 1));
}

/// With a negative pushback, a client would never retry, although a slot is soon free.
#[tokio::test(start_paused = true)]
async fn a_client_of_grpc_retries_by_its_own_backoff_if_only_slots_refuse() {
    for (policies, pushback) in [
        (["tokens: fixed-window 9/1h", "slots: concurrent 1 lease 5m"], None),
        (["tokens: fixed-window 0/1h", "slots: concurrent 1 lease 5m"], Some("-1")),
        (["tokens: fixed-window 1/1h", "slots: concurrent 1 lease 5m"], None),
        (["tokens: fixed-window 1/1h", "slots: concurrent 2 lease 5m"], Some("3600000")),
    ] {
        let limiter = Limiter::new(
            watched(Duration::ZERO),
            policies.map(|text| text.parse::<Policy>().unwrap()),
        );
        let limits = ["tokens", "slots"].map(|name| Limit::by(name, Everybody));
        let layer = RateLimitLayer::new(limiter.unwrap(), limits).unwrap();
        let layer = layer.respond(GrpcStatus).hold_for(TTL, []).unwrap();
        let request = || plan(&[], 200, &[Sends(1), Wait(9)]);
        let _first = send(&layer, request()).await.unwrap();
        let refused = send(&layer, request()).await.unwrap();
        let fields = refused.headers();
        assert_eq!(fields["grpc-status"], "8");
        let given = fields.get("grpc-retry-pushback-ms").map(|value| value.to_str().unwrap());
        assert_eq!(given, pushback, "{policies:?}");
    }
}

/// A gRPC server sends the status of a call in the trailers.
#[tokio::test(start_paused = true)]
async fn slots_are_held_until_the_trailers_are_sent() {
    let slots: Policy = "slots: concurrent 1 lease 5m".parse().unwrap();
    let limiter = Limiter::new(watched(Duration::ZERO), [slots]).unwrap();
    let layer = RateLimitLayer::new(limiter.clone(), [Limit::by("slots", Everybody)]).unwrap();
    let layer = layer.hold_for(TTL, []).unwrap();
    let request = || plan(&[], 200, &[Sends(1), Trailers]);
    let mut body = send(&layer, request()).await.unwrap().into_body();
    assert!(body.frame().await.unwrap().unwrap().is_data());
    assert_eq!(send(&layer, request()).await.unwrap().status(), 429);
    assert!(body.frame().await.unwrap().unwrap().is_trailers());
    drop(body);
    limiter.guards_settled().await;
    assert_eq!(send(&layer, request()).await.unwrap().status(), 200);
}

/// A stream can take longer than the lease, because the layer renews the slots until its end.
#[tokio::test(start_paused = true)]
async fn the_slots_of_a_long_response_are_renewed() {
    let store = MemoryStore::builder().clock(tidegate_memory::core::TokioClock::new()).build();
    let slots: Policy = "slots: concurrent 1 lease 3s".parse().unwrap();
    let limiter = Limiter::new(store, [slots]).unwrap();
    let layer = RateLimitLayer::new(limiter.clone(), [Limit::by("slots", Everybody)]).unwrap();
    let layer = layer.hold_for(TTL, []).unwrap();
    let response = send(&layer, plan(&[], 200, &[Sends(1)])).await.unwrap();
    for second in 1..60 {
        sleep(Duration::from_secs(1)).await;
        let refused = send(&layer, plan(&[], 200, &[Sends(1)])).await.unwrap();
        assert_eq!(refused.status(), 429, "after {second} s");
    }
    drop(response);
    limiter.guards_settled().await;
    let next = send(&layer, plan(&[], 200, &[Sends(1)])).await.unwrap();
    assert_eq!(next.status(), 200);
}
