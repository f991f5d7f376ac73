//! Tests of the responses: fields, problems, and responses of the application.

use http::header::CONTENT_TYPE;
use tidegate_http::fields::{FieldFormat, FieldScope, ServerLimits};
use tidegate_http::server::{GrpcStatus, Limit, RateLimitLayer, Refusal, Respond};
use tidegate_http::subject::{Everybody, HashKey};
use tidegate_memory::StoreExt;
use tidegate_testkit::faults::{Fault, Faults};
use tower::Layer;

use super::*;

#[tokio::test]
async fn admissions_and_refusals_tell_the_limits() {
    let (limiter, clock) =
        limiter(&["user: token-bucket 1/10s burst 2", "all: fixed-window 100/1m"]);
    let (mut service, _) = limited(&limiter, [user("user"), Limit::by("all", Everybody)]);
    clock.advance(std::time::Duration::from_secs(30));
    let policies = r#""user";q=2;w=20, "all";q=100;w=60"#;
    for (status, values) in [
        (
            200,
            [("ratelimit", r#""user";r=1;t=10, "all";r=99;t=30"#), ("ratelimit-policy", policies)]
                .as_slice(),
        ),
        (
            200,
            &[("ratelimit", r#""user";r=0;t=10, "all";r=98;t=30"#), ("ratelimit-policy", policies)],
        ),
        (
            429,
            &[
                ("ratelimit", r#""user";r=0;t=10, "all";r=98"#),
                ("ratelimit-policy", policies),
                ("retry-after", "10"),
                ("content-type", "application/problem+json"),
            ],
        ),
    ] {
        let response = send(&mut service, request("/", &[("user", "a")])).await.unwrap();
        assert_eq!(head(&response), (status, values.iter().copied().collect()));
    }
}

/// Returns the partition keys of a response, in the order of its limits.
fn partition_keys(response: &Response<String>) -> Vec<Option<Vec<u8>>> {
    let announced = ServerLimits::read(response.headers(), std::time::SystemTime::now());
    announced.limits().iter().map(|limit| limit.partition_key().map(<[u8]>::to_vec)).collect()
}

#[tokio::test]
async fn a_partition_is_told_by_a_hash_that_is_one_for_a_subject_and_shows_nothing_of_it() {
    let policies = ["user: fixed-window 2/1m", "all: fixed-window 99/1m"];
    let key = |secret: &str| HashKey::new(secret).unwrap();
    let limits = |secret| [user("user").partition_key(key(secret)), Limit::by("all", Everybody)];
    let (limiter, _) = limiter(&policies);
    let (mut service, _) = limited(&limiter, limits("of these processes"));
    let mut told = vec![];
    for (user, status) in [("alice", 200), ("bob", 200), ("alice", 200), ("alice", 429)] {
        let response = send(&mut service, request("/", &[("user", user)])).await.unwrap();
        assert_eq!(response.status(), status);
        let [key, None] = &partition_keys(&response)[..] else { panic!("{response:?}") };
        told.push(key.clone().unwrap());
    }
    assert_eq!((told[0].len(), told[1].len()), (16, 16));
    assert_eq!((&told[2], &told[3]), (&told[0], &told[0]));
    assert_ne!(told[0], told[1]);

    // This store does not answer immediately. With the same secret, Bob's key is the same as
    // before. With another secret, it differs.
    let store = MemoryStore::new().layer(Faults::new(vec![Fault::Delayed; 2]));
    let late = Limiter::new(Arc::new(store), parse(&policies)).unwrap();
    for (secret, is_same) in [("of these processes", true), ("of another process", false)] {
        let (mut service, _) = limited(&late, limits(secret));
        let mut future = std::pin::pin!(send(&mut service, request("/", &[("user", "bob")])));
        assert!(poll_once(&mut future).is_none());
        Faults::deliver(late.store()).await;
        let response = future.await.unwrap();
        assert_eq!(partition_keys(&response)[0].as_ref() == Some(&told[1]), is_same);
    }
}

#[tokio::test]
async fn the_partition_of_a_tenant_is_not_that_of_a_subject_with_the_same_letters() {
    let (limiter, _) = limiter(&["user: fixed-window 9/1m"]);
    let tenant = from_fn(|request| request.headers.get("tenant").map(Subject::from));
    let limit = user("user").tenant_by(tenant).partition_key(HashKey::new([7; 16]).unwrap());
    let (mut service, _) = limited(&limiter, [limit]);
    let mut told = std::collections::HashSet::new();
    for (tenant, user) in [("ab", "c"), ("a", "bc"), ("a", "c")] {
        let fields = [("tenant", tenant), ("user", user)];
        let response = send(&mut service, request("/", &fields)).await.unwrap();
        told.insert(partition_keys(&response).remove(0).unwrap());
    }
    assert_eq!(told.len(), 3);
}

#[tokio::test]
async fn a_cost_above_the_limit_is_refused_without_a_time_to_retry() {
    let (limiter, _) = limiter(&["user: fixed-window 2/1m"]);
    let (mut service, _) = limited(&limiter, [user("user").cost(3)]);
    let response = send(&mut service, request("/", &[("user", "a")])).await.unwrap();
    assert_eq!(response.status(), 429);
    assert!(!response.headers().contains_key("retry-after"));
}

#[tokio::test]
async fn a_block_is_a_problem_of_its_own() {
    let (limiter, _) = limiter(&["user: fixed-window 1/1m block 10m"]);
    let (mut service, _) = limited(&limiter, [user("user")]);
    assert_eq!(status(&mut service, "/", "a").await, 200);
    let response = send(&mut service, request("/", &[("user", "a")])).await.unwrap();
    assert_eq!(response.status(), 429);
    assert_eq!(response.headers()["retry-after"], "600");
    assert!(response.body().contains("#abnormal-usage-detected"), "{}", response.body());
}

#[tokio::test]
async fn other_forms_of_fields_or_none_are_written() {
    let (limiter, _) = limiter(&["user: fixed-window 9/1m"]);
    let layer = RateLimitLayer::new(limiter, [user("user").unit("pages")]).unwrap();
    let expected = HashMap::from([
        ("x-ratelimit-limit", "9"),
        ("x-ratelimit-remaining", "8"),
        ("x-ratelimit-reset", "60"),
    ]);
    let mut service = layer.clone().fields(FieldFormat::XRateLimit).layer(Inner::default());
    let response = send(&mut service, request("/", &[("user", "a")])).await.unwrap();
    assert_eq!(head(&response).1, expected);

    let mut service = layer.clone().fields(FieldFormat::EnvoyDraft03).layer(Inner::default());
    let response = send(&mut service, request("/", &[("user", "b")])).await.unwrap();
    let expected = HashMap::from([
        ("x-ratelimit-limit", r#"9, 9;w=60;name="user""#),
        ("x-ratelimit-remaining", "8"),
        ("x-ratelimit-reset", "60"),
    ]);
    assert_eq!(head(&response).1, expected);

    let mut service = layer.clone().without_fields().layer(Inner::default());
    let response = send(&mut service, request("/", &[("user", "a")])).await.unwrap();
    assert!(response.headers().is_empty());

    let mut service = layer.fields(FieldFormat::Ietf11).layer(Inner::default());
    let response = send(&mut service, request("/", &[("user", "a")])).await.unwrap();
    assert_eq!(response.headers()["ratelimit-policy"], r#""user";q=9;qu="pages";w=60"#);
}

#[tokio::test]
async fn a_layer_with_more_than_four_limits_names_the_tightest_of_each_unit() {
    let names = ["a", "b", "c", "d", "pages"];
    let policies = names.map(|name| format!("{name}: fixed-window {}/1m", 10 + name.len()));
    let (limiter, _) = limiter(&policies.each_ref().map(String::as_str));
    let limits = names.map(|name| match name {
        "pages" => user(name).unit("pages").cost(7),
        "c" => user(name).cost(2),
        _ => user(name),
    });
    let layer = RateLimitLayer::new(limiter, limits).unwrap();
    let mut service = layer.clone().layer(Inner::default());
    let response = send(&mut service, request("/", &[("user", "a")])).await.unwrap();
    assert_eq!(response.headers()["ratelimit"], r#""c";r=9;t=60, "pages";r=8;t=60"#);
    let policies = r#""c";q=11;w=60, "pages";q=15;qu="pages";w=60"#;
    assert_eq!(response.headers()["ratelimit-policy"], policies);

    let mut service = layer.field_scope(FieldScope::All).layer(Inner::default());
    let response = send(&mut service, request("/", &[("user", "a")])).await.unwrap();
    let field = response.headers()["ratelimit"].to_str().unwrap();
    assert_eq!(field.matches(";r=").count(), 5, "{field}");
}

#[tokio::test]
async fn each_of_two_layers_tells_its_limits() {
    let (limiter, _) = limiter(&["user: fixed-window 9/1m", "all: fixed-window 5/1m"]);
    let inside = RateLimitLayer::new(limiter.clone(), [user("user")]).unwrap();
    let outside = RateLimitLayer::new(limiter, [Limit::by("all", Everybody)]).unwrap();
    let mut service = outside.layer(inside.layer(Inner::default()));
    let response = send(&mut service, request("/", &[("user", "a")])).await.unwrap();
    let lines: Vec<_> = response.headers().get_all("ratelimit").iter().collect();
    assert_eq!(lines, [r#""user";r=8;t=60"#, r#""all";r=4;t=60"#]);
}

#[tokio::test]
async fn the_application_answers_in_its_own_words_and_the_fields_are_added() {
    let (limiter, _) = limiter(&["user: fixed-window 1/1m"]);
    let layer = RateLimitLayer::new(limiter, [user("user")]).unwrap();
    let layer = layer.respond_with(|refusal: &Refusal<'_>| {
        let names: Vec<_> = refusal
            .verdicts()
            .filter(|verdict| verdict.refuses())
            .map(|verdict| verdict.name())
            .collect();
        let path = refusal.request().uri.path();
        let wait = refusal.retry_after().unwrap();
        Response::builder()
            .status(420)
            .header(CONTENT_TYPE, "text/plain")
            .body(format!("{path}: {names:?}, {wait:?}, not {}", refusal.status()))
            .unwrap()
    });
    let mut service = layer.layer(Inner::default());
    assert_eq!(status(&mut service, "/", "a").await, 200);
    let response = send(&mut service, request("/x", &[("user", "a")])).await.unwrap();
    assert_eq!(response.body(), r#"/x: ["user"], 60s, not 429 Too Many Requests"#);
    let (status, fields) = head(&response);
    assert_eq!((status, fields["retry-after"], fields["content-type"]), (420, "60", "text/plain"));
    assert_eq!(fields["ratelimit"], r#""user";r=0;t=60"#);
}

#[tokio::test]
async fn grpc_is_answered_with_a_status_of_its_own() {
    let (limiter, _) = limiter(&["user: token-bucket 1/1s"]);
    let layer = RateLimitLayer::new(limiter, [user("user")]).unwrap().respond(GrpcStatus);
    let mut service = layer.layer(Inner::default());
    assert_eq!(status(&mut service, "/", "a").await, 200);
    let response = send(&mut service, request("/", &[("user", "a")])).await.unwrap();
    let (status, fields) = head(&response);
    assert_eq!((status, response.body().as_str()), (200, ""));
    assert_eq!((fields["content-type"], fields["grpc-status"]), ("application/grpc", "8"));
    assert_eq!((fields["grpc-retry-pushback-ms"], fields["retry-after"]), ("1000", "1"));
    let response = send(&mut service, request("/", &[])).await.unwrap();
    assert_eq!(head(&response).1["grpc-status"], "3");
    assert!(!response.headers().contains_key("grpc-retry-pushback-ms"));
}

/// Checks that the layer implements `Clone` even if the store and the responder do not.
#[test]
fn a_layer_is_clone_send_and_sync_whatever_it_is_made_of() {
    struct Once;
    impl<B: Default> Respond<B> for Once {
        fn respond(&self, _: &Refusal<'_>) -> Response<B> {
            Response::default()
        }
    }
    fn check<T: Clone + Send + Sync + 'static>(_: T) {}
    fn check_future<T: Send + 'static>(_: T) {}
    let (limiter, _) = limiter(&["user: fixed-window 1/1m"]);
    let layer = RateLimitLayer::new(limiter, [user("user")]).unwrap().respond(Once);
    check(layer.clone());
    let mut service = layer.layer(Inner::default());
    check(service.clone());
    let _ = service.poll_ready(&mut Context::from_waker(Waker::noop()));
    check_future(service.call(request("/", &[])));
}
